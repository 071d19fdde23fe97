"""Residuals of the measured runs, which bands and chances to fit come from.

python -m benchmarks.studies.residuals    writes planner/data/residuals.csv, memory_residuals.csv
                                          and band_widths.csv (2 min of a core)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from benchmarks.studies import widths
from benchmarks.studies.crossval import without_each_suite
from benchmarks.studies.runs import read_runs
from planner.evidence import band
from planner.evidence import memory as evidence
from planner.evidence.case import FEATURES
from planner.inputs.tables import csv_text
from planner.specs.document import plain
from planner.studies.documents.validate import Need, Run
from planner.studies.validate.predict import has_time
from planner.studies.validate.rows import FRESH, SHIPPED

# what a residual says of its run beside features and ratios: columns of planner/data/residuals.csv
_TIME_COLUMNS = ("run_id", "suite", "gpu", "architecture", "stack", "family")
_RATIOS = ("measured_over_predicted", "measured_over_default")

# columns of planner/data/memory_residuals.csv
_RUN_COLUMNS = ("run_id", "suite", "gpu", "stack", "experts")
_MEMORY_COLUMNS = (*_RUN_COLUMNS, *(field.name for field in structs.fields(Need)))


def time_rows(
    runs: Iterable[Run], unseen: Mapping[str, float] | None = None
) -> list[dict[str, Any]]:
    """Runs with a time, as measured over predicted: the columns of planner/data/residuals.csv.

    unseen: step times (s) by run_id, predicted by numbers fitted without the run's suite, which is
    the case of a plan that has not been measured. Without it, and in `measured_over_default`, the
    prediction is by the shipped numbers. `seen`: its suite was in view while these were
    chosen.
    """
    seen = {file.stem for file in SHIPPED.glob("*.csv")}
    predicted = unseen or {}
    return [
        {
            **{name: getattr(run, name) for name in _TIME_COLUMNS},
            **run.features,
            "seen": int(run.suite in seen),
            "mfu": run.mfu * run.predicted_step_s / run.measured_step_s,
            "measured_over_predicted": run.measured_step_s
            / predicted.get(run.run_id, run.predicted_step_s),
            "measured_over_default": run.measured_step_s / run.predicted_step_s,
        }
        for run in runs
        if has_time(run) and run.measured_step_s
    ]


def time_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV of `time_rows`, the basis of `planner.evidence.band`."""
    as_is, numbers = [*_TIME_COLUMNS, "seen"], [*FEATURES, "mfu", *_RATIOS]
    lines = [
        [*(row[name] for name in as_is), *(f"{row[name]:.4g}" for name in numbers)] for row in rows
    ]
    return csv_text([*as_is, *numbers], lines)


def memory_rows(runs: Iterable[Run]) -> list[dict[str, Any]]:
    """Runs that say something of their need: the columns of planner/data/memory_residuals.csv."""
    return [
        {**{name: getattr(run, name) for name in _RUN_COLUMNS}, **plain(run.need)}
        for run in runs
        if run.need is not None and not run.not_expressed
    ]


def memory_lines(rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV of `memory_rows`, the basis of `planner.evidence.memory`."""
    return csv_text(
        list(_MEMORY_COLUMNS), [[_cell(row[name]) for name in _MEMORY_COLUMNS] for row in rows]
    )


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    return f"{value:.4f}" if isinstance(value, float) else value


def main() -> None:
    shipped, fresh = read_runs(), read_runs([FRESH])
    ids = [case.row["run_id"] for case in shipped.cases]
    unseen = dict(zip(ids, without_each_suite(shipped.cases)[0].tolist(), strict=True))
    rows = [*time_rows(shipped.document.rows, unseen), *time_rows(fresh.document.rows)]
    band.RESIDUALS.write_text(time_lines(rows), encoding="utf-8")
    band.forget()
    widths.write()
    text = memory_lines(memory_rows(shipped.document.rows))
    evidence.OBSERVED.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
