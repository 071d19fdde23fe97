"""The public API: the documents of the command line over HTTP, and comparisons, explanations and
exports of a state."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request
from fastapi.responses import Response

from planner import api
from planner.inputs.json_text import read_json
from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.specs.options import rows
from planner.specs.options.own import ScheduleOptions
from planner.specs.options.schema import option_schemas
from web import documented as doc
from web import run
from web.state import State, of_mapping, of_pairs, toml_of, typed

router = APIRouter(prefix="/api", tags=["API"])

KINDS = ("gpus", "models", "networks", "stacks", "clusters", "schedules")
SLOTS = ("a", "b", "c", "d")
_EXPORTS = {
    "json": "application/json",
    "toml": "application/toml",
    "command": "text/plain",
    "csv": "text/csv",
    "model": "text/plain",
    "calibration": "application/toml",
}
_CHARTS = ("memory-stages", "memory-phases", "step-time")


def _json(content: bytes) -> Response:
    return Response(content, media_type="application/json")


async def _posted(request: Request) -> State:
    """The state in a posted JSON object."""
    try:
        given = read_json(await request.body())
    except RecursionError:
        raise PlanError("request", None, "is nested too deeply") from None
    except ValueError as error:
        raise PlanError(
            "request", None, f"is not JSON: {' '.join(str(error).split())[:200]}"
        ) from None
    if not isinstance(given, dict):
        raise PlanError("request", None, "must be a JSON object of options")
    return of_mapping(given)


@router.get(
    "/estimate",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("estimate")),
)
async def estimate(request: Request) -> Response:
    """The document of `dpplan estimate --json`."""
    return _json(await run.of_state(request, "estimate", run.state_of(request)))


@router.post(
    "/estimate",
    openapi_extra={"requestBody": doc.body()},
    responses=doc.answers(doc.document("estimate"), posted=True),
)
async def estimate_posted(request: Request) -> Response:
    """As GET, with the options as one JSON object; `config` may be an object too."""
    return _json(await run.of_state(request, "estimate", await _posted(request)))


@router.get(
    "/search",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("search")),
)
async def search(request: Request) -> Response:
    """The document of `dpplan search --json`."""
    return _json(await run.of_state(request, "search", run.state_of(request)))


@router.post(
    "/search",
    openapi_extra={"requestBody": doc.body()},
    responses=doc.answers(doc.document("search"), posted=True),
)
async def search_posted(request: Request) -> Response:
    """As GET, with the options as one JSON object."""
    return _json(await run.of_state(request, "search", await _posted(request)))


@router.get(
    "/explain",
    openapi_extra={"parameters": doc.parameters()},
    responses=doc.answers(doc.document("/api/explain")),
)
async def explain(request: Request) -> Response:
    """The formulas behind every number of an estimate, with their inputs and sources."""
    return _json(await run.of_state(request, "explanation", run.state_of(request)))


_slots = [
    doc.query(
        name,
        f"Query string of scenario {i + 1}",
        {"type": "string", "minLength": 1},
        required=i < 2,
    )
    for i, name in enumerate(SLOTS)
]


def several(request: Request) -> list[State]:
    """The states of a comparison, in order. Raises PlanError."""
    given = dict(request.query_params.multi_items())
    found = []
    for name in SLOTS:
        if given.get(name):
            try:
                pairs = parse_qsl(given[name], max_num_fields=100)
            except ValueError:
                raise PlanError(name, None, "is no query string of at most 100 options") from None
            try:
                found.append(of_pairs(pairs))
            except PlanError as error:
                raise PlanError(f"{name}: {error.field}", error.value, error.remedy) from None
    unknown = set(given) - {*SLOTS, *(f"{slot}_name" for slot in SLOTS)}
    if unknown:
        raise PlanError(
            sorted(unknown)[0][:50], None, f"is no option; scenarios are {', '.join(SLOTS)}"
        )
    if not 2 <= len(found) <= len(SLOTS):
        raise PlanError(
            "/".join(SLOTS),
            len(found),
            f"give two to {len(SLOTS)} scenarios, each the query string of an estimate",
        )
    return found


@router.get(
    "/compare",
    openapi_extra={"parameters": _slots},
    responses=doc.answers(doc.document("/api/compare")),
)
async def compared(request: Request) -> Response:
    """Two to four scenarios side by side: figures, and how much each differs from the first."""
    return _json(
        await run.worked(request, "comparison", [state.pairs for state in several(request)])
    )


_OWN = {n: row for n, row in rows(ScheduleOptions).items() if not row.says.file}
_own = [
    doc.query(name, schema.pop("description"), schema)
    for name, schema in option_schemas(ScheduleOptions).items()
    if name in _OWN
]


@router.get(
    "/schedule",
    openapi_extra={"parameters": doc.parameters(*_own)},
    responses=doc.answers(doc.document("schedule")),
)
async def schedule(request: Request) -> Response:
    """The document of `dpplan schedule --json`: of an estimate's layout where a model is given,
    else of the numbers alone."""
    own: dict[str, Any] = {}
    for name, row in _OWN.items():
        values = request.query_params.getlist(name)
        if len(values) > 1:
            raise PlanError(name, values[0][:50], "is given twice; keep one")
        if values and values[0] != "":
            own[name] = typed(row, values[0])
    pairs = [(k, v) for k, v in request.query_params.multi_items() if k not in _OWN]
    if any(name in ("model", "config") for name, _ in pairs):
        return _json(await run.worked(request, "schedule", of_pairs(pairs).pairs, own))
    allowed = ("schedule", "pp", "vpp")
    for name, _ in pairs:
        if name not in allowed:
            raise PlanError(f"--{name}"[:50], None, "needs a model")
    return _json(await run.worked(request, "schedule", pairs, own))


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
    doc.query("chart", "Which table, for csv", {"type": "string", "enum": list(_CHARTS)}),
]


@router.get(
    "/export",
    openapi_extra={"parameters": doc.parameters(*_to)},
    responses=doc.answers(kinds=("application/json", "application/toml", "text/plain", "text/csv")),
)
async def export(request: Request) -> Response:
    """A state as JSON document, scenario file, command line, or the table of one chart as CSV; or
    its pasted texts again."""
    to, chart = request.query_params.get("to", ""), request.query_params.get("chart", "")
    if to not in _EXPORTS:
        raise PlanError("to", to[:50], f"must be one of {', '.join(_EXPORTS)}")
    state = run.state_of(request, "to", "chart")
    if to == "json":
        content = await run.of_state(request, "estimate", state)
    elif to == "csv":
        if chart not in _CHARTS:
            raise PlanError("chart", chart[:50], f"must be one of {', '.join(_CHARTS)}")
        content = await run.of_state(request, "table", state, chart)
    elif to in ("model", "calibration"):
        text = state.config if to == "model" else state.calibration
        if text is None:
            raise PlanError("to", to, "was not pasted into this state")
        content = text.encode()
    else:
        found = json.loads(await run.of_state(request, "canonical", state))
        content = (toml_of(state) if to == "toml" else found["command"] + "\n").encode()
    kind = _EXPORTS[to]
    return Response(
        content, media_type=kind if kind == "application/json" else f"{kind}; charset=utf-8"
    )
