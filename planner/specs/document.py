"""JSON documents as declared types: every key has a type, a unit and a sentence.

A declaration is the only place that knows a key. What answers a request fills it, what prints,
draws and serves reads its attributes, and docs/contract.md and the OpenAPI schema are printed from
it. A key that is there only sometimes is declared `T | Unset = UNSET` and left out of the JSON
where it is not set; `None` is JSON's null.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar, dataclass_transform

from msgspec import UNSET, Meta, Struct, UnsetType, field, structs, to_builtins
from msgspec import json as _json

from planner.specs.base import Spec

__all__ = [
    "SCHEMA_VERSION",
    "UNSET",
    "Document",
    "Doubted",
    "Unset",
    "changed",
    "extended",
    "key",
    "plain",
    "read",
    "to_json",
]

Unset = UnsetType
D = TypeVar("D", bound="Document")
T = TypeVar("T")

SCHEMA_VERSION = 2  # of all documents: another one where a key goes or changes its meaning


def key(says: str, unit: str = "") -> Meta:
    """Declaration of a key: `seconds: Annotated[float, key("time of one optimizer step", "s")]`.

    unit: base unit of its number, "1" for a share or a ratio, "" if it has none.
    """
    return Meta(description=says, extra_json_schema={"unit": unit} if unit else None)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Document(Struct, frozen=True):
    """A JSON object with declared keys; frozen."""


class Doubted(Document, kw_only=True):
    """An answer that says which values of its request are implausible."""

    doubts: Annotated[
        list[str],
        key("implausible values of the request, each with the likely intention, as sentences"),
    ] = []


def changed(document: D, **update: Any) -> D:
    """The document with other values of some keys."""
    return structs.replace(document, **update)


def extended(kind: type[D], document: Document, **more: Any) -> D:
    """A document of a kind with the keys of this one that it has too, and with `more`."""
    both = [name for name in kind.__struct_fields__ if name in document.__struct_fields__]
    return kind(**{**{name: getattr(document, name) for name in both}, **more})


def plain(document: Any) -> Any:
    """A document as dicts, lists and plain values."""
    return to_builtins(document, enc_hook=_plain)


def to_json(document: Any, indent: int | None = None) -> str:
    """A document as JSON, infinities and NaN as null; compact, or with an indent in ASCII."""
    text = _json.encode(document, enc_hook=_plain)
    return text.decode() if indent is None else json.dumps(_json.decode(text), indent=indent)


def read(text: str | bytes, kind: type[T]) -> T:
    """A document from its JSON. Raises msgspec.ValidationError where a key is not as declared."""
    return _json.decode(text, type=kind, dec_hook=_spec)


def _plain(value: Any) -> Any:
    """A spec as the keys that are set, numpy's numbers as Python's, anything else as text."""
    if isinstance(value, Spec):
        return value.model_dump(exclude_none=True)
    return value.item() if hasattr(value, "item") else str(value)


def _spec(kind: type[Any], value: Any) -> Any:
    """A spec from what `_plain` made of it."""
    return kind.model_validate(value)
