"""FastAPI application: JSON endpoints over `planner.api`, and one page that works as a plain form.

State is the query string, with the option names of the command line (`_` for `-`). No file of the server can be named: options
that take a path on the command line take catalogue names only.
"""

from __future__ import annotations

import html
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse

from planner import api, catalog
from planner.render import ascii_block, finite
from planner.render_estimate import estimate_blocks

MAX_GPUS = 131_072  # larger clusters are for the command line: one request must not hold the server for seconds
_NAMES = ("model", "gpu", "cluster", "stack", "intra_node", "inter_node", "host_link")
_FORM = ("model", "gpu", "gpus", "tp", "pp", "zero", "recompute", "micro_batch", "seq_len", "global_batch", "precision", "tokens")

app = FastAPI(title="dpplan", docs_url="/docs", redoc_url=None)


def _options(request: Request) -> api.Options:
    """Options from the query string; text that reads as a whole number or as true/false is one."""
    given: dict[str, Any] = {}
    for name, text in request.query_params.items():
        if text == "":
            continue
        if name in _NAMES and catalog.is_path(text):
            raise api.PlanError(name, text, "takes a catalogue name here; files are for the command line")
        if name == "calibration":
            raise api.PlanError(name, text, "is read from a file; use the command line")
        if name == "require":
            given[name] = request.query_params.getlist(name)
            continue
        lowered = text.lower()
        if text.lstrip("-").isdigit() and len(text) < 20:
            given[name] = int(text)
        else:
            given[name] = {"true": True, "false": False}.get(lowered, text)
    options = api.read_options(given)
    if options.gpus > MAX_GPUS:
        raise api.PlanError("gpus", options.gpus, f"must be at most {MAX_GPUS:,} here; use the command line")
    return options


@app.exception_handler(api.PlanError)
def wrong_request(request: Request, error: api.PlanError) -> JSONResponse:
    """A wrong request names its field, value and remedy."""
    return JSONResponse(status_code=422, content={"field": error.field, "value": str(error.value), "message": str(error)})


@app.get("/api/estimate")
def estimate(request: Request) -> JSONResponse:
    """The document of `dpplan estimate --json`."""
    return JSONResponse(finite(api.estimate(_options(request))))


@app.get("/api/search")
def search(request: Request) -> JSONResponse:
    """The document of `dpplan search --json`."""
    return JSONResponse(finite(api.search_layouts(_options(request))))


@app.get("/api/catalog/{kind}")
def catalog_of(kind: str) -> JSONResponse:
    """The document of `dpplan list KIND --json`."""
    return JSONResponse(api.list_catalog(kind))


@app.get("/", response_class=HTMLResponse)
def page(request: Request) -> str:
    """A form of the common options and the answer for the ones in the address."""
    given = {name: html.escape(request.query_params.get(name, "")) for name in _FORM}
    fields = "".join(
        f'<label>{name.replace("_", " ")} <input name="{name}" value="{text}"></label> ' for name, text in given.items()
    )
    answer = "Give at least a model, a GPU and their number."
    if request.query_params.get("model"):
        try:
            answer = "\n".join(ascii_block(block) for block in estimate_blocks(api.estimate(_options(request))))
        except api.PlanError as error:
            answer = f"error: {error}"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>dpplan</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"></head><body><h1>dpplan</h1>'
        f'<form method="get">{fields}<button>Estimate</button></form><pre>{html.escape(answer)}</pre></body></html>'
    )
