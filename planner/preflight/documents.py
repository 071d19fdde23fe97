"""The answer of `dpplan preflight`."""

from __future__ import annotations

from typing import Annotated, Literal

from planner.specs.document import Document, key

__all__ = ["ANSWERS", "Check", "Preflight", "State"]

ANSWERS = {"preflight": "Preflight"}


State = Literal["ok", "warning", "failed", "unknown"]


class Check(Document):
    """One property of the node against the plan."""

    name: Annotated[str, key("what is checked")]
    state: Annotated[
        State, key("failed: the run would not start or not finish; unknown: the node does not say")
    ]
    node: Annotated[str, key("what the node has")]
    plan: Annotated[str, key("what the plan needs or assumes")]
    remedy: Annotated[str, key("what to do; empty where nothing is to be done")]


class Preflight(Document):
    """A node checked before a run."""

    command: Annotated[str, key("the plan as a command")]
    host: Annotated[str, key("name of the node")]
    ready: Annotated[bool, key("no check failed")]
    checks: Annotated[list[Check], key("in the order in which a run meets them")]
