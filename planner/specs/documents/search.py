"""The answer of `dpplan search`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.estimate import (
    Alternative,
    KwhPerToken,
    Line,
    PerDollar,
    Ranked,
    UsdPerToken,
)
from planner.specs.options import Objective


class Shortfall(Document):
    """Memory that layouts which do not fit are short of."""

    least_bytes: Annotated[float, key("the nearest to fitting", "B")]
    median_bytes: Annotated[float, key("the median", "B")]


class FrontPoint(Line):
    """A layout that no other beats in both time and memory."""

    usd_per_million_tokens: UsdPerToken
    kwh_per_million_tokens: KwhPerToken
    tokens_per_usd: PerDollar


class Pair(Document):
    """Layouts of one tensor-parallel and pipeline-parallel degree."""

    tp: Annotated[int, key("tensor-parallel degree")]
    pp: Annotated[int, key("pipeline stages")]
    layouts: Annotated[int, key("layouts that were evaluated")]
    best: Annotated[FrontPoint | None, key("the fastest that fits; null where none does")]
    least_bytes: Annotated[float, key("the least memory per GPU that any of them needs", "B")]


class WithOffload(Line):
    """The best layout that fits once something is offloaded."""

    change: Annotated[str, key("the change in words")]


class Search(Doubted):
    """Every valid layout, counted and ranked."""

    schema_version: Annotated[int, key("1")]
    enumerated: Annotated[
        int, key("layouts that satisfy what the request fixed, before its conditions and all rules")
    ]
    evaluated: Annotated[int, key("layouts whose memory and time were computed")]
    feasible: Annotated[int, key("of these, those that fit")]
    excluded: Annotated[int, key("layouts that a bound proves slower, which were not evaluated")]
    not_searched: Annotated[
        list[str], key("what the request leaves open and no search tries, each with its option")
    ]
    rejected: Annotated[
        dict[str, int],
        key(
            "count by the first condition (`where ...`) or rule that is broken, or by the memory"
            ' that is short: "does not fit memory", "does not fit host memory", "does not fit NVMe'
            ' drives"'
        ),
    ]
    shortfall: Annotated[Shortfall | None, key("null where all fit the GPU's memory")]
    objective: Annotated[Objective, key("what `top` is sorted by")]
    top: Annotated[
        list[Ranked],
        key(
            "the best `--top` layouts in full, best first; those that differ only in recompute or"
            " offloading once"
        ),
    ]
    pareto: Annotated[list[FrontPoint], key("front of time against memory, fastest first")]
    by_tp_pp: Annotated[list[Pair], key("the best of each tp and pp, by tp, then by pp")]
    seconds: Annotated[float, key("time the search took", "s")]
    families: Annotated[list[Alternative], key("best of each family")]
    command: Annotated[str, key("the command that requests this")]
    assumptions: Annotated[list[str], key("what was assumed, as sentences")]
    advice: Annotated[
        list[WithOffload] | Unset, key("only where nothing fits and offloading was not requested")
    ] = UNSET
