"""Data parallelism in all its forms: every way of keeping replicas in step."""

from __future__ import annotations

from urllib.parse import urlencode

from planner.specs.base import PlanError
from planner.specs.document import changed
from planner.specs.documents.strategies import Strategies
from planner.specs.options.parallel import StrategyName, StrategySettings
from planner.units import show
from planner.verbs import strategies
from planner.views.cells import Column
from planner.views.explain import nested
from planner.views.figures import BLUE, ROSE, Chart, axis, rows_figure, spans
from planner.views.strategies import strategy_blocks
from web.tabs.base import Asked, Found, Tab, Table


def _find(asked: Asked) -> Strategies:
    which, settings = asked.of(StrategyName), asked.of(StrategySettings)
    found = strategies.answer(asked.state.options, settings, which.strategy)
    if not which.explain:
        return found
    if which.strategy is None:
        raise PlanError("--explain", None, "explains one strategy: name it with --strategy")
    tree = strategies.explain(asked.state.options, settings, which.strategy)
    return changed(found, explain=nested(tree))


def _show(found: Strategies, asked: Asked) -> Found:
    head, *rest = strategy_blocks(found)
    alone = asked.of(StrategyName).strategy is not None
    verdict = (
        f"{found.strategies[0].title}: {'fits' if found.fits else 'does not fit'}"
        if alone
        else head.text.pop(0)
    )
    title, head.title = head.title, "The result of one large synchronous batch"
    by_name = {one.name: one for one in found.strategies}
    tables = []
    for block in (head, *rest):
        rows = [by_name.get(row[0]) for row in block.rows]
        tables.append(
            Table(
                block,
                links=()
                if alone
                else tuple(_alone(row.name, asked) if row else None for row in rows),
                marks=tuple(
                    "here" if row and row.name == found.best else "" if row and row.fits else "no"
                    for row in rows
                )
                if any(rows)
                else (),
                word="In full",
            )
        )
    return Found(
        title=title,
        verdict=verdict,
        command=asked.command,
        mark="yes" if found.fits else "no",
        parts=(*([] if alone else [_chart(found)]), *tables),
        notes=tuple(found.assumptions),
    )


def _alone(name: str, asked: Asked) -> str:
    """The address of one strategy in full."""
    pairs = [(n, text) for n, text in asked.pairs if text and n != "strategy"]
    return f"{TAB.path}?{urlencode([*pairs, ('strategy', name)])}"


def _chart(found: Strategies) -> Chart:
    """Computing and exposed communication of every strategy that is answered, the fastest first."""
    answered = sorted(
        (one for one in found.strategies if one.step is not None),
        key=lambda one: (not one.fits, one.step.seconds if one.step else 0.0),
    )
    names = [one.name for one in answered]
    steps = [one.step for one in answered if one.step is not None]
    fits = [1.0 if one.fits else 0.35 for one in answered]

    def traced(name: str, color: str, ends: list[tuple[float, float]]) -> dict[str, object]:
        said = [f"{name} {show(length, 's')}" for _, length in ends]
        return spans(
            name, names, ends, {"color": color, "opacity": fits}, said, textposition="none"
        )

    data = [
        traced("computing", BLUE, [(0.0, step.compute_s) for step in steps]),
        traced("exposed communication", ROSE, [(s.compute_s, s.exposed_s) for s in steps]),
    ]
    return Chart(
        "strategies",
        "A step by strategy",
        f"{sum(one.fits for one in answered)} of {len(answered)} strategies fit.",
        rows_figure(data, names, axis("seconds")),
        (
            Column("strategy"),
            Column("computing", "s"),
            Column("exposed", "s"),
            Column("step", "s"),
            Column("memory", "B"),
            Column("fits"),
        ),
        [
            [one.name, step.compute_s, step.exposed_s, step.seconds, one.device_bytes, one.fits]
            for one, step in zip(answered, steps, strict=True)
        ],
        "Pale bars do not fit the memory. A step is one optimizer step; strategies of the second"
        " table need another number of them.",
        order="what fits first, the shortest step first",
    )


TAB = Tab(
    path="/strategies",
    name="Strategies",
    title="Data parallelism in all its forms",
    lead=(
        "DDP and its communication hooks, ZeRO, FSDP, offloading, gradient compression, local "
        "SGD and parameter servers, on the same model, cluster and batch: memory, time, bytes "
        "sent, and time to the same loss."
    ),
    ask="Compare strategies",
    verb="strategies",
    documents=("strategies",),
    records=(StrategyName, StrategySettings),
    shown=("model", "gpu", "gpus", "global_batch", "seq_len", "strategy"),
    folded=(
        "local_steps",
        "rank",
        "density",
        "servers",
        "slack",
        "backups",
        "bucket",
        "steps_factor",
        "precision",
    ),
    choices={"strategy": lambda: [(one.name, one.title) for one in strategies.STRATEGIES]},
    start=[("model", "gpt2-xl"), ("gpu", "a100-sxm4-80gb"), ("gpus", "16")],
    find=_find,
    show=_show,
)
