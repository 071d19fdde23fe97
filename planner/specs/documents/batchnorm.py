"""The answer of `dpplan batchnorm`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, Doubted, key


class BatchNormCluster(Document):
    """The ranks."""

    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("ranks, one per GPU")]
    nodes: Annotated[int, key("nodes they are in")]


class Exchange(Document):
    """Statistics of all layers in one pass."""

    bytes: Annotated[float, key("that a rank gives to the collectives", "B")]
    seconds: Annotated[float, key("that the layers wait", "s")]


class BatchNorm(Doubted):
    """Synchronized batch norm in one training step."""

    schema_version: Annotated[int, key("1")]
    cluster: Annotated[BatchNormCluster, key("the ranks")]
    layers: Annotated[int, key("batch norms")]
    channels: Annotated[int, key("of all of them")]
    forward: Annotated[Exchange, key("all-gathers")]
    backward: Annotated[Exchange, key("all-reduces")]
    bytes: Annotated[float, key("both passes", "B")]
    seconds: Annotated[float, key("both passes", "s")]
    assumptions: Annotated[list[str], key("what the request left open")]
