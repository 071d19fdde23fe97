"""`dpplan serve`: the planner over HTTP."""

from __future__ import annotations

import sys
from importlib.util import find_spec

from planner.specs.error import PlanError
from planner.specs.options.commands import ServeOptions

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HEADER_BYTES = 65_536  # of a request line and its headers: a pasted model travels in the address
_CONNECTIONS = 512
_IDLE_S = 15  # before a silent connection is closed


def command(own: ServeOptions) -> None:
    """Serve the dashboard and the JSON API on this machine."""
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise PlanError("serve", name, "is not installed; install dpplan[web]")
    import uvicorn

    host, port = own.host, own.port
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
