"""Invariants of every answer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from typing import Annotated, Any, get_origin, get_type_hints

from msgspec import Struct

from fuzz.case import MOST_BYTES, MOST_CPU_S, Case, Outcome
from planner.lessons.learn import listed
from planner.specs import document
from planner.specs.documents import by_answer, declared

STATUSES = {0, 2, 3, 4}
_REFUSED = 2
# numbers that say how two things differ, what is left of one, or a place: below zero they mean it
_SIGNED = re.compile(
    r"change|saved|save|residual|bias|differ|headroom|left|slack|room|over|than|faster|slower|more|"
    r"less|minus|short|error|worst|spread|skew|gain|delta|log|exponent|from|start|ratio"
)
_MAY_BE_WORDS = re.compile(r"nan|inf", re.IGNORECASE)
_NO_NUMBER = re.compile(r"(?<![\w-])-?(?:nan|inf)(?![\w-])", re.IGNORECASE)
_PARTS_OF = re.compile(r"parts of `(\w+)`")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_ROUNDING = 1e-6


def check(case: Case, got: Outcome) -> None:
    """Raise AssertionError where an answer breaks a promise."""
    answer = got.answer
    assert answer.status in STATUSES, f"status {answer.status}"
    assert got.cpu_s < MOST_CPU_S, f"takes {got.cpu_s:.1f} s"
    assert got.peak_bytes < MOST_BYTES, f"takes {got.peak_bytes / 1e9:.1f} GB"
    assert not got.warned, f"warns: {got.warned[0]}"
    assert "Traceback" not in answer.stderr + answer.stdout
    control = _CONTROL.search(answer.stdout) or _CONTROL.search(answer.stderr)
    assert control is None, f"prints the control character {control[0]!r}"
    as_json = "--json" in case.words
    whole = json.loads(answer.stdout, parse_constant=_refuse) if as_json else None
    if answer.status == _REFUSED:
        _refused(got, whole)
        return
    assert not [name for name in got.written if name.endswith((".partial", ".tmp"))], got.written
    if as_json:
        _as_declared(case, answer.stdout)
    else:
        assert answer.stdout.strip()
        if not _MAY_BE_WORDS.search(" ".join(case.words)) and not case.files:
            assert not _NO_NUMBER.search(answer.stdout), "prints what is not a number"
    for written in got.documents:
        of_document(written)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def _refused(got: Outcome, whole: Any) -> None:
    """One sentence that names a field; nothing is written."""
    lines = [part for part in got.answer.stderr.split("\n") if part]
    assert len(lines) == 1, f"says {len(lines)} lines"
    assert re.match(r"error: \S", lines[0]), lines[0][:200]
    assert lines[0].isprintable(), f"prints what is not printable: {lines[0][:200]!r}"
    assert len(lines[0]) < 4000, f"says {len(lines[0])} characters"
    assert not got.written, f"writes {sorted(got.written)} and is refused"
    if whole is not None:
        assert whole["error"]["field"], "names no field"
        assert whole["error"]["remedy"], "names no remedy"


def _as_declared(case: Case, text: str) -> None:
    """The document has the keys and types of its declaration, so that no number is null."""
    verb = next((entry for entry in _named(case.words) if entry in by_answer()), None)
    assert verb is not None, case.words[:2]
    if not verb.startswith("list"):
        document.read(text, declared(verb))


@cache
def _lessons() -> set[str]:
    return {lesson.name for lesson in listed().lessons}


def _named(words: tuple[str, ...]) -> Iterator[str]:
    """Names that the document of a command may have, the longest first."""
    yield from (f"{words[0]} {word.partition('=')[0]}" for word in words[1:])
    if words[0] == "learn" and set(words[1:]) & _lessons():
        yield "learn LESSON"
    if words[0] == "recommend":
        yield "recommend cluster"
    yield words[0]


def of_document(document: Any) -> None:
    """Every number is one, no share is beyond 0 and 1, nothing that is counted is negative, no
    utilisation is above 1, and parts add up to the whole."""
    for path, value, says, unit in numbers(document):
        where = f"{path} = {value!r}"
        assert math.isfinite(value), where
        if not unit or _SIGNED.search(f"{path} {says}"):
            continue
        assert value >= -_ROUNDING, where
        if re.search(r"[mh]fu(_causal)?$", path) or says.startswith("share"):
            assert value <= 1 + _ROUNDING, where
    for path, part in structs(document):
        for name, (says, _) in _keys(type(part)).items():
            parts, whole = getattr(part, name), _whole(part, says)
            if isinstance(parts, dict) and whole is not None:
                together = math.fsum(parts.values())
                assert math.isclose(together, whole, rel_tol=_ROUNDING, abs_tol=1e-12), (
                    f"{path}{name} add up to {together!r}, the whole is {whole!r}"
                )


def _whole(part: Struct, says: str) -> float | None:
    """The number beside a key that its sentence calls the whole of it."""
    named = _PARTS_OF.match(says)
    whole = getattr(part, named[1], None) if named else None
    return whole if isinstance(whole, int | float) else None


def numbers(document: Any) -> Iterator[tuple[str, float, str, str]]:
    """(path, number, sentence, unit) of every number of a document."""
    for path, part in structs(document):
        for name, (says, unit) in _keys(type(part)).items():
            for inner, value in _flat(getattr(part, name, None)):
                yield f"{path}{name}{inner}", value, says, unit


def structs(document: Any, path: str = "") -> Iterator[tuple[str, Struct]]:
    """Every document within a document, by path."""
    if isinstance(document, Struct):
        yield path, document
        for name in document.__struct_fields__:
            yield from structs(getattr(document, name), f"{path}{name}.")
    elif isinstance(document, list | tuple):
        for i, entry in enumerate(document):
            yield from structs(entry, f"{path}{i}.")
    elif isinstance(document, dict):
        for key, entry in document.items():
            yield from structs(entry, f"{path}{key}.")


def _flat(value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, bool | Struct):
        return
    if isinstance(value, int | float):
        yield "", float(value) if abs(value) < 1e308 else math.copysign(math.inf, value)
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from ((f".{key}{path}", x) for path, x in _flat(entry))
    elif isinstance(value, list | tuple):
        for i, entry in enumerate(value):
            yield from ((f".{i}{path}", x) for path, x in _flat(entry))
    elif hasattr(value, "item") and not isinstance(value, type):
        yield from _flat(value.item() if value.ndim == 0 else value.tolist())


_KEYS: dict[type, dict[str, tuple[str, str]]] = {}


def _keys(kind: type) -> dict[str, tuple[str, str]]:
    """Sentence and unit of each key of a declaration."""
    if kind not in _KEYS:
        out = {}
        for name, hint in get_type_hints(kind, include_extras=True).items():
            meta = hint.__metadata__[0] if get_origin(hint) is Annotated else None
            unit = (getattr(meta, "extra_json_schema", None) or {}).get("unit", "")
            out[name] = (getattr(meta, "description", None) or "", unit)
        _KEYS[kind] = out
    return _KEYS[kind]
