"""Defaults that decide the answer: the verdict with it, and the answer without it."""

from __future__ import annotations

from collections.abc import Sequence

from planner.inputs.scenario import Scenario
from planner.specs.documents.advice import Advice
from planner.units import show

_WORTH = 0.1  # least gain in tokens per second for which a batch twice the default is listed


def deciding(scenario: Scenario, fits: bool, advice: Sequence[Advice]) -> list[str]:
    """Sentences about the evaluated changes that replace a default and decide the answer:
    what would fit with shorter sequences or a chunked loss, and what a larger batch would gain."""
    options, training = scenario.options, scenario.parts[2]
    out = []
    for entry in advice:
        changed = set(entry.changes)
        if not fits and entry.fits and changed == {"loss_chunks"}:
            out.append(
                f"fits with {entry.change} (--loss-chunks {entry.changes['loss_chunks']}), whose"
                f" logits are made a part at a time: {show(entry.bytes_saved, 'B')} less"
            )
        elif not fits and entry.fits and changed == {"seq_len", "global_batch"}:
            out.append(
                f"does not fit at the default sequence of {training.seq_len:,} tokens; fits at"
                f" {entry.changes['seq_len']:,} (--seq-len {entry.changes['seq_len']})"
            )
        elif (
            fits
            and options.global_batch is None
            and options.grad_accum is None
            and changed == {"global_batch"}
            and entry.tokens_change_frac >= _WORTH
        ):
            tokens = show(entry.layout.global_batch * training.seq_len, "count")
            out.append(
                f"the default batch limits: with {tokens} tokens per step"
                f" {entry.tokens_change_frac:.0%} more tokens/s (--global-batch"
                f" {entry.layout.global_batch}; what that costs in tokens: `batch`)"
            )
    return out
