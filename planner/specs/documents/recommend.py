"""The answers of `dpplan recommend`, one document per question."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import structs

from planner.specs.document import Document, Doubted, key
from planner.specs.documents.advice import Choice
from planner.specs.documents.batch import NamedModel, SizedModel
from planner.specs.documents.estimate import StepByWire, Throughput
from planner.specs.documents.memory import Fit
from planner.specs.documents.plan import Cluster, Layout
from planner.specs.documents.prices import Prices
from planner.specs.documents.run import Run

# which cluster


class ModelLimits(Document):
    """Limits of the run; null: no such limit."""

    days: Annotated[float | None, key("`--days`", "days")]
    budget_usd: Annotated[float | None, key("`--budget`", "USD")]
    sure: Annotated[bool, key("days and dollars hold at the slow end of the 80 % band")]


class ClusterLimits(ModelLimits):
    """Limits of the run on clusters of any size; null: no such limit."""

    max_gpus: Annotated[int, key("`--max-gpus`, or the most that are tried", "GPUs")]
    power_kw: Annotated[float | None, key("`--power-kw`: mean power at the plug", "kW")]


class Judged(Document):
    """One number of GPUs against the limits."""

    gpus: Annotated[int, key("GPUs of the cluster", "GPUs")]
    fits: Annotated[bool, key("there is a layout, and memory suffices")]
    within: Annotated[bool, key("the run is within the limits")]
    verdict: Annotated[
        str | None,
        key("of days and dollars: very likely, likely, unlikely, no, unknown; null without both"),
    ]
    chance: Annotated[
        float | None,
        key("probability that the run ends within days and dollars; null where not known", "1"),
    ]
    why: Annotated[
        str | None,
        key("why no size is within the limits, or its need where that may be beyond one"),
    ]


class ClusterRow(Judged):
    """One cluster with the fastest layout on it; ends of the 80 % band as `_low` and `_high`."""

    machine: Annotated[str, key("profile id of the GPU or cluster")]
    command: Annotated[str, key("the command for it")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]
    layout: Annotated[Layout, key("as `layout` of a report")]
    stack: Annotated[str, key("profile id of the stack")]
    step_seconds: Annotated[float, key("expected step time", "s")]
    mfu: Annotated[float, key("model FLOP utilisation, by the convention of `estimate`", "1")]
    bottleneck: Annotated[str, key("what takes most of the step")]
    headroom_bytes: Annotated[float, key("memory left per GPU; negative when short", "B")]
    goodput: Annotated[float, key("share of wall time that advances training", "1")]
    days: Annotated[float | None, key("of the run; null without `--tokens`", "days")]
    days_low: Annotated[float | None, key("at the fast end of the band", "days")]
    days_high: Annotated[float | None, key("at the slow end of the band", "days")]
    cost_usd: Annotated[float | None, key("of the run; null also without a price", "USD")]
    cost_usd_low: Annotated[float | None, key("at the fast end of the band", "USD")]
    cost_usd_high: Annotated[float | None, key("at the slow end of the band", "USD")]
    energy_kwh: Annotated[float | None, key("energy of the run at the plug", "kWh")]
    usd_per_hour: Annotated[float | None, key("price of the cluster; null: none known", "USD/h")]
    price_source: Annotated[str | None, key("kind, provider and date of that price")]
    thin: Annotated[
        str | None, key("validated runs on this GPU where they are few or poor; null elsewhere")
    ]


class TriedCount(Judged):
    """One number of GPUs that was evaluated; figures are null where it has no layout."""

    step_seconds: Annotated[float | None, key("expected step time", "s")]
    days: Annotated[float | None, key("of the run", "days")]
    cost_usd: Annotated[float | None, key("of the run", "USD")]


class Below(Document):
    """The count before the smallest that is within the limits."""

    gpus: Annotated[int, key("GPUs of the cluster", "GPUs")]
    why: Annotated[str | None, key("what stands against it")]


class MachineKind(Document):
    """One kind of GPU, or of node."""

    machine: Annotated[str, key("profile id of the GPU or cluster")]
    answer: Annotated[ClusterRow | None, key("the best for the goal; null: none is within limits")]
    smallest_gpus: Annotated[int | None, key("fewest GPUs within the limits", "GPUs")]
    below: Annotated[Below | None, key("null where that is the first count tried")]
    left_out: Annotated[str | None, key("which counts are not tried, and why")]
    reason: Annotated[str | None, key("why no count is within the limits")]
    tried: Annotated[list[TriedCount], key("every count that was evaluated, ascending")]


class Answers(Document):
    """The best clusters of all kinds; null: none is within the limits."""

    cheapest: Annotated[ClusterRow | None, key("least cost; without tokens, price of an hour")]
    smallest: Annotated[ClusterRow | None, key("fewest GPUs")]
    fastest: Annotated[ClusterRow | None, key("shortest step")]

    @property
    def by_goal(self) -> dict[str, ClusterRow | None]:
        """Values by name of the goal."""
        return structs.asdict(self)


class Without(Document):
    """The answer with one default replaced."""

    default: Annotated[
        str, key("what is replaced: global batch, precision, most GPUs, failures, all of these")
    ]
    instead: Annotated[str, key("what is taken in its place")]
    answer: Annotated[
        ClusterRow | None,
        key("the smallest cluster that is then within the limits, of some counts; null: none is"),
    ]
    of_critical: Annotated[
        float | None, key("the batch in critical batches; null where none is replaced", "1")
    ]
    tokens_factor: Annotated[
        float | None,
        key("tokens to the same loss over those with the default batch, by `dpplan batch`", "1"),
    ]
    sentence: Annotated[str, key("the same as a sentence")]


class SmallestCluster(Doubted):
    """`recommend cluster`: which cluster trains the model within the limits."""

    schema_version: Annotated[int, key("1")]
    question: Annotated[str, key("cluster")]
    model: Annotated[SizedModel, key("the model that is trained")]
    limits: Annotated[ClusterLimits, key("what the run may take")]
    tokens: Annotated[float | None, key("of the run; null without `--tokens`", "tokens")]
    global_batch: Annotated[int, key("sequences per optimizer step", "sequences")]
    goal: Annotated[str, key("what `types[].answer` is the best for: cheapest, smallest, fastest")]
    tried: Annotated[int, key("clusters that were evaluated")]
    excluded: Annotated[
        int, key("kinds of which no cluster was: a bound or a first look rules each out")
    ]
    answers: Annotated[Answers, key("the best of all kinds")]
    undecided: Annotated[
        list[str],
        key("kinds whose order with the best for the goal is within the bands, nearest first"),
    ]
    types: Annotated[list[MachineKind], key("every kind, those with an answer first")]
    prices: Annotated[Prices, key("prices of the kinds that fit, and the cheapest at other prices")]
    without: Annotated[
        list[Without],
        key(
            "what holds without a default: where no cluster is within the limits, or fewer GPUs are"
        ),
    ]
    notes: Annotated[list[str], key("what this rests on, as sentences")]


# how much bandwidth


class LinkPoint(Document):
    """A layout at one bandwidth of a wire."""

    times: Annotated[float, key("times the bandwidth of the cluster", "1")]
    bytes_per_s_per_gpu: Annotated[float, key("bandwidth per GPU", "B/s")]
    step_seconds: Annotated[float, key("step time", "s")]
    exposed_frac: Annotated[float, key("share of the step that waits for the wire", "1")]


class Wire(Document):
    """The chosen layout against the bandwidth of one wire."""

    bytes_per_s_per_gpu: Annotated[float, key("bandwidth per GPU of the cluster", "B/s")]
    exposed_frac: Annotated[float, key("share of the step that waits for the wire", "1")]
    exposed_s: Annotated[float, key("the same in seconds", "s")]
    latency_frac: Annotated[float, key("share that is left without a limit of bandwidth", "1")]
    step_unlimited_s: Annotated[float, key("step time without a limit of bandwidth", "s")]
    free: Annotated[
        dict[str, float | None],
        key(
            "by share of the step: bandwidth per GPU from which on less waits; 0 at any bandwidth,"
            " null at none",
            "B/s",
        ),
    ]
    curve: Annotated[list[LinkPoint], key("by ascending bandwidth")]


class SearchedBandwidth(LinkPoint):
    """One bandwidth between nodes with its own layout."""

    fits: Annotated[bool, key("memory suffices")]
    layout: Annotated[Layout, key("as `layout` of a report")]
    stack: Annotated[str, key("profile id of the stack")]
    command: Annotated[str, key("the command for it")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]


class BandwidthSweep(Doubted):
    """`recommend bandwidth`: the bandwidth per GPU that makes communication free."""

    schema_version: Annotated[int, key("1")]
    question: Annotated[str, key("bandwidth")]
    model: Annotated[str, key("name of the model for people")]
    cluster: Annotated[Cluster, key("as `cluster` of a report")]
    stack: Annotated[str, key("profile id of the stack")]
    layout: Annotated[Layout, key("as `layout` of a report")]
    tokens_per_step: Annotated[float, key("tokens of one optimizer step", "tokens")]
    memory: Annotated[Fit, key("memory per GPU")]
    step: Annotated[StepByWire, key("time of one optimizer step")]
    throughput: Annotated[Throughput, key("as `throughput` of a report")]
    run: Annotated[Run, key("as `run` of a report")]
    wires: Annotated[dict[str, Wire], key("`network` (between nodes) and `intra-node link`")]
    searched: Annotated[list[SearchedBandwidth], key("by ascending bandwidth between nodes")]
    searched_free: Annotated[
        dict[str, float | None] | None,
        key(
            "by share of the step: bandwidth per GPU from which on every one tried waits less, or"
            " null; null on one node",
            "B/s",
        ),
    ]
    notes: Annotated[list[str], key("what this rests on, as sentences")]


# how large a batch


class BatchRow(Document):
    """One global batch with its own layout."""

    global_batch: Annotated[int, key("sequences per optimizer step", "sequences")]
    tokens_per_step: Annotated[int, key("tokens of one optimizer step", "tokens")]
    of_best_frac: Annotated[float, key("tokens/s per GPU over those of the best", "1")]
    command: Annotated[str, key("the command for it")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]
    stack: Annotated[str, key("profile id of the stack")]
    layout: Annotated[Layout, key("as `layout` of a report")]
    memory: Annotated[Fit, key("memory per GPU")]
    step: Annotated[StepByWire, key("time of one optimizer step")]
    throughput: Annotated[Throughput, key("as `throughput` of a report")]
    run: Annotated[Run, key("as `run` of a report")]


class SaturatingBatch(Doubted):
    """`recommend batch`: throughput against the global batch."""

    schema_version: Annotated[int, key("1")]
    question: Annotated[str, key("batch")]
    model: Annotated[NamedModel, key("the model that is trained")]
    gpus: Annotated[int, key("GPUs of the cluster", "GPUs")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    seq_len: Annotated[int, key("tokens per sequence", "tokens")]
    tried: Annotated[int, key("batches that were evaluated")]
    best: Annotated[int, key("batch with most tokens/s per GPU", "sequences")]
    saturates: Annotated[
        dict[str, int], key("by share: the smallest batch within it of the best", "sequences")
    ]
    rows: Annotated[list[BatchRow], key("every batch that fits, ascending")]
    notes: Annotated[list[str], key("what this rests on, as sentences")]


# how large a model


class TriedModel(Document):
    """One model on the cluster."""

    model: Annotated[str, key("catalogue name, or that of the scaled shape")]
    parameters: Annotated[int, key("exact number of parameters", "parameters")]
    fits: Annotated[bool, key("there is a layout, and memory suffices")]
    within: Annotated[bool, key("it fits, and the run is within the limits")]
    refused: Annotated[str | None, key("why no layout was evaluated")]
    days: Annotated[float | None, key("of the run; null without `--tokens`", "days")]


class ModelRow(TriedModel):
    """One model with its answer, whose keys are null where `refused` is set."""

    title: Annotated[str, key("name for people")]
    active_parameters: Annotated[int, key("parameters that one token uses", "parameters")]
    gpu_title: Annotated[str | None, key("name of the GPU for people")]
    cost_usd: Annotated[float | None, key("of the run; null also without a price", "USD")]
    command: Annotated[str, key("the command for it; a scaled model by the file of `--model-out`")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]
    layout: Annotated[Layout | None, key("as `layout` of a report")]
    stack: Annotated[str | None, key("profile id of the stack")]
    memory: Annotated[Fit | None, key("memory per GPU")]
    step: Annotated[StepByWire | None, key("time of one optimizer step")]
    throughput: Annotated[Throughput | None, key("as `throughput` of a report")]


class Catalogue(Document):
    """The largest model of the catalogue."""

    answer: Annotated[ModelRow | None, key("the largest within the limits")]
    rows: Annotated[list[ModelRow], key("largest first, down to some below the answer")]


class ScaledRow(TriedModel):
    """One scaled shape that was tried."""

    layers: Annotated[int, key("transformer layers")]
    hidden: Annotated[int, key("hidden size")]


class Family(Document):
    """The largest shape scaled from `--model`."""

    of: Annotated[str, key("the model that is scaled")]
    rule: Annotated[str, key("what is scaled and what is kept")]
    answer: Annotated[ModelRow | None, key("the largest within the limits")]
    shape: Annotated[dict[str, Any] | None, key("its shape, with keys of docs/extending/model.md")]
    above: Annotated[ScaledRow | None, key("the next larger that was tried")]
    tried: Annotated[list[ScaledRow], key("largest first")]


class LargestModel(Doubted):
    """`recommend model`: the largest model that trains on the cluster."""

    schema_version: Annotated[int, key("1")]
    question: Annotated[str, key("model")]
    gpus: Annotated[int, key("GPUs of the cluster", "GPUs")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    limits: Annotated[ModelLimits, key("what the run may take")]
    catalogue: Annotated[Catalogue, key("models of the catalogue")]
    family: Annotated[Family | None, key("null without `--model`")]
    notes: Annotated[list[str], key("what this rests on, as sentences")]


# recompute or swap


class SwapCosts(Document):
    """Cost of keeping, recomputing or swapping a layer's activations."""

    kept_bytes: Annotated[float, key("activations that it keeps for backward", "B")]
    recompute_s: Annotated[float, key("its forward run again", "s")]
    break_even_bytes_per_s: Annotated[
        float, key("bandwidth per GPU above which swapping costs less than recompute", "B/s")
    ]
    hidden_bytes_per_s: Annotated[
        float | None,
        key("bandwidth per GPU from which on swapping costs nothing; null: none does", "B/s"),
    ]


class Layer(SwapCosts):
    """A mean layer of one micro-batch on one rank."""

    recompute_kept_bytes: Annotated[float, key("kept where it is recomputed: its input", "B")]
    forward_s: Annotated[float, key("its forward", "s")]
    backward_s: Annotated[float, key("its backward", "s")]
    forward_shared_s: Annotated[
        float, key("of its forward, what its collectives take of the link to host memory", "s")
    ]
    backward_shared_s: Annotated[float, key("likewise for its backward", "s")]


class LengthLink(Document):
    """The cheaper choice over one link."""

    id: Annotated[str, key("profile id of the link")]
    cheaper: Annotated[str, key("swap or recompute")]


class HostLink(LengthLink):
    """The layer swapped over one link to host memory."""

    title: Annotated[str, key("name for people")]
    alone_bytes_per_s: Annotated[float, key("one GPU by itself, one way", "B/s")]
    bytes_per_s: Annotated[float, key("one GPU while all GPUs of the host copy, one way", "B/s")]
    copy_s: Annotated[float, key("one copy, out or back", "s")]
    out_exposed_s: Annotated[float, key("what copying out adds to forward", "s")]
    back_exposed_s: Annotated[float, key("what copying back adds to backward", "s")]
    hidden_s: Annotated[float, key("of both copies beside compute", "s")]
    in_turn_s: Annotated[float, key("of both copies where nothing overlaps", "s")]
    recompute_s: Annotated[float, key("what recompute adds instead", "s")]
    cheaper_in_turn: Annotated[str, key("the same where nothing overlaps")]


class LengthRow(SwapCosts):
    """The layer with sequences of another length."""

    seq_len: Annotated[int, key("tokens per sequence", "tokens")]
    links: Annotated[list[LengthLink], key("as `links[]`")]


class Needed(Document):
    """A bandwidth that ZeRO-Infinity's equations ask for."""

    share_frac: Annotated[float, key("of the achievable matrix rate", "1")]
    bytes_per_s: Annotated[float, key("of all ranks that share it", "B/s")]


class Bound(Document):
    """Bandwidth that ZeRO-Infinity's equations require for one kind of data."""

    what: Annotated[str, key("what moves")]
    flop_per_byte: Annotated[float, key("arithmetic intensity", "FLOP/B")]
    ranks: Annotated[int, key("ranks that share it")]
    needed: Annotated[list[Needed], key("by share of the matrix rate")]
    efficiency_frac: Annotated[float, key("share of the matrix rate over their links", "1")]


class SwapOrRecompute(Doubted):
    """`recommend offload`: when recomputing activations beats swapping them."""

    schema_version: Annotated[int, key("1")]
    question: Annotated[str, key("offload")]
    model: Annotated[NamedModel, key("the model that is trained")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("GPUs of the cluster", "GPUs")]
    stack: Annotated[str, key("profile id of the stack")]
    layout: Annotated[Layout, key("as `layout` of a report")]
    seq_len: Annotated[int, key("tokens per sequence", "tokens")]
    host_link: Annotated[str, key("link id between GPU and host memory of this node")]
    verdict: Annotated[
        str | None,
        key(
            "swap or recompute: the faster of `choices` that fit; null where none does, or the"
            " stack can do neither"
        ),
    ]
    refused: Annotated[
        str | None,
        key("why this stack and layout cannot offload activations, as `estimate` says it; or null"),
    ]
    choices: Annotated[
        list[Choice],
        key("whole steps of this layout as `estimate` has them: all recomputed, and swapped"),
    ]
    layer: Annotated[Layer, key("the layer")]
    links: Annotated[list[HostLink], key("by ascending bandwidth")]
    lengths: Annotated[list[LengthRow], key("by ascending length")]
    bounds: Annotated[list[Bound], key("parameters, optimizer states, checkpoints")]
    notes: Annotated[list[str], key("what this rests on, as sentences")]


Recommendation = SmallestCluster | BandwidthSweep | SaturatingBatch | LargestModel | SwapOrRecompute
