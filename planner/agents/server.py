"""The server of `dpplan mcp`, by the protocol's own SDK: tools and the catalogue as resources."""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import anyio
from mcp import MCPError, types
from mcp.server import Server
from mcp.server.stdio import stdio_server

from planner import __version__
from planner.agents import tools
from planner.error import PlanError, short
from planner.inputs.listing import list_catalog
from planner.specs.document import to_json
from planner.specs.names import KINDS
from planner.specs.options.words import near

_HOST = "127.0.0.1"
_SCHEME = "dpplan://"
_LONGEST = 900  # characters of an error
_INSTRUCTIONS = (
    "dpplan predicts the training of large models before anything is rented or launched: what fits,"
    " step time, cost, the best layout, and how sure that is. Ask estimate before you choose GPUs,"
    " a layout or a batch, read_recipe for a launch file as it is, check_log after a run. Say the"
    " band with the number, and the defaults that the answer assumed."
)


def server(files: bool = True) -> Server[Any]:
    """The server. files: whether tools may read files, with the rights of the process."""
    offered = tools.tools(files)
    one_at_a_time = anyio.CapacityLimiter(1)

    async def list_tools(context: Any, parameters: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_tool(tool, files) for tool in offered.values()])

    async def call_tool(context: Any, parameters: types.CallToolRequestParams) -> Any:
        ask = partial(_answer, offered, parameters.name, parameters.arguments or {}, files)
        text, wrong = await anyio.to_thread.run_sync(ask, limiter=one_at_a_time)
        return types.CallToolResult(content=[types.TextContent(text=text)], is_error=wrong)

    async def list_resources(context: Any, parameters: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=_resources(offered))

    async def read_resource(context: Any, parameters: types.ReadResourceRequestParams) -> Any:
        try:
            text = _resource(parameters.uri, offered, files)
        except PlanError as error:
            raise MCPError(types.INVALID_PARAMS, str(error)) from None
        contents = types.TextResourceContents(
            uri=parameters.uri, mime_type="application/json", text=text
        )
        return types.ReadResourceResult(contents=[contents])

    return Server(
        "dpplan",
        version=__version__,
        title="dpplan",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_read_resource=read_resource,
    )


def run(port: int | None) -> None:
    """Answer until stdin ends; with a port over HTTP, without tools that read files."""
    if port is None:
        anyio.run(_stdio)
        return
    import uvicorn

    from planner.cli.commands.serve import bound

    sockets = bound(_HOST, port)
    app = server(files=False).streamable_http_app(
        stateless_http=True, json_response=True, host=_HOST
    )
    print(f"dpplan answers agents at http://{_HOST}:{port}/mcp (Ctrl+C ends it)", file=sys.stderr)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets)


async def _stdio() -> None:
    answering = server()
    async with stdio_server() as (read, write):
        await answering.run(read, write, answering.create_initialization_options())


def _tool(tool: tools.Tool, files: bool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        description=f"{tool.says} More options by name: {_SCHEME}options/{tool.name}."
        if tool.verb != "list"
        else tool.says,
        input_schema=tools.input_schema(tool, files),
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True),
    )


def _answer(
    offered: dict[str, tools.Tool], name: str, given: dict[str, Any], files: bool
) -> tuple[str, bool]:
    """The text of an answer, and whether it is an error: the sentence that a person gets."""
    if name not in offered:
        hint = near(name, offered) or f"tools: {', '.join(offered)}"
        return f"tool: {name[:100]!r} - unknown; {hint}".strip(), True
    try:
        return tools.answer(offered[name], given, files), False
    except PlanError as error:
        return short(" ".join(str(error).split()), _LONGEST), True
    except Exception as error:
        kind = type(error).__name__
        return f"a fault of dpplan {__version__}, not of the request ({kind}); report it", True


def _resources(offered: dict[str, tools.Tool]) -> list[types.Resource]:
    catalogue = [
        types.Resource(
            name=kind,
            uri=f"{_SCHEME}catalogue/{kind}",
            description=f"Every entry of {kind} in the catalogue",
            mime_type="application/json",
        )
        for kind in KINDS
    ]
    options = [
        types.Resource(
            name=f"options of {name}",
            uri=f"{_SCHEME}options/{name}",
            description=f"Every argument of the tool {name}, with its help",
            mime_type="application/json",
        )
        for name in offered
    ]
    return [*catalogue, *options]


def _resource(uri: str, offered: dict[str, tools.Tool], files: bool) -> str:
    """The text of a resource. Raises PlanError for an unknown URI."""
    kind, _, name = str(uri).removeprefix(_SCHEME).partition("/")
    if kind == "catalogue" and name in KINDS:
        return to_json(list_catalog(name))
    if kind == "options" and name in offered:
        table = tools.arguments(offered[name], files)
        return json.dumps({option: row.help for option, row in table.items()})
    known = [resource.uri for resource in _resources(offered)]
    raise PlanError("resource", uri, f"is unknown; {near(uri, known)}see the list of resources")
