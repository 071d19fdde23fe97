"""Each row of a runs table estimated only from the row, beside the measurement."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from pydantic import ValidationError

from planner.estimate.islands import behind_unknown
from planner.evidence.band import shipped_ends
from planner.evidence.case import FEATURES, case_of
from planner.formulas.params import parameter_count
from planner.inputs.calibration import Calibration
from planner.report.layout import throughput
from planner.search.room import firm_bytes
from planner.specs.base import PlanError, sentence
from planner.specs.document import SCHEMA_VERSION, changed
from planner.studies.documents.validate import (
    Apart,
    NotPrinted,
    Outcome,
    Run,
    Skipped,
    Summary,
    Validation,
)
from planner.studies.runs.cells import Row, Skip
from planner.studies.validate import memory
from planner.studies.validate.errors import (
    complete,
    kinds,
    of_tasks,
    recipe_of,
    repeat_deviations,
    summarise,
)
from planner.studies.validate.ranking import (
    busy_s,
    collectives,
    group_of,
    groups_of,
    layout_of,
    ranked,
)
from planner.studies.validate.reinforcement import is_phased, lacks, phased
from planner.studies.validate.rows import NOTE, REFUSED, measured, outcome_of
from planner.studies.validate.scored import scored
from planner.studies.validate.words import not_expressed, task_of
from planner.verbs.workers import Progress, dealt

_PART = 50  # rows that one process predicts in turn: about a second


def validate_rows(rows: Sequence[Row]) -> Validation:
    """Predicted against measured for every row: the document of `dpplan validate --json`."""
    return validated(rows, None)[0]


def validated(
    rows: Sequence[Row],
    calibration: Calibration | None,
    jobs: int = 1,
    progress: Progress | None = None,
) -> tuple[Validation, list[Row]]:
    """The document, and the rows that its `rows` belong to."""
    runs: list[Run] = []
    kept: list[Row] = []
    skipped: list[Skipped] = []
    parts = [rows[start : start + _PART] for start in range(0, len(rows), _PART)]
    with dealt(partial(_runs, calibration=calibration), parts, jobs) as results:
        for part, answers in zip(parts, results, strict=True):
            for row, result in zip(part, answers, strict=True):
                if isinstance(result, Skipped):
                    skipped.append(result)
                else:
                    runs.append(result)
                    kept.append(row)
            if progress:
                progress(len(runs) + len(skipped), len(rows))
    times = [run.measured_step_s if run.outcome != "oom" else None for run in runs]
    deviations = repeat_deviations([recipe_of(row) for row in kept], times)
    runs = [changed(run, repeat_deviation=d) for run, d in zip(runs, deviations, strict=True)]
    whole = [run for run in runs if complete(run)]
    summary = summarise(whole)
    noise = summary.noise.mean or 0.0
    document = Validation(
        schema_version=SCHEMA_VERSION,
        rows=runs,
        summary=summary,
        suites=_by_suite(whole, noise, runs),
        not_printed=_not_printed(runs, noise),
        apart=_apart(runs, noise),
        kinds=kinds(whole),
        tasks=of_tasks(whole, noise),
        groups=groups_of(ranked(whole), noise),
        skipped=skipped,
    )
    return document, kept


def _runs(rows: Sequence[Row], calibration: Calibration | None) -> list[Run | Skipped]:
    """Each row predicted, or why it is not."""
    results: list[Run | Skipped] = []
    for row in rows:
        try:
            results.append(_run(row, calibration))
        except (PlanError, ValueError) as error:
            suite = row.get("suite", "")
            results.append(
                Skipped(run_id=row.get("run_id", ""), suite=suite, reason=_reason(error))
            )
    return results


def _by_suite(runs: Sequence[Run], noise: float, every: Sequence[Run] = ()) -> dict[str, Summary]:
    """By suite; every: runs whose suites are named, those without one of `runs` as empty ones."""
    suites: dict[str, list[Run]] = {run.suite: [] for run in (*every, *runs)}
    for run in runs:
        suites[run.suite].append(run)
    return {name: summarise(members, noise) for name, members in sorted(suites.items())}


def _apart(runs: Sequence[Run], noise: float) -> Apart:
    """Rows that ran with options their estimate leaves out."""
    members = [run for run in runs if run.not_expressed]
    return Apart(
        rows=len(members),
        options=_counted(run.not_expressed for run in members),
        summary=summarise(members, noise),
        suites=_by_suite(members, noise),
    )


def _not_printed(runs: Sequence[Run], noise: float) -> NotPrinted:
    """Rows whose layout was searched in part, and that the estimate holds otherwise."""
    members = [run for run in runs if run.not_printed and not run.not_expressed]
    return NotPrinted(
        rows=len(members),
        cells=_counted(run.not_printed for run in members),
        summary=summarise(members, noise),
        suites=_by_suite(members, noise),
    )


def _counted(texts: Iterable[str]) -> dict[str, int]:
    """How often each word stands in these lists, most first."""
    words = Counter(word for text in texts for word in text.split(";"))
    return dict(sorted(words.items(), key=lambda item: (-item[1], item[0])))


def has_time(run: Run) -> bool:
    """Whether the run can say anything of predicted times of training steps."""
    whole = not run.not_expressed and not run.phases
    return run.measured_step_s is not None and run.outcome != "oom" and whole


def _run(row: Row, calibration: Calibration | None) -> Run:
    if row.get(REFUSED):
        raise Skip(row[REFUSED])
    outcome: Outcome = outcome_of(row)
    measured_s, measured_gib = measured(row, "step_s"), measured(row, "peak_memory_gib")
    if lacking := lacks(row):
        raise Skip(lacking)
    reinforced = phased(row, calibration) if is_phased(row) else None
    known = scored(row, calibration) if reinforced is None else reinforced.train
    estimates, row = known.estimates, row if reinforced is None else reinforced.request.row
    plan, kind = estimates.plan, row.get("memory_kind", "")
    predicted_s = (
        float(estimates.time.seconds[0]) if reinforced is None else reinforced.step.seconds
    )
    predicted_gib = memory.peak_bytes(estimates, kind) / 2**30
    ran, opened = outcome != "oom", known.run.open
    islands = behind_unknown(plan, estimates.table, estimates.time.seconds)
    mfu = throughput(plan, estimates, estimates.table).mfu
    case = case_of(plan, estimates.table, estimates.time, mfu, islands=islands)
    low, high = shipped_ends(case, row["suite"])
    return Run(
        run_id=row["run_id"],
        suite=row["suite"],
        gpu=row["gpu"],
        gpus=plan.cluster.gpus,
        stack=row["stack"],
        model=plan.model.name,
        parameters=parameter_count(plan.model),
        tier=row.get("tier", ""),
        architecture=plan.cluster.gpu.architecture,
        precision=plan.training.precision,
        experts=plan.model.routed.experts if plan.model.routed else 0,
        task=task_of(row, plan) if reinforced is None else "reinforcement learning",
        seq_len=plan.training.seq_len,
        micro_batch_tokens=float(
            estimates.table.micro_batch[0] * plan.training.seq_len / estimates.table.cp[0]
        ),
        predicted_step_s=predicted_s,
        mfu=mfu,
        measured_step_s=measured_s,
        time_error=predicted_s / measured_s - 1 if measured_s and ran else None,
        repeat_deviation=None,
        components={
            name: float(np.ravel(column)[0]) for name, column in estimates.time.components.items()
        },
        gpu_busy_s=busy_s(estimates.time),
        collectives=collectives(estimates.time),
        predicted_peak_gib=predicted_gib,
        measured_peak_gib=measured_gib,
        memory_error=predicted_gib / measured_gib - 1 if measured_gib and ran else None,
        memory_kind=kind,
        not_expressed=";".join(not_expressed(row, known.run, plan)),
        not_printed=";".join(opened),
        predicted_fits=bool(estimates.fits[0]),
        fit_chance=memory.chance(estimates),
        room=plan.usable_bytes / float(firm_bytes(estimates)[0]),
        need=memory.need(row, estimates, measured_gib and measured_gib * 2**30, outcome, opened),
        outcome=outcome,
        group=group_of(row),
        layout=layout_of(row),
        low_step_s=predicted_s * low,
        high_step_s=predicted_s * high,
        phases={} if reinforced is None else {p.name: p.seconds for p in reinforced.step.phases},
        features=dict(zip(FEATURES, case.features, strict=True)),
        family=case.family,
        command=known.command if reinforced is None else reinforced.request.command,
        notes={k.removeprefix(NOTE): v for k, v in row.items() if k.startswith(NOTE)},
    )


def _reason(error: Exception) -> str:
    """One sentence why a row is skipped."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_context=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        message = sentence(first["msg"])
        return f"{key} is {str(first['input'])[:80]!r}: {message}" if key else message
    return " ".join(str(error).split())
