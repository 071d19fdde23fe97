"""Tables of the keys of JSON documents, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc
from typing import Any

from msgspec import inspect

from pages.text import table
from planner.specs import components
from planner.specs.document import Document
from planner.specs.documents import declared

_WORDS: dict[type[inspect.Type], str] = {
    inspect.IntType: "int",
    inspect.FloatType: "number",
    inspect.StrType: "text",
    inspect.LiteralType: "text",
    inspect.BoolType: "bool",
    inspect.ListType: "list",
    inspect.StructType: "object",
    inspect.DictType: "object",
    inspect.CustomType: "object",
    inspect.AnyType: "any",
    inspect.NoneType: "null",
}

_FIRST = "estimate"
INTRODUCTION = """Types: int, number, text, bool, list, object; an object whose keys
are names has the type of its values, and `NAME` in the paths below it. A key that is not always
there says "absent". Numbers are in the base unit beside them; 1 stands for shares and ratios. Keys
may be added in later versions; `schema_version` changes when one is removed or changes its meaning.
"""
_NAMES = """Components of the step, in `step.components` where they can occur; their sum is
`step.seconds`. The class says what a component is to the bottleneck; seconds of communication count
for the wire that carries them. Components of memory are on the page about
[memory](../mechanisms/memory.md).
"""
_MOST_WORDS = 3  # alternatives of a type that are worth naming


def names() -> str:
    """Names of the components of the step."""
    return f"## Components of the step\n\n{_NAMES}\n{_components()}"


def description(answer: str) -> str:
    """Description of a document."""
    return getdoc(declared(answer)) or ""


def title(answer: str) -> str:
    """Heading of the tables of a document."""
    if answer.startswith("a "):
        return answer.capitalize().replace("http", "HTTP")
    return f"`{answer}`" if answer.startswith("/") else f"`{answer} --json`"


def rows(answer: str) -> list[list[str]]:
    """Keys of a document with type, unit and sentence; keys described in an earlier row or in the
    document of an estimate are referred to."""
    places: dict[type, str] = {}
    if answer != _FIRST:
        _tell(places, declared(_FIRST), _FIRST)
    return list(_rows(declared(answer), "", places, frozenset()))


def keys_table(rows: list[list[str]]) -> str:
    return table(["key", "type", "unit", "meaning"], rows)


def _fields(kind: type[Document]) -> tuple[inspect.Field, ...]:
    return inspect.type_info(kind).fields  # type: ignore[attr-defined,no-any-return]


def _tell(places: dict[type, str], kind: type[Document], where: str) -> None:
    """Note where a declaration, its bases and its parts are described."""
    places.setdefault(kind, f"as `{where}`")
    for base in kind.__mro__[1:]:
        if base is not Document and issubclass(base, Document):
            beyond = [name for name in kind.__struct_fields__ if name not in base.__struct_fields__]
            if len(beyond) < len(base.__struct_fields__):
                names = ", ".join(f"`{name}`" for name in beyond)
                places.setdefault(base, f"as `{where}` without {names}")
    for field in _fields(kind):
        part = _document(_plain(field.type)[0])
        if part is not None and part not in places:
            _tell(places, part, f"{where}.{field.encode_name}" if where != _FIRST else field.name)


def _rows(
    kind: type, path: str, places: dict[type, str], without: frozenset[str]
) -> Iterator[list[str]]:
    for field in _fields(kind):
        if field.encode_name in without:
            continue
        name = f"{path}{field.encode_name}"
        types, unit, says = _plain(field.type)
        part, word = _document(types), _word(types, optional=not field.required)
        if any(isinstance(kind, inspect.ListType) for kind in types):
            name += "[]"
        if part is None:
            yield [f"`{name}`", word, unit, says]
            continue
        base, same = _known(part, places)
        more = f" ({same})" if same and not says.startswith("as `") else ""
        yield [f"`{name}`", word, unit, f"{says}{more}"]
        if base is not part:
            places.setdefault(part, f"as `{name}`")
            below = f"{name}.NAME." if word.startswith("object of") else f"{name}."
            skip = frozenset(base.__struct_fields__) if base else frozenset()
            yield from _rows(part, below, places, skip)


def _known(part: type[Document], places: dict[type, str]) -> tuple[type[Document] | None, str]:
    """The nearest base that is described already, and where."""
    for base in part.__mro__:
        if base in places:
            more = "" if base is part else ", and:"
            return base, f"{places[base]}{more}"
    return None, ""


def _plain(declared_as: Any) -> tuple[list[inspect.Type], str, str]:
    """(alternatives of a type without their annotations, unit, sentence)."""
    unit = says = ""
    if isinstance(declared_as, inspect.Metadata):
        schema = declared_as.extra_json_schema or {}
        unit, says = schema.get("unit", ""), schema.get("description", "")
        declared_as = declared_as.type
    types = list(declared_as.types) if isinstance(declared_as, inspect.UnionType) else [declared_as]
    return types, unit, says


def _document(types: list[inspect.Type]) -> type[Document] | None:
    """The document that a key holds, alone or as entries of a list or an object."""
    for kind in types:
        if isinstance(kind, inspect.StructType):
            return kind.cls  # type: ignore[return-value]
        inner = (
            kind.item_type
            if isinstance(kind, inspect.ListType)
            else kind.value_type
            if isinstance(kind, inspect.DictType)
            else None
        )
        if inner is not None and (document := _document(_plain(inner)[0])) is not None:
            return document
    return None


def _word(types: list[inspect.Type], optional: bool = False) -> str:
    words = list(dict.fromkeys(_type(kind) for kind in types if type(kind) in _WORDS))
    shown = " or ".join(words) if len(words) <= _MOST_WORDS else "any"
    return f"{shown}, or absent" if optional else shown


def _type(kind: inspect.Type) -> str:
    if isinstance(kind, inspect.ListType):
        return f"list of {_word(_plain(kind.item_type)[0])}"
    if isinstance(kind, inspect.DictType):
        return f"object of {_word(_plain(kind.value_type)[0])}"
    return _WORDS[type(kind)]


def memory() -> str:
    """Components of memory."""
    return table(["component", "what"], [[f"`{n}`", says] for n, says in components.MEMORY.items()])


def _components() -> str:
    step = [
        [f"`{name}`", component.kind, component.says] for name, component in components.STEP.items()
    ]
    waiting = [[f"`{name}`", says] for name, says in components.WAITING.items()]
    return (
        table(["component of the step", "class", "what"], step)
        + f"\n`step.bottleneck` is one of {', '.join(components.BOTTLENECKS)}.\n\n"
        + table(["reason to wait", "what"], waiting)
    )
