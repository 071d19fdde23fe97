"""Tables as CSV for spreadsheets, which take a cell that begins with a sign for a formula: text
with one gets an apostrophe before it, numbers stay as they are."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence

Cell = str | float | bool | None

# where a formula would begin: at a sign that comes first, behind blanks and quotes too, or behind
# what separates cells in some countries, beside other text; a tab or the end of a line that comes
# first is dropped. The second signs are the wide ones of East Asia (OWASP, CSV Injection)
_SIGN = r"[=+\-@\uff1d\uff0b\uff0d\uff20]\s*\S"
_FORMULA = re.compile(rf"""^(?=[\t\r\n]|[\s"']*{_SIGN})|(?<=[;\t\r\n])(?=["']*{_SIGN})""")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def csv_text(header: Sequence[str], lines: Iterable[Sequence[Cell]]) -> str:
    """The table as CSV. Numbers that are undefined or infinite are left out, as None is."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow([_cell(name) for name in header])
    table.writerows([_cell(value) for value in line] for line in lines)
    return out.getvalue()


def _cell(value: Cell) -> Cell:
    if isinstance(value, str):
        lines = value.replace("\r\n", "\n").replace("\r", "\n")  # the writer quotes only these
        return value if _NUMBER.fullmatch(value) else _FORMULA.sub("'", lines)
    return value if value is None or math.isfinite(value) else None
