"""The answer of `dpplan compare`, and the figures by which requests are compared."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.estimate import Merge, StepByWire, Throughput
from planner.specs.documents.memory import Fit
from planner.specs.documents.plan import Cluster, Layout
from planner.specs.documents.prices import Prices
from planner.specs.documents.run import Run

_ABSENT: Any = UNSET  # absent where `refused` is set or `fits` is false


@dataclass(frozen=True)
class Figure:
    """A figure by which answers are compared.

    name: in `change_frac` and the CSV. heading: of a narrow column, with its unit; "" for a figure
    that only the long lists have (CSV and dashboard). unit: as `planner.views.figures.cell_text`
    reads it. path: where an estimate document has it.
    """

    name: str
    label: str
    heading: str
    unit: str
    path: str

    def of(self, document: Any) -> float | None:
        """The figure of an estimate document or a point; None where it has none."""
        value: float | None = attrgetter(self.path)(document)
        return value


FIGURES = (
    Figure("gpus", "GPUs", "GPUs", "number", "cluster.gpus"),
    Figure("memory_bytes", "memory per GPU", "memory", "B", "memory.device_bytes"),
    Figure("headroom_bytes", "memory left", "free", "B", "memory.headroom_bytes"),
    Figure("step_seconds", "step", "step", "s", "step.seconds"),
    Figure("step_low_s", "80 % band, low", "", "s", "step.low"),
    Figure("step_high_s", "80 % band, high", "", "s", "step.high"),
    Figure("mfu", "MFU", "MFU", "%", "throughput.mfu"),
    Figure("hfu", "HFU", "", "%", "throughput.hfu"),
    Figure("tokens_per_s", "throughput", "tokens/s", "tokens/s", "throughput.tokens_per_s"),
    Figure(
        "tokens_per_s_per_gpu",
        "throughput per GPU",
        "tokens/s/GPU",
        "tokens/s",
        "throughput.tokens_per_s_per_gpu",
    ),
    Figure("days", "days", "days", "number", "run.days"),
    Figure("gpu_hours", "GPU-hours", "", "number", "run.gpu_hours"),
    Figure("cost_usd", "cost", "USD", "USD", "run.cost_usd"),
    Figure("energy_kwh", "energy (kWh)", "kWh", "number", "run.energy_kwh"),
)


class SweptOption(Document):
    """One option that differs between requests."""

    name: Annotated[str, key("name of the option, `strategy` or `scenario`")]
    values: Annotated[list[str], key("its values, as typed")]
    swept: Annotated[bool, key("of `--sweep`; else of `--vary` or a scenario file")]


class EqualCount(Document):
    """Number of GPUs with which a request costs, or draws, as much as the first request."""

    exact_gpus: Annotated[float, key("GPUs that would be exactly equal", "GPUs")]
    gpus: Annotated[int, key("GPUs taken", "GPUs")]
    unit: Annotated[str, key("what is equal, of `amount` and `target`")]
    amount: Annotated[float, key("of the GPUs taken, in `unit`")]
    target: Annotated[float, key("of the GPUs of the first request, in `unit`")]
    off_frac: Annotated[float, key("amount over target, minus one", "1")]
    without_layout: Annotated[list[int], key("nearer counts of whole nodes without one", "GPUs")]
    slower: Annotated[list[int], key("nearer counts that are slower per GPU", "GPUs")]


class Point(Document):
    """One request and its answer; the keys from `layouts` on are there where `refused` is null."""

    label: Annotated[str, key("what sets the request apart")]
    values: Annotated[dict[str, Any], key("value of each of `dimensions`, by name")]
    command: Annotated[str, key("the command for it")]
    pick: Annotated[
        str | None, key("the command that estimates exactly the layout taken; null where none is")
    ]
    refused: Annotated[str | None, key("why there is no answer")]
    equal: Annotated[EqualCount | Unset, key("with `--at cost` and `--at power`")] = UNSET
    layouts: Annotated[int, key("layouts that the rules allow")] = _ABSENT
    model: Annotated[str, key("name of the model for people")] = _ABSENT
    cluster: Annotated[Cluster, key("as `cluster` of a report")] = _ABSENT
    stack: Annotated[str, key("profile id of the stack")] = _ABSENT
    layout: Annotated[Layout, key("as `layout` of a report")] = _ABSENT
    tokens_per_step: Annotated[float, key("tokens of one optimizer step", "tokens")] = _ABSENT
    memory: Annotated[Fit, key("memory per GPU")] = _ABSENT
    step: Annotated[StepByWire, key("time of one optimizer step")] = _ABSENT
    throughput: Annotated[Throughput, key("as `throughput` of a report")] = _ABSENT
    run: Annotated[Run, key("as `run` of a report")] = _ABSENT
    merge: Annotated[
        Merge | None, key("adapters merged into their base; null without adapters")
    ] = _ABSENT
    assumptions: Annotated[list[str], key("each assumption as a sentence")] = _ABSENT

    @property
    def fits(self) -> bool:
        """Whether there is a layout, and memory suffices."""
        return self.refused is None and self.memory.fits


class Change(Document):
    """One request against the first that fits."""

    label: Annotated[str, key("as `points[].label`")]
    change_frac: Annotated[
        dict[str, float | None],
        key("by figure: its value over the first's, minus one; null where undefined", "1"),
    ]
    seconds: Annotated[float, key("of a step or a million tokens, as `per` states", "s")]
    difference_s: Annotated[float, key("`seconds` beyond the first's", "s")]
    components: Annotated[dict[str, float], key("parts of `difference_s`", "s")]


class Difference(Document):
    """Decomposed difference between requests side by side."""

    to: Annotated[
        str, key("label of the first request that fits, which the others are compared to")
    ]
    per: Annotated[
        str,
        key(
            "what `seconds` measure: step, or million tokens where requests differ in tokens a step"
        ),
    ]
    rows: Annotated[list[Change], key("every answered request")]


class CurvePoint(Document):
    """One value on the axis; figures where `fits`, the last three where GPUs are swept."""

    value: Annotated[float, key("on the axis")]
    fits: Annotated[bool, key("there is a layout, and memory suffices")]
    why: Annotated[str, key("why it does not fit; only where it does not")] = _ABSENT
    step_seconds: Annotated[float, key("expected step time", "s")] = _ABSENT
    tokens_per_s: Annotated[float, key("throughput of the whole cluster", "tokens/s")] = _ABSENT
    tokens_per_s_per_gpu: Annotated[float, key("throughput of one GPU", "tokens/s")] = _ABSENT
    mfu: Annotated[float, key("model FLOP utilisation, by the convention of `estimate`", "1")] = (
        _ABSENT
    )
    days: Annotated[float | None, key("of the run; null without `--tokens`", "days")] = _ABSENT
    cost_usd: Annotated[float | None, key("of the run; null also without a price", "USD")] = _ABSENT
    bottleneck: Annotated[str, key("what takes most of the step")] = _ABSENT
    speed_up: Annotated[float, key("throughput over that of the first count that fits", "1")] = (
        _ABSENT
    )
    efficiency: Annotated[
        float, key("throughput per GPU over that of the first count that fits", "1")
    ] = _ABSENT
    marginal_frac: Annotated[
        float | None,
        key(
            "throughput of each GPU added since the count before, over the throughput per GPU at"
            " the first count; null there",
            "1",
        ),
    ] = _ABSENT


class AmdahlPoint(Document):
    """Amdahl's law at one count."""

    value: Annotated[float, key("GPUs")]
    step_seconds: Annotated[float, key("step time that was fitted", "s")]
    fitted_s: Annotated[float, key("step time by the law", "s")]
    residual_frac: Annotated[float, key("law over step time, minus one", "1")]


class Amdahl(Document):
    """Amdahl's law fitted to step times: serial + parallel / GPUs."""

    serial_s: Annotated[float, key("what more GPUs do not shorten", "s")]
    parallel_gpu_s: Annotated[float, key("what one GPU would take for the rest", "GPU-s")]
    serial_share_at_last: Annotated[float, key("of the last step", "1")]
    most_speed_up: Annotated[
        float | None, key("of endless GPUs over the first count; null: nothing is serial", "1")
    ]
    points: Annotated[list[AmdahlPoint], key("every count that fits")]
    worst_residual_frac: Annotated[float, key("the residual that is largest in size", "1")]


class Part(Document):
    """One component of the step over the number of GPUs."""

    first_s: Annotated[float, key("at the first count", "s")]
    last_s: Annotated[float, key("at the last count", "s")]
    ideal_s: Annotated[
        float,
        key("at the last count if it shrank in proportion; weak scaling: stayed as it is", "s"),
    ]
    excess_s: Annotated[float, key("`last_s` beyond `ideal_s`", "s")]
    exponent: Annotated[
        float | None, key("of seconds ~ GPUs ^ exponent; -1 shrinks with the GPUs, 0 does not", "1")
    ]


class Parts(Document):
    """How the parts of a step change between the first and the last count; columns sum."""

    first: Annotated[float, key("first count that fits", "GPUs")]
    last: Annotated[float, key("last count that fits", "GPUs")]
    components: Annotated[dict[str, Part], key("by component of the step")]
    ideal_s: Annotated[float, key("sum of the parts' `ideal_s`", "s")]
    excess_s: Annotated[float, key("sum of the parts' `excess_s`", "s")]


class Curve(Document):
    """One line of a sweep; what does not apply is null."""

    label: Annotated[str, key("values of all but the axis")]
    axis: Annotated[str, key("the option that is swept")]
    unit: Annotated[str, key('unit of `points[].value`, "" for a plain number')]
    points: Annotated[list[CurvePoint], key("by ascending value")]
    amdahl: Annotated[Amdahl | None, key("strong scaling over three counts or more")]
    parts: Annotated[Parts | None, key("GPUs: which parts of the step shrink with them")]
    pays_until: Annotated[
        float | None,
        key("GPUs up to which each added one brings `stop_below` of the first", "GPUs"),
    ]
    stops_at: Annotated[float | None, key("the first count that does not", "GPUs")]
    best: Annotated[float | None, key("value with most tokens/s per GPU; null: nothing fits")]


class Comparison(Doubted):
    """Requests side by side, or swept."""

    schema_version: Annotated[int, key("1")]
    dimensions: Annotated[list[SweptOption], key("what differs between requests")]
    at: Annotated[str, key("what is equal: count, cost or power")]
    scaling: Annotated[str, key("over GPUs: strong keeps the batch, weak the batch per GPU")]
    stop_below: Annotated[
        float,
        key(
            "share of the throughput per GPU at the first count below which more GPUs stop paying",
            "1",
        ),
    ]
    notes: Annotated[list[str], key("what was chosen for the requests, as sentences")]
    prices: Annotated[
        Prices, key("prices behind the costs, and the cheapest request at other prices")
    ]
    points: Annotated[list[Point], key("every request, the last dimension running fastest")]
    difference: Annotated[Difference | None, key("null for sweeps")]
    curves: Annotated[
        list[Curve], key("of a sweep, one per combination of the options that are not its axis")
    ]
