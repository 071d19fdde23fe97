"""View of `dpplan read`."""

from __future__ import annotations

from planner.formats.documents.read import Edit, OutOfMemory, Read, ReadArgument, Recipe
from planner.specs.documents.estimate import Estimate
from planner.specs.options import flag
from planner.units import percent, show
from planner.views import undecided
from planner.views.screen import screen_blocks
from planner.views.view import Block, Command, Mark, View

_MOST = 100  # characters of a value that are shown


def view(r: Read, full: bool = False) -> View:
    """The answer, the arguments read and not understood, the plan, and edits."""
    blocks = read_blocks(r, full)
    if r.estimate is not None:
        blocks += screen_blocks(r.estimate)
        blocks += change_blocks(r, r.estimate)
    mark, answer = verdict(r)
    return View.of(blocks, verdict=answer, mark=mark)


def read_blocks(r: Read, full: bool = False) -> list[Block]:
    """The arguments read and not understood, and the plan that they state."""
    return [_read(r), *_not_understood(r), _plan(r), *([_arguments(r)] if full else [])]


def verdict(r: Read) -> tuple[Mark, str]:
    """Colour and sentence of the answer."""
    if r.refused:
        return "no", f"NO ESTIMATE: {r.refused}"
    if r.missing:
        flags, them = " and ".join(map(flag, r.missing)), "it" if len(r.missing) == 1 else "them"
        return "maybe", f"no estimate: the files do not say {flags}; give {them}"
    if r.estimate is None:
        return "maybe", "Read; give the model and the GPUs for an estimate"
    if left := r.estimate.undecided:
        return "maybe", undecided.sentence(r.estimate, left)
    e, change = r.estimate, r.remedy or r.better
    sentence = "it fits" if r.out_of_memory is None else r.out_of_memory.says
    then = f"; {change.change} takes {show(change.step_seconds, 's')}" if change else ""
    return (
        "yes" if e.memory.fits else "no",
        f"{show(e.step.seconds, 's')} per step: {sentence}{then}",
    )


def _named(option: str) -> str:
    return f"--{option.replace('_', '-')}"


def _read(r: Read) -> Block:
    counted = ", ".join(f"{count} {use}" for use, count in r.counts.items())
    lines = [f"{sum(r.counts.values())} arguments: {counted}", *r.notes]
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
        rows=[[_named(n), _short(v)] for n, v in sorted(r.options.items())],
    )


def _arguments(r: Read) -> Block:
    return Block(
        "Every argument",
        header=["argument", "value", "use", "note"],
        order="by name",
        rows=[
            [name, _short(argument.value), argument.use, argument.note]
            for name, argument in sorted(r.arguments.items())
        ],
    )


def _rows(r: Read, use: str) -> list[list[str]]:
    arguments: list[tuple[str, ReadArgument]] = sorted(r.arguments.items())
    return [
        [name, _short(argument.value), argument.note or "-"]
        for name, argument in arguments
        if argument.use == use
    ]


def _short(value: object) -> str:
    listed = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    text = "-" if value is None else listed
    return text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."


def change_blocks(r: Read, e: Estimate) -> list[Block]:
    """Why it runs out of memory, what makes it fit, and the best layout, in words of the files."""
    blocks = [] if r.out_of_memory is None else [_out_of_memory(r.out_of_memory)]
    if r.remedy is not None:
        blocks.append(change_block("The cheapest change that makes it fit", e, r.remedy))
    if r.better is None:
        return blocks
    if r.remedy is not None and r.better.edits == r.remedy.edits:
        words = "the change above is the best layout of this model, these GPUs and this batch"
        return [*blocks, Block("A better recipe", [words])]
    words = f"{r.better.change}: {_step(e, r.better)}"
    return [*blocks, _change("A better recipe", words, r.better)]


def change_block(title: str, e: Estimate, change: Recipe) -> Block:
    """A change that makes a plan fit, in words of its files, with its cost in time."""
    return _change(title, f"{change.change}: fits, {_step(e, change)}", change)


def _step(e: Estimate, change: Recipe) -> str:
    gain = percent(change.tokens_change_frac, 0, sign=True)
    before, after = (show(seconds, "s") for seconds in (e.step.seconds, change.step_seconds))
    return f"step {before} -> {after}, throughput {gain}"


def _out_of_memory(o: OutOfMemory) -> Block:
    rows = [[term.name.replace("_", " "), term.bytes, term.share] for term in o.terms]
    return Block(
        "Why it runs out of memory",
        [o.says.partition(":")[0]],
        header=["largest parts of the fullest GPU", "memory|B", "of it|%0"],
        rows=rows,
        order="largest first",
    )


def _change(title: str, words: str, change: Recipe) -> Block:
    lines: list[str] = [words]
    if change.unsaid:
        sentence = ", ".join(_flag(name, value) for name, value in sorted(change.unsaid.items()))
        lines.append(f"in dpplan's words, which these files have none for: {sentence}")
    if not change.edits:
        return Block(title, [*lines, Command(change.command)])
    return Block(
        title,
        lines,
        header=["edit", "from", "to", "where"],
        rows=[
            [edit.argument, _short(edit.before), _after(edit), edit.place or f"new, of {edit.kind}"]
            for edit in change.edits
        ],
        order="as the files have them, then what is new",
        below=[Command(change.command)],
    )


def _flag(name: str, value: object) -> str:
    flag = _named(name)
    return f"no {flag}" if value is None else f"{flag} {value}"


def _after(edit: Edit) -> str:
    return "left out" if edit.after is None else _short(edit.after)
