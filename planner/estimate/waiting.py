"""Waiting of ranks for one another, as reported: reasons with seconds, shares of tokens,
the second kind of GPU."""

from __future__ import annotations

from planner.estimate import uneven
from planner.estimate.machine import Machine
from planner.estimate.step import StepTime, step_time
from planner.formulas import overlap, run_level
from planner.formulas import stragglers as formulas
from planner.ledger import first, firsts, total
from planner.specs.columns import Columns
from planner.specs.data import LengthsSpec
from planner.specs.documents.conditions import Lengths, Mixed, Stragglers
from planner.specs.hardware import GpuSpec
from planner.specs.names import Packing
from planner.specs.plan import Plan

# what rows of the peak are, by how documents become rows
_OF_PEAK = {
    "packed": ", which are full",
    "padded": ", which are padded",
    "longest": ", the longest document's (--longest-row)",
    "bucketed": ", the longest documents' (--longest-row)",
}

# ways of padding to the longest document, whose shares are compared
_TO_LONGEST: tuple[Packing, ...] = ("longest", "bucketed")


def stragglers(plan: Plan, m: Machine, table: Columns, time: StepTime) -> Stragglers | None:
    """Seconds of a step by reason, for one layout; None where the request states nothing of ranks
    that differ."""
    ranks = plan.ranks
    if not uneven.is_uneven(plan) and plan.lengths is None and ranks.other is None:
        return None
    seconds = firsts(uneven.parts(plan, m, table, time.components))
    step = first(time.seconds)
    usual = overlap.straggler_factor(float(plan.cluster.gpus), m.straggler_sigma)
    return Stragglers(
        seconds=seconds,
        share=sum(seconds.values()) / step,
        jitter_frac=float(m.straggler_sigma),
        bound_frac=first(usual) - 1,
        slow_job_frac=float(formulas.slow_job_frac(float(plan.cluster.nodes), ranks.slow_frac)),
        mixed=None if ranks.other is None else _mixed(plan, ranks.other, table, time, m),
        lengths=None if plan.lengths is None else _lengths(plan, plan.lengths, table, step),
    )


def _mixed(plan: Plan, other: GpuSpec, table: Columns, time: StepTime, m: Machine) -> Mixed:
    """Compute seconds of one step: of each GPU type with an equal split, and of the whole
    cluster."""

    def computing(time: StepTime) -> float:
        return first(total({name: time.components.get(name, 0.0) for name in uneven.COMPUTING}))

    ranks = plan.ranks.model_copy(update={"other": None, "other_frac": 0.0})
    alone = plan.model_copy(update={"ranks": ranks, "data": None})
    return Mixed(
        gpu=other.id,
        share=plan.ranks.other_frac,
        split=plan.ranks.split,
        own_s=computing(step_time(alone, table, m)),
        other_s=computing(step_time(uneven.of_other_gpu(plan), table)),
        together_s=computing(time),
    )


def _lengths(plan: Plan, spec: LengthsSpec, table: Columns, step_s: float) -> Lengths:
    """Padding against packing for this distribution: shares of non-padding tokens."""
    training = plan.training
    mean = uneven.moments(plan)[0]
    batch = float(table.micro_batch[0])
    longest, bucketed = (
        float(uneven.longest_document(spec, training.seq_len, batch, 1.0, packing))
        for packing in _TO_LONGEST
    )
    rate = float(run_level.tokens_per_s(training.global_batch, training.seq_len, step_s))
    return Lengths(
        packing=spec.packing,
        mean_tokens=mean * training.seq_len,
        dropped_frac=uneven.dropped_frac(spec, training.seq_len),
        useful_frac=uneven.useful_frac(plan) / first(uneven.computed_frac(plan, batch)),
        useful_tokens_per_s=rate * uneven.useful_frac(plan),
        padded_frac=mean,
        padded_to_longest_frac=mean / longest,
        bucketed_frac=mean / bucketed,
        attention_frac=uneven.attended_frac(plan),
        imbalance_frac=first(uneven.imbalance_frac(plan, table)),
    )


def assumptions(plan: Plan) -> list[str]:
    """Assumptions of waiting and loading, as sentences."""
    ranks, sentences = plan.ranks, []
    if ranks.slow_frac > 0:
        sentences.append(
            f"slow hosts: each of {plan.cluster.nodes:,} hosts computes {ranks.slow_by_frac:.0%}"
            f" longer with chance {ranks.slow_frac:.2%}, and the whole job waits for it"
            " (--slow-hosts, --slow-factor)"
        )
    if plan.lengths is not None:
        sentences.append(
            f"lengths: log-normal, mean {plan.lengths.mean_tokens:,.0f} tokens, sigma"
            f" {plan.lengths.sigma:g}, {_excess(plan, plan.lengths)}; {plan.lengths.packing}"
            " (--length-mean, --length-sigma, --packing); the peak of memory is that of rows of"
            f" {uneven.longest_row(plan):,} tokens{_OF_PEAK[plan.lengths.packing]}"
        )
    if plan.data is not None:
        sentences.append(
            "input: each replica reads its samples once, workers load ahead; storage, workers and"
            " copies to the GPU run side by side; nothing is cached"
        )
    return sentences


def _excess(plan: Plan, spec: LengthsSpec) -> str:
    """The fate of documents longer than a sequence, and of short ones, in words."""
    seq_len, short = plan.training.seq_len, uneven.short_frac(spec)
    words = f"{short:.1%} of them too short and left out (--short-length), " if short else ""
    if spec.excess == "split":
        rows = uneven.rows_per_document(spec, seq_len) / (1 - short)
        return f"{words}split into {rows:.3g} rows on average (--excess-length)"
    if spec.excess == "truncate":
        return f"{words}cut to the sequence"
    dropped = uneven.dropped_frac(spec, seq_len) - short
    return f"{words}{dropped:.1%} of them longer than the sequence and dropped (--excess-length)"
