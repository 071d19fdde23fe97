"""The pages, complete from the server, and what their script asks for while a person moves a
slider."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from planner import __version__
from planner.specs.base import PlanError
from planner.views.figures import DARK_TWINS, TEMPLATE
from web import limits, run, static_files, tasks
from web.api_routes import SLOTS, several
from web.export import export_body
from web.glossary import glossary
from web.presets import preset, presets
from web.presets import shown as shown_preset
from web.render import rendered as plain
from web.render import streamed
from web.state import PAGE, Pairs, filled
from web.static_files import url
from web.tabs import BY_PATH, STEPS, Page
from web.tabs.navigation import navigation
from web.texts import SCRIPT_TEXTS, text
from web.work import NO_ANSWER

router = APIRouter(include_in_schema=False)

_OWN_LAYOUT = (
    "roofline",
    "schedule",
    "crossover",
)  # panels of the one layout that was chosen: asked with it fixed
_MOST_NAME = 80  # letters of a scenario in a comparison
# the page waits no longer for advice, which takes four times as long as the figures unless it is
# kept: inputs and script stand behind it; the script asks again, and without one there is a link
_LATE_S = 0.05


def rendered(template: str, page: str = "", pairs: Pairs | None = None, **values: Any) -> str:
    """A page, with the addresses of its files, and the bar of tabs. page: the address of its tab;
    pairs: what was asked of it."""
    query = str(values.get("query") or "")
    bar = navigation(page, parse_qsl(query) if pairs is None else pairs)
    return plain(template, url=url, navigation=bar, **{"boot": boot_of(charts=[]), **values})


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json", headers={"Cache-Control": "no-store"})


def boot_of(**more: Any) -> dict[str, Any]:
    return {
        "texts": SCRIPT_TEXTS,
        "version": __version__,
        "start": urlencode(PAGE),
        "dark": DARK_TWINS,
        "template": TEMPLATE,
        "limits": {
            "config": limits.MAX_CONFIG_BYTES,
            "calibration": limits.MAX_CALIBRATION_BYTES,
            "scenario": limits.MAX_SCENARIO_BYTES,
            "upload": limits.MAX_UPLOAD_BYTES,
        },
        **more,
    }


def numbers(charts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The part of charts that the script takes for files and for a large view: drawings and tables
    are in the page already."""
    keys = ("name", "title", "figure", "choices", "columns", "rows")
    return [{key: chart[key] for key in keys} for chart in charts]


def _options_of(request: Request, *without: str) -> Pairs:
    """Options of an address of the page, with the page's defaults."""
    return filled(run.pairs_of(request, *without), PAGE)


async def prepare() -> None:
    """Work out the page that opens without an address: figures, form and advice."""
    with contextlib.suppress(PlanError, *NO_ANSWER):
        view = run.plain(await run.prepared("what_if", filled([], PAGE)))
        pairs = parse_qsl(view["query"])
        await run.prepared("inputs", pairs, view["layout"])
        await run.prepared("late", pairs)


@router.get("/", response_class=HTMLResponse)
async def page(request: Request) -> Response:
    """The dashboard of the state in the address. What takes long comes last, and the browser shows
    the rest meanwhile."""
    wait = request.query_params.get("wait") == "1"
    pairs = run.pairs_of(request, "wait", "preset")
    named = request.query_params.get("preset")
    try:
        if named is not None:
            pairs = _of_preset(named, pairs)
        pairs = filled(pairs, PAGE)
        view = await run.read(request, "what_if", pairs)
    except PlanError as error:
        return await _wrong(request, error, pairs)
    sent = asyncio.Event()
    slow = started(
        run.answer(
            request,
            "late",
            parse_qsl(view["query"]),
            linger_s=lambda: limits.LINGER_S * sent.is_set(),
        )
    )

    async def late() -> dict[str, Any] | None:
        await asyncio.wait({slow}, timeout=limits.HEAVY_S if wait else _LATE_S)
        if not slow.done() or slow.cancelled() or slow.exception() is not None:
            return None
        document: dict[str, Any] = run.plain(slow.result())
        return document

    shown = {key: view[key] for key in ("title", "fixed", "answer", "charts")}
    if named is not None:
        shown["preset"] = plain("preset.html", p=shown_preset(named, view["step_s"]))
    shown["navigation"] = navigation("/", pairs)
    return _page(request, view["query"], late, view["layout"], sent, **shown)


def _of_preset(run_id: str, beside: Pairs) -> Pairs:
    """Options of a published run. Raises PlanError."""
    if beside:
        raise PlanError("preset", run_id[:50], f"is given beside {beside[0][0][:50]}; keep one")
    return preset(run_id).pairs


def _page(
    request: Request,
    query: str,
    late: Callable[[], Awaitable[dict[str, Any] | None]],
    layout: dict[str, Any] | None,
    sent: asyncio.Event,
    status_code: int = 200,
    **shown: Any,
) -> StreamingResponse:
    """The dashboard, sent while its parts become ready; `sent` is set behind the last."""

    inputs = started(run.answer(request, "inputs", parse_qsl(query), layout))

    async def form() -> str:
        with contextlib.suppress(PlanError, *NO_ANSWER):
            document: str = run.plain(await inputs)["form"]
            return document
        return ""

    values = {"query": query, "fixed": query, "charts": [], "preset": "", **shown}
    boot = boot_of(
        query=query, fixed=values["fixed"], layout=layout or {}, charts=len(values["charts"])
    )

    async def pieces() -> AsyncIterator[str]:
        async for piece in streamed(
            "page.html",
            url=url,
            boot=boot,
            late=late,
            form=form,
            panels=tasks.panels(),
            own_layout=_OWN_LAYOUT,
            printed=_printed(),
            **values,
        ):
            yield piece
        sent.set()

    return StreamingResponse(
        pieces(),
        status_code=status_code,
        media_type="text/html; charset=utf-8",
        headers={"Cache-Control": "no-store"},
    )


def _printed() -> str:
    """Source of a printed page."""
    return text("printed", version=__version__, date=f"{datetime.now(UTC):%Y-%m-%d}")


def started(work: Coroutine[Any, Any, bytes]) -> asyncio.Task[bytes]:
    """Work under way; a failure after the last waiter has gone is not reported."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def _wrong(request: Request, error: PlanError, pairs: Pairs) -> Response:
    """The page of a request that cannot be answered: what is wrong, and the inputs as they were."""

    async def nothing() -> dict[str, str]:
        return {"advice": "", "families": "", "rests": "", "assumed": "", "tip": ""}

    query = (await run.read(request, "repaired", pairs))["query"]
    answer = plain("problem.html", field=error.field, message=error.sentence)
    shown = {"title": text("error"), "answer": answer, "navigation": navigation("/", pairs)}
    return _page(request, query, nothing, None, asyncio.Event(), 422, **shown)


def led_to_step(request: Request, page_: Page) -> Response:
    """Redirects to the page that shows another as a step."""
    query = request.url.query
    return RedirectResponse(f"{page_.within}{'?' if query else ''}{query}#{page_.path.strip('/')}")


@router.get("/page/view")
async def view(request: Request) -> Response:
    """Answer of a state; its first charts with `charts=1`, also their tables with `tables=1`."""
    query = request.query_params
    part = "all" if query.get("tables") == "1" else "answer"
    part = "charts" if part == "answer" and query.get("charts") == "1" else part
    return _json(
        await run.answer(request, "what_if", _options_of(request, "tables", "charts"), part)
    )


@router.get("/page/late")
async def late(request: Request) -> Response:
    """Advice and sources of a state."""
    return _json(await run.answer(request, "late", _options_of(request)))


@router.get("/page/form")
async def form(request: Request) -> Response:
    """Legal values of a state."""
    return _json(await run.answer(request, "choices", _options_of(request)))


@router.get("/page/panel/{name}")
async def panel_data(request: Request, name: str) -> Response:
    """Charts that need work of their own."""
    return _json(await run.answer(request, "panel", _options_of(request), _panel(name)))


def _panel(name: str) -> str:
    if name not in tasks.panels():
        raise PlanError("panel", name[:50], f"must be one of {', '.join(tasks.panels())}")
    return name


@router.get("/panel/{name}", response_class=HTMLResponse)
async def panel_page(request: Request, name: str) -> Response:
    """A panel without a script: tables and sentences."""
    document = await run.read(request, "panel", _options_of(request), _panel(name))
    return HTMLResponse(
        rendered(
            "panel.html",
            title=text(f"panel_{name}"),
            charts=document["charts"],
            query=document["query"],
        )
    )


@router.post("/page/scenario")
async def scenario(request: Request) -> Response:
    """The query string of a scenario file."""
    return _json(await run.answer(request, "scenario", await request.body()))


@router.get("/explain", response_class=HTMLResponse)
async def explain_page(request: Request) -> Response:
    """The tree of formulas behind every number."""
    bare = bool(request.query_params.get("bare"))  # for the drawer, whose own title is above
    pairs = _options_of(request, "bare")
    document = await run.read(request, "explained_page", pairs, 3 if bare else 2)
    if bare:
        return HTMLResponse(document["body"])
    return HTMLResponse(rendered("explain.html", body=document["body"], query=document["query"]))


@router.get("/export", response_class=HTMLResponse)
async def export_page(request: Request) -> Response:
    """Files to take along."""
    bare = bool(request.query_params.get("bare"))
    if not bare and BY_PATH["/export"] in STEPS:
        return led_to_step(request, BY_PATH["/export"])
    pairs = _options_of(request, "bare")
    document = await run.read(request, "exports", pairs, False)
    body = export_body(document, 3 if bare else 2)
    if bare:
        return HTMLResponse(body)
    return HTMLResponse(rendered("export.html", "/export", body=body, query=document["query"]))


@router.get("/report", response_class=HTMLResponse)
async def report_page(request: Request) -> Response:
    """The whole answer as one file, to print and to send."""
    document = await run.read(request, "report", _options_of(request))
    return HTMLResponse(document["report"], headers={"Cache-Control": "no-store"})


@router.get("/glossary", response_class=HTMLResponse)
async def glossary_page(request: Request) -> Response:
    """Every term of the page."""
    bare = bool(request.query_params.get("bare"))
    page_of = plain if bare else rendered
    return HTMLResponse(page_of(f"glossary{'_body' if bare else ''}.html", groups=glossary()))


@router.get("/presets", response_class=HTMLResponse)
async def presets_page(request: Request) -> Response:
    """Published runs, each with its state of the page."""
    bare = bool(request.query_params.get("bare"))
    page_of = plain if bare else rendered
    name = f"presets{'_body' if bare else ''}.html"
    return HTMLResponse(page_of(name, runs=list(presets().values())))


@router.get("/compare", response_class=HTMLResponse)
async def compare_page(request: Request) -> Response:
    """Two to six scenarios side by side."""
    given = request.query_params
    try:
        scenarios = several(request)
        names = _names(request, list(scenarios))
        named = dict(zip(names, scenarios.values(), strict=True))
        compared = await run.read(request, "compared", named)
    except PlanError as error:
        wrong = str(error) if any(given.get(slot) for slot in SLOTS) else None
        empty = rendered("compare.html", "/compare", answer="", query="", problem=wrong)
        return HTMLResponse(empty, status_code=422 if wrong else 200)
    boot = boot_of(charts=numbers(compared.pop("charts")))
    return HTMLResponse(rendered("compare.html", "/compare", **compared, boot=boot))


def _names(request: Request, slots: list[str]) -> list[str]:
    """Names of the scenarios, each once: as given, or their letters."""
    given = [
        (request.query_params.get(f"{slot}_name") or slot.upper())[:_MOST_NAME] for slot in slots
    ]
    return [
        name if given.count(name) == 1 else f"{name} ({slot.upper()})"
        for name, slot in zip(given, slots, strict=True)
    ]


@router.get("/reference", response_class=HTMLResponse)
async def reference(request: Request) -> Response:
    """The API as a page."""
    paths = request.app.openapi()["paths"]
    operations = [
        (path, method, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]
    return HTMLResponse(rendered("reference.html", operations=operations))


@router.get("/favicon.ico")
async def icon(request: Request) -> Response:
    """The icon that browsers request where a page names none, such as a report."""
    return static_files.response(request, "icon.svg")


@router.get("/docs")
async def docs() -> Response:
    """The reference of the API, at the usual address."""
    return RedirectResponse("/reference")
