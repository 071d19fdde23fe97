"""`dpplan serve`: the planner over HTTP."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Annotated

import typer

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADER_BYTES = 65_536  # of a request line and its headers: a pasted model travels in the address
_CONNECTIONS = 512
_IDLE_S = 15  # before a silent connection is closed


def command(
    host: Annotated[str, typer.Option("--host", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on", min=1, max=65535)] = 8321,
) -> None:
    """Serve the dashboard and the JSON API on this machine."""
    from planner.cli.scenario import clear_errors
    from planner.specs.base import PlanError

    with clear_errors(False):
        for name in ("fastapi", "uvicorn", "jinja2"):
            if find_spec(name) is None:
                raise PlanError("serve", name, "is not installed; install dpplan[web]")
        import uvicorn

    print(
        f"dpplan serves http://{f'[{host}]' if ':' in host else host}:{port}/ (Ctrl+C ends it)",
        file=sys.stderr,
    )
    if host not in _LOOPBACK:
        print(
            "others on the network can reach it: it has no password, and stores nothing",
            file=sys.stderr,
        )
    uvicorn.run(
        "web.app:app",
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_IDLE_S,
        h11_max_incomplete_event_size=_HEADER_BYTES,
    )
