"""Answers that follow from peaks: whether a step fits a GPU, and the largest micro-batch, sequence
and model that do, by the ledger and by the count.

    python -m benchmarks.frameworks verdicts    # of all recorded steps
    python -m benchmarks.frameworks limits      # of drawn ones, counted again

Both compare allocated bytes: what a GPU has beside them is the same for both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from benchmarks.frameworks import draw
from benchmarks.frameworks.compare import Difference
from benchmarks.frameworks.ledger import ledger
from benchmarks.frameworks.setting import Counted, Setting, compact

GIB = 2**30
ROOM = (8, 16, 24, 40, 80, 141)  # GiB
_NEAR = 0.05
_GRAIN = 64  # tokens of a sequence
_MOST, _DEEPEST = 2**14, 40  # that are looked for, of layers the latter
_DEPTH = "num_hidden_layers"
_KINDS = ("transformers", "peft", "trl", "accelerate", "fsdp1", "grpo")
Axis = Callable[[Setting, int], Setting]

AXES: dict[str, Axis] = {
    "micro-batch": lambda setting, n: replace(setting, micro_batch=n),
    "sequence": lambda setting, n: replace(setting, seq_len=_GRAIN * n),
    "layers": lambda setting, n: replace(setting, model=compact(setting.config | {_DEPTH: n})),
}


def verdicts(pairs: Sequence[Difference]) -> str:
    """For every framework: of steps that fit a room how many the ledger says do, and of those that
    do not how many it says do not; a step counts for every room."""
    counts: Counter[tuple[str, bool, bool]] = Counter()
    for pair in pairs:
        for room in ROOM:
            fits, fits_by_ledger = (
                each.peak <= room * GIB for each in (pair.counted, pair.predicted)
            )
            counts[pair.setting.framework, fits, fits_by_ledger] += 1
    lines = [f"{'':16s} {'fit':>6s} {'said so':>8s} {'do not':>7s} {'said so':>8s}"]
    for name in sorted({name for name, *_ in counts}):
        right, wrong = counts[name, True, True], counts[name, True, False]
        away, missed = counts[name, False, False], counts[name, False, True]
        lines.append(
            f"{name:16s} {right + wrong:6d} {_share(right, wrong):>8s} {away + missed:7d}"
            f" {_share(away, missed):>8s}"
        )
    return "\n".join(lines)


def _share(right: int, wrong: int) -> str:
    return f"{100 * right / (right + wrong):.2f} %" if right + wrong else "-"


@dataclass(frozen=True)
class Limit:
    """The largest value of an axis that fits, as the ledger has it, and whether the count agrees
    that 5 % less fits and 5 % more does not."""

    setting: Setting
    axis: str
    room: int  # GiB
    most: int
    less_fits: bool
    more_fails: bool


def largest(fits: Callable[[int], bool], most: int = _MOST) -> int:
    """The largest number up to `most` that fits, 0 for none; what is more than one that does not
    fit does not either."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, min(2 * high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def limits(count: Callable[[Setting], Counted], number: int, seed: int = 1) -> Iterator[Limit]:
    """Limits of drawn steps: kinds, axes and rooms in turn."""
    kinds, names = _KINDS, list(AXES)
    drawn = [list(draw.drawn(kind, number, seed, "llama", layers=3)) for kind in kinds]
    for i in range(number):
        setting, name = drawn[i % len(kinds)][i], names[(i + i // len(kinds)) % len(names)]
        axis, room = AXES[name], ROOM[1 + i % (len(ROOM) - 2)]

        def fits_by_ledger(
            n: int, setting: Setting = setting, axis: Axis = axis, room: int = room
        ) -> bool:
            return ledger(axis(setting, n))[0].peak <= room * GIB

        bound = _MOST if name != "layers" else _DEEPEST
        most = largest(fits_by_ledger, bound)
        if most in (0, bound):  # nothing fits, or more than is looked for
            continue
        less, more = math.floor((1 - _NEAR) * most), math.ceil((1 + _NEAR) * most)
        less, more = min(less + (less == 0), most), max(more, most + 1)
        below, above = (count(axis(setting, n)).peak <= room * GIB for n in (less, more))
        yield Limit(setting, name, room, most, below, not above)


def show(count: Callable[[Setting], Counted], number: int) -> None:
    """Print the largest values, and how many the count agrees with."""
    agreed: Counter[tuple[str, bool]] = Counter()
    for limit in limits(count, number):
        right = limit.less_fits and limit.more_fails
        agreed[limit.axis, right] += 1
        words = (limit.setting.framework, limit.setting.precision, limit.setting.recompute)
        state = "agreed" if right else f"5 % less fits: {limit.less_fits}, more: {limit.more_fails}"
        print(f"{' '.join(words):32s} {limit.axis} on {limit.room} GiB: {limit.most}, {state}")
    for axis in AXES:
        whole = agreed[axis, True] + agreed[axis, False]
        print(f"{axis}: {agreed[axis, True]} of {whole} within 5 %")
