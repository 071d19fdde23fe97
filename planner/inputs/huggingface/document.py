"""A config.json while it is read: typed getters that name key, value and remedy, and remember what
was inferred."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.specs.base import PlanError

MAX_WIDTH = 10_000_000
_KINDS = {str: "words", int: "whole numbers", bool: "true or false"}


def plain_name(text: str) -> str:
    """A name from a file as it can be shown: short, without control characters or broken
    Unicode."""
    return text if text.isprintable() and len(text) <= 100 else repr(text[:100])


@dataclass(frozen=True)
class Document:
    """One JSON object of a config.json. Keys that no getter has read are unknown: `unread` lists
    them."""

    where: str
    data: Mapping[str, Any]
    prefix: str = ""
    notes: list[str] = field(default_factory=list)
    assumed: Mapping[str, Any] = field(default_factory=dict)  # what transformers takes if absent
    _read: set[str] = field(default_factory=set)
    _parts: list[Document] = field(default_factory=list)

    def of_class(self, assumed: Mapping[str, Any], spellings: Mapping[str, str]) -> Document:
        """The object with the defaults of its class in transformers, and its keys in the
        spelling of that class. A key that is null does not take the default: it is None in
        transformers as well."""
        spellings = {
            other: spelling
            for first, second in spellings.items()
            for other, spelling in ([(first, second)] if second in assumed else [(second, first)])
        }
        data = dict(assumed)
        for key, value in self.data.items():
            name = spellings.get(key, key)
            if name != key and self.data.get(name, value) != value:
                raise self.error(key, f"contradicts {self.prefix}{name}; keep one of them")
            data[name] = value
        spelling = {
            key: value for key, value in assumed.items() if key not in self.given(spellings)
        }
        part = Document(self.where, data, self.prefix, self.notes, spelling)
        part._read.update(self._read)
        self._parts.append(part)
        self._read.update(self.data)
        return part

    def given(self, spellings: Mapping[str, str]) -> set[str]:
        """Keys of the object, in the spelling of its class."""
        return {spellings.get(key, key) for key in self.data}

    def say_assumed(self) -> None:
        """Note the numbers that were read from the class and not from the file, and a tied head."""
        for key in sorted(self._read & self.assumed.keys()):
            value = self.assumed[key]
            counted = isinstance(value, int) and not isinstance(value, bool)
            if counted or key == "tie_word_embeddings":
                self.note(key, value, "as transformers assumes")

    def first(self, names: Sequence[str]) -> str:
        """The first of several names that is a key here; the first of all where none is."""
        return next((name for name in names if name in self.data), names[0])

    def listed(self, key: str, kind: type, length: int | None = None) -> list[Any] | None:
        """A list of one kind of thing and of one length; None when absent or null."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or any(
            not isinstance(element, kind) or isinstance(element, bool) != (kind is bool)
            for element in value
        ):
            raise self.error(key, f"must be a list of {_KINDS[kind]}")
        if length is not None and len(value) != length:
            raise self.error(key, f"must list one per layer, {length} in all")
        return value

    def error(self, key: str, remedy: str) -> PlanError:
        """The error for one key, to be raised by the caller."""
        return PlanError(
            f"--model {self.where}: {self.prefix}{plain_name(key)}", self.data.get(key), remedy
        )

    def has(self, key: str) -> bool:
        """Whether the key is there, be it null."""
        return key in self.data

    def get(self, *names: str) -> Any:
        """Value under the first of several spellings of one key; None when absent or null.
        Spellings must agree."""
        self._read.update(names)
        given = {name: self.data[name] for name in names if self.data.get(name) is not None}
        if not given:
            return None
        first, *others = given
        for other in others:
            if given[other] != given[first]:
                raise self.error(
                    other, f"contradicts {self.prefix}{first} {given[first]!r}; keep one of them"
                )
        return given[first]

    def ignore(self, *names: str) -> None:
        """Mark keys as understood and without effect on shape or cost."""
        self._read.update(names)

    def note(self, key: str, value: object, why: str) -> None:
        """Record what was inferred for a key that the file does not state."""
        self.notes.append(f"{self.prefix}{key} not given: {json.dumps(value)}, {why}")

    def optional_count(self, *names: str, minimum: int = 1, maximum: int = MAX_WIDTH) -> int | None:
        """A whole number in range, or None when absent or null."""
        value = self.get(*names)
        if value is None:
            return None
        key = next(name for name in names if self.data.get(name) is not None)
        if isinstance(value, list) and len(value) == self.data.get("num_hidden_layers"):
            # stated layer by layer: read where it is alike in all
            value = value[0] if all(element == value[0] for element in value) else value
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "must be a whole number")
        if not minimum <= value <= maximum:
            raise self.error(key, f"must be between {minimum:,} and {maximum:,}")
        return value

    def count(
        self,
        *names: str,
        minimum: int = 1,
        maximum: int = MAX_WIDTH,
        default: int | None = None,
        why: str = "",
    ) -> int:
        """A whole number in range; without a default the key is required."""
        value = self.optional_count(*names, minimum=minimum, maximum=maximum)
        if value is not None:
            return value
        if default is None:
            raise self.error(names[0], "is missing; the file must state it")
        self.note(names[0], default, why or "as transformers assumes")
        return default

    def flag(self, key: str, default: bool) -> bool:
        """true or false; null is false, as it is in transformers, which takes a default only for
        a key that is absent."""
        value = self.get(key)
        if value is None and self.has(key):
            return False
        if value is None:
            self.note(key, default, "as transformers assumes")
            return default
        if not isinstance(value, bool):
            raise self.error(key, "must be true or false")
        return value

    def rate(self, key: str) -> float | None:
        """A number from 0 to 1, or None when absent or null."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self.error(key, "must be a number from 0 to 1")
        return float(value)

    def word(self, key: str, meanings: Mapping[str, str], default: str) -> str:
        """The meaning of one of a few words."""
        value = self.get(key)
        if value is None:
            self.note(key, default, "as transformers assumes")
            value = default
        if not isinstance(value, str) or value not in meanings:
            raise self.error(key, f"not understood; known: {', '.join(meanings)}")
        return meanings[value]

    def only(self, key: str, value: object, remedy: str) -> None:
        """Refuse every value but the one the planner expresses; absent or null counts as that
        value."""
        given = self.get(key)
        if given is not None and (
            given != value or isinstance(given, bool) != isinstance(value, bool)
        ):
            raise self.error(key, f"{remedy} (only {json.dumps(value)} is understood)")

    def part(self, key: str) -> Document:
        """A nested object, read with the same getters; empty when absent or null."""
        value = self.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.error(key, "must be an object")
        prefix = f"{self.prefix}{key}."
        known = next((part for part in self._parts if part.prefix == prefix), None)
        if known is not None:
            return known
        part = Document(self.where, value or {}, prefix, self.notes)
        self._parts.append(part)
        return part

    def unread(self) -> Iterator[tuple[Document, str, Any]]:
        """Keys that were not read, with the object they are in."""
        yield from (
            (self, key, value)
            for key, value in self.data.items()
            if key not in self._read and key not in self.assumed
        )
        for part in self._parts:
            yield from part.unread()

    def read_keys(self) -> list[str]:
        """Keys that were read: the ones this family knows."""
        return sorted(self._read)
