"""Schema of the raw records by kind: the case that was measured, and plausible seconds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from planner.calibrate import cases
from planner.calibrate.documents import TrainedCase

# bounds of the seconds of a sample, which is an element, a byte or a whole step: no device is as
# fast as the lower bound, and no user waits for the upper. Choices that reject 0, infinity and NaN
_LEAST_S, _MOST_S = 1e-15, 1e6
_MOST_WHEN = 1e11  # seconds since 1970, in the year 5138: a later time stamp is an error

Seconds = Annotated[float, Meta(ge=_LEAST_S, le=_MOST_S)]
Sample = tuple[Seconds, Seconds, Seconds]  # of the work, of the probe before it and after it
Count = Annotated[int, Meta(gt=0)]
Rank = Annotated[int, Meta(ge=0)]
Pass = Literal["forward", "backward"]
Operator = Annotated[str, Meta(pattern=f"^({'|'.join(cases.OPERATORS)})$")]


class _Visit(Struct, tag_field="kind", kw_only=True):
    """One visit of a case."""

    samples: Annotated[list[Sample], Meta(min_length=1)]
    when: Annotated[float, Meta(ge=0, le=_MOST_WHEN)] = 0.0
    others: Annotated[float, Meta(ge=0, le=_MOST_S)] = 0.0  # share of the cores


class _Gemm(_Visit, tag="gemm"):
    m: Count
    n: Count
    k: Count
    way: Literal["forward", "input", "weight"]
    precision: str
    held_out: bool


class _Attention(_Visit, tag="attention"):
    batch: Count
    heads: Count
    seq: Count
    width: Count
    way: Pass
    precision: str


class _Operator(_Visit, tag="operator"):
    operator: Operator
    tokens: Count
    width: Count
    way: Pass
    precision: str
    compiled: bool


class _Loss(_Visit, tag="loss"):
    tokens: Count
    vocab: Count
    precision: str


class _Embedding(_Visit, tag="embedding"):
    tokens: Count
    vocab: Count
    width: Count
    precision: str


class _Optimizer(_Visit, tag="optimizer"):
    how: str


class _Memory(_Visit, tag="memory"):
    what: Literal["copy", "launch"]


class _HostCopy(_Visit, tag="host copy"):
    way: Literal["to host", "to device"]
    pinned: bool


class _Collective(_Visit, tag="collective"):
    operation: str
    group: str
    ranks: Count
    bytes: Count
    held_out: bool


class _Pair(_Visit, tag="pair"):
    first: Rank
    second: Rank
    bytes: Count


class _Overlap(_Visit, tag="overlap"):
    part: Literal["product", "collective", "both"]
    bytes: Count
    ranks: Count


class _Host(_Visit, tag="host"):
    what: Literal["stream", "update"]
    threads: Count


class _Storage(_Visit, tag="storage"):
    way: Literal["write", "read"]
    bytes: Count


class _Step(_Visit, tag="step"):
    case: TrainedCase
    precision: str
    used_in_fit: bool


_Any = (
    _Gemm
    | _Attention
    | _Operator
    | _Loss
    | _Embedding
    | _Optimizer
    | _Memory
    | _HostCopy
    | _Host
    | _Collective
    | _Pair
    | _Overlap
    | _Storage
    | _Step
)
_PLACE = re.compile(r"(?P<why>.*?)(?: - at `\$\.?(?P<place>.*)`)?")
_KEYS = re.compile(r"(\w+)|\[(\d+)\]")


def wrong(record: object) -> str | None:
    """The error of a record with field and value; None for a valid one."""
    try:
        msgspec.convert(record, _Any)
    except msgspec.ValidationError as error:
        match = _PLACE.fullmatch(str(error))
        assert match is not None
        why, place = match["why"].lower(), match["place"]
        return f"{place} is {_at(record, place)!r}: {why}" if place else why
    return None


def _at(value: Any, place: str) -> Any:
    """The value at a place such as samples[0][1]."""
    for name, index in _KEYS.findall(place):
        value = value[name] if isinstance(value, Mapping) else value[int(index)]
    return value
