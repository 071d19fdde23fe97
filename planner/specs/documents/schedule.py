"""The answer of `dpplan schedule`; lists have one entry per rank unless stated otherwise."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.estimate import Figures as LayoutFigures
from planner.specs.documents.estimate import SearchCounts

_MAKESPAN = key("from the first start to the last end", "s")
_STEP = key(
    "from one step to the next: the makespan, or the longest stay of a rank where ranks run on"
    " without waiting (zb-*)",
    "s",
)
_BUBBLE = key("idle share of `step_s`, mean over ranks", "1")
_BUSY = key("computing", "s")
_LIVE = key("most micro-batches whose activations are kept; a chunk counts 1/vpp")
_LIVE_BYTES = key("the same in bytes; null where the size of activations is not known", "B")
_VPP = key("chunks of layers per rank")


class Durations(Document):
    """Durations of the actions."""

    forward_s: Annotated[list[float], key("per rank and micro-batch, or one per chunk", "s")]
    input_gradient_s: Annotated[list[float], key("likewise", "s")]
    weight_gradient_s: Annotated[list[float], key("likewise", "s")]
    p2p_s: Annotated[
        list[float], key("one for all messages, or one per boundary between stages", "s")
    ]
    optimizer_s: Annotated[
        list[float],
        key(
            "what follows a rank's last action: the update, with a model also gradients of"
            " replicas that are still on their way",
            "s",
        ),
    ]
    slowdown: Annotated[list[float], key("stragglers: factor on a rank's computing", "1")]


class Figures(Document):
    """Times, bubble and memory of one schedule, as `Row` and `Schedule` list them."""

    makespan_s: Annotated[float, _MAKESPAN]
    step_s: Annotated[float, _STEP]
    bubble_frac: Annotated[float, _BUBBLE]
    busy_s: Annotated[list[float], _BUSY]
    peak_live_microbatches: Annotated[list[float], _LIVE]
    peak_live_bytes: Annotated[list[float] | None, _LIVE_BYTES]


class Row(Document):
    """A schedule at the same pp and micro-batches; all figures are null where it is refused."""

    schedule: Annotated[str, key("its name, or that of the file")]
    vpp: Annotated[int, _VPP]
    refused: Annotated[str | None, key("why it cannot run at this size")]
    makespan_s: Annotated[float | None, _MAKESPAN]
    step_s: Annotated[float | None, _STEP]
    bubble_frac: Annotated[float | None, _BUBBLE]
    busy_s: Annotated[list[float] | None, _BUSY]
    peak_live_microbatches: Annotated[list[float] | None, _LIVE]
    peak_live_bytes: Annotated[list[float] | None, _LIVE_BYTES]


class OfLayout(LayoutFigures):
    """The layout of a schedule with a model, as in an estimate."""

    search: Annotated[SearchCounts, key("the search behind the layout")]
    around: Annotated[
        dict[str, float],
        key("components of `step.seconds` that no action of a schedule holds: `overhead`", "s"),
    ]
    transfers_s: Annotated[
        float,
        key(
            "the rest of `step.seconds` over `step_s` of the schedule: transfers between stages"
            " and idle time, which an estimate has in closed form and the schedule action by"
            " action; below 0 where the schedule takes longer, as with stragglers",
            "s",
        ),
    ]


class Schedule(Doubted):
    """One pipeline schedule timed and counted, beside all others at its size."""

    schema_version: Annotated[int, key("1")]
    schedule: Annotated[str, key("its name, or that of the file")]
    pp: Annotated[int, key("ranks")]
    vpp: Annotated[int, _VPP]
    microbatches: Annotated[int, key("per step")]
    makespan_s: Annotated[float, _MAKESPAN]
    step_s: Annotated[float, _STEP]
    bubble_frac: Annotated[float, _BUBBLE]
    busy_s: Annotated[list[float], _BUSY]
    peak_live_microbatches: Annotated[list[float], _LIVE]
    peak_live_bytes: Annotated[list[float] | None, _LIVE_BYTES]
    durations: Annotated[Durations, key("what the actions take")]
    actions: Annotated[
        list[list[str]],
        key("in the order a rank runs them, such as `0F3`; with `--sends` messages among them"),
    ]
    comparison: Annotated[list[Row], key("every schedule at the same pp and micro-batches")]
    estimate: Annotated[
        OfLayout | Unset, key("with a model: the layout that was chosen, and its estimate")
    ] = UNSET
