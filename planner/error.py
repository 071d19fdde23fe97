"""The error of a wrong request. Imports nothing, so that `--help` need not load the specs."""

from __future__ import annotations

_SHOWN = 200  # characters of a value that are quoted: the path of a file is whole
_SAID = 1500  # of a field or a remedy, which may quote a value in turn


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


def short(text: str, most: int) -> str:
    """A text without its middle where it is longer: the end of a path says which file it is."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 2 :]}"


class PlanError(ValueError):
    """A request that cannot be answered: names the field, the value and the remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        value = printable(value) if isinstance(value, str) else value
        self.field, self.remedy = (short(printable(text), _SAID) for text in (field, remedy))
        self.value = value
        given = "" if value is None else f"{short(repr(value), _SHOWN)} - "
        super().__init__(f"{self.field}: {given}{self.remedy}")

    @property
    def sentence(self) -> str:
        """Value and remedy without the field, beside which a page shows them."""
        return str(self).removeprefix(f"{self.field}: ")
