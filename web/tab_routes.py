"""Addresses of the tabs: a form, and what its verb answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response, StreamingResponse

from planner.specs.base import PlanError
from web import limits, run
from web.guard import TOO_LARGE
from web.page_routes import boot_of, led_to_step, numbers, rendered, started
from web.render import streamed
from web.state import Pairs
from web.static_files import url
from web.tabs import STEPS, TABS, Page, Tab
from web.tabs.navigation import navigation
from web.texts import text
from web.work import NO_ANSWER

router = APIRouter(include_in_schema=False)

_PART_S = 0.1  # between looks for parts of an answer
_PLAIN = {"Content-Encoding": "identity"}
_FORM_S = 0.7  # after which the form of a tab goes out before its answer


def _tab_page(tab: Tab) -> Callable[[Request], Awaitable[Response]]:
    async def tab_page(request: Request) -> Response:
        pairs = tab.with_defaults(run.pairs_of(request))
        parts: list[str] = []
        work = started(run.answer(request, "tab", pairs, tab.path, heard=parts.append))
        await asyncio.wait({work}, timeout=_FORM_S)
        if work.done():
            document = run.plain(work.result())
            return _tab_sent(tab, pairs, document["form"], work, 200 if document["ok"] else 422)
        head = await run.read(request, "tab_form", pairs, tab.path)
        return _tab_sent(tab, pairs, head["form"], work, 200, parts)

    return tab_page


def _tab_posted(tab: Tab) -> Callable[[Request], Awaitable[Response]]:
    async def tab_posted(request: Request) -> Response:
        if getattr(request.state, TOO_LARGE, False):
            message = text("upload_large", most=f"{limits.MAX_UPLOAD_BYTES:,}")
            page_ = rendered("error.html", field="files", message=message)
            return HTMLResponse(page_, status_code=413)
        kind = request.headers.get("content-type", "")
        body = await request.body()
        work = started(run.answer(request, "uploaded", body, kind, tab.path))
        document = run.plain(await work)
        pairs = [(name, value) for name, value in document["pairs"]]
        return _tab_sent(tab, pairs, document["form"], work, 200 if document["ok"] else 422)

    return tab_posted


def _tab_sent(
    tab: Tab,
    pairs: Pairs,
    form: str,
    work: asyncio.Task[bytes],
    status: int,
    parts: Sequence[str] = (),
) -> StreamingResponse:
    """The page of a tab: its form at once, parts of its answer as they come, its answer when that
    is there."""
    is_whole = work.done()  # then the form says what is wrong

    async def late() -> dict[str, Any]:
        try:
            document = run.plain(await work)
        except PlanError as error:
            document = {"problem": str(error)}
        except NO_ANSWER:
            document = {"problem": text("busy")}
        charts = document.get("charts", [])
        return {
            "answer": document.get("answer", ""),
            "problem": "" if is_whole else document.get("problem", ""),
            "charts": charts,
            "boot": boot_of(charts=numbers(charts)),
        }

    async def meanwhile() -> AsyncIterator[str]:
        sent = 0
        while not work.done():
            await asyncio.wait({work}, timeout=_PART_S)
            for part in parts[sent:]:
                yield part
                sent += 1

    bar, address = navigation(tab.path, pairs), f"{tab.path}?{urlencode(pairs)}"
    pieces = streamed(
        "tab.html",
        url=url,
        navigation=bar,
        tab=tab,
        address=address,
        form=form,
        late=late,
        meanwhile=meanwhile,
    )
    return StreamingResponse(
        pieces,
        status_code=status,
        media_type="text/html; charset=utf-8",
        # a packed stream is held back until much of it is there
        headers={"Cache-Control": "no-store", **({} if is_whole else _PLAIN)},
    )


def _sheet(tab: Tab) -> Callable[[Request], Awaitable[Response]]:
    async def sheet(request: Request) -> Response:
        content = await run.answer(
            request, "sheet", tab.with_defaults(run.pairs_of(request)), tab.path
        )
        name = f"{tab.path.strip('/')}.csv"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return Response(content, media_type="text/csv; charset=utf-8", headers=headers)

    return sheet


def _step(page_: Page) -> Callable[[Request], Awaitable[Response]]:
    async def step(request: Request) -> Response:
        return led_to_step(request, page_)

    return step


for _page in STEPS:
    router.add_api_route(_page.path, _step(_page))
for _tab in TABS:
    if isinstance(_tab, Tab):
        router.add_api_route(_tab.path, _tab_page(_tab), response_class=HTMLResponse)
        router.add_api_route(f"{_tab.path}.csv", _sheet(_tab))
        if _tab.files:
            router.add_api_route(
                _tab.path, _tab_posted(_tab), methods=["POST"], response_class=HTMLResponse
            )
