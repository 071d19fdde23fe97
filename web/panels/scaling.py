"""How a request scales over the number of GPUs: charts and table of `dpplan compare --sweep
gpus=...` around the number of the request."""

from __future__ import annotations

from planner.inputs.scenario import resolve
from planner.specs.base import PlanError
from planner.specs.document import changed
from planner.specs.options import Given
from planner.specs.options.own import CompareOptions
from planner.verbs.compare import compare
from planner.views import compare as shown
from planner.views.cells import column
from planner.views.chart import Chart
from planner.views.view import Block
from web.state import State

_FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PER_GPU = ("dp", "shard_group")  # follow from the number of GPUs
_MOST_REASONS = 2  # counts without a layout that are named


def counts(gpus: int, most: int) -> list[int]:
    """Numbers of GPUs around the request's number, by factors of two."""
    around = (gpus * factor for factor in _FACTORS)
    return sorted(int(n) for n in around if 1 <= n <= most and n.is_integer())


def charts(state: State, most: int) -> list[Chart]:
    """Throughput and efficiency with the same global batch; dp follows the number of GPUs. Raises
    PlanError where nothing fits at any of them."""
    options, given = state.options, Given(state.options.given())
    _, cluster, training = resolve(options).parts
    for name in ("gpus", *_PER_GPU):
        given.pop(name, None)
    given["global_batch"] = training.global_batch
    sweep = f"gpus={','.join(map(str, counts(options.gpus, most)))}"
    comparison = compare(CompareOptions(sweep=(sweep,), jobs=1), given)
    points = comparison.curves[0].points
    if not any(point.fits for point in points):
        why = next(point.why for point in points if point.value == options.gpus)
        raise PlanError("--gpus", options.gpus, f"and counts around it do not run this: {why}")
    updates = [
        state.update(state.picked(row.command, ("gpus",))) if row.fits else None
        for row in comparison.points
    ]
    view = shown.view(comparison, {"gpus": options.gpus})
    throughput, efficiency, *_ = (part for part in view.parts if isinstance(part, Chart))
    table = next(part for part in view.parts if isinstance(part, Block))
    selected = [update for update in updates if update is not None]
    throughput.figure["data"][0]["customdata"] = selected
    refused = [point for point in points if not point.fits]
    reasons = "; ".join(f"{point.value:,.0f} ({point.why})" for point in refused[:_MOST_REASONS])
    return [
        changed(
            throughput,
            name="scaling",
            title="Scaling over GPUs",
            summary=f"{view.verdict}." + (f" Not possible: {reasons}." if reasons else ""),
            columns=tuple(column(heading) for heading in table.header),
            rows=table.rows,
            caption=f"Global batch {training.global_batch:,}, layout as requested."
            f" {throughput.caption} Cost: {cluster.price.sentence}.",
            select="gpus",
            states=updates,
            order=table.order,
        ),
        changed(efficiency, name="scaling-efficiency", summary=efficiency.caption, caption=""),
    ]
