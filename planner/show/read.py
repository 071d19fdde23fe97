"""Blocks of text for `dpplan read`."""

from __future__ import annotations

from planner.show.screen import screen_blocks
from planner.show.text import Block, Fixed
from planner.specs.documents.read import Read, ReadArgument
from planner.units import percent, show

_MOST = 100  # characters of a value that are shown


def read_blocks(r: Read, full: bool) -> list[Block]:
    """What was read, what was not understood, the plan, and what comes of it."""
    blocks = [_read(r), *_not_understood(r), _plan(r)]
    if full:
        blocks.append(_arguments(r))
    if r.estimate is not None:
        blocks += screen_blocks(r.estimate)
    return [*blocks, *_better(r)]


def _read(r: Read) -> Block:
    counted = ", ".join(f"{count} {use}" for use, count in r.counts.items())
    lines = [f"{sum(r.counts.values())} arguments: {counted}", *r.notes]
    if r.refused is not None:
        lines.append(f"NO ESTIMATE: {r.refused}")
    if r.missing:
        flags = " and ".join(f"--{name}" for name in r.missing)
        lines.append(f"no estimate: the files do not say it; give {flags}")
    return Block(f"Read as {' and '.join(r.kinds)}", lines)


def _not_understood(r: Read) -> list[Block]:
    rows = _rows(r, "not understood")
    if not rows:
        return []
    return [
        Block("Not understood", header=["argument", "value", "why"], rows=rows, order="by name")
    ]


def _plan(r: Read) -> Block:
    return Block(
        "The plan",
        header=["option", "value"],
        order="by name",
        rows=[[f"--{n.replace('_', '-')}", _short(v)] for n, v in sorted(r.options.items())],
    )


def _arguments(r: Read) -> Block:
    return Block(
        "Every argument",
        header=["argument", "value", "use", "note"],
        order="by name",
        rows=[
            [name, _short(one.value), one.use, one.note]
            for name, one in sorted(r.arguments.items())
        ],
    )


def _rows(r: Read, use: str) -> list[list[str]]:
    found: list[tuple[str, ReadArgument]] = sorted(r.arguments.items())
    return [[name, _short(one.value), one.note or "-"] for name, one in found if one.use == use]


def _short(value: object) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def _better(r: Read) -> list[Block]:
    if r.better is None or r.estimate is None:
        return []
    gain = r.better.tokens_change_frac
    words = (
        f"{r.better.change}: {show(r.better.step_seconds, 's')} per step,"
        f" {percent(gain, 0)} more tokens per second"
        if r.estimate.memory.fits
        else f"{r.better.change}: fits, {show(r.better.step_seconds, 's')} per step"
    )
    return [Block("A better recipe", [words, Fixed(r.better.command)])]
