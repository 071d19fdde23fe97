"""The application: the dashboard, the public API, and nothing that stores or runs what it is given.

State is the query string, with the option names of the command line (`_` for `-`). Every answer
comes from `planner.api` and `web.panels`, the same as the command line's.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response

from planner.specs.base import PlanError
from planner.specs.document import to_json
from web import api_routes, documented, page_routes, run, static_files
from web.guard import Guard, problem
from web.limits import MAX_GPUS
from web.texts import text
from web.work import Busy, Gone, Unstarted

__all__ = ["MAX_GPUS", "app", "create"]

_CLOSED = 499  # the browser went away: nobody reads this


@asynccontextmanager
async def _life(_: FastAPI) -> AsyncIterator[None]:
    run.LIGHT.start()
    run.HEAVY.start()
    static_files.files()
    yield
    run.LIGHT.stop()
    run.HEAVY.stop()


def create() -> FastAPI:
    """The application, ready for a server."""
    made = FastAPI(
        title="dpplan",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=_life,
        description="Memory, step time, cost and the best layout of training a large model.",
    )
    made.add_middleware(Guard)
    made.include_router(api_routes.router)
    made.include_router(page_routes.router)

    @made.get("/static/{name:path}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        return static_files.response(request, name)

    @made.exception_handler(PlanError)
    async def wrong(request: Request, error: PlanError) -> Response:
        """A wrong request names its field, value and remedy."""
        if _wants_page(request):
            body = page_routes.rendered("error.html", field=error.field, message=str(error))
            return HTMLResponse(body, status_code=422)
        return _problem(422, error.field, error.value, error.remedy)

    @made.exception_handler(Busy)
    async def busy(request: Request, _: Busy) -> Response:
        if _wants_page(request):
            return HTMLResponse(
                page_routes.rendered("error.html", field="server", message=text("busy")),
                status_code=429,
            )
        return _problem(429, "request", None, text("busy"))

    @made.exception_handler(Unstarted)
    async def unstarted(request: Request, _: Unstarted) -> Response:
        if _wants_page(request):
            return HTMLResponse(
                page_routes.rendered("error.html", field="server", message=text("unstarted")),
                status_code=503,
            )
        return _problem(503, "request", None, text("unstarted"))

    @made.exception_handler(Gone)
    async def gone(_: Request, __: Gone) -> Response:
        return Response(status_code=_CLOSED)

    plain_openapi = made.openapi

    def openapi() -> dict[str, Any]:
        """The schema of the API with the declarations of its documents."""
        if made.openapi_schema is None:
            parts = plain_openapi().setdefault("components", {}).setdefault("schemas", {})
            parts.update(documented.components())
        return plain_openapi()

    made.openapi = openapi  # type: ignore[method-assign]
    return made


def _problem(status: int, field: str, value: object, remedy: str) -> Response:
    body = to_json(problem(field, value, remedy))
    return Response(body, status_code=status, media_type="application/json")


def _wants_page(request: Request) -> bool:
    return not request.url.path.startswith(("/api", "/page", "/static", "/openapi"))


app = create()
