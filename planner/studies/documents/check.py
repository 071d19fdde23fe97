"""The answer of `dpplan check`."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.formats.documents.read import Recipe, Term
from planner.specs.document import Document, key
from planner.specs.documents.estimate import Estimate, Line


class StepTimes(Document):
    """Steps of a log, with outliers apart from the rest."""

    lines: Annotated[int, key("lines of steps that were read")]
    steady: Annotated[int, key("of them, used for the numbers below")]
    warm_up: Annotated[int, key("of them, at the beginning, before the time settles")]
    checkpoint: Annotated[int, key("of them, longer ones right after a checkpoint")]
    evaluation: Annotated[int, key("of them, longer ones right after an evaluation")]
    stalled: Annotated[int, key("of them, longer than 1.5 times the middle for no stated reason")]
    seconds: Annotated[float, key("middle (median) of the steady steps", "s")]
    low: Annotated[float, key("below which a tenth of the steady steps is", "s")]
    high: Annotated[float, key("above which a tenth of the steady steps is", "s")]
    spread_frac: Annotated[
        float, key("their spread over the middle: 1.48 times the median deviation", "1")
    ]
    drift_frac: Annotated[
        float, key("middle of the last third over that of the first third, minus 1", "1")
    ]
    lost_frac: Annotated[
        float, key("share of all time that longer steps took beyond the middle, warm-up apart", "1")
    ]
    loading_s: Annotated[float | None, key("of a step spent waiting for data; null: not logged")]
    phases: Annotated[
        dict[str, float],
        key("middles of parts of the step by the names of `dpplan rl`; empty: not logged", "s"),
    ]


class Flops(Document):
    """FLOP/s that a log prints, and whose count they are."""

    tflops: Annotated[float, key("as printed, of one GPU", "TFLOP/s")]
    said: Annotated[str, key("how the program that wrote it counts")]
    nearest: Annotated[str, key("count that comes nearest to it in the recipe that was given")]
    ratio: Annotated[float, key("printed over that count at the measured step time", "1")]


class Shortage(Document):
    """A message that memory ran out."""

    asked_bytes: Annotated[float, key("requested; 0: the message has no size", "B")]
    missing_bytes: Annotated[float | None, key("of them more than the GPU had free", "B")]
    reserved_free_bytes: Annotated[
        float | None, key("reserved by torch's allocator and held by no tensor", "B")
    ]
    allocated_bytes: Annotated[float | None, key("held by tensors before", "B")]
    free_bytes: Annotated[float | None, key("free on the GPU", "B")]
    process_bytes: Annotated[float | None, key("of the GPU that the process held", "B")]
    capacity_bytes: Annotated[float | None, key("of the GPU, as torch counts", "B")]
    gpus: Annotated[int, key("messages alike, of other GPUs or repeated")]
    phase: Annotated[str, key("of the step, by the traceback before it; empty: unknown")]
    term: Annotated[
        str | None, key("component of memory that asked; null: none that a recipe tells")
    ]
    why: Annotated[str, key("what ran out, as a sentence")]
    remedy: Annotated[str, key("the cheapest change to try, as a sentence")]


class LargerCard(Document):
    """The smallest card on which the recipe as it is would fit."""

    gpu: Annotated[str, key("profile id")]
    title: Annotated[str, key("name for people")]
    verdict: Annotated[str, key("as `memory.verdict`")]
    capacity_bytes: Annotated[float, key("that a framework can allocate on it", "B")]
    device_bytes: Annotated[float, key("that the recipe needs there", "B")]
    step_seconds: Annotated[float, key("step time there", "s")]
    usd_per_hour: Annotated[float | None, key("of all GPUs; null: no price is known", "USD/h")]
    command: Annotated[str, key("the command that estimates it")]


Cause = Literal["need", "fragmentation", "others", "unexplained"]


class OutOfMemory(Document):
    """Why a run ran out of memory, by its message and its recipe."""

    cause: Annotated[
        Cause,
        key(
            "need: the recipe needs more than there is; fragmentation: free pieces were too small;"
            " others: other processes hold memory; unexplained: the recipe as read fits"
        ),
    ]
    at: Annotated[
        Literal["load", "step"] | None,
        key("while weights were loaded or in a step; null: the message does not tell"),
    ]
    needed_bytes: Annotated[float, key("of a GPU, by the recipe", "B")]
    missing_bytes: Annotated[float, key("of them more than a GPU has", "B")]
    terms: Annotated[list[Term], key("largest parts of the fullest GPU, the largest first")]
    changes: Annotated[
        list[Recipe], key("evaluated changes that make it fit on the same GPUs, the cheapest first")
    ]
    card: Annotated[
        LargerCard | None,
        key("where no change keeps half of the speed; null else, or where no card is enough"),
    ]
    elsewhere: Annotated[
        str | None, key("the command that finds methods and cards where neither is; null else")
    ]
    says: Annotated[str, key("the cause as a sentence")]


class TraceLine(Document):
    """One part of the step: as predicted, and as a profiler recorded it."""

    name: Annotated[str, key("kernels of a class, communication, or idle time")]
    measured_s: Annotated[float, key("of one step", "s")]
    predicted_s: Annotated[float | None, key("of one step; null without a recipe", "s")]
    kernels: Annotated[int | None, key("of one step; null: no kernels")]
    wrong: Annotated[bool, key("beyond 15 % of the prediction and 2 % of the step")]
    says: Annotated[str, key("what the line holds")]


class TraceTimes(Document):
    """Times of kernels on one GPU during a profile."""

    steps: Annotated[int, key("steps recorded; 1 where the recording does not mark them")]
    seconds: Annotated[float, key("from the first to the last kernel, over the steps", "s")]
    lines: Annotated[list[TraceLine], key("parts of the step, in the order of the ledger")]
    first_wrong: Annotated[
        str | None, key("the first line that is wrong; null: none, or no recipe")
    ]
    collectives: Annotated[dict[str, float], key("kernels of communication by kind, a step", "s")]
    longest: Annotated[dict[str, float], key("the kernels that take longest, a step", "s")]
    gaps: Annotated[int, key("pauses between kernels of a step")]


class HeldLine(Document):
    """One component of memory."""

    name: Annotated[str, key("as `memory.components`; of others a name without it")]
    measured_bytes: Annotated[float, key("held when the snapshot was taken", "B")]
    predicted_bytes: Annotated[float | None, key("at the peak; null: no such component", "B")]


class SnapshotBytes(Document):
    """Memory of one GPU as its allocator recorded it."""

    reserved_bytes: Annotated[float, key("of the allocator", "B")]
    allocated_bytes: Annotated[float, key("held by tensors", "B")]
    reserved_free_bytes: Annotated[float, key("reserved and held by none", "B")]
    largest_free_bytes: Annotated[float, key("largest piece of that in one", "B")]
    peak_bytes: Annotated[float, key("highest held by tensors in the recording", "B")]
    segments: Annotated[int, key("pieces that were reserved")]
    held: Annotated[list[HeldLine], key("by component, read from the stacks; largest first")]


class Checked(Document):
    """One file."""

    name: Annotated[str, key("its name, without folders")]
    kind: Annotated[str, key("log, trace, snapshot, runs or prediction")]
    program: Annotated[str, key("that wrote it")]
    partly: Annotated[str, key("the part that was read; empty: all")]
    steps: Annotated[StepTimes | None, key("of a log; null without steps or a batch")]
    tokens_per_s: Annotated[float | None, key("of the job, at the middle step", "tokens/s")]
    flops: Annotated[Flops | None, key("null: none printed, or no recipe")]
    memory: Annotated[
        dict[str, float], key("highest of a rank that was printed: allocated, reserved", "B")
    ]
    shortages: Annotated[list[Shortage], key("messages that memory ran out, the first first")]
    trace: Annotated[TraceTimes | None, key("of a profiler's trace")]
    snapshot: Annotated[SnapshotBytes | None, key("of a memory snapshot")]
    notes: Annotated[list[str], key("what else to know of the file, as sentences")]


class Reason(Document):
    """A number that would explain the whole difference by itself if it had another value."""

    name: Annotated[str, key("clock, network, ...")]
    factor: Annotated[
        float | None, key("of the assumed number; null: no value of it explains the time", "1")
    ]
    spreads: Annotated[
        float | None, key("that far from what is usual, in standard deviations of its logarithm")
    ]
    component_s: Annotated[float, key("that the prediction gives it in the step", "s")]
    says: Annotated[str, key("as a sentence")]
    measure: Annotated[str, key("what to measure next, a command or a setting")]


class Against(Document):
    """Measurement beside the prediction for the recipe."""

    measured_s: Annotated[float, key("middle step of the logs", "s")]
    predicted_s: Annotated[float, key("expected step", "s")]
    low: Annotated[float, key("lower end of the 80 % band", "s")]
    high: Annotated[float, key("upper end of the 80 % band", "s")]
    ratio: Annotated[float, key("measured over predicted", "1")]
    verdict: Annotated[str, key("inside the band, slower than it or faster than it")]
    memory: Annotated[
        dict[str, float], key("measured over predicted, of memory allocated and reserved", "1")
    ]
    memory_verdict: Annotated[
        str | None,
        key("whether runs like it are off by as much, as a sentence; null: none was printed"),
    ]
    reasons: Annotated[list[Reason], key("the most likely first")]


class PhaseTime(Document):
    """One phase of a step of reinforcement learning: as a log prints it, and as predicted."""

    name: Annotated[str, key("as `dpplan rl` names it, with + between those that are timed as one")]
    measured_s: Annotated[float | None, key("middle of the logs; null: not logged", "s")]
    predicted_s: Annotated[float | None, key("expected; null: not predicted", "s")]
    low: Annotated[float | None, key("lower end of its band", "s")]
    high: Annotated[float | None, key("upper end of its band", "s")]
    inside: Annotated[bool | None, key("whether the measured is within it; null: one is missing")]


class Phases(Document):
    """Steps of reinforcement learning against the answer of `dpplan rl`."""

    measured_s: Annotated[float, key("middle step of the logs", "s")]
    predicted_s: Annotated[float, key("expected step", "s")]
    low: Annotated[float, key("lower end of its band", "s")]
    high: Annotated[float, key("upper end of its band", "s")]
    ratio: Annotated[float, key("measured over predicted", "1")]
    verdict: Annotated[str, key("inside the band, slower than it or faster than it")]
    lines: Annotated[list[PhaseTime], key("phases in the order of the log, then those not logged")]


class LearnedNumber(Document):
    """A number of the machine as the runs have it."""

    name: Annotated[str, key("clock, network, ...")]
    where: Annotated[str, key("profile and field that the calibration replaces")]
    factor: Annotated[float, key("of the profile's value", "1")]
    spread: Annotated[float, key("standard deviation of its logarithm, afterwards")]
    prior: Annotated[float, key("the same before any run was seen")]


class NextRun(Line):
    """The layout whose run would narrow the predictions of this cluster most."""

    tells: Annotated[str, key("the number of the machine that it would narrow most")]
    error_now: Annotated[
        float, key("expected error of the fastest layouts of the model with this calibration", "1")
    ]
    error_after: Annotated[float, key("the same with this run, too", "1")]


class Learned(Document):
    """A calibration from logs."""

    runs: Annotated[int, key("runs it rests on")]
    gpu: Annotated[str, key("profile id of the GPU")]
    stack: Annotated[str, key("profile id of the stack")]
    numbers: Annotated[list[LearnedNumber], key("that moved, and those that could have")]
    before: Annotated[float, key("mean error of the step time of these runs, before", "1")]
    after: Annotated[float, key("the same with the calibration", "1")]
    notes: Annotated[list[str], key("limits of the comparison, as sentences")]
    calibration: Annotated[str, key("the file that `--save` writes, TOML")]
    next_run: Annotated[
        NextRun | None,
        key("run to make next; null where no other layout fits or the request cannot be opened"),
    ]


class Check(Document):
    """Contents of logs and recordings, beside the prediction."""

    schema_version: Annotated[int, key("1")]
    files: Annotated[list[Checked], key("in the order given")]
    against: Annotated[Against | None, key("null without a recipe or without steps")]
    out_of_memory: Annotated[
        OutOfMemory | None, key("null without a recipe or without a message that memory ran out")
    ]
    reinforcement: Annotated[
        Phases | None,
        key("steps of reinforcement learning; null without an answer of `dpplan rl --json`"),
    ]
    learned: Annotated[
        Learned | None, key("the calibration of `--save`; null without. The API always makes it")
    ]
    row: Annotated[
        dict[str, str] | None,
        key("columns of a runs table, as `--append` writes; null without. The API always makes it"),
    ]
    prediction: Annotated[Estimate | None, key("of the recipe; null without one")]
    notes: Annotated[
        list[str], key("files that are not used, and why a requested result is null, as sentences")
    ]
