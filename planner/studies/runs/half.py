"""A row of a runs table while it is being read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.formats.record import Answer, Stated
from planner.specs.model import ModelSpec
from planner.specs.stack import StackSpec
from planner.studies.runs.cells import Row
from planner.studies.runs.table import WORD


@dataclass(frozen=True)
class Half:
    """A row that is being read: its cells, what they name, and what they say so far."""

    row: Row
    words: Mapping[str, str]
    stack: StackSpec
    model: ModelSpec
    answer: Answer

    def say(self, word: str, option: str, value: Any) -> None:
        """A word states an option, or with the value None none."""
        self.answer.state(option, value, WORD + word)

    def imply(self, option: str, value: Any, why: str) -> None:
        """A publication or the stack says an option that no cell does."""
        if self.answer.option(option) is None and value is not None:
            self.answer.options[option] = Stated(value, why, "", implied=True)

    def get(self, option: str) -> Any:
        return self.answer.option(option)
