"""Where the value of an option comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

OriginKind = Literal["typed", "file", "run", "publication", "search", "default"]


@dataclass(frozen=True)
class Origin:
    """Where a value comes from.

    where: the place in its file with the argument ("train.sh:14 --num-layers"), or the reason of
    a default. over: the value of a file that this one replaces, as a clause ("train.sh:3 says 32").
    """

    kind: OriginKind
    where: str = ""
    over: str = ""


TYPED = Origin("typed")
SEARCHED = Origin("search")
# of --stack-defaults, where a request describes something that runs: launch files, or a log's
# recipe
AS_IT_RUNS = Origin("default", "what a run does not state is as its program has it")


@dataclass(frozen=True)
class Filled:
    """An option that a request leaves open, with the value that was taken.

    says: the assumption as a sentence.
    """

    option: str
    value: Any
    origin: Origin
    says: str = ""


@dataclass(frozen=True)
class Undecided:
    """An option that launch files leave undecided: the arguments that may set it, and the values
    that it may have where it is one of a few."""

    arguments: tuple[str, ...]
    values: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PerGpu:
    """A number that a file states for each GPU, whose count it may not know."""

    each: float

    def __str__(self) -> str:
        return f"{self.each:g} x GPUs"

    def of(self, gpus: int) -> int:
        """The share of all GPUs, 1 at least."""
        return max(1, round(self.each * gpus))


@dataclass(frozen=True)
class NoNumber:
    """Text of a file where an option is a number."""

    argument: str
    value: Any


class Given(dict[str, Any]):
    """Options of a request by name, as given, the origins of those that were not typed, those that
    launch files leave undecided, by verb what the files say for that verb only: its own options,
    and options of the request that are open there (None); and how the files were read, if any."""

    def __init__(self, options: Mapping[str, Any], origins: Mapping[str, Origin] | None = None):
        super().__init__(options)
        known = getattr(options, "origins", {}) if origins is None else origins
        self.origins = {name: origin for name, origin in known.items() if name in self}
        self.undecided: Mapping[str, Undecided] = getattr(options, "undecided", {})
        self.by_verb: Mapping[str, Mapping[str, Any]] = getattr(options, "by_verb", {})
        self.planned: object = getattr(options, "planned", None)


def over(low: Mapping[str, Any], high: Mapping[str, Any]) -> Given:
    """Options of two sources, of which the second wins; where both give an option, its origin
    names the value that was replaced."""
    below, above = Given(low), Given(high)
    kept = {name: origin for name, origin in below.origins.items() if name not in above}
    out = Given({**below, **above}, {**kept, **above.origins})
    for name, was in below.origins.items():
        if name in above and was.kind != "default" and str(below[name]) != str(above[name]):
            now, origin = above.origins.get(name, TYPED), f"{was.where} says {below[name]}"
            out.origins[name] = replace(now, over="; ".join(filter(None, (now.over, origin))))
    return out
