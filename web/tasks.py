"""Tasks of workers: each takes a request as it came, the pairs of an address or a posted body,
and gives a JSON document as bytes. Nothing here knows HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from planner import api, plugins
from planner.inputs import catalog
from planner.inputs.scenario import resolve
from planner.report.charts import crossover, roofline
from planner.specs.base import PlanError
from planner.specs.document import plain, to_json
from planner.specs.documents.compare import Comparison
from planner.specs.documents.estimate import Estimate
from planner.units import percent
from planner.verbs import explanation as explained
from planner.verbs import requests
from planner.verbs.compare import side_by_side
from planner.verbs.estimate import chosen
from planner.views import compare, estimate_figures
from planner.views.cells import csv_text
from planner.views.chart import Chart
from planner.views.drawn import Leads
from planner.views.explain import figure_blocks
from planner.views.figures import alone
from planner.views.html import block_of
from planner.views.kernels import crossover_block, roofline_block
from planner.views.view import Link, with_doubts
from web import limits, upload, view
from web.export import exported
from web.forms import form
from web.panels import calibrated, gantt, landscape, legal, scaling
from web.render import drawn, rendered
from web.report import report as report_of
from web.state import Pairs, State, of_pairs, posted, readable, scenario_of
from web.tabs import BY_PATH, Tab
from web.tabs.base import requested
from web.tabs.page import drawn_answer, head, page
from web.tabs.strip import chips
from web.texts import text

Sent = Pairs | bytes
Scenarios = dict[str, Pairs]  # states by their names

PANELS: dict[str, Callable[[State], list[Chart]]] = {
    "pareto": landscape.charts,
    "scaling": lambda state: scaling.charts(state, limits.MAX_GPUS),
    "roofline": lambda state: [alone(roofline_block(roofline(chosen(state.options))))],
    "schedule": lambda state: gantt.charts(state.options),
    "crossover": lambda state: [alone(crossover_block(crossover(chosen(state.options))))],
}


@cache
def panels() -> dict[str, Callable[[State], list[Chart]]]:
    """Charts that need work of their own by the name of their panel: of the core, then of each part
    that is installed."""
    parts = plugins.modules("web.panels")
    return PANELS | {name: make for part in parts for name, make in part.PANELS.items()}


@contextmanager
def _state(request: Sent) -> Iterator[State]:
    """The state, with its pasted texts as the only files that can be read."""
    state = posted(request) if isinstance(request, bytes) else of_pairs(request)
    with catalog.only_given(state.files):
        yield state


def dumped(document: Any) -> bytes:
    """One JSON document, without infinities."""
    return to_json(document).encode()


def estimate(request: Sent) -> bytes:
    """The document of `dpplan estimate --json`."""
    with _state(request) as state:
        return dumped(api.estimate(state.options))


def search(request: Sent) -> bytes:
    """The document of `dpplan search --json`."""
    with _state(request) as state:
        return dumped(api.search_layouts(state.options))


def verb(pairs: Pairs, path: str) -> bytes:
    """The document of the verb of a tab, as on the command line with --json."""
    tab = _tab(path)
    with requested(tab, pairs) as request:
        return dumped(tab.answers.out(tab.answers.find(request)))


def tab(pairs: Pairs, path: str) -> bytes:
    """The page of a tab: its form, and the answer or what is wrong with the request."""
    return dumped(page(_tab(path), pairs))


def uploaded(body: bytes, kind: str, path: str) -> bytes:
    """The page of a tab whose form was posted with files."""
    form_ = upload.posted(body, kind)
    return dumped(page(_tab(path), form_.pairs, form_.files))


def tab_form(pairs: Pairs, path: str) -> bytes:
    """The form of a tab."""
    return dumped(head(_tab(path), pairs))


def sheet(pairs: Pairs, path: str) -> bytes:
    """The answer of a tab as CSV."""
    tab = _tab(path)
    with requested(tab, tab.split(pairs)[0]) as request:
        return tab.answers.view(tab.answers.find(request), request).csv.encode()


def _tab(path: str) -> Tab:
    page_of_tab = BY_PATH[path]
    assert isinstance(page_of_tab, Tab)
    return page_of_tab


def comparison(several: Scenarios) -> bytes:
    """The document of `dpplan compare SCENARIO SCENARIO --json`, of states in place of files."""
    return dumped(_side_by_side(several)[0])


def _side_by_side(several: Scenarios) -> tuple[Comparison, dict[str, str]]:
    """States side by side, and their addresses by the command of each."""
    points, queries = {}, {}
    for name, pairs in several.items():
        try:
            with _state(pairs) as state:
                (point,) = requests.answer([state.options])
        except PlanError as error:
            raise PlanError(f"{name}: {error.field}", error.value, error.remedy) from None
        points[name] = point
        queries[point.command] = state.query
    return side_by_side(points), queries


def _brief(request: Sent) -> tuple[Estimate, State]:
    with _state(request) as state:
        return api.estimate(state.options, brief=True), state


Part = Literal["answer", "charts", "all"]


def what_if(pairs: Pairs, part: Part = "all") -> bytes:
    """Answer and first charts of a state. part: answer, without charts; charts, without their
    tables; all."""
    report, state = _brief(pairs)
    shown = view.answer(report, state)
    charts = [] if part == "answer" else estimate_figures.seen(report)
    return dumped(
        {
            "title": shown["title"],
            "query": state.query,
            "strip": rendered("strip.html", navigation={"path": "/", "chips": chips("/", pairs)}),
            "fixed": shown["fixed"],
            "step_s": report.step.seconds,
            "answer": rendered("answer.html", a=shown),
            "charts": [drawn(chart, tables=part == "all") for chart in charts],
            # what an input left to "auto" came to
            "layout": {**plain(report.layout), "seq_len": report.training.seq_len},
            "said": f"{shown['cards'][0]['shown']}, {shown['verdict'].lower()}",
        }
    )


def late(pairs: Pairs) -> bytes:
    """Advice and sources of a state, and what a calibration changed."""
    with _state(pairs) as state:
        report = api.estimate(state.options)
        changed = calibrated.blocks(state.options, report) if state.calibration else []
    blocks, to = view.late(report), view.addressed(state)
    blocks["rests"][1:1] = changed
    no_advice = text("advice_none" if report.memory.fits else "advice_none_fits")
    words = {"advice": (text("apply"), no_advice), "families": (text("use"), "")}

    def page_of(place: str, word: str = "", empty: str = "") -> str:
        parts = [block_of(block, to, word) for block in blocks[place]]
        return rendered("blocks.html", parts=parts, empty=empty)

    first = rendered("tip.html", tip=view.tip(report, to))
    return dumped(
        {place: page_of(place, *words.get(place, ())) for place in blocks}
        | {
            "assumed": text("assumed_share", assumed=percent(report.provenance.assumed_frac, 0)),
            "query": state.query,
            "tip": first,
        }
    )


def reported(pairs: Pairs) -> bytes:
    """The report of a state, a file of its own."""
    with _state(pairs) as state:
        return dumped({"report": report_of(api.estimate(state.options), state)})


def inputs(pairs: Pairs, layout: dict[str, Any] | None = None) -> bytes:
    """The form of a state, with legal values and the reasons of the others. Works for a state that
    cannot be answered too."""
    state = of_pairs(pairs)
    groups, _ = _form(state, layout or {})
    return dumped({"form": rendered("form.html", groups=groups, state=state), "query": state.query})


def choices(pairs: Pairs) -> bytes:
    """Legal values and the reasons of the others, for a form that is there."""
    _, offered = _form(of_pairs(pairs), {})
    return dumped({"choices": offered})


def _form(state: State, layout: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    with catalog.only_given(state.files):
        try:
            possible = legal.choices(state.options, limits.MAX_GPUS)
        except PlanError:
            possible = {}
    return form(state, possible, layout)


def panel(pairs: Pairs, name: str) -> bytes:
    """Charts that need work of their own."""
    with _state(pairs) as state:
        charts = panels()[name](state)
    leads = _leads(state)
    shown = [drawn(chart, _links(chart, state), leads) for chart in charts]
    return dumped({"charts": shown, "query": state.query})


def _leads(state: State) -> Leads:
    """State that a point links to: the current one with the values of the point."""

    def leads(update: Any) -> str | None:
        return f"/?{state.updated(update)}" if isinstance(update, dict) else None

    return leads


def _links(chart: Chart, state: State) -> list[str | None]:
    """State that each row links to: with its layout, or its number of GPUs."""
    return [None if update is None else state.updated(update) for update in chart.states]


def explanation(pairs: Pairs) -> bytes:
    """The tree of formulas behind every number of a state."""
    with _state(pairs) as state:
        return dumped(explained.document(state.options))


def explained_page(pairs: Pairs, level: int) -> bytes:
    """The explanation as a part of a page whose headings begin at this level."""
    with _state(pairs) as state:
        document = explained.document(state.options)
    blocks = [block_of(block, lambda _: None) for block in figure_blocks(document)]
    parts = list(zip(plain(document)["parts"], blocks, strict=True))
    body = rendered("explain_body.html", level=level, parts=parts)
    return dumped({"body": body, "query": state.query})


def compared(several: Scenarios) -> bytes:
    """The view of `dpplan compare` as a part of a page; its rows lead to their states."""
    document, queries = _side_by_side(several)

    def to(link: Link) -> str | None:
        return f"/?{queries[link.command]}" if link.command in queries else link.address or None

    view_ = with_doubts(compare.view(document, {}), document)
    answer, charts = drawn_answer(view_, to)
    return dumped({"answer": answer, "charts": charts, "query": next(iter(queries.values()))})


def table(pairs: Pairs, name: str) -> bytes:
    """The table of one chart as CSV."""
    report, _ = _brief(pairs)
    for chart in estimate_figures.charts(report):
        if chart.name == name:
            return csv_text(chart.columns, chart.rows).encode()
    raise PlanError("chart", name, "must be one of memory-stages, memory-phases, step-time")


def written(pairs: Pairs, to: Any) -> bytes:
    """The document of `dpplan export --to TARGET --json`."""
    with _state(pairs) as state:
        options = plugins.load("formats.options", "to", to).ExportOptions(to=to)
        return dumped(api.export(state.options, options))


def exports(pairs: Pairs, answerable: bool) -> bytes:
    """Files of a state to take along: its scenario file, its command, its pasted texts.

    answerable: whether a state that has no answer is refused.
    """
    with _state(pairs) as state:
        if answerable:
            resolve(state.options)
        return dumped(exported(state))


def scenario(content: bytes) -> bytes:
    """The query string of a scenario file."""
    return dumped({"query": scenario_of(content).query})


def repaired(pairs: Pairs) -> bytes:
    """The query string of a request that cannot be read, without what is wrong with it."""
    return dumped({"query": readable(pairs).query})


TASKS: dict[str, Callable[..., bytes]] = {
    "estimate": estimate,
    "search": search,
    "verb": verb,
    "tab": tab,
    "tab_form": tab_form,
    "uploaded": uploaded,
    "sheet": sheet,
    "comparison": comparison,
    "what_if": what_if,
    "late": late,
    "inputs": inputs,
    "choices": choices,
    "panel": panel,
    "explanation": explanation,
    "compared": compared,
    "explained_page": explained_page,
    "table": table,
    "exports": exports,
    "written": written,
    "scenario": scenario,
    "repaired": repaired,
    "report": reported,
}


@cache
def task(name: str) -> Callable[..., bytes]:
    """A task of the core or of a part."""
    return TASKS.get(name) or next(
        part.TASKS[name] for part in plugins.modules("web.tasks") if name in part.TASKS
    )
