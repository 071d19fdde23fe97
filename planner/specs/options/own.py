"""Options of single verbs, beside the options of a request.

Long: a record per verb, with a line per word that the command line or a page shows of an option.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.specs.names import Kind
from planner.specs.options import aliases
from planner.specs.options.cluster import ModelOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option
from planner.specs.options.verbs import REQUESTS

OUTPUT = Group("output", "Output")
WORK = Group("work", "Work")
_PAYS = "More GPUs stop paying where one of them adds less than this share of what one adds at the"


@dataclass(frozen=True, kw_only=True)
class Shared(Record):
    """Who shares the work."""

    GROUP: ClassVar = WORK

    jobs: Annotated[
        int | None,
        option(
            "Worker processes of this machine",
            group=WORK,
            least=1,
            most=1024,
            example="2",
            unset="cores of this machine, 8 at most",
        ),
    ] = None
    dask: Annotated[
        str | None,
        option(
            "Address of a Dask scheduler, whose workers share the work (extra `dask`)",
            group=WORK,
            example="tcp://10.0.0.1:8786",
            unset="processes of this machine",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Output(Record):
    """How a command answers."""

    GROUP: ClassVar = OUTPUT

    json: Annotated[bool, option("Print one JSON document on stdout")] = False
    plain: Annotated[bool, option("Print ASCII tables, as when piped")] = False


@dataclass(frozen=True, kw_only=True)
class ScenarioFile(Record):
    """Where options come from that are not on the command line."""

    GROUP: ClassVar = ModelOptions.GROUP
    VERBS: ClassVar = REQUESTS | {"export"}  # which takes what estimate takes

    scenario: Annotated[
        str | None,
        option(
            "TOML, YAML or JSON file with options as keys (dpplan schema); options given here win",
            file="read",
            example="scenario.toml",
            brief=True,
        ),
    ] = None

    recipe: Annotated[
        tuple[str, ...],
        option(
            "Launch script or configuration of another program (dpplan read), or a measured run"
            " (RUNS.csv:ID); options of a scenario and those given here win",
            file="read",
            example="train.sh",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ReadOptions(Record):
    GROUP: ClassVar = OUTPUT

    files: Annotated[
        tuple[str, ...],
        option(
            "Files of one recipe: launch script, arguments, YAML, TOML or JSON; or a measured run"
            " (RUNS.csv:ID); options given here win",
            file="read",
            argument="FILE...",
            example="train.sh",
        ),
    ]
    full: Annotated[bool, option("List every argument, too")] = False
    append: Annotated[
        str | None,
        option(
            "Add the recipe to this runs table as a run without a result, for you to fill in",
            file="written",
            example="my-runs.csv",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class EstimateOptions(Record):
    GROUP: ClassVar = OUTPUT

    part: Annotated[
        Literal["memory", "time"] | None,
        option(
            "After --explain: this part alone, memory by stage and phase; a model is named by"
            " --model, and a switch takes no value",
            argument="[memory|time]",
            example="memory",
        ),
    ] = None
    explain: Annotated[bool, option("Print the tree of formulas with numbers and sources")] = False
    trace: Annotated[
        str | None,
        option(
            "Write the timeline of the step to this file, for ui.perfetto.dev",
            file="written",
            example="step.json",
        ),
    ] = None
    html: Annotated[
        str | None,
        option(
            "Write the report with charts to this HTML page", file="written", example="report.html"
        ),
    ] = None
    full: Annotated[
        bool,
        option("Print every table: memory, stages, communication, families, what all rests on"),
    ] = False
    inference: Annotated[
        bool, option("Print batch sizes and contexts that the trained model serves, too")
    ] = False


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Record):
    GROUP: ClassVar = OUTPUT

    full: Annotated[bool, option("Print the front of time against memory as a table, too")] = False
    csv: Annotated[
        str | None,
        option(
            "Write every layout that fits, with its time by component, to this CSV file",
            file="written",
            example="layouts.csv",
        ),
    ] = None
    html: Annotated[
        str | None,
        option(
            "Write the search with a chart to this HTML page", file="written", example="search.html"
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Shared):
    GROUP: ClassVar = Group("comparison", "Comparison")

    files: Annotated[
        tuple[str, ...],
        option(
            "Scenario files (TOML, YAML, JSON) side by side; options given here are common to all",
            file="read",
            argument="[SCENARIO...]",
            example="scenario.toml",
        ),
    ] = ()
    vary: Annotated[
        tuple[str, ...],
        option(
            "NAME=A,B,...: any option ('search' leaves it out), or"
            " strategy=ddp,zero1,zero2,zero3,3d",
            length=4096,
            example="gpu=a100,h100",
            label="Side by side",
        ),
    ] = ()
    sweep: Annotated[
        tuple[str, ...],
        option(
            "NAME=8..4096 (doubling), 8..512*4, 16..128+16 or a list; given twice for two"
            " dimensions",
            length=4096,
            example="gpus=1..4",
        ),
    ] = ()
    at: Annotated[
        Literal["count", "cost", "power"],
        option(
            "Compare at an equal number of GPUs (count), or at whole nodes that together cost or"
            " draw what the first request's do (cost, power)",
            example="power",
            label="Equal by",
        ),
    ] = "count"
    scaling: Annotated[
        Literal["strong", "weak"],
        option(
            "Over swept GPUs: strong scaling keeps the global batch, weak scaling the batch per"
            " GPU",
            example="weak",
            label="Scaling over GPUs",
        ),
    ] = "strong"
    stop_below: Annotated[
        float,
        option(
            f"{_PAYS} first number of GPUs",
            least=0.001,
            most=0.999,
            example="0.9",
            label="GPUs stop paying below",
        ),
    ] = 0.5
    csv: Annotated[
        str | None,
        option(
            "Write one line per request to this CSV file",
            file="written",
            group=OUTPUT,
            example="compare.csv",
        ),
    ] = None
    html: Annotated[
        str | None,
        option(
            "Write tables and charts to this HTML page",
            file="written",
            group=OUTPUT,
            example="compare.html",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class BatchOptions(Shared):
    GROUP: ClassVar = Group("target", "Batch and target")

    sweep: Annotated[
        str | None,
        option(
            "gpus=64..4096 (doubling), gpus=64..512+64 or a list",
            label="GPUs compared",
            length=4096,
            example="gpus=1,2",
            unset="--gpus and six doublings",
        ),
    ] = None
    critical_batch: Annotated[
        float | str | None,
        option(
            "Critical batch size in tokens, e.g. 4M",
            unit="tokens",
            least=1,
            most=1e18,
            example="4M",
            unset="by the expected loss",
            label="Critical batch (tokens)",
        ),
    ] = None
    target_loss: Annotated[
        float | None,
        option(
            "Loss in nats per token, whose critical batch size is taken (Kaplan et al. 2020)",
            least=0.5,
            most=20,
            example="2.5",
            unset="the loss expected of the model after --tokens",
            label="Target loss",
        ),
    ] = None
    gradient_norm: Annotated[
        tuple[str, ...],
        option(
            "BATCH:NORM, given twice: sequences and root mean square norm of the gradient, whose"
            " noise scale is the critical batch size",
            least=1e-12,
            most=1e12,
            example="8:1.5",
        ),
    ] = ()
    reference_batch: Annotated[
        int | None,
        option(
            "Sequences of the batch that --tokens and --learning-rate are of",
            least=1,
            most=1_000_000_000,
            example="128",
            unset="the batch of the first number of GPUs",
            label="Reference batch",
        ),
    ] = None
    learning_rate: Annotated[
        float | None,
        option(
            "Learning rate of the reference batch",
            least=1e-12,
            most=1000,
            example="3e-4",
            unset="1",
            label="Learning rate there",
        ),
    ] = None
    warmup: Annotated[
        str | None,
        option(
            "Warm-up in tokens, kept over batch sizes, e.g. 8B",
            unit="tokens",
            least=1,
            most=1e18,
            needs_unit=("tokens",),
            example="8M",
            label="Warm-up",
        ),
    ] = None
    stop_below: Annotated[
        float,
        option(
            f"{_PAYS} first number of GPUs",
            least=0.001,
            most=0.999,
            example="0.9",
            label="GPUs stop paying below",
        ),
    ] = 0.5
    csv: Annotated[
        str | None,
        option(
            "Write one line per regime and number of GPUs to this CSV file",
            file="written",
            group=OUTPUT,
            example="batch.csv",
        ),
    ] = None
    html: Annotated[
        str | None,
        option(
            "Write charts and tables to this HTML page",
            file="written",
            group=OUTPUT,
            example="batch.html",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ModelTimes(Record):
    """Seconds, bytes and micro-batches of a schedule; taken from a layout where a model is
    given."""

    GROUP: ClassVar = Group("schedule", "Schedule")

    microbatches: Annotated[
        int | None,
        option(
            "Micro-batches per step",
            least=1,
            most=10_000_000,
            example="8",
            label="Micro-batches per step",
        ),
    ] = None
    forward_s: Annotated[
        str | None,
        option(
            "Seconds of the forward pass of a micro-batch on a rank, or one number per stage:"
            " 1,1,2",
            length=100_000,
            each="s",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="1.5",
            unset="1",
            label="Forward (s)",
        ),
    ] = None
    backward_s: Annotated[
        str | None,
        option(
            "Seconds of the backward pass, input and weight gradients together, or one number per"
            " stage",
            length=100_000,
            each="s",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="3",
            unset="2",
            label="Backward (s)",
        ),
    ] = None
    weight_s: Annotated[
        str | None,
        option(
            "Seconds of the weight gradients within the backward pass, or one number per stage",
            length=100_000,
            each="s",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="0.5",
            unset="half of the backward pass",
            label="Weight gradients (s)",
        ),
    ] = None
    p2p_s: Annotated[
        str | None,
        option(
            "Seconds of a send between stages, or one number per boundary",
            length=100_000,
            each="s",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="0.1",
            unset="0",
            label="Send between stages (s)",
        ),
    ] = None
    optimizer_s: Annotated[
        str | None,
        option(
            "Seconds of the optimizer after a rank's last backward pass, or one number per rank",
            length=100_000,
            each="s",
            least=1e-12,
            most=1e9,
            or_zero=True,
            example="1",
            unset="0",
            label="Optimizer (s)",
        ),
    ] = None
    activation_bytes: Annotated[
        str | None,
        option(
            "Activations of one micro-batch on a rank, e.g. '1.2 GiB', or one size per rank",
            length=100_000,
            each="B",
            least=1,
            most=1e15,
            or_zero=True,
            example="1.2 GiB",
            label="Activations per micro-batch",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(ModelTimes):
    GROUP: ClassVar = ModelTimes.GROUP

    straggler: Annotated[
        str | None,
        option(
            "RANK:FACTOR, ranks whose compute is slower by a factor: 3:1.2",
            length=100_000,
            least=0.001,
            most=1e6,
            example="1:1.5",
            label="Slower ranks",
        ),
    ] = None
    blocking_sends: Annotated[
        bool,
        option(
            "Ranks wait for their sends instead of computing meanwhile",
            label="Ranks wait for sends",
        ),
    ] = False
    file: Annotated[
        str | None,
        option(
            "A schedule of your own: a file with one row such as 0F0,0F1,0B0 per rank",
            file="read",
            example="schedule.csv",
        ),
    ] = None
    sends: Annotated[
        bool, option("List sends and receives among the actions of --json", group=OUTPUT)
    ] = False
    trace: Annotated[
        str | None,
        option(
            "Write trace events to this file, for ui.perfetto.dev",
            file="written",
            group=OUTPUT,
            example="schedule.json",
        ),
    ] = None
    html: Annotated[
        str | None,
        option(
            "Write a chart of the schedule to this HTML page",
            file="written",
            group=OUTPUT,
            example="schedule.html",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ListOptions(Record):
    GROUP: ClassVar = OUTPUT

    kind: Annotated[
        Kind | None,
        option(
            "What to list",
            argument="[KIND]",
            aliases=aliases.LISTED,
            example="gpus",
            unset="what can be listed",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class LearnOptions(Record):
    GROUP: ClassVar = OUTPUT

    lesson: Annotated[
        str | None,
        option("Lesson to print", argument="[LESSON]", example="zero", unset="the list of lessons"),
    ] = None
    set: Annotated[
        tuple[str, ...],
        option("NAME=VALUE: an input of the lesson, moved", length=200, example="ranks=64"),
    ] = ()
