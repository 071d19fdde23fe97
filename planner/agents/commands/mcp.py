"""`dpplan mcp`: answers for coding agents."""

from __future__ import annotations

from importlib.util import find_spec

from planner.agents.options import McpOptions
from planner.error import PlanError


def command(options: McpOptions) -> None:
    """Answer coding agents over the Model Context Protocol: on stdin and stdout, or over HTTP on
    this machine."""
    if find_spec("mcp") is None:
        raise PlanError("mcp", None, "needs the MCP SDK, which is missing: install dpplan[mcp]")
    from planner.agents import server

    server.run(options.port)
