"""The recorded formulas of an answer as a tree."""

from __future__ import annotations

from typing import Annotated, Any

from planner.ledger import Kind
from planner.specs.document import UNSET, Document, Unset, key


class ExplainedInput(Document):
    """One argument of a formula."""

    value: Annotated[Any, key("number, list or object; `no limit` for a bound that there is not")]
    kind: Annotated[Kind | Unset, key("of a sourced number: measured, vendor or assumed")] = UNSET
    source: Annotated[str | Unset, key("where the number was read")] = UNSET
    date: Annotated[str | Unset, key("of the source; may be empty")] = UNSET
    unit: Annotated[str | Unset, key("of the number")] = UNSET


class Explained(Document):
    """One call of a formula; a heading has only `name` and `calls`."""

    name: Annotated[str, key("formula, or heading")]
    equation: Annotated[str | Unset, key("the equation")] = UNSET
    unit: Annotated[str | Unset, key("of the output")] = UNSET
    source: Annotated[str | Unset, key("of the equation")] = UNSET
    output: Annotated[Any, key("number, list or object")] = UNSET
    inputs: Annotated[dict[str, ExplainedInput] | Unset, key("arguments by name")] = UNSET
    calls: Annotated[list[Explained] | Unset, key("inner calls")] = UNSET
