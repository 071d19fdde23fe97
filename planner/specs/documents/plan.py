"""What is planned, as documents tell it: the model, the cluster, the layout."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs.document import Document, key
from planner.specs.layout import OffloadName, PlacementName, ScheduleName

__all__ = ["Cluster", "Layout", "Model", "Stack"]


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
        dict[str, Any], key("every field of the shape that is set, see [extending](extending.md)")
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
    usd_per_gpu_hour: Annotated[float | None, key("price; null: none known", "USD/h")]
    price_source: Annotated[str | None, key("price list and date")]


class Stack(Document):
    """The software stack."""

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


class Layout(Document):
    """How the work is divided over the GPUs."""

    tp: Annotated[int, key("tensor-parallel degree")]
    pp: Annotated[int, key("pipeline stages")]
    vpp: Annotated[int, key("virtual stages per rank")]
    dp: Annotated[int, key("data-parallel degree")]
    cp: Annotated[int, key("context-parallel degree")]
    ep: Annotated[int, key("expert-parallel degree")]
    zero: Annotated[int, key("ZeRO stage, 0 to 3")]
    shard_group: Annotated[int, key("ranks over which ZeRO shards; groups replicate")]
    sequence_parallel: Annotated[bool, key("sequence parallelism beside tensor parallelism")]
    recompute: Annotated[str, key("none, selective, full, block:N, group:K")]
    schedule: Annotated[ScheduleName, key("pipeline schedule")]
    micro_batch: Annotated[int, key("sequences per replica and pass")]
    offload: Annotated[OffloadName, key("what is offloaded, and whether to NVMe drives")]
    placement: Annotated[PlacementName, key("rank order, fastest-varying first")]
    global_batch: Annotated[int, key("sequences per optimizer step")]
    grad_accum: Annotated[int, key("micro-batches per replica and step")]
