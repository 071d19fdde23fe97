"""How sure the days of a whole run are: the step's distribution, with failures and stops."""

from __future__ import annotations

import math

from planner.evidence.spread import Spread
from planner.specs.documents.run import Project, Run

# standard deviation of the logarithm of a GPU's time between failures over clusters: RSC-1 and
# RSC-2 of one operator had 6.5 and 2.34 failures per thousand node-days (arXiv 2410.21680, section
# III; recalled), of which ln(6.5 / 2.34) / sqrt(2) is the spread; of a stated time there is none
_MTBF = 0.7
# likewise for losses beside step and failures: slow nodes, maintenance, evaluation; assumed
_STOPS = 0.03
_MANY = 1e9  # failures of a run of unknown length: so many that their number equals the mean
_FEWEST = 0.1  # of a run that hardly ever fails, so that the variance has an end


def whole_run(step: Spread, run: Run, *, stated: bool) -> Spread:
    """Distribution of the wall time of a run over what is expected, as a factor.

    What failures and checkpoints take is uncertain as the time between failures is, and as the
    number of failures of the run is where there are few (Poisson). stated: the request gives the
    time between failures.
    """
    if run.project.counted:
        return _project(step, run.project)
    lost = 1 - run.goodput
    counted = 1 / max(run.failures or _MANY, _FEWEST)
    failing = math.sqrt((0.0 if stated else _MTBF**2) + counted)
    return step.beside(math.hypot(lost * failing, _STOPS))


def _project(step: Spread, project: Project) -> Spread:
    """Distribution of the wall time of a project over the usual one, as published projects scatter
    (errors of the step included), no narrower than the step's."""
    low, high = step.ends()
    return Spread.of_ends(
        min(low, project.low / project.usual), max(high, project.high / project.usual)
    )
