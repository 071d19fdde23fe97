"""docs/reference: a page per verb with its options, an example and the keys of its document; the
options of a request; the JSON Schema of every document."""

from __future__ import annotations

import json
from collections.abc import Iterable

from msgspec.json import schema_components

from pages import blocks, documents, options
from pages.text import NOTICE, code
from planner.cli.group import COMMANDS, body_of
from planner.cli.made import options_of
from planner.specs.documents import by_answer, declared
from planner.specs.options import Options, rows
from planner.specs.options.own import Output

SCHEMA = "documents.schema.json"
OPTIONS = "options.md"
_ROWS = 230  # of keys on one page
_SMALL = "--model gpt2 --gpu a100 --gpus 8"

# one command per verb, shown with what it prints and run by the tests like every command of a page
EXAMPLES: dict[str, tuple[str, int]] = {
    "estimate": (f"estimate {_SMALL}", 12),
    "search": ("search --model llama-2-7b --gpu a100 --gpus 64 --top 3", 24),
    "recommend": ("recommend batch --model llama-2-7b --gpu h100 --gpus 64", 16),
    "export": ("export --to torchtitan --model llama-3.1-8b --gpus 64 --gpu h100", 24),
    "compare": ("compare --model llama-2-7b --gpus 256 --vary gpu=rtx4090,a100 --tokens 1T", 16),
    "batch": (
        "batch --model llama-2-7b --gpu h100 --sweep gpus=64..4096 --global-batch 128"
        " --reference-batch 1024 --tokens 2T --learning-rate 3e-4 --warmup 8B",
        16,
    ),
    "trace": ("trace docs/examples/toy_model.py:build", 14),
    "tune": ("tune --model llama-3-8b --gpu rtx4090 --method qlora", 20),
    "read": ("read docs/examples/train.sh --gpu h100 --gpus 64", 20),
    "rl": ("rl --model qwen2.5-7b --gpu h100 --gpus 8", 20),
    "schedule": ("schedule --schedule 1f1b --pp 4 --micro-batches 8", 20),
    "strategies": ("strategies --model llama-2-7b --gpu h100 --gpus 64", 16),
    "allreduce": ("allreduce --gpu h100 --gpus 64", 16),
    "batchnorm": ("batchnorm --gpu a100 --gpus 64", 16),
    "input": (
        "input --samples-per-s 14286 --gpus 8 --batch 400 --sample-bytes 114660"
        " --decoded-bytes 150528 --worker-rate 200 --data-storage nfs",
        16,
    ),
    "list": ("list schedules", 16),
    "prices": ("prices h100", 16),
    "validate": ("validate docs/examples/runs.csv", 16),
    "check": (
        "check docs/examples/train.log --recipe docs/examples/train.sh --gpu h100 --gpus 64",
        20,
    ),
    "learn": ("learn memory", 24),
    "schema": ("schema", 12),
}
# what only a machine with GPUs, or a port, can answer
_UNSHOWN = {
    "calibrate": "calibrate --out my-node.toml",
    "serve": "serve --port 8321",
    "mcp": "mcp",
    "preflight": "preflight --recipe train.sh --gpu h100 --gpus 64 --folder /scratch/run1",
}


def folder() -> dict[str, str]:
    """Pages of docs/reference by name."""
    out = {OPTIONS: NOTICE + options.request()}
    for verb in COMMANDS:
        out |= _verb(verb)
    out |= _documents("http", "Documents served only over HTTP", _http())
    return {"index.md": _index(), **out, SCHEMA: schema()}


def schema() -> str:
    """JSON Schema of every document, with one definition per part."""
    _, parts = schema_components(
        [declared(answer) for answer in by_answer()],
        schema_hook=_of_spec,
        ref_template="#/$defs/{name}",
    )
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of dpplan",
        "$comment": "An answer is the definition that its page of the reference names.",
    }
    lines = [f'"{name}": {json.dumps(part)}' for name, part in parts.items()]
    return json.dumps(head)[:-1] + ', "$defs": {\n' + ",\n".join(lines) + "\n}}\n"


def _of_spec(kind: type) -> dict[str, object]:
    if not hasattr(kind, "model_json_schema"):
        raise NotImplementedError  # how a hook tells msgspec that it has no schema for a type
    schema: dict[str, object] = kind.model_json_schema()
    return schema


def _index() -> str:
    lines = "".join(f"- [`dpplan {verb}`]({verb}.md): {_says(verb)}\n" for verb in COMMANDS)
    return (
        f"{NOTICE}# Reference\n\nA page per verb: what it answers, an example, its options, the"
        " keys of its JSON document.\n\n"
        f"{lines}\nBeside them:\n\n- [options of a request]({OPTIONS}), which most verbs take\n"
        "- [contract](../contract.md): exit statuses, how values are written, what `--json`"
        " promises\n- [documents served only over HTTP](http.md)\n"
        f"- [{SCHEMA}]({SCHEMA}): JSON Schema of every document;"
        " [scenario.schema.json](../scenario.schema.json): of a scenario file\n"
    )


def _says(verb: str) -> str:
    """The first sentence of a verb's help."""
    return " ".join((body_of(verb).__doc__ or "").split("\n\n")[0].split())


def _verb(verb: str) -> dict[str, str]:
    """The page of a verb, and pages of keys where they do not fit beside it."""
    introduction = "\n\n".join(
        " ".join(part.split()) for part in (body_of(verb).__doc__ or "").split("\n\n")
    )
    parts = [f"{NOTICE}# dpplan {verb}\n\n{introduction}\n", _example(verb), _options(verb)]
    answers = [answer for answer in by_answer() if answer.split()[0] == verb]
    if not answers:
        return {f"{verb}.md": "\n".join(parts)}
    tables = [(answer, documents.rows(answer)) for answer in answers]
    if sum(len(keys) for _, keys in tables) <= _ROWS // 2:
        parts += ["## The document of `--json`\n", *_sections(tables, "###")]
        return {f"{verb}.md": "\n".join(parts)}
    pages = _documents(verb, f"Keys of dpplan {verb}", tables)
    links = ", ".join(f"[{name.removesuffix('.md')}]({name})" for name in pages)
    parts.append(f"## The document of `--json`\n\nKey by key: {links}. {_defined(answers)}\n")
    return {f"{verb}.md": "\n".join(parts), **pages}


def _defined(answers: Iterable[str]) -> str:
    names = ", ".join(f"`$defs/{declared(answer).__name__}`" for answer in answers)
    return f"JSON Schema: {names} of [{SCHEMA}]({SCHEMA})."


def _example(verb: str) -> str:
    if verb in _UNSHOWN:
        return f"## Example\n\n{code(f'dpplan {_UNSHOWN[verb]}', 'sh')}"
    command, lines = EXAMPLES[verb]
    return f"## Example\n\n{blocks.output(f'dpplan {command}', lines=lines)}"


def _options(verb: str) -> str:
    request, specific = options_of(verb, body_of(verb))
    printed = [row for row in specific.values() if row in rows(Output).values()]
    mine = [row for row in specific.values() if row not in printed]
    every = [row for row in rows(Options).values() if row in request.values()]
    parts = ["## Options\n"]
    if mine:
        parts.append(options.own_table(mine))
    if request and len(every) > len(rows(Options)) // 3:
        parts.append(f"Beside these the [options of a request]({OPTIONS}) that name `{verb}`.\n")
    elif request:
        alone = ", ".join(f"`{row.flag}`" for row in request.values())
        parts.append(f"Of the [options of a request]({OPTIONS}): {alone}.\n")
    if printed:
        shown = ", ".join(f"`{row.flag}`" for row in printed)
        parts.append(f"How it is printed: {shown}; see [output]({OPTIONS}#output).\n")
    return "\n".join(parts)


def _http() -> list[tuple[str, list[list[str]]]]:
    answers = [answer for answer in by_answer() if answer.split()[0] not in COMMANDS]
    return [(answer, documents.rows(answer)) for answer in answers]


def _sections(tables: Iterable[tuple[str, list[list[str]]]], mark: str) -> list[str]:
    return [
        f"{mark} {documents.title(answer)}\n\n{documents.description(answer)}\n\n"
        f"{_defined([answer])}\n\n{documents.keys_table(keys)}"
        for answer, keys in tables
    ]


def _documents(name: str, title: str, tables: list[tuple[str, list[list[str]]]]) -> dict[str, str]:
    """Pages of tables of keys, cut between tables or, where one is too long, between the keys
    at its top."""
    pages: list[list[tuple[str, list[list[str]]]]] = [[]]
    room = _ROWS
    for answer, keys in tables:
        for part in _whole_keys(keys):
            if len(part) > room and pages[-1]:
                pages.append([])
                room = _ROWS
            room -= len(part)
            if pages[-1] and pages[-1][-1][0] == answer:
                pages[-1][-1][1].extend(part)
            else:
                pages[-1].append((answer, list(part)))
    out = {}
    for number, parts in enumerate(pages, 1):
        file = (
            f"{name}.md"
            if name == "http"
            else f"{name}-keys{'' if number == 1 else f'-{number}'}.md"
        )
        place = f" ({number} of {len(pages)})" if len(pages) > 1 else ""
        text = [f"{NOTICE}# {title}{place}\n\n{documents.INTRODUCTION}", *_sections(parts, "##")]
        if name == "estimate" and number == len(pages):
            text.append(documents.names())
        out[file] = "\n".join(text)
    return out


def _whole_keys(rows: list[list[str]]) -> list[list[list[str]]]:
    """Rows of a table, grouped by their top-level key."""
    out: list[list[list[str]]] = []
    for row in rows:
        top = "." not in row[0]
        if top or not out:
            out.append([])
        out[-1].append(row)
    return out
