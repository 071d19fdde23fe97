"""An estimate on one screen: the verdict, the layout, the three numbers, where time and memory go,
what to change, how sure. The blocks of `planner.views.estimate` say the rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from msgspec import structs

from planner.specs.document import UNSET
from planner.specs.documents.estimate import Estimate, Throughput
from planner.specs.documents.memory import Memory
from planner.specs.documents.plan import Layout, describe
from planner.specs.options import LAYOUT, flag
from planner.units import chance_text, percent, show, span
from planner.views.advice import advice_block
from planner.views.cells import Cell
from planner.views.conditions import condition_blocks
from planner.views.estimate import (
    amount,
    band_text,
    cost_text,
    fullest,
    project_row,
    rate_text,
    requirement_blocks,
    room,
    short_of,
    software_words,
    title_of,
)
from planner.views.remarks import border_rows, risk_text
from planner.views.undecided import sentence
from planner.views.view import Block, Command, Mark, View, words

# an assumption that an option replaces: what is assumed, before its reason, and the option
_DEFAULT = re.compile(r"(?P<what>.+?)(?=, |: | \(| with ).*\(set (?P<option>--[^)]+)\)")
_OPTION = re.compile(r"--[a-z][a-z-]*")
_SEARCHED = {flag(name) for name in (*LAYOUT, "etp", "stack")}
_UNLIKE = 0.2  # above the mean of stages, from which the slowest is named
_PARTS = 4  # of time and of memory, the largest; the others together
_CHANGES = {True: 2, False: 3}  # listed of what would help, and of what would make it fit


def screen_blocks(r: Estimate) -> list[Block]:
    """The answer in about thirty lines, and the blocks requested besides."""
    return [*plan_blocks(r), *condition_blocks(r), *_advice(r), _sure(r)]


def plan_blocks(r: Estimate) -> list[Block]:
    """The verdict, the layout, the three numbers, where time and memory go."""
    return [_answer(r), *requirement_blocks(r), _shares(r)]


def view(r: Estimate, more: Sequence[Block] = ()) -> View:
    """The screen as a view. more: blocks requested besides."""
    mark: Mark = "yes" if r.memory.fits else "no"
    if r.undecided and r.undecided.moves:
        mark = "maybe"
    return View.of([*screen_blocks(r), *more], mark=mark)


_BOTH_WAYS = 1  # defaults that are answered both ways on the first screen; --full has all


def verdict(r: Estimate, most: int | None = None) -> str:
    """Doubts, whether it fits, and the step with its band, in a sentence. most: defaults that are
    answered both ways; None: all."""
    m, step = r.memory, r.step
    if r.undecided and r.undecided.moves:
        return sentence(r, r.undecided)
    band = span(step.low, step.high, "s")
    doubts = "".join(f"DOUBTFUL: {doubt}. " for doubt in r.doubts)
    ways = "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in r.both_ways[:most])
    if also := r.both_ways[most:] if most is not None else []:
        names = [text.split(" decide")[0] for text in also]
        does = "does" if len(also) == 1 and f"{names[0]} decides" in also[0] else "do"
        ways += f" So {does} {', '.join(names)} (--full)."
    if not m.fits:
        lacking = f"{m.verdict.upper()}: {short_of(r)}{_still(m)}."
        return f"{doubts}{lacking} A step would take {show(step.seconds, 's')} ({band}).{ways}"
    broken = [requirement.text for requirement in r.requirements if not requirement.holds]
    fails = f" DOES NOT HOLD: {', '.join(broken)}." if broken else ""
    chance = "chance" if m.verdict == "fits" else "chance to fit"
    return (
        f"{doubts}{m.verdict.capitalize()} ({chance} {chance_text(m.fit_chance)}), {room(m)}:"
        f" {show(step.seconds, 's')} per step (80 % band {band}),"
        f" {percent(step.bottleneck_frac, 0)} of it {step.bottleneck}.{fails}{ways}"
    )


def _still(m: Memory) -> str:
    """How likely what is expected not to fit fits all the same."""
    unlikely = m.verdict == "does not fit"
    return "" if unlikely else f", chance to fit all the same {chance_text(m.fit_chance)}"


def _answer(r: Estimate) -> Block:
    m, t, run, layout = r.memory, r.throughput, r.run, r.layout
    whole = "days and cost: give --tokens, e.g. --tokens 2T"
    if run.days is not None:
        whole = f"{amount(r, run.tokens)} in {show(run.days, 'days')}" + band_text(
            run, run.days, "days"
        )
    rows = (
        ("layout", f"{layout_words(layout)}  [{r.stack.title}]"),
        ("", describe(layout, with_layers=False)),
        *(("", f"with {words}") for words in [software_words(r.search.software)] if words),
        (
            "memory",
            f"{show(m.device_bytes, 'B')} of {show(m.capacity_bytes, 'B')} per GPU, {room(m)};"
            f" {fullest(r)}",
        ),
        *_remarks(r),
        *([("", str(r.step.pace))] if r.step.pace_frac > _UNLIKE else []),
        ("speed", f"{rate_text(r)}; {_mfu(t)}; {_step_text(r)}"),
        ("run", whole),
        *([] if run.days is None else [("cost", cost_text(r)), project_row(run)]),
    )
    return Block(
        title_of(r), [verdict(r, _BOTH_WAYS), *(f"{label:<8}{text}" for label, text in rows)]
    )


def _remarks(r: Estimate) -> list[tuple[str, str]]:
    """Remarks in a line each: those on defaults that the verdict does not answer both ways, and
    what is faster at more risk, without its layout."""
    decided = _decided(r)
    kept = [text for text in r.without if not decided.intersection(_OPTION.findall(text))]
    rows = [("", text) for text in kept]
    if r.tighter is not None:
        rows.append(("", risk_text(r.tighter, r.memory.capacity_bytes)))
    return [*rows, *border_rows(r)]


def _decided(r: Estimate) -> set[str]:
    """Options whose default and another value are both answered in the verdict."""
    named = (_OPTION.search(sentence) for sentence in r.both_ways[:_BOTH_WAYS])
    return {match[0] for match in named if match}


def _step_text(r: Estimate) -> str:
    if r.training.seq_len == 1:
        return f"{r.layout.global_batch:,} {r.throughput.samples} a step"
    return f"{r.layout.global_batch:,} x {r.training.seq_len:,} tokens a step"


def _mfu(t: Throughput) -> str:
    """Beside the count of most training programs and papers, where that differs to be seen."""
    if t.mfu_palm is UNSET:
        return f"causal MFU {percent(t.mfu)}"
    if percent(t.mfu_palm) == percent(t.mfu):
        return f"MFU {percent(t.mfu)}"
    return f"causal MFU {percent(t.mfu)}, PaLM's {percent(t.mfu_palm)}"


def layout_words(layout: Layout) -> str:
    """A layout in words: replicas, what each is divided into, what is kept and repeated."""
    inside = [
        f"{size} {name}"
        for size, name in (
            (layout.pp, "pipeline stages"),
            (layout.tp, "tensor-parallel GPUs"),
            (layout.cp, "context-parallel GPUs"),
        )
        if size > 1
    ]
    replicas = f"{layout.dp:,} replica{'s' * (layout.dp > 1)}"
    parts = [f"{replicas} of {' x '.join(inside)}" if inside else f"{replicas} of one GPU"]
    if layout.vpp > 1:
        parts.append(f"{layout.vpp} chunks per stage")
    if layout.ep > 1:
        parts.append(f"experts over {layout.ep} GPUs")
    if layout.zero and layout.shard_group == 1:
        parts.append(f"nothing sharded by ZeRO-{layout.zero}")
    elif layout.zero:
        sharded = ("optimizer", "optimizer and gradients", "parameters, gradients and optimizer")
        parts.append(f"{sharded[layout.zero - 1]} sharded")
    parts.append(_recompute_words(layout.recompute))
    return ", ".join(parts)


def _recompute_words(recompute: str) -> str:
    kind, _, number = recompute.partition(":")
    if kind == "keep":
        return f"every layer recomputed but {number.replace('+', ', ')}"
    return {
        "none": "nothing recomputed",
        "selective": "attention recomputed",
        "full": "every layer recomputed",
        "block": f"{number} layer{'' if number == '1' else 's'} per chunk recomputed",
        "group": f"groups of {number} layers recomputed",
    }.get(kind, f"{recompute.replace('+', ', ')} recomputed")


def _shares(r: Estimate) -> Block:
    """The largest parts of the step beside the largest parts of memory."""
    outside = structs.asdict(r.memory.outside)
    time = _largest(r.step.components)
    memory = _largest({**r.memory.components, **outside})
    rows = max(len(time), len(memory))
    empty: list[Cell] = ["", "", ""]
    padded = [[*part, *[empty] * (rows - len(part))] for part in (time, memory)]
    return Block(
        "Where time and memory go",
        header=["step", "time|s", "share|%0", "fullest GPU", "memory|B", "of it|%0"],
        rows=[[*left, *right] for left, right in zip(*padded, strict=True)],
        order="largest first",
        part=True,
    )


def _largest(parts: Mapping[str, float]) -> list[list[Cell]]:
    whole = sum(parts.values())
    order = sorted(((size, words(name)) for name, size in parts.items() if size > 0), reverse=True)
    others = order[_PARTS:]
    kept = order[: _PARTS + 1] if len(others) == 1 else order[:_PARTS]
    if len(others) > 1:
        kept = [*kept, (sum(size for size, _ in others), f"{len(others)} smaller parts")]
    return [[name, size, size / whole] for size, name in kept]


def _advice(r: Estimate) -> list[Block]:
    """The first changes with their commands."""
    shown = r.advice[: _CHANGES[r.memory.fits]]
    if not shown:
        return []
    block, more = advice_block(r, shown), len(r.advice) - len(shown)
    order = block.order + (f" ({more} more with --full)" if more else "")
    commands: list[str] = [Command(f"{i + 1}: {line.command}") for i, line in enumerate(shown)]
    return [replace(block, order=order, below=commands, part=True)]


def _sure(r: Estimate) -> Block:
    read = [text for text in r.assumptions if text.startswith("--")]  # of what was typed
    matches = [_DEFAULT.match(text) for text in r.assumptions if text not in read]
    decided = _decided(r)
    defaults = [
        f"{default['what']} ({default['option']})"
        for default in matches
        if default and not decided.intersection(_OPTION.findall(default["option"]))
    ]
    lines = [f"band      {r.step.confidence}", f"to fit    {r.memory.fit_evidence}"]
    if read:
        lines.append(f"read      {'; '.join(read)}")
    if defaults:
        lines.append(f"defaults  {', '.join(defaults)}")
    if r.search.not_searched:
        lines.append(f"not tried {_untried(r.search.not_searched)}")
    return Block("How sure (--full prints every table, --explain every number)", lines, part=True)


def _untried(sentences: Sequence[str]) -> str:
    """The options that no search tries, then those that it tries some values of; sentences without
    an option are kept whole."""
    options = dict.fromkeys(option for text in sentences for option in _OPTION.findall(text))
    in_part = [option for option in options if option in _SEARCHED]
    whole = [text for text in sentences if not _OPTION.search(text)]
    none = " ".join(option for option in options if option not in in_part)
    some = f"some values of {' '.join(in_part)}" if in_part else ""
    return "; ".join(text for text in (none, some, *whole) if text)
