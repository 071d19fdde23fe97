"""Contents of a log, whichever program wrote it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import ClassVar, Literal, NamedTuple

MemoryKind = Literal["allocated", "reserved"]  # at its highest, as torch counts them
EventKind = Literal["checkpoint", "evaluation"]

GIB, MIB = 2.0**30, 2.0**20
MS = 1e-3
# a decimal number as programs print it, and a whole one: begun nowhere inside another, and without
# a second way to match, so that a line of digits takes time in proportion to its length
NUMBER = r"(?<!\d)(?<!\d,)[-+]?(?:\d++(?:,\d++)*+(?:\.\d*+)?+|\.\d++)(?:[eE][-+]?\d++)?+"
WHOLE = r"(?<!\d)\d{1,15}(?!\d)"
_LEAST, _MOST = (
    1e-18,
    1e18,
)  # of what any log counts: nothing that is made of such numbers overflows


class Step(NamedTuple):
    """One line of a log about steps: numbers of its program, in base units; None: not printed.

    number: of the step, as counted there; seconds: of one step, a mean where a line covers several.
    tokens_per_s: of the job; tokens_per_gpu: of one GPU. samples_per_s: of the job. tflops: of one
    GPU, by the program's convention. loading_s: of them spent waiting for data. phases: seconds of
    its parts, by `Reader.phases`.
    """

    number: int | None = None
    seconds: float | None = None
    tokens_per_s: float | None = None
    tokens_per_gpu: float | None = None
    samples_per_s: float | None = None
    tflops: float | None = None
    loading_s: float | None = None
    phases: tuple[tuple[str, float], ...] = ()


class Event(NamedTuple):
    """Something that takes time beside steps. at: how many lines of steps are before it."""

    at: int
    kind: EventKind
    seconds: float | None = None


@dataclass(frozen=True)
class Shortage:
    """A message that memory ran out; bytes. None: the message has no such number.

    asked: 0 if the driver ran out, which names no size. process: on the GPU, of the process that
    asked. reserved_free: reserved by the allocator but unused. phase: of the step, by the lines of
    the traceback before it.
    """

    asked: float
    capacity: float | None = None
    free: float | None = None
    process: float | None = None
    allocated: float | None = None
    reserved_free: float | None = None
    device: int | None = None
    phase: str = ""


@dataclass
class Log:
    """Contents of one log.

    title: the program. steps: in the order of the file. memory: highest bytes of a rank, by kind.
    stated: numbers of the recipe that the log repeats, by the name of our option. flops: whose FLOP
    convention its TFLOP/s use. smoothed: its times are running means. partly: the part of the file
    that was read, if not all. notes: further remarks.
    """

    title: str = ""
    steps: list[Step] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    memory: dict[MemoryKind, float] = field(default_factory=dict)
    stated: dict[str, int] = field(default_factory=dict)
    shortages: list[Shortage] = field(default_factory=list)
    flops: str = ""
    smoothed: bool = False
    partly: str = ""
    notes: list[str] = field(default_factory=list)

    def keep_peak(self, kind: MemoryKind, amount: float) -> None:
        """Memory of a rank: the highest of all that was printed is kept."""
        self.memory[kind] = max(self.memory.get(kind, 0.0), amount)


_MOST_PHASES = 64  # of a step
MOST_PHASED = 5_000  # steps: more say nothing more of the middle of each phase


class Reader:
    """Reader of the lines of one program."""

    TITLE: ClassVar[str] = ""
    MARKS: ClassVar[tuple[bytes, ...]] = ()  # a line with one of them is given to `line`

    def __init__(self) -> None:
        self.log = Log(title=self.TITLE)
        self._clock: tuple[int, float] | None = None
        self._phased = 0

    def line(self, text: str) -> None:
        """Take what a line says."""
        raise NotImplementedError

    def finish(self) -> None:
        """The file has ended."""

    def event(self, kind: EventKind, seconds: float | None = None) -> None:
        """A checkpoint or an evaluation, beside the step that is printed next."""
        self.log.events.append(Event(len(self.log.steps), kind, seconds))

    def clocked(self, number: int, now: float) -> None:
        """A step and the seconds from the start to its end: the steps since the one before took
        their mean."""
        before, self._clock = self._clock, (number, now)
        if before and number > before[0] and now > before[1]:
            seconds = (now - before[1]) / (number - before[0])
            self.log.steps.append(Step(number=number, seconds=seconds))

    @property
    def phased(self) -> bool:
        """Whether as many steps have phases as are kept."""
        return self._phased >= MOST_PHASED

    def phases(
        self, times: Mapping[str, float], named: Mapping[str, str]
    ) -> tuple[tuple[str, float], ...]:
        """Phases of a step from the times of a program, by the names that `dpplan rl` gives them; a
        time that covers several phases joins their names with a plus. Times of one phase add up,
        others keep their names. In a long log only the first steps have them."""
        if self.phased:
            return ()
        self._phased += 1
        by_phase: dict[str, float] = {}
        for name, seconds in islice(times.items(), _MOST_PHASES):
            ours = sys.intern(named.get(name, name))
            by_phase[ours] = by_phase.get(ours, 0.0) + seconds
        return tuple(by_phase.items())

    def state(self, name: str, value: float | None) -> None:
        """A whole number of the recipe that the log repeats; anything else is ignored."""
        if value is not None and 1 <= value < _MOST and value == int(value):
            self.log.stated[name] = int(value)


def number(text: str) -> float:
    """A number with its thousands parted, or in short: 1,234 and 54.5K."""
    text = text.replace(",", "").strip()
    factor = _SHORT.get(text[-1:].upper(), 1.0)
    return float(text[:-1] if factor != 1.0 else text) * factor


_SHORT = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def fields(text: str) -> Iterator[tuple[str, str]]:
    """Names and values of a line such as `lm loss: 2.5 | grad norm: 1.0 |`."""
    for part in text.split("|"):
        name, colon, value = part.rpartition(":")
        if colon:
            yield name.strip(), value.strip()


def plain(text: str) -> str:
    """A line without the colours of a terminal."""
    return _COLOUR.sub("", text)


_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def positive(value: str) -> float | None:
    """A positive number; None for any other text."""
    try:
        counted = number(value)
    except ValueError:
        return None
    return counted if _LEAST < counted < _MOST else None
