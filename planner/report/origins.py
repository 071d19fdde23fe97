"""The whole scenario of an answer: what is given, filled in and searched, each with its origin."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.specs.document import UNSET
from planner.specs.documents.estimate import OptionValue
from planner.specs.options import TYPED, Filled, Options, Origin, flag

_TAKEN = Origin("search", "layout taken of those searched")


def scenario(
    options: Options, filled: Iterable[Filled], pick: Options, dp: int
) -> dict[str, OptionValue]:
    """Every option of an answer by name: given ones first, then defaults, then values of the pick
    and the replicas, which follow from it."""
    out = {
        name: _value(name, value, options.origin(name) or TYPED)
        for name, value in options.given().items()
    }
    picked = {**pick.given(), "dp": dp}
    for filled_option in (
        *filled,
        *(Filled(name, value, _TAKEN) for name, value in picked.items()),
    ):
        out.setdefault(
            filled_option.option,
            _value(filled_option.option, filled_option.value, filled_option.origin),
        )
    return out


def _value(name: str, value: Any, origin: Origin) -> OptionValue:
    plain = list(value) if isinstance(value, tuple) else value
    where = origin.where or (flag(name) if origin.kind == "typed" else "")
    return OptionValue(plain, origin.kind, where, origin.over or UNSET)
