"""What is wrong with a request. Imports nothing, so that `--help` need not load the specs."""

from __future__ import annotations


class PlanError(ValueError):
    """A request that cannot be answered: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        shown = repr(value)
        given = "" if value is None else f"{shown if len(shown) <= 80 else shown[:77] + '...'} - "
        super().__init__(f"{field}: {given}{remedy}")
