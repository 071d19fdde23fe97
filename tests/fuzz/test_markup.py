"""Markup in every text that people send: no element, attribute, link or script of theirs is in a
report or a page, and no cell of a table of theirs is a formula."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz import values
from fuzz.case import Case, Took, ask
from fuzz.invariants import check
from fuzz.short import few
from fuzz.test_documents import FILE, KINDS, whole, written
from fuzz.test_requests import EXAMPLES

# what makes an answer with a page and a table, by the kind of document that it reads
PAGE, TABLE = "page.html", "table.csv"
_FIXED = ("--gpus=8", "--micro-batch=1", "--recompute=full", "--zero=1", "--tokens=1B")
_RESULTS: dict[str, tuple[str, ...]] = {
    "estimate": (f"--html={PAGE}",),
    "search": (f"--html={PAGE}", f"--csv={TABLE}"),
    "compare": (f"--html={PAGE}", f"--csv={TABLE}"),
    "batch": (f"--html={PAGE}", f"--csv={TABLE}"),
    "schedule": (f"--html={PAGE}",),
    "validate": (f"--plot={PAGE}", f"--csv={TABLE}"),
}
_FROM = {  # options that read each kind
    "model": "--model=FILE --gpu=h100",
    "gpu": "--gpu=FILE --model=gpt2",
    "cluster": "--cluster=FILE --model=gpt2",
    "stack": "--stack=FILE --gpu=a100 --model=gpt2",
    "prices": "--market=FILE --gpu=a100 --model=gpt2",
    "calibration": "--calibration=FILE --gpu=rtx4090 --model=gpt2",
}
_MORE = {
    "compare": ("--vary=gpus=8,16", "--jobs=1"),
    "batch": ("--sweep=gpus=1,2", "--jobs=1", "--critical-batch=1M"),
    "schedule": ("--pp=2", "--microbatches=4"),
}
_FREE = re.compile(r"title|source|note|name|provider|terms|date|alias|version|convention|says")


@st.composite
def texts(draw: st.DrawFn) -> Case:
    """A report on a document some of whose texts are markup; or one whose file is named so."""
    how = draw(st.sampled_from(("report", "report", "report", "named", "runs")))
    if how == "named":
        return draw(_named())
    if how == "runs":
        return draw(_runs())
    verb = draw(st.sampled_from(("estimate", "estimate", "search", "compare", "batch")))
    kind = draw(st.sampled_from(sorted(_FROM)))
    source = KINDS[kind]
    document = draw(st.sampled_from(whole(draw(st.sampled_from(source.files)), source.part)))
    for _ in range(draw(st.integers(1, 3))):
        document = draw(_marked(document))
    words = (verb, *_FROM[kind].replace("FILE", FILE + source.suffix).split(), *_FIXED)
    return Case(
        (*words, *_MORE.get(verb, ()), *_RESULTS[verb]),
        {FILE + source.suffix: written(document, source.suffix)},
    )


@st.composite
def _marked(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    """The document with one of its texts replaced by markup, mostly one that is for people."""
    out: dict[str, Any] = json.loads(json.dumps(document, default=str))
    places = list(_texts(out))
    free = [place for place in places if _FREE.search(str(place[1]))]
    mostly: bool = draw(st.booleans())
    at, key = draw(st.sampled_from(free if free and mostly else places))
    at[key] = draw(marks())
    return out


def _texts(document: Any) -> Iterator[tuple[Any, Any]]:
    """Every text of a document, by what holds it and its key there."""
    for key, value in document.items() if isinstance(document, dict) else enumerate(document):
        if isinstance(value, str):
            yield document, key
        elif isinstance(value, dict | list):
            yield from _texts(value)


def marks() -> st.SearchStrategy[str]:
    """Markup, alone or within a text."""
    mark = st.sampled_from(values.MARKUP)
    return mark | mark.map(lambda entry: f"Own {entry} design")


@st.composite
def _named(draw: st.DrawFn) -> Case:
    """Scenarios side by side, named after their files."""
    content = (EXAMPLES / "scenario.toml").read_bytes()
    names = [draw(marks()).replace("/", "\u2215")[:100] + end for end in (" 1.toml", " 2.toml")]
    words = ("compare", "--jobs=1", *_RESULTS["compare"], "--", *names)
    return Case(words, dict.fromkeys(names, content))


@st.composite
def _runs(draw: st.DrawFn) -> Case:
    """A table of measured runs with markup in its cells."""
    rows = list(csv.reader(io.StringIO((EXAMPLES / "runs.csv").read_text(encoding="utf-8"))))
    for _ in range(draw(st.integers(1, 4))):
        column = draw(st.sampled_from(("run_id", "suite", "source_ref", "model")) | _any(rows[0]))
        rows[draw(st.integers(1, len(rows) - 1))][rows[0].index(column)] = draw(marks())
    out = io.StringIO()
    csv.writer(out).writerows(rows)
    return Case(
        ("validate", "given.csv", *_RESULTS["validate"]), {"given.csv": out.getvalue().encode()}
    )


def _any(header: list[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(header)


class Page(HTMLParser):
    """Refuses what could only come of a text: handlers, links to scripts, scripts of its own."""

    LINKS = ("href", "src", "action", "formaction", "srcset", "data", "xlink:href", "poster")

    def __init__(self, text: str) -> None:
        super().__init__()
        self._script = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._script = tag == "script"
        assert "zqx" not in tag, tag
        for name, value in attrs:
            assert "zqx" not in name, f"<{tag} {name}>"
            assert not name.startswith("on"), f"<{tag} {name}={value!r}>"
            if name in self.LINKS and "zqx" in (value or ""):
                assert re.match(r"[/?#]", value or ""), f"<{tag} {name}={value!r}>"

    def handle_endtag(self, tag: str) -> None:
        self._script = False

    def handle_comment(self, data: str) -> None:
        assert not re.search("zqx|<script", data), f"<!--{data[:100]}-->"

    def handle_data(self, data: str) -> None:
        if self._script and "zqx" in data:
            assert not re.search("<!--|<script", data, re.IGNORECASE), "markup within a script"
            assert not data.lstrip().startswith("zqx"), "a script of a text"


def check_table(text: str) -> None:
    """No cell is a formula to a spreadsheet."""
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            assert not re.match(r"[=+\-@\t\r]", cell) or _is_number(cell), f"the cell {cell!r}"


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@dataclass
class Browser:
    """Opens a page in Chromium and checks that no script of a text ran; for long runs."""

    open: Callable[[str], None] | None = None


BROWSER = Browser()
CASES, CASE, TOOK = texts(), Case, Took()


def fuzz(case: Case) -> None:
    got = ask(case, TOOK)
    check(case, got)
    for name, content in got.written.items():
        if name == PAGE:
            TOOK.add("pages")
            text = content.decode()
            Page(text)
            if BROWSER.open is not None:
                BROWSER.open(text)
        elif name == TABLE:
            TOOK.add("tables")
            check_table(content.decode())


_FOUND = """() => [...document.querySelectorAll('*')].filter(e => [...e.attributes].some(a =>
    a.name.startsWith('on') || (/^(href|src|xlink:href)$/.test(a.name)
    && /zqx|javascript:/.test(a.value) && !/^[\\/?#]/.test(a.value))))
    .map(e => e.outerHTML.slice(0, 200))"""


@contextmanager
def ready() -> Iterator[None]:
    """Every page is opened in Chromium, too."""
    from browser import chromium
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        result = tool.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = result.new_page()
        page.add_init_script("window.zqx = () => { window.ran = true }")

        def opened(text: str) -> None:
            TOOK.add("pages in Chromium")
            page.set_content(text, wait_until="load")
            assert not page.evaluate("() => window.ran === true"), "a script of a text ran"
            estimates = page.evaluate(_FOUND)
            assert not estimates, estimates[0]

        BROWSER.open = opened
        try:
            yield
        finally:
            BROWSER.open = None
            result.close()


@few(8)
@given(case=CASES)
def test_no_markup_of_a_text_is_in_a_report(case: Case) -> None:
    fuzz(case)


@pytest.mark.browser
def test_a_browser_runs_nothing_of_a_text() -> None:
    """All marks at once, in the texts of a model and in the names of scenarios."""
    document = {**whole(KINDS["model"].files[0], "")[0], "title": " ".join(values.MARKUP)}
    words = ("estimate", f"--model={FILE}.toml", "--gpu=h100", *_FIXED, f"--html={PAGE}")
    with ready():
        fuzz(Case(words, {f"{FILE}.toml": written(document, ".toml")}))
    assert TOOK.more["pages in Chromium"]
