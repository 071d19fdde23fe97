"""Changes of a plan that were evaluated."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.specs.document import Document, key
from planner.specs.documents.plan import Layout

Value = bool | int | float | str | list[str] | None


class Advice(Document):
    """One change with what it brings; differences are against the chosen plan."""

    change: Annotated[str, key("the change in words")]
    kind: Annotated[
        Literal["keep", "search"],
        key("keep: the chosen plan with only this changed; search: searched again with it"),
    ]
    command: Annotated[str, key("the command that requests it")]
    pick: Annotated[str, key("the command that estimates exactly its layout")]
    changes: Annotated[
        dict[str, Value], key("options that were changed, with their new values; null: left out")
    ]
    fits: Annotated[bool, key("memory suffices")]
    gpus: Annotated[int, key("GPUs it needs")]
    step_seconds: Annotated[float, key("step time, evaluated and not guessed", "s")]
    step_change_s: Annotated[float, key("time more per step; negative is faster", "s")]
    step_change_frac: Annotated[float, key("relative change of the step; negative is faster", "1")]
    tokens_per_s: Annotated[float, key("throughput of the whole cluster", "tokens/s")]
    tokens_change_frac: Annotated[
        float, key("relative change of it; what counts where the batch or the GPUs change", "1")
    ]
    bytes_saved: Annotated[float, key("on the device; negative when it needs more", "B")]
    device_bytes: Annotated[float, key("as `memory.device_bytes`", "B")]
    layout: Annotated[Layout, key("the layout after the change")]
    stack: Annotated[str, key("profile id of the stack")]
    link: Annotated[
        str | None, key("link id between GPU and host memory where something is offloaded")
    ]
    transfer_s: Annotated[
        float | None,
        key(
            "part of the step that waiting for that link takes: against a link of unlimited speed",
            "s",
        ),
    ]
    recompute_s: Annotated[
        float | None,
        key(
            "what recomputing everything adds to the same layout without offload; null also where"
            " the stack cannot",
            "s",
        ),
    ]


class HostLink(Document):
    """A link between GPU and host memory."""

    id: Annotated[str, key("link id; the link of this plan first")]
    title: Annotated[str, key("name for people")]
    bytes_per_s: Annotated[float, key("bandwidth of one GPU by itself, one way", "B/s")]
    copy_bytes_per_s: Annotated[
        float, key("of one GPU while all GPUs of the host copy, one way", "B/s")
    ]


class LayerCopy(Document):
    """One mean layer and micro-batch."""

    bytes: Annotated[float, key("activations kept for backward", "B")]
    transfer_s: Annotated[float, key("one copy, out or back", "s")]
    recompute_s: Annotated[float, key("running the layer forward again", "s")]


class Choice(Document):
    """The chosen layout with nothing but this recomputed or offloaded."""

    what: Annotated[
        str, key("recompute full, offload activations, offload optimizer, offload params")
    ]
    link: Annotated[str | None, key("link id; null for recompute")]
    step_seconds: Annotated[float, key("step time", "s")]
    step_change_s: Annotated[float, key("time more than with neither", "s")]
    transfer_s: Annotated[
        float | None, key("part of it that waiting for the link takes; null for recompute", "s")
    ]
    bytes_saved: Annotated[float, key("on the device, against neither", "B")]
    fits: Annotated[bool, key("memory suffices")]
    command: Annotated[str, key("the command that requests it")]


class OffloadChoices(Document):
    """Recompute against offloading over this and other host links."""

    link: Annotated[str, key("link id between GPU and host memory here")]
    links: Annotated[list[HostLink], key("this link and the shipped ones")]
    layer: Annotated[LayerCopy | None, key("null where activations cannot be offloaded")]
    choices: Annotated[list[Choice], key("recompute, then every offload over every link")]
