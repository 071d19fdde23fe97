"""Reinforcement learning: a step of PPO, GRPO, DAPO or RLOO as its phases."""

from __future__ import annotations

from urllib.parse import urlencode

from planner.inputs.reinforcement import frameworks
from planner.specs.documents.reinforcement import Reinforcement, RlSplit
from planner.specs.options.reinforcement import RlOptions
from planner.units import show
from planner.verbs.rl import rl
from planner.views.cells import Column
from planner.views.figures import CYCLE, Chart, axis, rows_figure, spans
from planner.views.rl import rl_blocks
from web.tabs.base import Asked, Found, Mark, Tab, Table

_HOUR_S = 3600.0
_PLAIN = {"showlegend": False, "textposition": "none"}
_STEPS = 1000  # that the cost is stated for


def _find(asked: Asked) -> Reinforcement:
    return rl(asked.of(RlOptions), asked.given)


def _show(found: Reinforcement, asked: Asked) -> Found:
    phases, inside, splits, _ = rl_blocks(found)
    verdict, *phases.text = phases.text
    title, phases.title = phases.title, "Phases"
    by = sorted(found.splits, key=lambda one: (not one.fits, one.step_s or float("inf")))
    return Found(
        title=title,
        verdict=verdict[:1].upper() + verdict[1:],
        command=asked.command,
        mark="yes" if found.fits else "no",
        parts=(
            _chart(found),
            Table(phases),
            Table(
                splits,
                links=tuple(_split(one, asked) for one in by),
                marks=tuple(_mark(one) for one in by),
                word="Show",
                note="Shaded: the split shown above. Grey: it cannot be, with the reason.",
            ),
            Table(inside),
        ),
        notes=tuple(found.notes),
    )


def _mark(one: RlSplit) -> Mark:
    return "here" if one.taken else "" if one.fits else "no"


def _split(one: RlSplit, asked: Asked) -> str | None:
    """The address of the same step with this share of the GPUs generating."""
    if one.shared or one.taken or one.step_s is None:
        return None
    kept = [(n, text) for n, text in asked.pairs if text and n != "generation_gpus"]
    return f"{TAB.path}?{urlencode([*kept, ('generation_gpus', one.generation_gpus)])}"


def _chart(found: Reinforcement) -> Chart:
    """The phases of a step, one row each; phases of different GPUs run in parallel."""
    at: dict[str, float] = {}
    data, names = [], []
    for i, phase in enumerate(found.phases):
        begin = max(at.values(), default=0.0) if phase.gpus == "all" else at.get(phase.gpus, 0.0)
        at[phase.gpus] = begin + phase.seconds
        names.append(phase.name)
        band = f"{show(phase.low, 's')} to {show(phase.high, 's')}"
        said = f"{show(phase.seconds, 's')} ({band}), {phase.gpus} GPUs"
        color = {"color": CYCLE[i % len(CYCLE)]}
        length = (begin, phase.seconds)
        data.append(spans(phase.name, [phase.name], [length], color, [said], **_PLAIN))
    hours = _STEPS * found.step_s / _HOUR_S
    return Chart(
        "rl-phases",
        "A step by phase",
        f"A step takes {show(found.step_s, 's')}, {_STEPS:,} steps take {hours:,.1f} h.",
        rows_figure(data, names, axis("seconds")),
        (
            Column("phase"),
            Column("GPUs"),
            Column("time", "s"),
            Column("low", "s"),
            Column("high", "s"),
            Column("memory per GPU", "B"),
        ),
        [[p.name, p.gpus, p.seconds, p.low, p.high, p.device_bytes] for p in found.phases],
        "Each phase begins where the one before it on the same GPUs ends.",
        order="as they run",
    )


TAB = Tab(
    path="/rl",
    name="RL",
    title="Reinforcement learning",
    lead=(
        "Choose a model and GPUs: how long a step of PPO, GRPO, DAPO or RLOO takes in each "
        "phase, whether each phase fits, how to split the GPUs between generation and training,"
        " and what a thousand steps cost."
    ),
    ask="Estimate a step",
    verb="rl",
    documents=("rl",),
    records=(RlOptions,),
    shown=(
        "model",
        "gpu",
        "gpus",
        "algorithm",
        "framework",
        "prompts",
        "responses",
        "response_length",
    ),
    folded=(
        "prompt_length",
        "response_max",
        "response_sigma",
        "update_batch",
        "updates",
        "kept",
        "reference",
        "reward_time",
        "ahead",
        "generation_gpus",
        "generation_tp",
        "generation_precision",
        "generation_memory",
        "market",
    ),
    choices={"framework": lambda: [(n, one.title) for n, one in frameworks().frameworks.items()]},
    start=[("model", "qwen2.5-7b"), ("gpu", "h100-sxm5-80gb"), ("gpus", "16")],
    find=_find,
    show=_show,
)
