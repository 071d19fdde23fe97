"""A wrong request: exit status 2, and over HTTP a status from 400 on."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key


class Error(Document):
    """A wrong request: the field, its value and the remedy."""

    field: Annotated[str, key("option or file")]
    value: Annotated[bool | float | str | None, key("what was given")]
    remedy: Annotated[str, key("one sentence")]


class Refusal(Document):
    """A request that cannot be answered."""

    schema_version: Annotated[int, key("1")]
    error: Annotated[Error, key("what is wrong")]


class Problem(Document):
    """A request over HTTP that cannot be answered."""

    field: Annotated[str, key("option, or part of the request")]
    value: Annotated[str | None, key("what was given")]
    message: Annotated[str, key("one sentence with the remedy")]
