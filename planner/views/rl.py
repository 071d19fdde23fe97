"""Blocks of text for `dpplan rl`."""

from __future__ import annotations

from planner.specs.documents.reinforcement import Reinforcement, RlSplit
from planner.units import show
from planner.views.view import Block


def rl_blocks(r: Reinforcement) -> list[Block]:
    """The verdict, phases, the engine, splits, and what all rests on."""
    return [_phases(r), _generation(r), _splits(r), Block("What this rests on", r.notes)]


def _phases(r: Reinforcement) -> Block:
    work = r.work
    cost = "" if r.usd_per_1000_steps is None else f", {r.usd_per_1000_steps:,.0f} USD"
    off = f", {work.steps_ahead} ahead" if work.steps_ahead else ""
    fits = "fits" if r.fits else f"does not fit: {show(r.shortfall_bytes, 'B')} too much"
    if not r.fits and not r.shortfall_bytes:
        fits = "does not fit: an engine has no room for a sequence"
    return Block(
        f"{work.algorithm.upper()} of {r.model.title} on {r.gpus:,} x {r.gpu_title},"
        f" {r.framework}{off}",
        [
            f"{fits}; a step takes {show(r.step_s, 's')} ({show(r.step_low_s, 's')} to"
            f" {show(r.step_high_s, 's')}), 1,000 steps {1000 * r.step_s / 3600:,.1f} h{cost}",
            f"{work.sequences:,.0f} responses of {work.response_tokens:,.0f} tokens, the longest"
            f" about {work.expected_longest_tokens:,.0f}; {work.trained:,.0f} trained on in"
            f" {work.optimizer_steps:,.4g} optimizer step{'s' * (work.optimizer_steps != 1)}",
        ],
        ["phase", "GPUs", ">time", ">low", ">high", ">of the step", ">memory per GPU"],
        [
            [
                phase.name,
                phase.gpus,
                show(phase.seconds, "s"),
                show(phase.low, "s"),
                show(phase.high, "s"),
                f"{phase.seconds / r.step_s:.0%}",
                show(phase.device_bytes, "B"),
            ]
            for phase in r.phases
        ],
        order="as they run",
        drop=("low", "high"),
    )


def _generation(r: Reinforcement) -> Block:
    g, t = r.generation, r.training
    layout = t.layout
    engines = f"{g.engines:,} engine{'s' * (g.engines > 1)} of tp {g.tp} in {g.precision}"
    return Block(
        "Generation and training",
        [
            f"generation: {g.engine}, {engines}, {g.running:,.0f} sequences each of"
            f" {g.slots:,.0f} that fit; {show(g.token_s, 's')} per token,"
            f" {g.tokens_per_s_per_gpu:,.0f} tokens/s per GPU",
            f"generation: prompts {show(g.prompts_s, 's')}, full slots {show(g.full_s, 's')},"
            f" until the last response ends {show(g.drain_s, 's')}",
            f"training: {t.stack}, {t.gpus:,} GPUs, tp {layout.tp}, pp {layout.pp},"
            f" cp {layout.cp}, ep {layout.ep}, dp {layout.dp}, recompute {layout.recompute}",
            f"training: {t.rows:,} packed rows of {t.seq_len:,} tokens per optimizer step of"
            f" {show(t.step_s, 's')}, of it {show(t.forward_s, 's')} forward",
        ],
    )


def _splits(r: Reinforcement) -> Block:
    return Block(
        "Splits of the GPUs",
        header=[
            ">generate",
            ">train",
            ">engine tp",
            ">step",
            ">generation",
            ">training",
            "verdict",
        ],
        rows=[_split(split) for split in sorted(r.splits, key=_by_time)],
        order="the fastest that fits first",
        drop=("engine tp", "generation", "training"),
    )


def _by_time(one: RlSplit) -> tuple[bool, float]:
    return not one.fits, one.step_s or float("inf")


def _split(one: RlSplit) -> list[str]:
    def seconds(value: float | None) -> str:
        return "-" if value is None else show(value, "s")

    verdict = "fits" if one.fits else (one.why or "does not fit")
    marked = f"{verdict}, shown above" if one.taken else verdict
    return [
        "all in turn" if one.shared else f"{one.generation_gpus:,}",
        "" if one.shared else f"{one.training_gpus:,}",
        "-" if one.generation_tp is None else f"{one.generation_tp}",
        seconds(one.step_s),
        seconds(one.generation_s),
        seconds(one.training_s),
        marked,
    ]
