"""The answer of `dpplan estimate`, and the shorter lines that other documents take from it."""

from __future__ import annotations

from typing import Annotated, Any

from planner.ledger import Kind
from planner.specs.document import UNSET, Document, Unset, key
from planner.specs.documents.advice import Advice, OffloadChoices, Value
from planner.specs.documents.charts import Crossover, Roofline
from planner.specs.documents.conditions import Input, Stragglers
from planner.specs.documents.explain import Explained
from planner.specs.documents.inference import Inference
from planner.specs.documents.memory import Chance, Fit, Memory
from planner.specs.documents.plan import Cluster, Layout, Model, Stack
from planner.specs.documents.run import Run
from planner.specs.documents.training import Training
from planner.specs.options.origin import OriginKind


class StepFigures(Document):
    """Time of one optimizer step in short."""

    seconds: Annotated[float, key("expected step time; sum of `components`", "s")]
    low: Annotated[float, key("lower end of the 80 % band", "s")]
    high: Annotated[float, key("upper end of the 80 % band", "s")]
    components: Annotated[
        dict[str, float], key("parts of `seconds`; names below, communication as exposed", "s")
    ]
    hidden: Annotated[
        dict[str, float], key("communication beside compute, by component; not in `seconds`", "s")
    ]
    bottleneck: Annotated[str, key("what takes most of the step; names below")]
    bottleneck_frac: Annotated[float, key("share of the step that the bottleneck takes", "1")]
    before_seconds: Annotated[
        float,
        key(
            "before the run and not in `seconds`: forward passes over the examples of a step whose"
            " log-probabilities are computed once (`--reference precomputed`); 0 without",
            "s",
        ),
    ]


class Merge(Document):
    """Adapters merged into weights of 16 bit on one GPU, after which they cost nothing."""

    seconds: Annotated[float, key("of the GPU, files apart", "s")]
    device_bytes: Annotated[float, key("GPU memory alive", "B")]
    adapter_bytes: Annotated[float, key("of a file with only the adapters", "B")]
    merged_bytes: Annotated[float, key("of the files of the merged weights", "B")]


class StepByWire(StepFigures):
    """Time of one optimizer step in short, with its communication by wire."""

    exposed: Annotated[
        dict[str, float],
        key("communication that adds to the step: `network` and `intra-node link`", "s"),
    ]


class Evidence(Document):
    """Evidence behind the width of the band."""

    gpu: Annotated[
        str, key("closeness of the GPUs of validated runs: GPU, architecture or nothing")
    ]
    software: Annotated[str, key("closeness of their stacks: stack, family or nothing")]
    width: Annotated[
        dict[str, float],
        key(
            "shares of the squared width of the band's slow half: `general`, what plain runs of"
            " measured software were missed by; `gpu`, `stack` and `combination` of methods, by how"
            " few suites show them; methods, cards and mechanisms that were missed by more; and"
            " what no request states: `offload`, hosts and copies; `islands` of the network",
            "1",
        ),
    ]


class Step(StepFigures):
    """Time of one optimizer step."""

    confidence: Annotated[str, key("what the band rests on")]
    validated_runs: Annotated[int, key("runs on this GPU with this stack; else with one of them")]
    evidence: Annotated[Evidence, key("what the width of the band rests on")]
    pace: Annotated[
        str | None, key("which pipeline stage is the slowest, and why; null where there is one")
    ]
    pace_frac: Annotated[
        float, key("how much longer the slowest stage takes than the mean of stages", "1")
    ]
    operators: Annotated[
        dict[str, float],
        key("each operator of the slowest stage, by path such as `layer/matmul/qkv`", "s"),
    ]


class Throughput(Document):
    """Speed of the whole job."""

    tokens_per_s: Annotated[float, key("of the whole cluster", "tokens/s")]
    tokens_per_s_per_gpu: Annotated[float, key("of one GPU", "tokens/s")]
    samples: Annotated[
        str, key("what a batch counts: sequences, or of other models samples, images, pairs")
    ]
    samples_per_s: Annotated[float, key("of the whole cluster, in the unit of `samples`", "1/s")]
    model_tflops_per_gpu: Annotated[float, key("model FLOP per second and GPU", "TFLOP/s")]
    mfu: Annotated[float, key("model FLOP utilisation, by `flop_convention`", "1")]
    mfu_palm: Annotated[
        float | Unset,
        key(
            "the same with the whole score matrix, as PaLM counts; left out where that is more"
            " than the peak, of which half is never computed",
            "1",
        ),
    ]
    tflops_palm: Annotated[
        float,
        key(
            "`model_tflops_per_gpu` with the whole score matrix: what the logs of Megatron-LM and"
            " torchtitan, and most papers, call TFLOP/s",
            "TFLOP/s",
        ),
    ]
    hfu: Annotated[float, key("hardware FLOP utilisation: with recomputed FLOP", "1")]
    flop_convention: Annotated[str, key("how model FLOP is counted")]
    model_flop_per_step: Annotated[float, key("model FLOP of the whole cluster", "FLOP")]
    hardware_flop_per_step: Annotated[float, key("hardware FLOP of the whole cluster", "FLOP")]
    recomputed_share: Annotated[
        float, key("share of the forward pass that full, block or group recompute repeats", "1")
    ]


class Communication(Document):
    """All calls of one collective, transfer or copy in a step."""

    operation: Annotated[
        str, key("all_reduce, all_gather, reduce_scatter, all_to_all, send_recv, copy")
    ]
    group: Annotated[str, key("ranks: tensor, context, expert, data, pipeline, host")]
    what: Annotated[str, key("what is sent")]
    component: Annotated[str, key("component of the step its exposed time belongs to")]
    bytes: Annotated[float, key("whole tensor of one call", "B")]
    link: Annotated[str, key("link id")]
    across_nodes: Annotated[bool, key("the ranks are on several nodes")]
    seconds: Annotated[float, key("all calls of a step", "s")]
    hidden_seconds: Annotated[float, key("part of `seconds` beside compute", "s")]
    count: Annotated[
        float, key("calls per step on the slowest rank; shares of a call where part is hidden")
    ]


class Line(Chance):
    """One layout in short."""

    stack: Annotated[str, key("profile id of the stack")]
    layout: Annotated[Layout, key("how the work is divided")]
    step_seconds: Annotated[float, key("expected step time", "s")]
    tokens_per_s: Annotated[float, key("throughput of the whole cluster", "tokens/s")]
    peak_bytes: Annotated[float, key("as `memory.peak_bytes`", "B")]
    device_bytes: Annotated[float, key("as `memory.device_bytes`", "B")]
    command: Annotated[str, key("the command that estimates exactly this layout")]


class Alternative(Line):
    """The best layout of a family, or one of the fastest that fit."""

    family: Annotated[str | Unset, key("on the best of each family: its name")] = UNSET
    reason: Annotated[
        str | Unset, key("where nothing of the family fits: what is short, in bytes")
    ] = UNSET
    rank: Annotated[int | Unset, key("on the fastest layouts that fit: 1 is the fastest")] = UNSET


class Tighter(Line):
    """The fastest layout that is expected to fit, where the one taken leaves more room."""

    faster_frac: Annotated[float, key("how much less time its step takes than that taken", "1")]


class InsideNodes(Line):
    """The fastest layout that fits and keeps a parallel group inside nodes."""

    slower_frac: Annotated[float, key("how much more time its step takes than that taken", "1")]
    within_noise: Annotated[
        bool, key("by no more than exact repeats of measured runs differ (3.4 %)")
    ]


class NearTie(Line):
    """A layout of other degrees with nearly the predicted time of the layout taken."""

    slower_frac: Annotated[float, key("how much more time its step takes than that taken", "1")]


class Crossing(Document):
    """A parallel degree that communicates in every layer and spans nodes."""

    degree: Annotated[str, key("tp, ep or cp")]
    size: Annotated[int, key("its ranks")]
    node_gpus: Annotated[int, key("GPUs of a node, or of a switched domain", "GPUs")]
    inside: Annotated[
        InsideNodes | None, key("the best layout without that; null where none fits the request")
    ]


class Requirement(Document):
    """One requirement of `--require`, judged."""

    text: Annotated[str, key("as given")]
    quantity: Annotated[str, key("quantity, perhaps with `.low` or `.high`")]
    compare: Annotated[str | None, key("<, <=, >, >=; null for `fits`, as are the next three")]
    limit: Annotated[
        float | None, key("in `unit`; percents of a quantity are that many of its unit")
    ]
    value: Annotated[float | None, key("what the report has, in `unit`")]
    unit: Annotated[
        str | None, key("B, s, days, USD, kWh, kg, GPU-hours, tokens/s, or 1 for shares")
    ]
    holds: Annotated[bool, key("the requirement is met")]


class Provenance(Document):
    """Provenance of the step time: sensitivity shares by kind of machine number."""

    measured_frac: Annotated[float, key("share of measured numbers", "1")]
    vendor_frac: Annotated[float, key("share of vendors' numbers", "1")]
    assumed_frac: Annotated[float, key("share of assumed numbers", "1")]


class MachineNumber(Document):
    """One number of GPU, links or stack that the step time is computed from."""

    name: Annotated[str, key("name of the number")]
    value: Annotated[float, key("in base units of `unit`")]
    unit: Annotated[str, key("base unit; 1 for a share")]
    kind: Annotated[Kind, key("measured, vendor, assumed")]
    source: Annotated[str, key("where it was read")]
    date: Annotated[str, key("of the source; may be empty")]
    elasticity: Annotated[
        float, key("percent by which the step time changes when this number grows by one percent")
    ]


class SearchCounts(Document):
    """The search behind the chosen layout."""

    evaluated: Annotated[int, key("layouts whose memory and time were computed")]
    feasible: Annotated[int, key("of these, those that fit")]
    excluded: Annotated[int, key("layouts that a bound proves slower, which were not evaluated")]
    rejected: Annotated[
        dict[str, int],
        key('count by reason: a rule of docs/formulas/rules.md, or "does not fit memory"'),
    ]
    software: Annotated[
        dict[str, str], key("free options of the stack that the search chose, by name")
    ]
    not_searched: Annotated[
        list[str], key("what the request leaves open and no search tries, each with its option")
    ]


PerDollar = Annotated[
    float | None, key("tokens for one dollar; null without a price, or at none", "1/USD")
]
UsdPerToken = Annotated[float | None, key("a million tokens; null without a price", "USD")]
KwhPerToken = Annotated[float, key("energy of a million tokens at the wall plug", "kWh")]


class PerToken(Document):
    """Cost per token."""

    usd_per_million_tokens: UsdPerToken
    kwh_per_million_tokens: KwhPerToken
    tokens_per_usd: PerDollar


class OptionValue(Document, rename={"origin": "from"}):
    """The value of an option, and where it is from."""

    value: Annotated[str | int | float | bool | list[str], key("as the option takes it")]
    origin: Annotated[
        OriginKind,
        key(
            "typed; file: a recipe, a scenario or a script; run: a measured run; publication: of"
            " the model; search: the layout taken; default"
        ),
    ]
    where: Annotated[
        str, key("flag, place in a file with its argument, or the reason of a default")
    ]
    over: Annotated[str | Unset, key("value of a file that this one replaced, and its place")] = (
        UNSET
    )


class Report(Document):
    """One chosen layout in full."""

    schema_version: Annotated[int, key("1")]
    model: Annotated[Model, key("the model that is trained")]
    cluster: Annotated[Cluster, key("GPUs and links")]
    stack: Annotated[Stack, key("the training stack")]
    training: Annotated[Training, key("what is trained how; keys below")]
    mechanisms: Annotated[
        dict[str, dict[str, Any]], key("mechanisms that are on, each with its settings")
    ]
    layout: Annotated[Layout, key("the chosen layout")]
    pick: Annotated[str, key("the command that estimates exactly this layout")]
    memory: Annotated[Memory, key("memory per GPU")]
    step: Annotated[Step, key("time of one optimizer step")]
    throughput: Annotated[Throughput, key("tokens and FLOP per second")]
    communication: Annotated[list[Communication], key("collectives, transfers and copies")]
    run: Annotated[Run, key("the whole run")]
    merge: Annotated[Merge | None, key("adapters merged into their base; null without adapters")]
    inference: Annotated[
        Inference | None,
        key("the trained model generating text on the same GPU; null: not a plain decoder"),
    ]
    stragglers: Annotated[
        Stragglers | None,
        key("null unless jitter, slow hosts, a second kind of GPU or lengths were given"),
    ]
    input: Annotated[Input | None, key("null unless an option of loading was given")]
    alternatives: Annotated[
        list[Alternative], key("best of each family, then the fastest that fit")
    ]
    advice: Annotated[list[Advice], key("evaluated changes, best first")]
    assumptions: Annotated[
        list[str], key("each assumption as a sentence, with the option that changes it")
    ]
    provenance: Annotated[Provenance, key("kinds of numbers behind the step time")]
    machine: Annotated[list[MachineNumber], key("every number behind the step time")]


class Ranked(Report):
    """One of the best layouts of a search."""

    per_token: Annotated[PerToken, key("what tokens cost")]
    software: Annotated[
        dict[str, str], key("free options of the stack that the search chose, by name")
    ]


class Possible(Document):
    """The answer with one value of an option that launch files leave undecided."""

    option: Annotated[str, key("the option")]
    value: Annotated[Value, key("one that it may have")]
    fits: Annotated[bool, key("whether the plan fits with it")]
    device_bytes: Annotated[float, key("of the fullest GPU", "B")]
    step_seconds: Annotated[float, key("of a step", "s")]


class Undecided(Document):
    """Options that launch files leave undecided, so that the answer is a range."""

    options: Annotated[
        dict[str, list[str]],
        key("arguments that are not understood, by the option that they may set"),
    ]
    possible: Annotated[list[Possible], key("the answer with each value that one may have")]
    moves: Annotated[
        bool,
        key(
            "whether one of them moves memory or the step by more than its band, or may have"
            " values that were not tried"
        ),
    ]


class Estimate(Report):
    """The answer of `dpplan estimate`."""

    search: Annotated[SearchCounts, key("the search behind the layout")]
    doubts: Annotated[
        list[str],
        key("implausible values of the answer, with the options to look at, as sentences"),
    ]
    both_ways: Annotated[
        list[str],
        key(
            "answers by a default and by another value of it, which differ by more than the band,"
            " as sentences"
        ),
    ]
    without: Annotated[
        list[str], key("nodes left idle, and what holds without a default that decides this answer")
    ]
    tighter: Annotated[
        Tighter | None,
        key(
            "the faster layout with less room; null where nothing that fits is faster by more"
            " than repeats of a run differ by (3.4 %)"
        ),
    ]
    crossing: Annotated[
        Crossing | None,
        key("tensor (or expert, context) parallelism over the border of nodes; null without"),
    ]
    near_ties: Annotated[
        list[NearTie],
        key("layouts of other degrees within a tie (1.7 %) of the step; empty where `brief`"),
    ]
    requirements: Annotated[list[Requirement], key("of `--require`, judged; empty without")]
    command: Annotated[str, key("the command that repeats the request")]
    scenario: Annotated[
        dict[str, OptionValue],
        key("every option that is given, filled in or chosen, by name, and where it is from"),
    ]
    undecided: Annotated[
        Undecided | Unset,
        key("of launch files with arguments that are not understood and may set an option"),
    ] = UNSET
    offload: Annotated[
        OffloadChoices | Unset | None,
        key("with `--explain`: recompute or offload; null where the stack does neither"),
    ] = UNSET
    explain: Annotated[Explained | Unset, key("with `--explain`: tree of formulas")] = UNSET
    roofline: Annotated[
        Roofline | Unset, key("with `--chart roofline`: kernels against the limits of the GPU")
    ] = UNSET
    crossover: Annotated[
        Crossover | Unset, key("with `--chart crossover`: all-reduce algorithms by message size")
    ] = UNSET


class Figures(Document):
    """The figures of one layout that comparisons show."""

    model: Annotated[str, key("name of the model for people")]
    cluster: Annotated[Cluster, key("as `cluster` of a report")]
    stack: Annotated[str, key("profile id of the stack")]
    layout: Annotated[Layout, key("how the work is divided")]
    tokens_per_step: Annotated[float, key("tokens of one optimizer step", "tokens")]
    memory: Annotated[Fit, key("memory per GPU")]
    step: Annotated[StepByWire, key("time of one optimizer step")]
    throughput: Annotated[Throughput, key("as `throughput` of a report")]
    run: Annotated[Run, key("as `run` of a report")]
    merge: Annotated[Merge | None, key("adapters merged into their base; null without adapters")]
    assumptions: Annotated[list[str], key("each assumption as a sentence")]
