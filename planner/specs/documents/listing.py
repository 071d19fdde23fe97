"""The answers of `dpplan list`: entries of the catalogue in short."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key


class Entry(Document):
    """Any entry of the catalogue; everything known about a schedule."""

    id: Annotated[str, key("exact id")]
    title: Annotated[str, key("name for people")]


class KindEntry(Entry):
    """One kind of entry that can be listed."""

    count: Annotated[int, key("entries of the catalogue")]


class _Aliased(Entry):
    aliases: Annotated[list[str], key("other ids")]


class GpuEntry(_Aliased):
    """One GPU."""

    memory_bytes: Annotated[float, key("as sold", "B")]
    usable_bytes: Annotated[float, key("what a framework can allocate", "B")]
    memory_bytes_per_s: Annotated[float, key("memory bandwidth", "B/s")]
    dense_flop_per_s: Annotated[dict[str, float], key("dense rate by precision", "FLOP/s")]
    power_w: Annotated[float, key("limit of the board", "W")]
    node: Annotated[str, key("the usual node: GPUs, their link, network cards")]


class ModelEntry(_Aliased):
    """One model."""

    parameters: Annotated[int, key("exact number of parameters", "parameters")]
    active_parameters: Annotated[int, key("parameters that one token uses", "parameters")]
    layers: Annotated[int, key("decoder layers")]
    hidden: Annotated[int, key("width of the model")]
    max_positions: Annotated[int, key("context in training", "tokens")]
    source: Annotated[str, key("where the shape was read")]


class BlockRow(Document):
    """Layers that are alike, or a part of them."""

    name: Annotated[str, key("words of the stack; parts of a layer are indented below it")]
    module: Annotated[str, key("class of a traced block")]
    times: Annotated[int, key("layers of this kind")]
    parameters: Annotated[int, key("of one of them", "parameters")]
    forward_flop: Annotated[float, key("of one of them, for one sample", "FLOP")]
    moved_bytes: Annotated[
        float | None,
        key("by operators bound by memory, both ways, one sample; null where not traced", "B"),
    ]
    saved_bytes: Annotated[
        float | None, key("kept for backward in 16 bit, one sample; null where not traced", "B")
    ]
    operators: Annotated[str, key("kinds of operators")]


class ModelTree(Document):
    """The blocks of one model."""

    name: Annotated[str, key("exact id")]
    title: Annotated[str, key("name for people")]
    source: Annotated[str, key("where the shape is from")]
    parameters: Annotated[int, key("exact number of parameters", "parameters")]
    layers: Annotated[int, key("layers, or blocks")]
    tokens: Annotated[int, key("of the sample for which FLOP and bytes are counted", "tokens")]
    unit: Annotated[str, key("what a batch counts")]
    blocks: Annotated[list[BlockRow], key("kinds of layers, and their parts")]


class NetworkEntry(_Aliased):
    """One link."""

    scope: Annotated[str, key("intra_node or inter_node")]
    bytes_per_s: Annotated[
        float | None,
        key(
            "one way; per GPU inside a node, per network card between nodes; none where the name is"
            " a kind of fabric, at the speed of the node's cards",
            "B/s",
        ),
    ]
    latency_s: Annotated[
        float, key("inside a node two steps of a ring, between nodes one step", "s")
    ]
    all_reduce_frac: Annotated[float, key("share of the bandwidth that an all-reduce reaches", "1")]
    peer_to_peer: Annotated[bool, key("GPUs write into each other's memory")]


class StackEntry(_Aliased):
    """One training stack."""

    zero: Annotated[list[int], key("ZeRO stages it has")]
    schedules: Annotated[list[str], key("pipeline schedules it has")]
    recompute: Annotated[list[str], key("kinds of recompute it has")]
    source: Annotated[str, key("where this was read")]


class ClusterEntry(_Aliased):
    """One cluster."""

    gpu: Annotated[str, key("profile id of the GPU")]
    gpus_per_node: Annotated[int, key("GPUs in one node")]
    intra_node: Annotated[str, key("link id inside a node")]
    inter_node: Annotated[str, key("link id between nodes")]
    nics_per_node: Annotated[int, key("network cards of one node")]
    source: Annotated[str, key("where this was read")]


class HostEntry(_Aliased):
    """Processors and memory of one server."""

    sockets: Annotated[int, key("processors")]
    cores: Annotated[int, key("physical cores of all processors")]
    memory_bytes_per_s: Annotated[float, key("bandwidth of all memory channels", "B/s")]
    core_bytes_per_s: Annotated[float, key("bandwidth of one core by itself", "B/s")]
    source: Annotated[str, key("where this was read")]
