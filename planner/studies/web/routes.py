"""Addresses of the studies."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from web import documented as doc
from web import run

router = APIRouter(prefix="/api", tags=["API"])
ROUTERS = (router,)


@router.post(
    "/check",
    openapi_extra={"requestBody": doc.files()},
    responses=doc.answers(doc.document("check"), posted=True),
)
async def check_posted(request: Request) -> Response:
    """The document of `dpplan check --json`: texts of logs as `files`, by name, and the options of
    their recipe beside them; without any, nothing is predicted. The calibration and the row of a
    runs table that the logs make are in it, which on the command line need --save and --append."""
    return Response(
        await run.answer(request, "checked", await request.body()), media_type="application/json"
    )
