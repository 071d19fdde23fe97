"""Does a published recipe beat the pick of its own request? It must not: what a recipe states, a
search could have taken.

    python benchmarks/published_picks.py             # the tables that ship, some minutes
    python benchmarks/published_picks.py TABLE.csv ...

Of every measured run the layout and the free options of its software are left open; model, GPUs,
batch, precision, stack and the rest stay, and where it offloads, offloading is searched. Requests
that are then equal are one, with the fastest of its recipes that are predicted to fit. Printed:
recipes that are predicted to be faster than the pick by more than a tie and 0.5 %, which a search
must not miss, and runs that were measured faster than the pick's 80 % band.
The exit status is 1 where there is one of the first kind.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

from run_commands import typed

from planner.estimate.ties import TIE
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.options import LAYOUT, Options, command_line, rows
from planner.studies.documents.validate import Run
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.rows import SHIPPED, read_rows
from planner.verbs.requests import answer

TOLERANCE = TIE + 0.005
_OPEN = (*LAYOUT, *(n for n, row in rows(Options).items() if row.says.free and n not in LAYOUT))
_ALSO = ("grad_accum", "pipeline_layout", "where", "uneven_stages")


def opened(options: Options) -> Options:
    """The request with its layout and software left open."""
    given = {n: v for n, v in options.given().items() if n not in (*_OPEN, *_ALSO)}
    offloads = options.offload not in (None, "none")
    return read_options({**given, "stack_defaults": False, "search_offload": offloads})


def requests_of(tables: list[Path]) -> dict[str, tuple[Options, list[Run]]]:
    """Every request with its runs."""
    out: dict[str, tuple[Options, list[Run]]] = {}
    members: dict[str, list[Run]] = defaultdict(list)
    for table in tables:
        for run in validate_rows(list(read_rows(table))).rows:
            if run.phases or not run.measured_step_s or run.outcome == "oom":
                continue
            try:
                options = opened(typed(run.command))
            except PlanError:
                continue
            key = command_line(options)
            members[key].append(run)
            out[key] = options, members[key]
    return out


def main() -> int:
    tables = [Path(name) for name in sys.argv[1:]] or sorted(SHIPPED.glob("*.csv"))
    requests = requests_of(tables)
    points = answer([options for options, _ in requests.values()], jobs=2, reasons=False)
    missed = beaten = none = unsaid = 0
    ratios = []
    for (command, (_, runs)), point in zip(requests.items(), points, strict=True):
        if point.report is None or not point.fits:
            none += 1
            continue
        step = point.report.step
        fitting = [run for run in runs if run.predicted_fits]
        if not fitting:
            unsaid += 1
            continue
        best = min(fitting, key=lambda run: run.predicted_step_s)
        ratios.append(step.seconds / best.predicted_step_s)
        if best.predicted_step_s < step.seconds * (1 - TOLERANCE):
            missed += 1
            gain = 1 - best.predicted_step_s / step.seconds
            print(f"missed {gain:.1%}: {best.run_id} ({best.layout}): {command}\n  {best.command}")
        fastest = min(run.measured_step_s or 0.0 for run in runs)
        if fastest < step.low:
            beaten += 1
            print(f"measured {fastest:.4g} s, pick {step.seconds:.4g} ({step.low:.4g}): {command}")
    middle = sorted(ratios)[len(ratios) // 2] if ratios else float("nan")
    print(
        f"{len(requests)} requests of published runs, {none} without a layout that fits, {unsaid}"
        " whose recipes are predicted not to fit;"
        f" {missed} recipes predicted faster than the pick; {beaten} measured faster than its band;"
        f" median pick over recipe {middle:.3f}"
    )
    return bool(missed)


if __name__ == "__main__":
    sys.exit(main())
