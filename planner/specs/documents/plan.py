"""The plan in documents: the model, the cluster, the layout."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs import layout as specs
from planner.specs.document import UNSET, Document, Unset, key
from planner.specs.layout import OffloadName, PlacementName, ScheduleName


class Model(Document):
    """The model that is trained."""

    name: Annotated[str, key("catalogue name, or where the shape was read")]
    title: Annotated[str, key("name for people")]
    parameters: Annotated[int, key("exact number of parameters", "parameters")]
    active_parameters: Annotated[
        int, key("parameters that one token uses; all of a dense model", "parameters")
    ]
    source: Annotated[str, key("where the shape was read")]
    shape: Annotated[
        dict[str, Any], key("every field of the shape that is set, see docs/extending/model.md")
    ]


class Cluster(Document):
    """The GPUs of a plan and the links between them."""

    title: Annotated[str, key("GPUs and links for people")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpu_title: Annotated[str, key("name of the GPU for people")]
    gpus: Annotated[int, key("GPUs of the job")]
    gpus_per_node: Annotated[int, key("GPUs in one node")]
    nodes: Annotated[int, key("nodes of the job")]
    intra_node: Annotated[str, key("link id inside a node")]
    inter_node: Annotated[str, key("link id between nodes")]
    nics_per_node: Annotated[int, key("network cards of one node")]
    nic_bytes_per_s: Annotated[float, key("bandwidth of one card, one way", "B/s")]
    nvlink_domain: Annotated[int, key("GPUs in one switched domain, at least a node")]
    island_nodes: Annotated[
        int | None, key("nodes of an island of the network; null: one fabric, or not known")
    ]
    oversubscription: Annotated[
        float, key("of links between islands; 1: non-blocking, or assumed to be", "1")
    ]
    usd_per_gpu_hour: Annotated[
        float | None, key("price; null: none of this kind is known", "USD/h")
    ]
    price_market: Annotated[
        str, key("kind of price: on-demand, spot, ... (`--market`), stated, or own hardware")
    ]
    price_source: Annotated[
        str | None, key("kind, provider and date of the price, or how it was stated")
    ]
    price_missing: Annotated[
        str | None, key("why it is missing, with the markets that have one; null: it has one")
    ]
    price_read: Annotated[str | None, key("where the price was read")]

    @property
    def price(self) -> str:
        """The price with its kind, or why there is none; printed beside an amount."""
        if self.usd_per_gpu_hour is None:
            return self.price_missing or ""
        return f"{self.usd_per_gpu_hour:,.2f} USD per GPU-hour: {self.price_source}"


class Stack(Document):
    """The training stack."""

    id: Annotated[str, key("profile id of the stack")]
    title: Annotated[str, key("name for people")]
    bytes_per_parameter: Annotated[
        dict[str, float],
        key(
            "bytes per parameter before sharding: `parameters`, `gradients`, and `optimizer`"
            " (master copy and moments)",
            "B",
        ),
    ]


class LayoutChoice(Document):
    """The options that fix a layout."""

    tp: Annotated[int, key("tensor-parallel degree")]
    pp: Annotated[int, key("pipeline stages")]
    vpp: Annotated[int, key("virtual stages per rank")]
    dp: Annotated[int, key("data-parallel degree")]
    cp: Annotated[int, key("context-parallel degree")]
    ep: Annotated[int, key("expert-parallel degree")]
    zero: Annotated[int, key("ZeRO stage, 0 to 3")]
    shard_group: Annotated[int, key("ranks over which ZeRO shards; groups replicate")]
    sequence_parallel: Annotated[bool, key("sequence parallelism beside tensor parallelism")]
    recompute: Annotated[str, key("none, selective, full, block:N, group:K, modules, keep:results")]
    schedule: Annotated[ScheduleName, key("pipeline schedule")]
    micro_batch: Annotated[int, key("sequences per replica and pass")]
    offload: Annotated[OffloadName, key("what is offloaded, and whether to NVMe drives")]
    placement: Annotated[PlacementName, key("rank order, fastest-varying first")]


class Layout(LayoutChoice):
    """How the work is divided over the GPUs."""

    global_batch: Annotated[int, key("sequences per optimizer step")]
    grad_accum: Annotated[int, key("micro-batches per replica and step")]
    pipeline_layout: Annotated[
        str | Unset,
        key(
            "what every pipeline chunk holds, where they differ or it was stated, as"
            " --pipeline-layout reads it"
        ),
    ] = UNSET


def describe(layout: Layout, *, with_layers: bool = True) -> str:
    """A layout in one line: only what differs from plain data parallelism. with_layers: whether
    chunks are uneven, and which layers are recomputed, too."""
    degrees = ("tp", "pp", "vpp", "cp", "ep")
    parts = [f"{name} {size}" for name in degrees if (size := getattr(layout, name)) > 1]
    parts.append(f"dp {layout.dp}")
    if layout.zero:
        whole = layout.shard_group == layout.dp * layout.cp
        parts.append(f"zero {layout.zero}{'' if whole else f' over {layout.shard_group}'}")
    if layout.sequence_parallel:
        parts.append("sp")
    if layout.pp > 1:
        parts.append(layout.schedule)
    if with_layers and layout.pipeline_layout is not UNSET:
        parts.append("uneven chunks")
    if with_layers:
        parts.append(f"recompute {layout.recompute}")
    parts.append(f"micro-batch {layout.micro_batch} x {layout.grad_accum}")
    if layout.offload != "none":
        parts.append(f"offload {layout.offload}")
    if layout.placement != specs.PLACEMENTS[0]:
        parts.append(f"placement {layout.placement}")
    return ", ".join(parts)
