"""The answer of `dpplan allreduce`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, Doubted, key


class AllReduceCluster(Document):
    """The ranks and their links."""

    title: Annotated[str, key("GPUs and links for people")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("ranks, one per GPU")]
    nodes: Annotated[int, key("nodes they are in")]
    ranks_per_node: Annotated[float, key("ranks of one node, or of one switched domain")]
    intra_node: Annotated[str, key("link id inside a node")]
    inter_node: Annotated[str, key("link id between nodes")]


class Algorithm(Document):
    """One way to do an all-reduce."""

    name: Annotated[str, key("short name")]
    title: Annotated[str, key("name for people")]
    letter: Annotated[str, key("in the map of the text output")]
    source: Annotated[str, key("where its cost was read")]
    refused: Annotated[str | None, key("why it does not apply here")]


class Size(Document):
    """One size on all GPUs."""

    bytes: Annotated[float, key("bytes reduced", "B")]
    seconds: Annotated[dict[str, float], key("by name of the algorithm", "s")]
    fastest: Annotated[
        str, key("the parameter server, which needs machines of its own, is not a candidate")
    ]
    bus_bytes_per_s: Annotated[
        float, key("2 (n-1)/n bytes over the seconds of the fastest, as nccl-tests", "B/s")
    ]
    estimated_s: Annotated[
        float, key("what `dpplan estimate` takes: the fastest of ring, tree and switch", "s")
    ]


class FastestBySize(Document):
    """The fastest algorithms over some of the ranks."""

    ranks: Annotated[int, key("ranks of the all-reduce")]
    nodes: Annotated[float, key("nodes they are in")]
    fastest: Annotated[list[str], key("for each of `map.bytes`")]


class FastestMap(Document):
    """The fastest algorithm by size and number of ranks."""

    bytes: Annotated[list[float], key("columns of the map", "B")]
    rows: Annotated[list[FastestBySize], key("by number of ranks")]


class Crossover(Document):
    """A size at which the fastest algorithm changes."""

    ranks: Annotated[int, key("ranks of the all-reduce")]
    bytes: Annotated[float, key("from here on `above` is the fastest", "B")]
    below: Annotated[str, key("the fastest for smaller sizes")]
    above: Annotated[str, key("the fastest from here on")]


class AllReduce(Doubted):
    """All-reduce algorithms against each other."""

    schema_version: Annotated[int, key("1")]
    cluster: Annotated[AllReduceCluster, key("the ranks and their links")]
    servers: Annotated[int, key("of the parameter server")]
    algorithms: Annotated[list[Algorithm], key("all, those that do not apply included")]
    sizes: Annotated[list[Size], key("requested sizes")]
    map: Annotated[FastestMap, key("the fastest by size and number of ranks")]
    crossovers: Annotated[list[Crossover], key("where the fastest changes")]
    assumptions: Annotated[list[str], key("what the request left open")]
