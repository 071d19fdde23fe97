"""What is wrong with a request. Imports nothing, so that `--help` need not load the specs."""

from __future__ import annotations

_SHOWN = 200  # characters of a value that are quoted: the path of a file is whole


def is_text(text: str) -> bool:
    """Whether a text can be written: it holds no half of a surrogate pair, which stands for a byte
    that was no UTF-8 in a command, and for nothing in JSON."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """A text, with an escape for what cannot be written."""
    return text.encode(errors="backslashreplace").decode()


class PlanError(ValueError):
    """A request that cannot be answered: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        value = printable(value) if isinstance(value, str) else value
        self.field, self.value, self.remedy = printable(field), value, printable(remedy)
        shown = repr(value)
        if len(shown) > _SHOWN:  # the end of a path says which file it is
            shown = f"{shown[: _SHOWN // 2]}...{shown[-_SHOWN // 2 :]}"
        given = "" if value is None else f"{shown} - "
        super().__init__(f"{self.field}: {given}{self.remedy}")
