"""Addresses of the lessons."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from web import run
from web.page_routes import rendered

router = APIRouter(include_in_schema=False)


@router.get("/learn", response_class=HTMLResponse)
async def index(request: Request) -> HTMLResponse:
    """All lessons."""
    found = await run.read(request, "lessons", [])
    return HTMLResponse(rendered("lessons.html", page="/learn", **found))


@router.get("/learn/{name}", response_class=HTMLResponse)
async def lesson(request: Request, name: str) -> HTMLResponse:
    """One lesson, with the inputs of the address."""
    found = await run.read(request, "lesson", run.pairs_of(request), name)
    return HTMLResponse(rendered("lesson.html", page="/learn", **found))
