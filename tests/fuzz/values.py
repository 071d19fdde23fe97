"""Values of options, as a person types them, drawn from the option table: right ones, extremes, and
texts of every hostile kind. A new option is drawn without an edit here."""

from __future__ import annotations

import math
import re
from typing import Any

from hypothesis import strategies as st

from planner.inputs import catalog
from planner.specs.options import Row

MARKUP = (
    "<script>zqx()</script>",
    "</script><script>zqx()</script>",
    '"><img src=x onerror=zqx()>',
    "' onmouseover='zqx()",
    "<!--<script>",
    "]]><svg onload=zqx()>",
    "<a href='javascript:zqx()'>zqx</a>",
    "{{ 7 * 7 }}",
    "=cmd|'/C calc'!A0",
    "&lt;b&gt;",
)
HOSTILE = (
    *MARKUP,
    "",
    " ",
    "\t\n",
    "\x00",
    "\x07\x1b[31mred\x1b[0m",
    "\ufeffx",
    "\u202egnirts",
    "\ud800",
    "x\r\ny: z",
    "a" * 201,
    "a" * 4097,
    "0" * 30_000,
    "1e" * 20_000,
    ("tp" + " " * 20_000 + "x"),
    "a.a." * 5_000,
    "((((" * 3_000,
    "[" * 20_000,
    "%s%n%x",
    "${HOME}",
    "../../../etc/passwd",
    "/dev/full",
    "/dev/stdin.toml",
    "hf:org/name",
    "-",
    "--",
    "--json",
    "@file",
    "None",
    "null",
    "true",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1_000",
    "１２",  # digits of another script
    "½",
    "1,5",
    "1e400",
    "1e-400",
    "10**9",
)
NUMBERS = (
    "0",
    "-0.0",
    "-1",
    "0.5",
    "1.5",
    "3",
    "7",
    "96",
    "1e-300",
    "5e-324",
    "1e-30",
    "1e-9",
    "1e9",
    "1e15",
    "1e30",
    "1e300",
    "1.7976931348623157e308",
    "9" * 25,
    "9" * 400,
)
_UNITS = ("", "B", "GiB", "TB/s", "Gbit/s", "us", "s", "min", "h", "days", "years", "%", "W", "T")
_SMALL = 64  # numbers of a size that most requests have


def hostile() -> st.SearchStrategy[str]:
    """Any text at all."""
    return st.sampled_from(HOSTILE) | st.text(max_size=30) | _quantity()


def _quantity() -> st.SearchStrategy[str]:
    return st.builds("{}{}{}".format, st.sampled_from(NUMBERS), st.sampled_from(("", " ")), _unit())


def _unit() -> st.SearchStrategy[str]:
    return st.sampled_from(_UNITS)


def right(row: Row) -> st.SearchStrategy[str]:
    """Texts that the option means to take: its words, its numbers, its example with other ones."""
    says = row.says
    items: list[st.SearchStrategy[str]] = []
    if says.example:
        items += [st.just(says.example)]
    words = [*map(str, row.choices), *(aliase.word for aliase in says.aliases)]
    if words:
        items.append(st.sampled_from(words))
    kind = says.catalogue.partition("/")[0]
    if kind and catalog.folder(kind).is_dir():
        items.append(st.sampled_from(catalog.ids(kind)))
    if row.is_number or says.reads:
        items += [_number(row), _number(row)]
    elif re.search(r"\d", says.example) and not row.choices:
        items.append(_example(says.example))
    return st.one_of(items) if items else st.text(min_size=1, max_size=5)


def edges(row: Row) -> st.SearchStrategy[str]:
    """Numbers at the bounds of the option, and just beyond."""
    bounds = [float(entry) for entry in (row.says.least, row.says.most) if entry is not None]
    beyond = (lambda x: x, lambda x: x + 1, lambda x: x - 1, lambda x: math.nextafter(x, math.inf))
    near = [f"{move(x):.17g}" for x in bounds for move in beyond]
    bare = st.sampled_from([*near, *NUMBERS])
    return bare | bare.map(lambda text: f"{text} {row.says.unit}".strip())


def _number(row: Row) -> st.SearchStrategy[str]:
    """Numbers within the bounds, most of them small; with the unit of the example, if any."""
    says = row.says
    if row.kind is int and says.least is not None and says.most is not None:
        low, most = math.ceil(says.least), int(says.most)
        small = st.integers(low, min(most, low + _SMALL))
        return (small | small | st.integers(low, most)).map(str)
    scaled = st.sampled_from((0.001, 0.1, 0.5, 1.0, 1.0, 2.0, 7.0, 1e3, 1e6))
    return scaled.map(lambda by: _scaled(says.example, by))


def _scaled(example: str, by: float) -> str:
    """The first number of an example times so much: "200 Gbit/s" -> "400 Gbit/s"."""
    return re.sub(r"[\d.]+", lambda m: f"{float(m[0]) * by:g}", example, count=1)


def _example(text: str) -> st.SearchStrategy[str]:
    """An example with other numbers, more of itself, or a piece out of place: what has a grammar of
    its own."""
    number = st.sampled_from(NUMBERS) | st.integers(0, _SMALL).map(str)
    swapped = st.builds(lambda new: re.sub(r"\d[\d.e+]*", lambda _: new, text, count=1), number)
    more = st.builds(
        lambda part, times: part.join([text] * times),
        st.sampled_from((",", ";", " ", "|", "")),
        st.sampled_from((2, 3, 200)),
    )
    cut = st.integers(0, max(0, len(text) - 1)).map(lambda at: text[:at])
    put = st.builds(
        lambda at, entry: text[:at] + entry + text[at:], st.integers(0, len(text)), hostile()
    )
    return swapped | swapped | more | cut | put


def text_of(row: Row) -> st.SearchStrategy[str]:
    """Any value of an option: mostly right ones, so that most requests get far."""
    known, far = right(row), hostile()
    wild = edges(row) if row.is_number or row.says.reads else far
    return st.one_of(known, known, known, known, known, wild, far)


def anything() -> st.SearchStrategy[Any]:
    """Any value that a document may hold."""
    leaf = st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.sampled_from((0, -1, 1, 10**18, 0.0, -0.5, 1e-300, 1e300)),
        st.sampled_from((math.nan, math.inf, -math.inf)),
        hostile(),
    )
    return (
        leaf | st.lists(leaf, max_size=3) | st.dictionaries(st.text(max_size=5), leaf, max_size=2)
    )
