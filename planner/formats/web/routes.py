"""Addresses of the formats."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from web import documented as doc
from web import run

router = APIRouter(prefix="/api", tags=["API"])
ROUTERS = (router,)


@router.post(
    "/read",
    openapi_extra={"requestBody": doc.files()},
    responses=doc.answers(doc.document("read"), posted=True),
)
async def read_posted(request: Request) -> Response:
    """The document of `dpplan read --json`: texts of launch scripts and configurations as `files`,
    by name, and options beside them, which win."""
    return Response(
        await run.answer(request, "recipe", await request.body()), media_type="application/json"
    )
