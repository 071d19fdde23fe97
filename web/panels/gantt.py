"""The pipeline schedule of the chosen layout as bars over time, and all schedules at the same
size."""

from __future__ import annotations

from planner.api import Options
from planner.specs.document import changed
from planner.specs.options import rows
from planner.specs.options.own import ScheduleOptions
from planner.verbs.schedule import draw
from planner.views import schedule
from planner.views.chart import Chart
from planner.views.figures import with_table

_MOST_BARS = 2_000  # drawn; a step of more passes is drawn in slices


def charts(options: Options) -> list[Chart]:
    """Gantt chart of the layout that an estimate with these options answers with; none without a
    pipeline."""
    table = rows(Options)
    given = {n: value for n, value in options.given().items() if "schedule" in table[n].verbs}
    drawn = draw(ScheduleOptions(), given)
    if drawn.document.pp == 1:
        return []
    view = schedule.view(drawn.document, drawn.program, drawn.timing, most=_MOST_BARS)
    picture, *_, comparison = view.blocks
    assert picture.chart is not None
    return [changed(with_table(picture.chart, comparison), summary=f"{view.verdict}.")]
