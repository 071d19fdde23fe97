"""The public API: the documents of the command line over HTTP, and comparisons, explanations and
exports of a state."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import get_args
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import Response

from planner import api
from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.specs.names import TargetName
from web import documented as doc
from web import limits, run
from web.export import CHARTS
from web.state import Pairs
from web.tabs import ANSWERED, Tab

router = APIRouter(prefix="/api", tags=["API"])

KINDS = ("gpus", "models", "networks", "stacks", "clusters", "schedules")
SLOTS = ("a", "b", "c", "d", "e", "f")
_EXPORTS = {
    "json": "application/json",
    "toml": "application/toml",
    "command": "text/plain",
    "csv": "text/csv",
    "model": "text/plain",
    "calibration": "application/toml",
}
TARGETS: tuple[str, ...] = get_args(TargetName)  # frameworks whose files are written
_EXPORTS |= dict.fromkeys(TARGETS, "application/json")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


@router.get(
    "/estimate",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("estimate")),
)
async def estimate(request: Request) -> Response:
    """The document of `dpplan estimate --json`."""
    return _json(await run.answer(request, "estimate", run.pairs_of(request)))


@router.post(
    "/estimate",
    openapi_extra={"requestBody": doc.body()},
    responses=doc.answers(doc.document("estimate"), posted=True),
)
async def estimate_posted(request: Request) -> Response:
    """As GET, with the options as one JSON object; `config` may be an object too."""
    return _json(await run.answer(request, "estimate", await request.body()))


@router.get(
    "/search",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("search")),
)
async def search(request: Request) -> Response:
    """The document of `dpplan search --json`."""
    return _json(await run.answer(request, "search", run.pairs_of(request)))


@router.post(
    "/search",
    openapi_extra={"requestBody": doc.body()},
    responses=doc.answers(doc.document("search"), posted=True),
)
async def search_posted(request: Request) -> Response:
    """As GET, with the options as one JSON object."""
    return _json(await run.answer(request, "search", await request.body()))


@router.get(
    "/explain",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("/api/explain")),
)
async def explain(request: Request) -> Response:
    """The formulas behind every number of an estimate, with their inputs and sources."""
    return _json(await run.answer(request, "explanation", run.pairs_of(request)))


_slots = [
    doc.query(
        name,
        f"Query string of scenario {i + 1}",
        {"type": "string", "minLength": 1},
        required=i < 2,
    )
    for i, name in enumerate(SLOTS)
]


def several(request: Request) -> dict[str, Pairs]:
    """Options of each scenario of a comparison, in order. Raises PlanError."""
    given = dict(run.pairs_of(request))
    by_slot = {}
    for name in SLOTS:
        if given.get(name):
            try:
                by_slot[name] = parse_qsl(given[name], max_num_fields=limits.MOST_PAIRS)
            except ValueError:
                remedy = f"is not a query string of at most {limits.MOST_PAIRS} options"
                raise PlanError(name, None, remedy) from None
    unknown = set(given) - {*SLOTS, *(f"{slot}_name" for slot in SLOTS)}
    if unknown:
        raise PlanError(
            sorted(unknown)[0][:50], None, f"is not an option; scenarios are {', '.join(SLOTS)}"
        )
    if not 2 <= len(by_slot) <= len(SLOTS):
        raise PlanError(
            "/".join(SLOTS),
            len(by_slot),
            f"give two to {len(SLOTS)} scenarios, each the query string of an estimate",
        )
    return by_slot


@router.get(
    "/compare", openapi_extra={"parameters": _slots}, responses=doc.answers(doc.document("compare"))
)
async def compared(request: Request) -> Response:
    """Two to six scenarios side by side: figures, and how much each differs from the first."""
    return _json(await run.answer(request, "comparison", several(request)))


def _document_of(tab: Tab) -> Callable[[Request], Awaitable[Response]]:
    async def of_verb(request: Request) -> Response:
        return _json(await run.answer(request, "verb", run.pairs_of(request), tab.path))

    of_verb.__doc__ = f"The document of `dpplan {tab.verb} --json`."
    return of_verb


for _tab in ANSWERED.values():
    router.add_api_route(
        f"/{_tab.address}",
        _document_of(_tab),
        openapi_extra={"parameters": doc.of_tab(_tab)},
        responses=doc.answers(doc.any_of(_tab.documents)),
        operation_id=f"{_tab.address}_document",
    )


@router.get("/catalog", responses=doc.answers(doc.KINDS))
async def kinds() -> list[str]:
    """The kinds of the catalogue."""
    return list(KINDS)


_kind = {
    "parameters": [
        {
            "name": "kind",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "enum": list(KINDS)},
            "description": "What to list",
        }
    ]
}


@router.get("/catalog/{kind}", openapi_extra=_kind, responses=doc.answers(doc.entries()))
def catalog_of(kind: str) -> Response:
    """The document of `dpplan list KIND --json`."""
    return _json(to_json(api.list_catalog(kind)).encode())


_to = [
    doc.query("to", "What to export", {"type": "string", "enum": list(_EXPORTS)}, required=True),
    doc.query("chart", "Which table, for csv", {"type": "string", "enum": list(CHARTS)}),
]


@router.get(
    "/export",
    openapi_extra={"parameters": doc.parameters(*_to)},
    responses=doc.answers(kinds=("application/json", "application/toml", "text/plain", "text/csv")),
)
async def export(request: Request) -> Response:
    """A state as JSON document, scenario file, command line, the files of a framework (the document
    of `dpplan export --json`), or the table of one chart as CSV; or its pasted texts again."""
    to, chart = request.query_params.get("to", ""), request.query_params.get("chart", "")
    if to not in _EXPORTS:
        raise PlanError("to", to[:50], f"must be one of {', '.join(_EXPORTS)}")
    pairs = run.pairs_of(request, "to", "chart")
    if to == "json":
        content = await run.answer(request, "estimate", pairs)
    elif to in TARGETS:
        content = await run.answer(request, "written", pairs, to)
    elif to == "csv":
        if chart not in CHARTS:
            raise PlanError("chart", chart[:50], f"must be one of {', '.join(CHARTS)}")
        content = await run.answer(request, "table", pairs, chart)
    else:
        document = await run.read(request, "exports", pairs, to in ("toml", "command"))
        text = document["config" if to == "model" else to]
        if text is None:
            raise PlanError("to", to, "was not pasted into this state")
        content = (text + "\n" if to == "command" else text).encode()
    kind = _EXPORTS[to]
    return Response(
        content, media_type=kind if kind == "application/json" else f"{kind}; charset=utf-8"
    )
