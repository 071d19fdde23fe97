"""The answers of `dpplan calibrate`: a node measured, verified, compared and merged."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key

ANSWERS = {
    "calibrate": "Calibrated",
    "calibrate --verify": "Verification",
    "calibrate --diff": "Compared",
    "calibrate --merge": "Merged",
}


class FittedCurve(Document):
    """A curve, and how well it meets what was measured."""

    cases: Annotated[int, key("measured cases it was fitted to")]
    median_error: Annotated[float, key("median of their relative errors", "1")]
    worst_error: Annotated[float, key("largest of them", "1")]
    held_out: Annotated[int, key("cases that were left out of the fit and predicted")]
    held_out_median: Annotated[
        float | None, key("median relative error of those, null without any", "1")
    ]
    outliers: Annotated[list[str], key("cases far from the curve")]
    numbers: Annotated[
        dict[str, tuple[float, float]],
        key("by name, the value and its standard error, in the base unit of each"),
    ]


class SlowPair(Document):
    """Two ranks whose messages take longer than between most pairs."""

    first: Annotated[int, key("a rank")]
    second: Annotated[int, key("the other rank")]
    times_the_middle: Annotated[float, key("time of a message over that of the median pair", "1")]


class Unquiet(Document):
    """A case whose samples do not agree."""

    case: Annotated[str, key("what was timed")]
    why: Annotated[str, key("disturbed moments, or repeats that disagree")]


class Calibrated(Document):
    """The answer of `dpplan calibrate --out`."""

    schema_version: Annotated[int, key("1")]
    out: Annotated[str, key("the file that was written")]
    gpu: Annotated[str, key("id of the measured device")]
    cases: Annotated[int, key("measured cases")]
    quiet: Annotated[int, key("of these, cases with repeats of quiet moments that agree")]
    unquiet: Annotated[list[Unquiet], key("the others, which no curve was fitted to")]
    fits: Annotated[dict[str, FittedCurve], key("curves by name")]
    refused: Annotated[dict[str, str], key("why a curve was not fitted, by its name")]
    slow_pairs: Annotated[list[SlowPair], key("pairs of ranks with slow messages, slowest first")]
    disturbed_frac: Annotated[float, key("moments in which the probe was slow", "1")]


class TrainedCase(Document):
    """A decoder to train, as `--case` writes it."""

    layers: Annotated[int, key("decoder layers")]
    hidden: Annotated[int, key("hidden size")]
    heads: Annotated[int, key("attention heads")]
    ffn: Annotated[int, key("inner size of the MLP")]
    vocab: Annotated[int, key("vocabulary size")]
    seq: Annotated[int, key("sequence length", "tokens")]
    micro_batch: Annotated[int, key("sequences of a micro-batch per data-parallel replica")] = 1
    family: Annotated[
        str, key("llama (gated MLP, RMSNorm, RoPE) or gpt (plain, LayerNorm, learned positions)")
    ] = "llama"
    parallel: Annotated[
        str, key("single, ddp, zero1, fsdp, fsdp-noreshard, tensor or pipeline")
    ] = "single"
    recompute: Annotated[str, key("none or full")] = "none"
    microbatches: Annotated[int, key("micro-batches of a step")] = 1


class PredictedParts(Document, rename={"forward_and_backward": "forward and backward"}):
    """Parts of a step as estimated."""

    forward_and_backward: Annotated[float, key("kernels of both passes", "s")]
    optimizer: Annotated[float, key("the optimizer's update", "s")]
    communication: Annotated[float, key("collectives that nothing hides", "s")]


class MeasuredParts(Document):
    """Parts of a step as timed one by one, scaled to the undisturbed step."""

    forward: Annotated[float, key("forward pass; 0 for a pipeline", "s")]
    backward: Annotated[
        float, key("backward pass with the collectives beside it; both passes of a pipeline", "s")
    ]
    optimizer: Annotated[float, key("the optimizer's update", "s")]


class VerifiedCase(Document):
    """A trained decoder beside its estimate."""

    name: Annotated[str, key("the decoder in one line")]
    case: Annotated[TrainedCase, key("its keys as `--case` takes them")]
    used_in_fit: Annotated[bool, key("false: no fit has seen it")]
    quiet: Annotated[bool, key("whether its steps are from quiet moments and agree")]
    why: Annotated[str, key("why it is not quiet; empty where it is")]
    repeats: Annotated[int, key("steps that count")]
    tried: Annotated[int, key("steps that were timed")]
    spread: Annotated[float, key("slowest minus fastest step that counts, over the median", "1")]
    moments: Annotated[
        list[float], key("middle of the steps of each moment, at the speed of the calibration", "s")
    ]
    others: Annotated[
        list[float], key("share of the cores that other programs had, by moment", "1")
    ]
    predicted_step_s: Annotated[float, key("one optimizer step as estimated", "s")]
    measured_step_s: Annotated[float, key("one optimizer step as trained", "s")]
    error: Annotated[float, key("predicted over measured, minus one", "1")]
    predicted_parts: Annotated[PredictedParts, key("parts of the estimated step")]
    measured_parts: Annotated[MeasuredParts, key("parts of the trained step")]
    communication_ratio: Annotated[
        float, key("predicted exposed communication over the rest of the step", "1")
    ]
    predicted_bytes: Annotated[
        float, key("parameters, gradients and optimizer of the fullest rank as estimated", "B")
    ]
    measured_bytes: Annotated[int, key("the same, measured", "B")]
    predicted_states: Annotated[
        list[dict[str, float]],
        key("bytes by state (parameters, gradients, optimizer), per rank", "B"),
    ]
    measured_states: Annotated[list[dict[str, int]], key("the same, measured", "B")]
    states_exact: Annotated[bool, key("every rank holds the bytes that were predicted")]
    predicted_peak_bytes: Annotated[float, key("allocator's peak as estimated", "B")]
    measured_peak_bytes: Annotated[
        int | None, key("allocator's peak as counted; null on CPUs, where nothing counts it", "B")
    ]
    predicted_tokens_per_s: Annotated[float, key("throughput as estimated", "1/s")]
    measured_tokens_per_s: Annotated[float, key("throughput as trained", "1/s")]


class Errors(Document):
    """Errors of the decoders of one parallelism."""

    n: Annotated[int, key("decoders")]
    mape: Annotated[float, key("mean absolute relative error of the step", "1")]
    worst: Annotated[float, key("largest absolute relative error", "1")]
    bias: Annotated[float, key("mean signed error: negative is predicted too fast", "1")]
    low: Annotated[
        float | None,
        key(
            "of eight in ten further decoders like these, the least of measured over predicted,"
            " by the scatter of these; null of fewer than three",
            "1",
        ),
    ]
    high: Annotated[float | None, key("the same at the slow end", "1")]


class Steadiness(Document):
    """Spread of repeated steps of one decoder: the smallest error that an estimate can have."""

    repeats: Annotated[
        float | None,
        key("slowest minus fastest step over the middle, median over quiet decoders", "1"),
    ]
    moments: Annotated[
        float | None,
        key("likewise for the middles of its moments, over all decoders that had several", "1"),
    ]
    moments_worst: Annotated[float | None, key("largest of these", "1")]
    others_least: Annotated[
        float | None, key("least share of the cores that other programs had in a moment", "1")
    ]
    others_most: Annotated[float | None, key("largest of these", "1")]


class Summary(Document):
    """Errors over the decoders whose steps were quiet, over all where none were; null where none
    was trained."""

    n: Annotated[int, key("decoders that the errors were measured on")]
    unquiet: Annotated[list[str], key("decoders that were not quiet, by name")]
    mape: Annotated[float | None, key("mean absolute relative error of the step", "1")]
    median_ape: Annotated[float | None, key("median of them", "1")]
    worst: Annotated[float | None, key("largest of them", "1")]
    bias: Annotated[float | None, key("mean signed error: negative is predicted too fast", "1")]
    states_exact: Annotated[bool, key("every rank of every decoder holds the bytes predicted")]
    tolerance: Annotated[float, key("mean error above which the exit status is 3", "1")]
    within: Annotated[bool, key("whether the mean error is within the tolerance")]
    parallel: Annotated[dict[str, Errors], key("errors by parallelism")]
    steadiness: Annotated[Steadiness, key("repeats and moments of one decoder held together")]


class Verification(Document):
    """The answer of `dpplan calibrate --verify`."""

    schema_version: Annotated[int, key("1")]
    gpu: Annotated[str, key("id of the device")]
    ranks: Annotated[int, key("processes that trained")]
    precision: Annotated[str, key("fp32, bf16 or fp16")]
    calibration: Annotated[str | None, key("the file that was verified, null: shipped profile")]
    speed: Annotated[
        float,
        key(
            "speed of the machine now over that of its calibration, by the probe; times are scaled"
            " to the latter",
            "1",
        ),
    ]
    cases: Annotated[list[VerifiedCase], key("the decoders")]
    summary: Annotated[Summary, key("errors over all decoders")]
    quiet: Annotated[bool, key("whether every decoder was timed in quiet moments")]
    kept: Annotated[
        bool,
        key(
            "whether the calibration file now holds the range of eight in ten further decoders, by"
            " those that were quiet: bands of estimates with it do not get narrower"
        ),
    ] = False


class Difference(Document):
    """A number of two nodes."""

    name: Annotated[str, key("path of the number in the file, or what a curve gives, in words")]
    first: Annotated[float, key("on the first node, in the number's base unit")]
    second: Annotated[float, key("on the second node")]
    change: Annotated[float, key("second over first, minus one", "1")]
    worse: Annotated[float, key("share by which the second is worse; negative: better", "1")]


class Compared(Document):
    """The answer of `dpplan calibrate --diff`."""

    schema_version: Annotated[int, key("1")]
    first: Annotated[str, key("the first file")]
    second: Annotated[str, key("the second file")]
    numbers: Annotated[list[Difference], key("what is worse on the second node, worst first")]


class Far(Document):
    """A number in which a node is far behind the median of its kind."""

    node: Annotated[str, key("file of the node")]
    name: Annotated[str, key("the number, as in `--diff`")]
    value: Annotated[float, key("on this node, in the number's base unit")]
    middle: Annotated[float, key("median over the nodes")]
    worse: Annotated[float, key("share by which this node is worse", "1")]


class Merged(Document):
    """The answer of `dpplan calibrate --merge`."""

    schema_version: Annotated[int, key("1")]
    out: Annotated[str, key("the file that was written")]
    gpu: Annotated[str, key("id of the device of all nodes")]
    nodes: Annotated[int, key("files that were merged")]
    far: Annotated[
        list[Far], key("nodes that are more than 10 % worse than the median, worst first")
    ]
