"""A wrong request (exit status 2)."""

from __future__ import annotations

from typing import Annotated, Any

from planner.specs.document import Document, key

__all__ = ["Error", "Refusal"]


class Error(Document):
    """What is wrong and what to do."""

    field: Annotated[str, key("option or file")]
    value: Annotated[Any, key("what was given")]
    remedy: Annotated[str, key("one sentence")]


class Refusal(Document):
    """A request that cannot be answered."""

    schema_version: Annotated[int, key("1")]
    error: Annotated[Error, key("what is wrong")]
