"""Evaluated changes of an estimate as tables, in the order in which they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Estimate, Report
from planner.units import percent, show
from planner.views.view import Block, Command, Link


def advice_order(r: Report) -> str:
    """Order of the listed changes."""
    if not r.memory.fits:
        return "what fits at least cost first"
    tight = r.memory.verdict == "may not fit"
    return f"{'what leaves room enough, then ' if tight else ''}most tokens/s first"


def advice_block(r: Estimate, shown: Sequence[Advice]) -> Block:
    """Evaluated changes in a table."""
    block = Block(
        f"What would {'help' if r.memory.fits else 'make it fit'}, each evaluated",
        header=[*(">#", "change", "step|s", ">change of it", "tokens/s|+%", "memory|+B", "fits")],
        order=advice_order(r),
        drop=("step", "memory"),
        links=[Link(a.command, tuple(a.changes)) for a in shown],
    )
    for i, a in enumerate(shown):
        change = percent(a.step_change_frac, sign=True)
        block.rows.append(
            [
                *(str(i + 1), a.change, a.step_seconds),
                f"{show(a.step_change_s, 's', sign=True)}, {change}",
                *(a.tokens_change_frac, -a.bytes_saved, a.fits),
            ]
        )
    return block


def advice_blocks(r: Estimate) -> list[Block]:
    """Evaluated changes in a table, and the command of each by its number."""
    if not r.advice:
        return []
    commands: list[str] = [Command(f"{i + 1}: {a.command}") for i, a in enumerate(r.advice)]
    waits = [_waiting(i + 1, a) for i, a in enumerate(r.advice) if a.link is not None]
    return [
        replace(advice_block(r, r.advice), below=waits),
        Block("Commands of these changes", commands),
    ]


def _waiting(number: int, a: Advice) -> str:
    """Time that a change waits for the link to host memory."""
    repeat = (
        "" if a.recompute_s is None else f", recompute full would add {show(a.recompute_s, 's')}"
    )
    return f"{number}: waiting for {a.link} takes {show(a.transfer_s, 's')} of the step{repeat}"
