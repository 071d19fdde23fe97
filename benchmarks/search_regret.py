"""Pick-regret of the search itself over the measured groups of layouts: the search is restricted to
the layouts of a group.

    python benchmarks/search_regret.py            # all shipped runs, some minutes
    python benchmarks/search_regret.py SUITE ...  # some suites

Every measured layout of a group goes through `planner.search.search` with all of its options fixed:
a layout that ran and that the search would not propose is counted with the rule that forbids it, or
as predicted not to fit. Of the layouts left, the one that `search.order` puts first is the pick.
`dpplan validate` picks among predictions without rules and memory; both are printed.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from typing import Any

import numpy as np

from planner import api
from planner.search import Candidates, order, search
from planner.specs.layout import LayoutRequest
from planner.specs.plan import Plan
from planner.studies.runs.cells import Row
from planner.studies.validate.files import read_all
from planner.studies.validate.predict import has_time
from planner.studies.validate.ranking import group_of
from planner.studies.validate.scored import scored


def searched(row: Row) -> tuple[Any, str]:
    """(what the search finds of this layout, why it finds nothing)."""
    known = scored(row)
    plan, layout = known.plan, known.estimates.table.layout(0)
    request = LayoutRequest(**layout.model_dump(), uneven_stages=plan.request.uneven_stages)
    result = search(Plan(**{**dict(plan), "request": request}))
    if result.estimates is None:
        return None, "; ".join(result.rejected) or "not enumerated"
    assert result.estimates.space.count == 1
    return result.estimates, "" if result.estimates.fits[0] else "predicted not to fit"


def main() -> None:
    suites = sys.argv[1:]
    document = api.validate(suites=suites)
    groups = {group.group: group for group in document.groups}
    measured = {run.run_id: run for run in document.rows if has_time(run) and not run.not_printed}
    members: dict[str, list[Row]] = defaultdict(list)
    for row in read_all((), suites):
        if row["run_id"] in measured and group_of(row) in groups:
            members[group_of(row)].append(row)
    regrets, theirs, same, lost = [], [], 0, Counter[str]()
    for name, rows in members.items():
        kept, outlines = [], []
        for row in rows:
            outline, why = searched(row)
            if why:
                lost[why] += 1
            else:
                kept.append(row)
                outlines.append(outline)
        if not kept:
            continue
        columns = [
            np.array([float(column[0]) for column in values])
            for values in zip(
                *(
                    (e.time.seconds, e.time.components["recompute"], e.memory.device)
                    for e in outlines
                ),
                strict=True,
            )
        ]
        pick = kept[int(order(Candidates(*columns, np.arange(len(kept))), 1, "time")[0])]["run_id"]
        best = min(measured[row["run_id"]].measured_step_s for row in rows)
        regrets.append(measured[pick].measured_step_s / best - 1)
        theirs.append(groups[name].pick_regret)
        same += pick == groups[name].pick.run_id
    runs = sum(len(rows) for rows in members.values())
    print(f"{len(regrets)} groups of {runs} runs")
    print(
        f"search:          mean regret {100 * np.mean(regrets):.2f} %, largest"
        f" {100 * max(regrets):.1f} %"
    )
    print(
        f"dpplan validate: mean regret {100 * np.mean(theirs):.2f} %, largest"
        f" {100 * max(theirs):.1f} %; same pick in {same}"
    )
    print(f"{sum(lost.values())} runs that the search does not propose")
    for why, count in lost.most_common():
        print(f"  {count:5d}  {why}")


if __name__ == "__main__":
    main()
