"""`dpplan estimate`: the answer for one request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from planner.cli.finish import Answer
from planner.error import PlanError
from planner.specs.options import Given
from planner.specs.options.own import EstimateOptions, Output

if TYPE_CHECKING:
    from planner.views.view import View


def command(given: Given, request: EstimateOptions, out: Output) -> Answer:
    """Estimate memory, step time and cost; what is left out of the layout is searched.

    Exit status: 0 answered and fits, 3 answered and nothing fits, 4 fits but a requirement does not
    hold, 2 the request is wrong.
    """
    if request.part is not None and not request.explain:
        raise PlanError("--explain", request.part, "is needed before it, as in --explain memory")
    from planner.inputs.options import read_options
    from planner.verbs.estimate import charted, estimate, explain, may_fit

    options = read_options(given)
    if request.explain:
        from planner.specs.document import changed
        from planner.verbs.explanation import document
        from planner.views import explain as tree_of

        report, whole = explain(options)
        tree = tree_of.part_of(whole, request.part)
        report = changed(report, explain=tree_of.nested(tree))
    else:
        report = estimate(options)
    if request.chart:
        report = charted(report, options, request.chart)

    def trace() -> str:
        from planner.verbs import step_trace

        return step_trace.text(options)

    def view(full: bool) -> View:
        from planner.views import full as whole
        from planner.views import screen
        from planner.views.estimate import offload_blocks
        from planner.views.inference import inference_blocks
        from planner.views.kernels import chart_blocks

        inference = inference_blocks(report) if request.inference else []
        offload = offload_blocks(report) if request.explain else []
        figures = tree_of.figure_blocks(document(options)) if request.explain else []
        return (whole if full else screen).view(
            report, [*inference, *offload, *figures, *chart_blocks(report)]
        )

    def after() -> list[str]:
        first = [] if request.part == "memory" else [*tree_of.machine_lines(report.machine), ""]
        second = [] if request.part == "time" else [*tree_of.memory_lines(report), ""]
        return [*first, *second, *tree_of.lines(tree)]

    holds = all(requirement.holds for requirement in report.requirements)
    return Answer(
        report,
        view=lambda: view(request.full),
        paper=lambda: view(True),
        after=after if request.explain else tuple,
        files={"trace": trace},
        status=3 if not may_fit(report) else 0 if holds else 4,
    )
