"""The page of a tab as a worker makes it: form, verdict, tables and charts, and the values that
other tabs take over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import groupby
from types import MappingProxyType
from typing import Any
from urllib.parse import urlencode

from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.options import flag
from planner.views.chart import Chart
from planner.views.html import nowhere, parts_of
from planner.views.view import Link, View, with_doubts
from web import parts
from web.export import export_body, exported
from web.render import drawn, rendered
from web.state import MARK, Pairs, of_pairs, stated
from web.tabs import BY_PATH
from web.tabs.base import Step, Tab, TabRequest, Within, requested
from web.tabs.form import form
from web.texts import text

_FIRST_STEPS = 3  # that are sent before the others are there
Charts = list[Chart]
_MOST_PASTED = 4_000  # characters of a pasted model that each row's link repeats


def head(tab: Tab, pairs: Pairs) -> dict[str, Any]:
    """The form only, while the answer is computed."""
    return {"form": rendered("tab_form.html", tab=tab, form=form(tab, pairs, None))}


def page(
    tab: Tab, pairs: Pairs, files: Mapping[str, bytes] = MappingProxyType({})
) -> dict[str, Any]:
    """The parts of the page. What is wrong with a request stands in its form, and as `problem` for
    a page whose form has gone out already."""
    body, charts, error, read = "", list[Chart](), None, None
    if tab.files:  # over which no default wins
        pairs = stated(pairs) if files else tab.with_defaults(pairs)
    taken, left = tab.split(pairs)
    try:
        with requested(tab, taken, files) as plain:
            request = replace(plain, progress=parts.counting())
            if (sooner := tab.answers.sooner(request)) is not None:
                part, _ = drawn_answer(tab.answers.view(sooner, request), _address(tab, request))
                parts.meanwhile(part)
            document = tab.answers.find(request)
            view = with_doubts(tab.answers.view(document, request), tab.answers.out(document))
            read = tab.answers.plan(document)
            steps, more = _steps(tab, document, request)
        plan = read or request.state
        free = tab.freed(pairs)
        unused, again = (
            ", ".join(
                f"{flag(name)} {text}"
                for name, text in stated(pairs)
                if name in dict(left) and (name in free) == is_free
            )
            for is_free in (False, True)
        )
        body, charts = drawn_answer(
            view,
            _address(tab, request),
            command=tab.answers.command(document, request),
            sheet=f"{tab.path}.csv?{urlencode(pairs)}" if view.csv else "",
            unused=unused,
            **_elsewhere(tab, taken),
            again=again,
            conflicts=plan.conflicts,
            path=tab.path,
            steps=steps,
        )
        charts += more
    except PlanError as problem:
        error = problem
    if tab.files and read:  # what they say is in the address and in the form from now on
        alone = [(name, text) for name, text in pairs if name in tab.own_rows]
        pairs = [*read.pairs, *alone] if files else pairs
    return {
        "form": rendered("tab_form.html", tab=tab, form=form(tab, pairs, error)),
        "answer": body,
        "charts": charts,
        "ok": error is None,
        "problem": "" if error is None else str(error),
        "pairs": pairs,
    }


def _steps(tab: Tab, document: Any, request: TabRequest) -> tuple[list[dict[str, Any]], Charts]:
    """The steps of an answer as the template takes them, and their charts. What is wrong with one
    stands in its place."""
    out: list[dict[str, Any]] = []
    charts: Charts = []

    def to(link: Link) -> str | None:
        """The page with another plan; other addresses as they are."""
        address = _address(tab, request)(link)
        kept = urlencode([(n, t) for n, t in request.pairs if n in tab.own_rows])
        if address is None or not link.command:
            return address
        return f"{tab.path}{address[1:]}{'&' if kept else ''}{kept}#plan"

    for step in tab.answers.steps(document, request):
        shown = _within(step) if isinstance(step, Within) else _stepped(step, to)
        charts += shown["charts"]
        out.append(shown)
        if len(out) == _FIRST_STEPS:
            parts.meanwhile(rendered("steps.html", steps=out, first="first-"))
    return out, charts


def _stepped(step: Step, to: Callable[[Link], str | None]) -> dict[str, Any]:
    shown = parts_of(step.view, to, text("apply"), paper=False)
    shown["parts"] = [_seen(part, to) for part in shown["parts"]]
    charts = [chart for part in shown["parts"] if (chart := _chart_of(part)) is not None]
    keys = {"anchor": step.anchor, "name": step.name, "command": step.command, "body": ""}
    return {**keys, "view": shown, "charts": charts, "api": ""}


def _within(step: Within) -> dict[str, Any]:
    """A step that is the answer of another tab."""
    page_, pairs = BY_PATH[step.path], step.pairs
    anchor = page_.path.strip("/")
    if not isinstance(page_, Tab):
        with catalog.only_given((state := of_pairs(pairs)).files):
            body = export_body(exported(state), 3)
        shown = _stepped(Step(anchor, page_.name, View(page_.name, text("export_said"))), nowhere)
        return {**shown, "body": body}
    try:
        taken = page_.split(pairs)[0]
        with requested(page_, taken) as request:
            document = page_.answers.find(request)
            view = with_doubts(page_.answers.view(document, request), document)
            command = page_.answers.command(document, request)
        shown = _stepped(Step(anchor, page_.name, view, command), _address(page_, request))
        return {**shown, **_elsewhere(page_, taken)}
    except PlanError as error:
        return _stepped(Step(anchor, page_.name, View(page_.name, str(error), "no")), nowhere)


def _elsewhere(tab: Tab, pairs: Pairs) -> dict[str, str]:
    """Addresses of an answer: its document, and the page for a frame; empty for posted files."""
    if not tab.documents:
        return {}
    query = urlencode([(n, t) for n, t in pairs if t and not n.startswith(MARK)])
    return {"api": f"/api/{tab.address}?{query}", "embed": f"{tab.path}?{query}&embed=1"}


def drawn_answer(
    view: View, to: Callable[[Link], str | None], **more: Any
) -> tuple[str, list[Chart]]:
    """A view as a part of a page, and its charts. to: where its links lead; more: of a form."""
    shown = parts_of(view, to, text("apply"), paper=False)
    shown["parts"] = [_seen(part, to) for part in shown["parts"]]
    charts = [chart for part in shown["parts"] if (chart := _chart_of(part)) is not None]
    runs = [list(run) for _, run in groupby(shown["parts"], lambda p: isinstance(p, Chart))]
    usual = {"command": "", "sheet": "", "unused": "", "again": "", "conflicts": (), "path": "/"}
    usual |= {"api": "", "embed": "", "steps": (), "first": ""}
    return rendered("tab_answer.html", **usual | more, view=shown, runs=runs), charts


def _seen(part: dict[str, Any] | Chart, to: Callable[[Link], str | None]) -> dict[str, Any] | Chart:
    """A part with its chart as it is seen; points that keep a command lead where it does."""

    def leads(kept: Any) -> str | None:
        return to(Link(command=kept)) if isinstance(kept, str) else None

    if isinstance(part, Chart):
        return drawn(part, leads=leads, tables=False)
    if part["chart"] is None:
        return part
    return {**part, "chart": drawn(part["chart"], leads=leads, tables=False)}


def _chart_of(part: dict[str, Any] | Chart) -> Chart | None:
    """The chart that a part is or has."""
    return part if isinstance(part, Chart) else part["chart"]


def _address(tab: Tab, request: TabRequest) -> Callable[[Link], str | None]:
    """Where links of an answer lead: to the estimate of a command, to another request of this tab,
    or to what they say; nowhere where a pasted model is too long to be in every row's address."""
    state = request.state

    def to(link: Link) -> str | None:
        if link.changes:
            kept = [(n, t) for n, t in request.pairs if t and n not in link.changes]
            changes = [(n, value) for n, value in link.changes.items() if value != ""]
            return f"{tab.path}?{urlencode([*kept, *changes])}#found"
        if not link.command.startswith("dpplan estimate "):
            return link.address or None
        if state.config and len(state.config) > _MOST_PASTED:
            return None
        try:
            return f"/?{state.picked(link.command).query}"
        except PlanError:  # beyond the limits of a page
            return None

    return to
