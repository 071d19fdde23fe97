"""Blocks of text for `dpplan tune`."""

from __future__ import annotations

from planner.specs.documents.tune import TuneMethod, Tuning
from planner.units import percent, show, span
from planner.views.view import Block, Fixed

_DAY_S = 86400.0
_ALL = 0.999  # of the tokens: padding of the last row of packed ones is none


def tune_blocks(r: Tuning) -> list[Block]:
    """Which methods fit, what they take, the commands that ask for one alone, and what all rests
    on."""
    return [_verdict(r), _commands(r), Block("Notes", text=[*r.notes, *_merged(r), *_before(r)])]


def _merged(r: Tuning) -> list[str]:
    """What is left of adapters when they are merged, alike for all methods with adapters of the
    same matrices."""
    found = [(row.name, row.merge) for row in r.methods if row.merge is not None]
    return [
        f"merging adapters of {name} into weights of 16 bit: {show(one.seconds, 's')} with"
        f" {show(one.device_bytes, 'B')} of GPU memory; a file of {show(one.adapter_bytes, 'B')}"
        f" becomes one of {show(one.merged_bytes, 'B')}"
        for i, (name, one) in enumerate(found)
        if one not in [other for _, other in found[:i]]
    ]


def _before(r: Tuning) -> list[str]:
    """What is computed before a run, where the reference is."""
    return [
        f"run: {_days(row.before_s)} of that of {row.name} are passes of the reference, made once"
        for row in r.methods
        if row.before_s and row.name == r.fastest
    ]


def _verdict(r: Tuning) -> Block:
    gpu = f"{r.gpus:,} x {r.gpu_title}"
    count = sum(row.fits for row in r.methods)
    of = f"{count} of {len(r.methods)} methods fit" if count else "no method fits"
    lines = [f"{of}{_best(r)}", *_data(r)]
    header = [
        "method",
        "what it trains",
        "verdict",
        ">memory",
        ">micro-batch",
        ">context",
        ">useful",
        ">run",
    ]
    header += [">80 % band", ">cost"]
    sized = any(row.largest_model for row in r.methods)
    return Block(
        f"Fine-tuning of {r.model.title} on {gpu}",
        lines,
        [*header, *(["largest model"] if sized else [])],
        [[*_cells(row), *([_model(row)] if sized else [])] for row in r.methods],
        order="most states first",
        drop=("what it trains", "80 % band", "memory"),
        below=[
            "micro-batch: the largest power of two at this length, context: the longest sequence"
            " with one per micro-batch, model: the largest of the catalogue, each with a chance of"
            " 95 and of 5 % to fit; useful: tokens computed that are not padding"
        ],
    )


def _best(r: Tuning) -> str:
    """The fastest that fits, or how far the nearest is from it."""
    row = next((row for row in r.methods if row.name == r.fastest), None)
    if row is None:
        known = [(row.memory.headroom_bytes, row.name) for row in r.methods if row.memory]
        if not known:
            return ""
        room, name = max(known)
        return f"; the nearest, {name}, is {show(-room, 'B')} short"
    cost = "" if row.cost_usd is None else f", {show(row.cost_usd, 'USD')}"
    return f"; the fastest is {row.name}: {_days(row.run_s)} ({_band(row)}){cost}"


def _data(r: Tuning) -> list[str]:
    d = r.data
    passes = "1 epoch" if d.epochs == 1 else f"{d.epochs:g} epochs"
    each = f"of {d.seq_len:,} tokens"
    if d.mean_tokens is not None:
        each = f"of {d.mean_tokens:,.0f} tokens on average, cut at {d.seq_len:,}, {d.packing}"
    return [
        f"data    {d.examples:,} examples {each}; {passes}",
        f"epoch   {d.sequences:,} sequences, {show(d.useful_tokens, 'count')} tokens without"
        " padding",
    ]


def _days(seconds: float | None) -> str:
    return show(None if seconds is None else seconds / _DAY_S, "days")


def _band(row: TuneMethod) -> str:
    ends = (row.run_low_s, row.run_high_s)
    low, high = (None if end is None else end / _DAY_S for end in ends)
    return span(low, high, "days")


def _cells(row: TuneMethod) -> list[str]:
    memory = row.memory
    verdict = "no layout" if memory is None else memory.verdict
    return [
        row.name,
        row.title,
        verdict,
        "-" if memory is None else show(memory.device_bytes, "B"),
        _range(row.largest_micro_batch, row.most_micro_batch),
        _range(row.longest_context, row.most_context),
        _useful(row.useful_frac),
        _days(row.run_s) if row.fits else "-",
        _band(row) if row.fits else "-",
        show(row.cost_usd, "USD") if row.fits else "-",
    ]


def _useful(share: float | None) -> str:
    """A share that is none where all is useful, so that its column goes."""
    return "-" if share is None or share > _ALL else percent(share)


def _range(sure: int | None, most: int | None) -> str:
    """The largest size that surely fits, and the largest that may."""
    if sure is None or most is None:
        return "-"
    return f"{sure:,}" if sure == most else f"{sure:,} .. {most:,}"


def _model(row: TuneMethod) -> str:
    sure, most = row.largest_model, row.most_model
    if sure is None or most is None:
        return "-"
    return sure.title if sure == most else f"{sure.title} .. {most.title}"


def _commands(r: Tuning) -> Block:
    """A command per method; why not, where it does not fit."""
    block = Block("Each method alone", part=True)
    for row in r.methods:
        block.text.append(f"{row.name}{'' if row.why is None else f': {row.why}'}")
        block.text.append(Fixed(row.command))
    return block
