"""The application: the dashboard, the public API, and nothing that stores or runs what it is given.

State is the query string, with the option names of the command line (`_` for `-`). Every answer
comes from `planner.api` and `web.panels`, the same as the command line's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp

from planner import plugins
from planner.specs.base import PlanError
from planner.specs.document import to_json
from web import api_routes, documented, page_routes, run, static_files, tab_routes
from web.guard import Guard, Served, problem
from web.limits import MAX_GPUS
from web.state import Malformed
from web.texts import text
from web.work import Busy, Ended, Fault, Gone, Unstarted

__all__ = ["MAX_GPUS", "app", "create"]

_FAULT = 500
_CLOSED = 499  # the browser went away: this is not read


# faults of the server, or of all who ask at once: status, and sentence
_SAID: dict[type[Exception], tuple[int, str]] = {
    Busy: (429, "busy"),
    Unstarted: (503, "unstarted"),
    Ended: (503, "ended"),
    Fault: (_FAULT, "fault"),
    Exception: (_FAULT, "fault"),
}
_RETRY_S = "5"
# pages repeat themselves: five sixths go at a level that takes 2 ms of a page, higher ones take
# more than the network wins
_PACKED_FROM, _LEVEL = 1000, 3


@asynccontextmanager
async def _life(application: FastAPI) -> AsyncIterator[None]:
    run.LIGHT.start()
    run.HEAVY.start()
    static_files.files()
    served = application.served if isinstance(application, Application) else Served()
    preparing = asyncio.create_task(page_routes.prepare()) if served.prepares else None
    yield
    if preparing is not None:
        preparing.cancel()
    run.LIGHT.stop()
    run.HEAVY.stop()


class Application(FastAPI):
    """With the guard around everything, the answer to an unforeseen fault included."""

    def __init__(self, served: Served, **settings: Any) -> None:
        super().__init__(**settings)
        self.served = served

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), self.served)


def create(served: Served = Served()) -> FastAPI:  # noqa: B008 (frozen)
    """The application, ready for a server. Without settings it answers on this machine only."""
    application = Application(
        served,
        title="dpplan",
        version="1",
        docs_url=None,
        redoc_url=None,
        lifespan=_life,
        description="Memory, step time, cost and the best layout of training a large model.",
    )
    application.add_middleware(GZipMiddleware, minimum_size=_PACKED_FROM, compresslevel=_LEVEL)
    application.include_router(api_routes.router)
    application.include_router(page_routes.router)
    application.include_router(tab_routes.router)
    parts = plugins.modules("web.routes")
    for router in (router for part in parts for router in part.ROUTERS):
        application.include_router(router)

    @application.get("/static/{name:path}", include_in_schema=False)
    def static(request: Request, name: str) -> Response:
        return static_files.response(request, name)

    @application.exception_handler(HTTPException)
    async def nowhere(request: Request, error: HTTPException) -> Response:
        """An address that there is none of, or a method that it does not take."""
        problem = {
            404: ("path", request.url.path, text("no_path")),
            405: ("method", request.method, text("no_method")),
        }.get(error.status_code, ("request", None, error.detail))
        response = _problem(error.status_code, *problem)
        response.headers.update(error.headers or {})
        return response

    @application.exception_handler(PlanError)
    async def wrong(request: Request, error: PlanError) -> Response:
        """A wrong request names its field, value and remedy."""
        status = 400 if isinstance(error, Malformed) else 422
        if _wants_page(request):
            body = page_routes.rendered("error.html", field=error.field, message=str(error))
            return HTMLResponse(body, status_code=status)
        return _problem(status, error.field, error.value, error.remedy)

    for kind, (status, key) in _SAID.items():
        application.add_exception_handler(kind, _says(status, key))

    @application.exception_handler(Gone)
    async def gone(_: Request, __: Gone) -> Response:
        return Response(status_code=_CLOSED)

    plain_openapi = application.openapi

    def openapi() -> dict[str, Any]:
        """The schema of the API with the declarations of its documents."""
        if application.openapi_schema is None:
            parts = plain_openapi().setdefault("components", {}).setdefault("schemas", {})
            parts.update(documented.components())
        return plain_openapi()

    application.openapi = openapi  # type: ignore[method-assign]
    return application


def _says(status: int, key: str) -> Callable[[Request, Exception], Awaitable[Response]]:
    """The answer to a fault that is not the request's."""

    async def answer(request: Request, _: Exception) -> Response:
        if _wants_page(request):
            body = page_routes.rendered("error.html", field="server", message=text(key))
            response: Response = HTMLResponse(body, status_code=status)
        else:
            response = _problem(status, "request", None, text(key))
        if status != _FAULT:
            response.headers["retry-after"] = _RETRY_S
        return response

    return answer


def _problem(status: int, field: str, value: object, remedy: str) -> Response:
    body = to_json(problem(field, value, remedy))
    return Response(body, status_code=status, media_type="application/json")


def _wants_page(request: Request) -> bool:
    return not request.url.path.startswith(("/api", "/page", "/static", "/openapi"))


app = create()
