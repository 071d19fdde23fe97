"""Defaults that decide the answer: the verdict with it, and the answer without it."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs.scenario import Scenario
from planner.specs.documents.advice import Advice
from planner.units import show

_WORTH = 0.1  # least gain in tokens per second for which a batch twice the default is listed


def deciding(scenario: Scenario, fits: bool, advice: Sequence[Advice]) -> list[str]:
    """Of the evaluated changes those that replace a default and decide the answer, as sentences:
    what would fit with shorter sequences or a chunked loss, and what a larger batch would gain."""
    options, training = scenario.options, scenario.parts[2]
    out = []
    for one in advice:
        changed = set(one.changes)
        if not fits and one.fits and changed == {"loss_chunks"}:
            out.append(
                f"fits with {one.change} (--loss-chunks {one.changes['loss_chunks']}), whose logits"
                f" are made a part at a time: {show(one.bytes_saved, 'B')} less"
            )
        elif not fits and one.fits and changed == {"seq_len", "global_batch"}:
            out.append(
                f"does not fit at the default sequence of {training.seq_len:,} tokens; fits at"
                f" {one.changes['seq_len']:,} (--seq-len {one.changes['seq_len']})"
            )
        elif (
            fits
            and options.global_batch is None
            and options.grad_accum is None
            and changed == {"global_batch"}
            and one.tokens_change_frac >= _WORTH
        ):
            tokens = show(one.layout.global_batch * training.seq_len, "count")
            out.append(
                f"the default batch limits: with {tokens} tokens per step"
                f" {one.tokens_change_frac:.0%} more tokens/s (--global-batch"
                f" {one.layout.global_batch}; what that costs in tokens: `batch`)"
            )
    return out
