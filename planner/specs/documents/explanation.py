"""The answer of `/api/explain`: the formulas behind every number, for people."""

from __future__ import annotations

from typing import Annotated

from planner.ledger import Kind
from planner.specs.document import UNSET, Document, Unset, key


class Leaf(Document):
    """A number that a figure is the sum of, or made of."""

    name: Annotated[str, key("name for people")]
    shown: Annotated[str, key("with its unit")]
    value: Annotated[float, key("in base units")]


class Input(Document):
    """One argument of a formula."""

    name: Annotated[str, key("name of the argument")]
    shown: Annotated[str, key("its value, the first ones of an array")]
    kind: Annotated[Kind | Unset, key("of a sourced number: measured, vendor or assumed")] = UNSET
    source: Annotated[str | Unset, key("where the number was read")] = UNSET
    date: Annotated[str | Unset, key("of the source; may be empty")] = UNSET


class Node(Document):
    """One call of a formula; a heading has only `name` and `calls`."""

    name: Annotated[str, key("formula, or heading")]
    equation: Annotated[str | Unset, key("the equation")] = UNSET
    source: Annotated[str | Unset, key("of the equation")] = UNSET
    unit: Annotated[str | Unset, key("of the output")] = UNSET
    module: Annotated[str | Unset, key("where the formula is")] = UNSET
    doc: Annotated[str | Unset, key("docstring of the formula")] = UNSET
    output: Annotated[str | Unset, key("with its unit")] = UNSET
    inputs: Annotated[list[Input] | Unset, key("arguments in order")] = UNSET
    calls: Annotated[list[Node] | Unset, key("inner calls, exact repetitions once")] = UNSET


class Part(Document):
    """Formulas behind one figure of the answer."""

    key: Annotated[str, key("time, memory, throughput, mfu, days, cost, energy")]
    title: Annotated[str, key("heading for people")]
    leaves: Annotated[list[Leaf], key("what the number is the sum of, or made of")]
    calls: Annotated[list[Node], key("the formulas")]


class Explanation(Document):
    """The formulas behind an estimate, part by part."""

    schema_version: Annotated[int, key("1")]
    parts: Annotated[list[Part], key("one per figure of the answer")]
