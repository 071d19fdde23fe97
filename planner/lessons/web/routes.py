"""Addresses of the lessons."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from planner.lessons.learn.written import lessons
from web import documented as doc
from web import run
from web.page_routes import rendered

router = APIRouter(include_in_schema=False)
documents = APIRouter(prefix="/api", tags=["API"])
ROUTERS = (router, documents)
_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "description": "Name of the lesson",
    "schema": {"type": "string", "enum": list(lessons())},
}


@router.get("/learn", response_class=HTMLResponse)
async def index(request: Request) -> HTMLResponse:
    """All lessons."""
    content = await run.read(request, "lessons", [])
    return HTMLResponse(
        rendered("lessons.html", page="/learn", pairs=run.pairs_of(request), **content)
    )


@router.get("/learn/coverage", response_class=HTMLResponse)
async def claims(request: Request) -> HTMLResponse:
    """All claims that lessons check."""
    content = await run.read(request, "claims", [])
    return HTMLResponse(rendered("claims.html", page="/learn", **content))


@router.get("/learn/{name}", response_class=HTMLResponse)
async def lesson(request: Request, name: str) -> HTMLResponse:
    """One lesson, with the inputs of the address."""
    content = await run.read(request, "lesson", run.pairs_of(request), name)
    return HTMLResponse(rendered("lesson.html", page="/learn", **content))


@documents.get("/learn", responses=doc.answers(doc.document("learn")))
async def lessons_listed(request: Request) -> Response:
    """The document of `dpplan learn --json`."""
    content = await run.answer(request, "lessons_document", [])
    return Response(content, media_type="application/json")


@documents.get("/learn/coverage", responses=doc.answers(doc.document("learn coverage")))
async def claims_listed(request: Request) -> Response:
    """The document of `dpplan learn coverage --json`."""
    content = await run.answer(request, "claims_document", [])
    return Response(content, media_type="application/json")


@documents.get(
    "/learn/{name}",
    openapi_extra={"parameters": [_NAME]},
    responses=doc.answers(doc.document("learn LESSON")),
)
async def lesson_document(request: Request, name: str) -> Response:
    """The document of `dpplan learn NAME --json`, with inputs of the lesson as parameters."""
    content = await run.answer(request, "lesson_document", run.pairs_of(request), name)
    return Response(content, media_type="application/json")
