"""What is wrong with a request. Imports nothing, so that `--help` need not load the specs."""

from __future__ import annotations

_SHOWN = 200  # characters of a value that are quoted: the path of a file is whole


class PlanError(ValueError):
    """A request that cannot be answered: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        self.field, self.value, self.remedy = field, value, remedy
        shown = repr(value)
        if len(shown) > _SHOWN:  # the end of a path says which file it is
            shown = f"{shown[: _SHOWN // 2]}...{shown[-_SHOWN // 2 :]}"
        given = "" if value is None else f"{shown} - "
        super().__init__(f"{field}: {given}{remedy}")
