"""`dpplan serve`: the planner over HTTP."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

import typer


def command(
    host: Annotated[str, typer.Option("--host", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port to listen on", min=1, max=65535)] = 8321,
) -> None:
    """Serve the JSON API and a plain form on this machine."""
    from planner.cli.scenario import clear_errors
    from planner.specs.base import PlanError

    with clear_errors(False):
        for name in ("fastapi", "uvicorn"):
            if find_spec(name) is None:
                raise PlanError("serve", name, "is not installed; install dpplan[web]")
        import uvicorn

    uvicorn.run("web.app:app", host=host, port=port, log_level="warning")
