"""The answer of `dpplan input`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key
from planner.specs.documents.conditions import Input


class InputAnswer(Document):
    """Storage bandwidth, workers and host memory for a given rate of samples."""

    schema_version: Annotated[int, key("1")]
    gpus: Annotated[int, key("GPUs, one replica each")]
    nodes: Annotated[int, key("nodes they are in")]
    batch: Annotated[int, key("samples of one GPU and step")]
    input: Annotated[Input, key("as in a report")]
