"""Tools of the server: verbs with their options as arguments, typed by the option table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_type_hints

from planner import plugins
from planner.agents import digest
from planner.cli import call
from planner.cli.finish import Answer
from planner.cli.group import body_of
from planner.error import PlanError
from planner.inputs import catalog
from planner.specs.options import Options, Record, Row, rows
from planner.specs.options.checked import unknown
from planner.specs.options.own import Output
from planner.specs.options.schema import option_schemas

# options about the terminal, files that are written, and processes: no arguments of a tool
_LEFT_OUT = {"html", "csv", "trace", "save", "append", "model_out", "full", "explain", "part"}
_LEFT_OUT |= {"jobs", "dask", "scenario", "inference"}
LIKE = "like"  # the argument of `list` that filters


@dataclass(frozen=True)
class Tool:
    """A tool of the server.

    verb: the verb that answers; says: when an agent asks it; words: values of the verb's words that
    are fixed; tables: whether its tables come before its sentences; reads: it reads files;
    unlisted: options of its verb that no schema lists, though they are taken by name.
    """

    name: str
    verb: str
    says: str
    words: tuple[str, ...] = ()
    tables: bool = False
    reads: bool = False
    unlisted: tuple[str, ...] = ()


# details of the engine and of lengths, whose defaults are the framework's
_OF_ENGINES = (
    "response_sigma",
    "old_logprobs",
    "stream",
    "generation_memory",
    "generation_offload",
)
_TOOLS = (
    Tool(
        "estimate",
        "estimate",
        "Memory, step time, cost and the best layout of training a model on given GPUs, with an"
        " 80 % band. Ask before renting GPUs or writing a launch script.",
    ),
    Tool(
        "explain",
        "estimate",
        "Where time and memory of a training step go, and the changes that help, each evaluated."
        " Arguments as of estimate.",
        tables=True,
    ),
    Tool(
        "find_cluster",
        "recommend",
        "The cheapest, smallest and fastest cluster that trains a model on `tokens` within `days`"
        " and `budget`.",
        words=("cluster",),
    ),
    Tool(
        "tune",
        "tune",
        "Which methods of fine-tuning (full, LoRA, QLoRA, ...) fit given cards, how long they take"
        " and what they cost.",
        tables=True,
    ),
    Tool(
        "rl",
        "rl",
        "A step of reinforcement learning (GRPO, PPO, ...): time, memory, GPU split.",
        unlisted=_OF_ENGINES,
    ),
    Tool(
        "read_recipe",
        "read",
        "Whether launch scripts and configurations (Megatron-LM, torchtitan, TRL, Axolotl, ...) fit"
        " as they are, and a better recipe. Files are read, never run.",
        reads=True,
    ),
    Tool(
        "check_log",
        "check",
        "Whether the log of a run is inside the band of its prediction; `recipe`: its launch file.",
        reads=True,
    ),
    Tool(
        "list",
        "list",
        "Ids of the catalogue: GPUs, models, networks, stacks, clusters. `like` filters them.",
    ),
)


def tools(files: bool) -> dict[str, Tool]:
    """Tools by name, whose verbs are installed. files: also those that read files."""
    return {
        tool.name: tool
        for tool in _TOOLS
        if call.answers(tool.verb) and (files or not tool.reads) and _has(tool.verb)
    }


def _has(verb: str) -> bool:
    part = plugins.part_of(verb)
    return part is None or plugins.has(part)


def arguments(tool: Tool, files: bool) -> dict[str, Row]:
    """The options that a tool takes, by name."""
    fixed = [row.name for row in call.options(tool.verb).values() if row.says.argument]
    left_out = _LEFT_OUT | set(fixed[: len(tool.words)])
    return {
        name: row
        for name, row in call.options(tool.verb).items()
        if name not in left_out and (files or not row.says.file)
    }


@cache
def input_schema(tool: Tool, files: bool) -> dict[str, Any]:
    """JSON Schema of the arguments of a tool: the usual options, and options of its verb only.
    Others are taken by name, too: all of them in each schema would fill an agent's context."""
    table = arguments(tool, files)
    schemas = _schemas(tool.verb)
    request = rows(Options)
    shown = {
        name: {**schemas[name], "description": row.brief}
        for name, row in table.items()
        if (row.says.brief or request.get(name) != row) and name not in tool.unlisted
    }
    for schema in shown.values():
        schema.pop("examples", None)
    if tool.verb == "list":
        shown[LIKE] = {"type": "string", "description": "Part of an id or title"}
    # a recipe names the model, too: only words of the verb are needed in any case
    needed = [n for n in shown if n in table and n not in request and table[n].is_needed]
    return {
        "type": "object",
        "properties": shown,
        "required": needed,
        "additionalProperties": tool.verb != "list",
    }


def _schemas(verb: str) -> dict[str, dict[str, Any]]:
    """JSON Schema of every option of a verb."""
    kinds = [kind for kind in get_type_hints(body_of(verb)).values() if isinstance(kind, type)]
    records = [kind for kind in kinds if issubclass(kind, Record) and kind is not Output]
    out = {"recipe": {"type": ["string", "array"]}, **option_schemas(Options)}
    for record in records:
        out |= option_schemas(record)
    return out


def answer(tool: Tool, given: Mapping[str, Any], files: bool) -> str:
    """The answer of a tool in at most `digest.MOST` bytes. Raises PlanError as the verb does."""
    values = {name.replace("-", "_"): value for name, value in given.items() if value is not None}
    table = arguments(tool, files)
    like = str(values.pop(LIKE, "")) if tool.verb == "list" else ""
    every = call.options(tool.verb)
    for name, value in values.items():
        if name in every and name not in table:
            _refuse(every[name], value, tool)
        if name not in every and name not in rows(Options):
            raise unknown(name, value, table)
        if not files and name in table and _names_a_file(table[name], value):
            remedy = "names a file, which is read over stdin and stdout only; give a catalogue name"
            raise PlanError(table[name].flag, value, remedy)
    answered: Answer = call.call(tool.verb, tool.words, values)
    if tool.verb == "list":
        return digest.of_list(answered.document, values.get("kind"), like)
    command = digest.command(tool.verb, tool.words, values, every)
    return digest.of_answer(answered, command, tool.tables)


def _refuse(row: Row, value: object, tool: Tool) -> None:
    if row.says.file:
        raise PlanError(row.flag, value, "names a file, which this server does not open")
    raise PlanError(row.flag, value, f"is not an argument here; run `dpplan {tool.verb}` for it")


def _names_a_file(row: Row, value: object) -> bool:
    texts = value if isinstance(value, list | tuple) else [value]
    return row.is_catalogued and any(
        isinstance(text, str) and (catalog.is_path(text) or text.startswith("hf:"))
        for text in texts
    )
