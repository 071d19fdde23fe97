"""A row of a runs table estimated as any request is: its scenario, and the layout of the answer."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate import Estimates
from planner.inputs.calibration import Calibration
from planner.report.layout import evaluate_row
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.layout import LayoutRequest
from planner.specs.options import command_line
from planner.specs.plan import Plan
from planner.studies.runs.cells import Row
from planner.studies.runs.read import Run, read


@dataclass(frozen=True)
class Scored:
    """A row as a request, and the estimate of the layout that answers it, over all its stages."""

    run: Run
    estimates: Estimates

    @property
    def plan(self) -> Plan:
        """The plan without its layout request, equal for runs that differ only in that."""
        asked = LayoutRequest(pipeline_layout=self.estimates.plan.request.pipeline_layout)
        return self.estimates.plan.model_copy(update={"request": asked})

    @property
    def command(self) -> str:
        """The command for this run."""
        return command_line(self.run.options)


def scored(row: Row, calibration: Calibration | None = None) -> Scored:
    """Raises PlanError, Skip or ValueError with the reason where a row cannot be expressed."""
    run = read(row, calibration)
    answer = answer_of(run.scenario)
    if answer is None:
        raise why_none(run.scenario)
    return Scored(run, evaluate_row(answer.chosen, answer.row))


def predict(row: Row, calibration: Calibration | None = None) -> Estimates:
    """The estimate of a row."""
    return scored(row, calibration).estimates
