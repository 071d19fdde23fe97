"""Tables of the keys of JSON documents, from their declarations."""

from __future__ import annotations

from collections.abc import Iterator
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

_MOST_WORDS = 3  # alternatives of a type that are worth naming


def keys(answer: str) -> str:
    """Keys of a document with type, unit and sentence; what an earlier row or another document
    tells is named, not told again."""
    kind = declared(answer)
    told: dict[type, str] = {}
    if answer != "estimate":
        _tell(told, declared("estimate"), "estimate")
    return table(["key", "type", "unit", "meaning"], _rows(kind, "", told, frozenset()))


def _tell(told: dict[type, str], kind: type, where: str) -> None:
    """Parts of `estimate`, which other documents share."""
    told.setdefault(kind, f"as `{where}`")
    for base in kind.__mro__[1:]:
        if base is not Document and issubclass(base, Document):
            told.setdefault(base, f"as `{where}`")
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        part = _document(_plain(field.type)[0])
        if part is not None and part not in told:
            _tell(told, part, f"{where}.{field.encode_name}" if where != "estimate" else field.name)


def _rows(
    kind: type, path: str, told: dict[type, str], without: frozenset[str]
) -> Iterator[list[str]]:
    for field in inspect.type_info(kind).fields:  # type: ignore[attr-defined]
        if field.encode_name in without:
            continue
        name = f"{path}{field.encode_name}"
        types, unit, says = _plain(field.type)
        part, word = _document(types), _word(types, optional=not field.required)
        if any(isinstance(one, inspect.ListType) for one in types):
            name += "[]"
        if part is None:
            yield [f"`{name}`", word, unit, says]
            continue
        base, same = _known(part, told)
        yield [f"`{name}`", word, unit, f"{says}{same and f' ({same})'}"]
        if base is not part:
            told.setdefault(part, f"as `{name}`")
            below = f"{name}.NAME." if word.startswith("object of") else f"{name}."
            skip = frozenset(base.__struct_fields__) if base else frozenset()
            yield from _rows(part, below, told, skip)


def _known(part: type[Document], told: dict[type, str]) -> tuple[type[Document] | None, str]:
    """The nearest declaration above this one that is told already, and where."""
    for base in part.__mro__:
        if base in told:
            more = "" if base is part else ", and:"
            return base, f"{told[base]}{more}"
    return None, ""


def _plain(declared_as: Any) -> tuple[list[inspect.Type], str, str]:
    """(alternatives of a type without what is said of them, unit, sentence)."""
    unit = says = ""
    if isinstance(declared_as, inspect.Metadata):
        schema = declared_as.extra_json_schema or {}
        unit, says = schema.get("unit", ""), schema.get("description", "")
        declared_as = declared_as.type
    types = list(declared_as.types) if isinstance(declared_as, inspect.UnionType) else [declared_as]
    return types, unit, says


def _document(types: list[inspect.Type]) -> type[Document] | None:
    """The document that a key holds, alone or as entries of a list or an object."""
    for one in types:
        if isinstance(one, inspect.StructType):
            return one.cls  # type: ignore[return-value]
        inner = (
            one.item_type
            if isinstance(one, inspect.ListType)
            else one.value_type
            if isinstance(one, inspect.DictType)
            else None
        )
        if inner is not None and (found := _document(_plain(inner)[0])) is not None:
            return found
    return None


def _word(types: list[inspect.Type], optional: bool = False) -> str:
    words = list(dict.fromkeys(_type(one) for one in types if type(one) in _WORDS))
    shown = " or ".join(words) if len(words) <= _MOST_WORDS else "any"
    return f"{shown}, or absent" if optional else shown


def _type(one: inspect.Type) -> str:
    if isinstance(one, inspect.ListType):
        return f"list of {_word(_plain(one.item_type)[0])}"
    if isinstance(one, inspect.DictType):
        return f"object of {_word(_plain(one.value_type)[0])}"
    return _WORDS[type(one)]


def names(of: str) -> str:
    """Names of parts that add up, and of what takes most of a step."""
    if of == "step":
        rows = [[f"`{name}`", one.kind, one.says] for name, one in components.STEP.items()]
        return table(["component", "class", "what"], rows)
    if of == "bottlenecks":
        return ", ".join(components.BOTTLENECKS) + "\n"
    parts = components.MEMORY if of == "memory" else components.WAITING
    return table(["component", "what"], [[f"`{name}`", says] for name, says in parts.items()])
