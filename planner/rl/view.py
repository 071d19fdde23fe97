"""View of `dpplan rl`."""

from __future__ import annotations

from planner.rl.documents import Reinforcement, RlPhase, RlSplit
from planner.specs.documents.advice import Value
from planner.specs.options import flag
from planner.units import show
from planner.views.chart import Chart
from planner.views.figures import CYCLE, axis, rows_figure, spans
from planner.views.view import Block, Link, View

_HOUR_S = 3600.0
_PLAIN = {"showlegend": False, "textposition": "none"}
_STEPS = 1000  # that the cost is stated for


def view(r: Reinforcement) -> View:
    """The verdict, phases, the engine, splits, and what all rests on."""
    work = r.work
    off = f", {work.steps_ahead} ahead" if work.steps_ahead else ""
    return View(
        f"{work.algorithm.upper()} of {r.model.title} on {r.gpus:,} x {r.gpu_title},"
        f" {r.framework}{off}",
        _verdict(r),
        "yes" if r.fits else "no",
        parts=(_phases(r), _generation(r), *([_changes(r)] if r.changes else []), _splits(r)),
        notes=r.notes,
    )


def _verdict(r: Reinforcement) -> str:
    cost = "" if r.usd_per_1000_steps is None else f", {r.usd_per_1000_steps:,.0f} USD"
    fits = "fits" if r.fits else f"does not fit: {show(r.shortfall_bytes, 'B')} too much"
    rests_on = f". {r.rests_on}" if r.rests_on else ""
    if r.step_s is None or r.step_low_s is None or r.step_high_s is None:
        room = ", an engine has no room for a sequence" if r.generation.slots < 1 else ""
        return f"{fits}{room}, so that a step has no time{_nothing(r)}{rests_on}"
    return (
        f"{fits}; a step takes {show(r.step_s, 's')} ({show(r.step_low_s, 's')} to"
        f" {show(r.step_high_s, 's')}), 1,000 steps {1000 * r.step_s / 3600:,.1f} h{cost}"
        f"{rests_on}"
    )


def _nothing(r: Reinforcement) -> str:
    """Sentence if a step does not fit and no change helps."""
    tried = "adapters, states on the host or in 8 bit, 8 times the GPUs"
    return "" if r.fits or r.changes else f" ({tried}: none fits)"


def _phases(r: Reinforcement) -> Block:
    work = r.work
    timed = r.step_s is not None
    return Block(
        "Phases",
        [
            f"{work.sequences:,.0f} responses of {work.response_tokens:,.0f} tokens, the longest"
            f" about {work.expected_longest_tokens:,.0f}; {work.trained:,.0f} trained on in"
            f" {work.optimizer_steps:,.4g} optimizer step{'s' * (work.optimizer_steps != 1)}"
        ],
        ["phase", "GPUs", *(_TIMES if timed else ()), "memory per GPU|B"],
        [[p.name, p.gpus, *(_times(p, r) if timed else ()), p.device_bytes] for p in r.phases],
        order="as they run",
        drop=("low", "high") if timed else (),
        lead=True,
        chart=None if r.step_s is None else _chart(r, r.step_s),
    )


_TIMES = ("time|s", "low|s", "high|s", "of the step|.0%")


def _times(phase: RlPhase, r: Reinforcement) -> tuple[float | None, ...]:
    return (phase.seconds, phase.low, phase.high, _share(phase, r))


def _share(phase: RlPhase, r: Reinforcement) -> float | None:
    """Share of the step; None without a time."""
    return None if phase.seconds is None or r.step_s is None else phase.seconds / r.step_s


def _generation(r: Reinforcement) -> Block:
    g, t = r.generation, r.training
    layout = t.layout
    took = f" of {show(t.step_s, 's')}, of it {show(t.forward_s, 's')} forward"
    took = "" if r.step_s is None else took
    engines = f"{g.engines:,} engine{'s' * (g.engines > 1)} of tp {g.tp} in {g.precision}"
    return Block(
        "Generation and training",
        [
            *_engine(r, f"generation: {g.engine}, {engines}"),
            f"training: {t.stack}, {t.gpus:,} GPUs, tp {layout.tp}, pp {layout.pp},"
            f" cp {layout.cp}, ep {layout.ep}, dp {layout.dp}, recompute {layout.recompute}",
            f"training: {t.rows:,} packed rows of {t.seq_len:,} tokens per optimizer step{took}",
        ],
    )


def _engine(r: Reinforcement, named: str) -> list[str]:
    g = r.generation
    weights = show(g.weight_bytes, "B")
    if g.slots < 1:
        return [f"{named}; its weights of {weights} on a GPU leave no room for a sequence"]
    if r.step_s is None:
        return [f"{named}, {g.running:,.0f} sequences each of {g.slots:,.0f} that fit"]
    return [
        f"{named}, {g.running:,.0f} sequences each of {g.slots:,.0f} that fit;"
        f" {show(g.token_s, 's')} per token, {g.tokens_per_s_per_gpu:,.0f} tokens/s per GPU",
        f"generation: prompts {show(g.prompts_s, 's')}, full slots {show(g.full_s, 's')},"
        f" until the last response ends {show(g.drain_s, 's')}",
    ]


def _changes(r: Reinforcement) -> Block:
    title = "What would be faster" if r.fits else "What would make it fit"
    return Block(
        f"{title}, each evaluated",
        header=["change", "step|s", "change of it|%0", "options"],
        rows=[
            [
                change.change,
                change.step_s,
                change.step_change_frac,
                " ".join(map(_option, change.options.items())),
            ]
            for change in r.changes
        ],
        order="the fastest first",
        drop=("options",),
    )


def _option(pair: tuple[str, Value]) -> str:
    name, value = pair
    return flag(name) if value is True else f"{flag(name)} {value}"


def _splits(r: Reinforcement) -> Block:
    splits = sorted(r.splits, key=lambda split: (not split.fits, split.step_s or float("inf")))
    return Block(
        "Splits of the GPUs",
        header=[
            ">generate",
            ">train",
            ">engine tp",
            "step|s",
            "generation|s",
            "training|s",
            "verdict",
        ],
        rows=[_split(split) for split in splits],
        order="the fastest that fits first",
        drop=("engine tp", "generation", "training"),
        marks=["here" if split.taken else "" if split.fits else "no" for split in splits],
        links=[_link(split) for split in splits],
        note="Shaded: the split shown above. Grey: it cannot be, with the reason.",
    )


def _split(split: RlSplit) -> list[str | float | None]:
    verdict = "fits" if split.fits else (split.why or "does not fit")
    return [
        "all in turn" if split.shared else f"{split.generation_gpus:,}",
        "" if split.shared else f"{split.training_gpus:,}",
        None if split.generation_tp is None else f"{split.generation_tp}",
        split.step_s,
        split.generation_s,
        split.training_s,
        f"{verdict}, shown above" if split.taken else verdict,
    ]


def _link(split: RlSplit) -> Link | None:
    """Link to the step with this share of the GPUs generating."""
    if split.shared or split.taken or split.step_s is None:
        return None
    return Link(changes={"generation_gpus": split.generation_gpus}, word="Show")


def _chart(r: Reinforcement, step_s: float) -> Chart:
    """The phases of a step, one row each; phases of different GPUs run in parallel."""
    at: dict[str, float] = {}
    data, names = [], []
    for i, phase in enumerate(r.phases):
        if phase.seconds is None or phase.low is None or phase.high is None:
            continue
        begin = max(at.values(), default=0.0) if phase.gpus == "all" else at.get(phase.gpus, 0.0)
        at[phase.gpus] = begin + phase.seconds
        names.append(phase.name)
        band = f"{show(phase.low, 's')} to {show(phase.high, 's')}"
        text = f"{show(phase.seconds, 's')} ({band}), {phase.gpus} GPUs"
        color = {"color": CYCLE[i % len(CYCLE)]}
        length = (begin, phase.seconds)
        data.append(spans(phase.name, [phase.name], [length], color, [text], **_PLAIN))
    hours = _STEPS * step_s / _HOUR_S
    return Chart(
        "rl-phases",
        "A step by phase",
        f"A step takes {show(step_s, 's')}, {_STEPS:,} steps take {hours:,.1f} h.",
        rows_figure(data, names, axis("seconds")),
        caption="Each phase begins where the one before it on the same GPUs ends.",
    )
