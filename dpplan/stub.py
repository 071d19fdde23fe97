"""The signatures of `dpplan` for editors and type checkers, from the option table:

python -m dpplan.stub           # writes dpplan/__init__.pyi
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from dpplan.verbs import function, names
from planner.cli import call
from planner.specs.documents import by_answer
from planner.specs.options import Options, Row, rows

FILE = Path(__file__).with_name("__init__.pyi")
_HEAD = """\
# Written by `python -m dpplan.stub` from the option table: do not edit.
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypedDict, Unpack

{imports}
from dpplan.answer import Answer as Answer
from planner.error import PlanError as PlanError

__version__: str
"""
_SEVERAL = "str | Sequence[str]"
_PLAIN = {int: "int", float: "float", bool: "bool", str: "str"}


def text() -> str:
    """The whole stub."""
    tables = {verb: call.options(verb) for verb in names()}
    shared = rows(Options)
    groups: dict[tuple[str, ...], list[Row]] = {}
    for name, row in shared.items():
        takers = tuple(verb for verb, table in tables.items() if table.get(name) == row)
        groups.setdefault(takers, []).append(row)
    documents = {verb: _document(verb) for verb in tables}
    imports = sorted({f"from {m} import {n}" for m, n in filter(None, documents.values())})
    parts = [_HEAD.format(imports="\n".join(imports))]
    for takers, options in groups.items():
        if takers:
            parts.append(_keys(options))
    for verb, table in tables.items():
        mine = [options for takers, options in groups.items() if verb in takers]
        common = {row.name for options in mine for row in options}
        specific = {name: row for name, row in table.items() if name not in common}
        request = f"_{verb.title()}Options" if mine else ""
        if mine:
            bases = [f"    {_group(options)}," for options in mine]
            parts.append("\n".join([f"class {request}(", *bases, "    total=False,", "): ...", ""]))
        parts.append(_signature(verb, specific, request, documents[verb]))
    return "\n".join(parts)


def _keys(options: list[Row]) -> str:
    """Options that the same verbs take, as a class."""
    keys = [f"    {row.name}: {_type(row)} | None" for row in options]
    return "\n".join([f"class {_group(options)}(TypedDict, total=False):", *keys, ""])


def _signature(
    verb: str, table: Mapping[str, Row], request: str, document: tuple[str, str] | None
) -> str:
    words = [row for row in table.values() if row.says.argument]
    named = [row for row in table.values() if not row.says.argument]
    several = any(row.is_several for row in words)
    lines = [f"def {verb}("]
    for row in words:
        word = f"*{row.name}: str | PathLike[str]" if row.is_several else _parameter(row)
        lines.append(f"    {word},")
    lines += ["    *,"] * bool(named and not several)
    lines += [f"    {_parameter(row)}," for row in named]
    lines += [f"    **request: Unpack[{request}],"] * bool(request)
    sentence = (function(verb).__doc__ or "").partition("\n")[0]
    lines += [f") -> Answer[{document[1] if document else 'Any'}]:", f'    """{sentence}"""', ""]
    return "\n".join(lines)


def _parameter(row: Row) -> str:
    return f"{row.name}: {_type(row)} | None = ..."


def _group(options: list[Row]) -> str:
    """The name of options that the same verbs take, by the first of them."""
    return f"_{options[0].name.title().replace('_', '')}AndLike"


def _document(verb: str) -> tuple[str, str] | None:
    """Module and name of the document that answers; None where that depends on the question."""
    if verb not in by_answer() or any(key.startswith(f"{verb} ") for key in by_answer()):
        return None
    module, _, name = by_answer()[verb].rpartition(".")
    return module, name


def _type(row: Row) -> str:
    """The values that an option takes in Python."""
    if row.is_several:
        return _SEVERAL
    kinds = list(_kinds(row.kind))
    if row.says.file and "str" in kinds:
        kinds.append("PathLike[str]")
    if row.kind is str and row.says.unit:
        kinds.insert(0, "float")
    if row.says.reads and "str" not in kinds:  # 128k
        kinds.append("str")
    return " | ".join(kinds)


def _kinds(kind: Any) -> Iterator[str]:
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from _kinds(member)
    elif get_origin(kind) is Literal:
        yield f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    elif get_origin(kind) is tuple:
        yield f"tuple[{', '.join(_PLAIN[each] for each in get_args(kind))}]"
    else:
        yield _PLAIN[kind]


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
