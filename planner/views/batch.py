"""View of `dpplan batch`: time to a target over the number of GPUs."""

from __future__ import annotations

from collections.abc import Mapping

from planner.specs.documents.batch import Regime, RegimePoint, TimeToTarget
from planner.units import show
from planner.views.cells import Cell
from planner.views.characters import chart_lines, legend
from planner.views.chart import Chart, Trace
from planner.views.figures import (
    BLUE,
    FROM_ZERO,
    GREEN,
    LOG,
    ROSE,
    axis,
    counted,
    figure,
    line,
    marked,
    tabled,
)
from planner.views.sweeps import amdahl_text
from planner.views.view import Block, Link, Mark, View

_COLORS = {"strong": BLUE, "weak": ROSE, "best": GREEN}
_CURVES = (
    (
        "days",
        "Days to the target",
        LOG,
        "Fewer GPU-hours are needed where a curve falls in proportion to the GPUs.",
    ),
    ("cost_usd", "Cost", FROM_ZERO, "US dollars to the target, failures and restarts included."),
    (
        "efficiency",
        "Efficiency",
        FROM_ZERO,
        "GPU-time to the target at the first count over that here.",
    ),
    (
        "communication_ratio",
        "Communication over computation",
        FROM_ZERO,
        "Seconds of communication of a step, hidden and exposed, over those of computation.",
    ),
    (
        "of_critical",
        "Batch over the critical one",
        LOG,
        "Above 1 a larger batch needs more tokens than it saves steps.",
    ),
)
_MOST_FIRST = 3  # charts before the tables
_SHORT = {"strong": "batch kept", "weak": "grown", "best": "best"}


def view(document: TimeToTarget, given: Mapping[str, object], csv: str = "") -> View:
    """How far more GPUs help each way to choose the batch, what batches need, a table per regime
    with the reason that it ends, days over GPUs, and what this rests on.

    given: of the request, whose GPUs the charts mark.
    """
    regimes = document.regimes
    charts = _charts(document, given.get("gpus"))
    drawn = {
        name: points
        for name, regime in regimes.items()
        if (points := [(float(point.value), point.days) for point in regime.points if point.fits])
    }
    drawing = []
    if drawn:
        text = chart_lines(list(drawn.items()), False)
        text.append(legend(list(drawn), "; later ones over earlier ones"))
        drawing = [Block("Days to the target over GPUs", text, only="text")]
    verdict, *others = (_at_best(regime) for regime in regimes.values())
    return View(
        f"{document.model.title} on {document.gpu_title}: time to the target",
        verdict,
        "yes" if drawn else "no",
        others,
        parts=(
            *charts[:_MOST_FIRST],
            _batches(document),
            *(_regime(regime, document.gpu_title) for regime in regimes.values()),
            *drawing,
            _sensitivity(document),
            *charts[_MOST_FIRST:],
        ),
        notes=document.notes,
        noted="Notes",
        csv=csv,
    )


def _at_best(regime: Regime) -> str:
    """The shortest time to the target, and up to where more GPUs pay."""
    fitting = [point for point in regime.points if point.fits and point.days is not None]
    if not fitting:
        return f"{regime.title}: nothing fits"
    best = min(fitting, key=lambda point: point.days or 0.0)
    pays = "" if regime.pays_until is None else f"; more GPUs pay up to {regime.pays_until:,}"
    return (
        f"{regime.title}: {show(best.days, 'days')} at best, on {best.value:,} GPUs with batch"
        f" {best.global_batch:,}{pays}"
    )


def _count(value: float) -> str:
    return show(value, "count")


def _batches(document: TimeToTarget) -> Block:
    critical, rule, least = document.critical_batch, document.learning_rate, document.least
    rate = "x" if rule.reference is None else ".3g"
    reference = (
        "given as factors (--learning-rate)"
        if rule.reference is None
        else f"{rule.reference:g} at the reference batch"
    )
    warm = rule.warmup_tokens is not None
    block = Block(
        f"{document.model.title}: what a batch needs to reach the target, sequences of"
        f" {document.seq_len:,} tokens",
        text=[
            (
                f"critical batch  {_count(critical.tokens)} tokens, {show(critical.sequences, '')}"
                " sequences"
            ),
            (
                f"least           {_count(least.tokens)} tokens with a tiny batch,"
                f" {least.steps:,.0f} steps with an endless one; twice either at the critical batch"
            ),
            f"learning rate   {'linear' if rule.rule == 'linear' else 'sqrt'} rule for this"
            f" optimizer ({rule.source}); {reference}",
        ],
        header=[
            *("batch|,", "tokens/step|count", "of critical|.3g", "steps|,", "tokens|count"),
            *("of given|x", f"rate, linear|{rate}", f"sqrt|{rate}", f"saturating|{rate}"),
            *(("warm-up steps|,", "of the run|%") if warm else ()),
        ],
        order="smallest first",
        drop=("saturating", "of the run", "of given", "tokens/step", "warm-up steps"),
    )
    block.rows = [
        [
            *(batch.global_batch, batch.tokens_per_step, batch.of_critical, batch.steps),
            *(batch.tokens, batch.tokens_factor),
            *(batch.rates.linear, batch.rates.root, batch.rates.saturating),
            *((batch.warmup_steps, batch.warmup_frac) if warm else ()),
        ]
        for batch in document.batches
    ]
    return block


def _regime(line: Regime, gpu_title: str) -> Block:
    block = Block(
        f"On {gpu_title}: {line.title}",
        header=[
            *("GPUs|,", "batch|,", "of critical|.3g", "accumulation|,", "steps|number", "step|s"),
            *("days|days", "USD|number", "speed-up|,.2f", "efficiency|%", "added GPU brings|%"),
            *("comm./comp.|.3f", "exposed|%", "bottleneck"),
        ],
        order="fewest GPUs first",
        drop=("comm./comp.", "exposed", "speed-up", "accumulation", "USD", "steps", "of critical"),
        marks=[_mark(line, point) for point in line.points],
        links=[Link(point.command) for point in line.points],
        note="The shaded row is the knee: more GPUs pay up to here.",
    )
    block.rows = [_point_cells(point, len(block.header)) for point in line.points]
    if line.why is None:
        block.text.append("nothing fits")
        return block
    block.text += [f"why         {line.why.sentence}", _crossed(line)]
    if line.amdahl is not None:
        block.text.append(amdahl_text(line.amdahl))
    if line.floor_days is not None:
        block.text.append(
            f"floor       {show(line.floor_days, 'days')}: the least steps, each as the shortest"
            " above without its exposed communication; more GPUs with this batch each do not go"
            " below"
        )
    return block


def _point_cells(point: RegimePoint, count: int) -> list[Cell]:
    head: list[Cell] = [point.value, point.global_batch, point.of_critical]
    if not point.fits:
        return [*head, *[""] * (count - len(head) - 1), point.why]
    return [
        *(*head, point.layout.grad_accum, point.steps, point.step_seconds, point.days),
        *(point.cost_usd, point.speed_up, point.efficiency, point.marginal_frac),
        *(point.communication_ratio, point.exposed_frac, point.bottleneck),
    ]


def _mark(line: Regime, point: RegimePoint) -> Mark:
    return "no" if not point.fits else "here" if point.value == line.pays_until else ""


def _crossed(line: Regime) -> str:
    beyond = (
        f"beyond the critical batch from {line.critical_crossed_at:,} GPUs on"
        if line.critical_crossed_at
        else "the batch stays below the critical one"
    )
    left = (
        f"no accumulation is left from {line.accumulation_gone_at:,} GPUs on"
        if line.accumulation_gone_at
        else "accumulation is left at every count"
    )
    return f"crossed     {beyond}; {left}"


def _sensitivity(document: TimeToTarget) -> Block:
    return Block(
        "Were the critical batch another one: at the most GPUs that fit",
        text=["grown: the batch grows with the GPUs; best: the batch that is fastest"],
        header=[
            *("times|.4g", "critical batch|count", "grown: days|days", "grown: efficiency|%"),
            *("grown: pays up to|number", "best: batch|number", "best: days|days"),
            *("best: efficiency|%", "best: pays up to|number"),
        ],
        order="smallest critical batch first",
        drop=("grown: efficiency", "best: efficiency", "grown: pays up to", "best: pays up to"),
        rows=[
            [
                *(row.factor, row.critical_tokens, row.weak.days, row.weak.efficiency),
                *(row.weak.pays_until, row.best.global_batch, row.best.days),
                *(row.best.efficiency, row.best.pays_until),
            ]
            for row in document.sensitivity
            if row.weak.days is not None and row.best.days is not None
        ],
    )


def _charts(document: TimeToTarget, now: object) -> list[Chart]:
    """Quantities over the GPUs that fit, a line per regime, with each knee and the GPUs of the
    request marked; those that have no point are left out."""
    at = {
        f"knee, {_SHORT[name]}": float(regime.pays_until)
        for name, regime in document.regimes.items()
        if regime.pays_until
    }
    at |= {"now": float(now)} if isinstance(now, int) else {}
    charts = []
    for key, title, kind, caption in _CURVES:
        lines = [_line(name, regime, key) for name, regime in document.regimes.items()]
        data = [trace for trace in lines if trace["x"]]
        if data:
            across = counted("GPUs", (x for trace in data for x in trace["x"]))
            drawn = figure(data, across, axis(title.lower(), kind))
            charts.append(tabled(marked(Chart(key, title, "", drawn, caption=caption), at)))
    return charts


def _line(name: str, regime: Regime, key: str) -> Trace:
    """One quantity of a regime, where it is known."""
    fitting = [point for point in regime.points if point.fits]
    known = [(float(p.value), value) for p in fitting if (value := getattr(p, key)) is not None]
    hover = [f"{x:,g} GPUs: {y:,.4g}" for x, y in known]
    x, y = [x for x, _ in known], [y for _, y in known]
    return line(regime.title, x, y, _COLORS[name], hover, symbol="circle")
