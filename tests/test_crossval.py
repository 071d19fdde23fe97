"""Fits on measured runs, and predictions of runs that had no part in them."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from not_none import not_none

from benchmarks.studies import bands, chances, crossval, worth
from benchmarks.studies.ablation import ablations
from benchmarks.studies.crossval import (
    FOLDS,
    CrossValidation,
    cross_validate,
    folds_of,
    without_each_suite,
)
from benchmarks.studies.residuals import time_rows
from benchmarks.studies.runs import read_runs
from planner.specs.document import plain
from planner.studies.validate.errors import recipe_of
from planner.studies.validate.files import read_all
from planner.studies.validate.fit import (
    ACROSS,
    Case,
    Trust,
    cases,
    fit,
    fits,
    labels,
    multipliers,
    step_times,
    suite_weights,
)
from planner.studies.validate.parameters import PLATFORM, SHARED, Parameter

PAGE = Path(__file__).parents[1] / "docs" / "accuracy" / "cross-validation.md"
NARROW = Trust(0.001)  # trusted so much that priors do not matter


@cache
def suite(name: str) -> list[Case]:
    return cases(read_all((), (name,)))


def measured_as(
    cases: list[Case], parameters: tuple[Parameter, ...], point: dict[str, float]
) -> list[Case]:
    """The runs as they would be measured on machines whose numbers are moved by `point`."""
    return [
        replace(case, log_seconds=float(np.log(step_times(case, parameters, [point]).seconds[0])))
        for case in cases
    ]


def wide(*names: str) -> tuple[Parameter, ...]:
    return tuple(replace(p, spread=1.0) for p in PLATFORM if p.name in names)


def test_multipliers_are_recovered_from_runs_on_a_moved_machine() -> None:
    parameters = wide("clock", "elementwise", "contention")
    moved = {"clock": 0.88, "elementwise": 1.25, "contention": 0.8}
    runs = measured_as(suite("llm-foundry-h100")[::3], parameters, moved)
    values = fit(runs, parameters, trust=NARROW)
    assert {v.label for v in values} == set(moved)
    for v in values:
        assert v.multiplier == pytest.approx(moved[v.label], rel=0.02), v.label
        assert not v.on_bound
        assert v.runs >= 3


def test_a_fit_stops_at_its_bounds_and_the_others_find_their_best_without_it() -> None:
    """The clock wants 0.8 but may not fall below 0.9: it stays there, and bandwidth takes what it
    can of the rest."""
    clock, elementwise = wide("clock", "elementwise")
    parameters = (replace(clock, low=0.9), replace(elementwise, low=0.05))
    runs = measured_as(suite("llm-foundry-h100")[::3], parameters, {"clock": 0.8})
    kept, free = fit(runs, parameters, trust=NARROW)
    assert kept.on_bound
    assert kept.multiplier == pytest.approx(0.9)
    assert not free.on_bound
    (alone,) = fit(
        [
            replace(
                c,
                numbers=replace(c.numbers, sustained_clock=float(c.numbers.sustained_clock) * 0.9),
            )
            for c in runs
        ],
        (replace(elementwise, low=0.05),),
        trust=NARROW,
    )
    assert free.multiplier == pytest.approx(alone.multiplier, rel=0.05)
    assert free.multiplier < 1


def test_a_prior_keeps_what_the_runs_say_nothing_about() -> None:
    """Runs on one node say nothing about the network; a prior that knows the value keeps it against
    few runs."""
    one_node = [c for c in suite("llm-foundry-h100") if c.plan.cluster.nodes == 1][:6]
    parameters = wide("clock", "network")
    (clock,) = fit(measured_as(one_node, parameters, {"clock": 0.85}), parameters, trust=NARROW)
    assert clock.label == "clock"
    sure = (replace(parameters[0], spread=1e-4), parameters[1])
    (kept,) = fit(measured_as(one_node, parameters, {"clock": 0.85}), sure)
    assert kept.multiplier == pytest.approx(1.0, abs=1e-3)
    assert kept.spread <= 1e-4


def test_runs_of_no_weight_have_no_part_in_a_fit() -> None:
    runs, parameters = suite("llm-foundry-h100")[::3], PLATFORM
    out = np.arange(len(runs)) % 3 == 0
    wrong = [
        replace(c, log_seconds=c.log_seconds + 2.0) if o else c
        for c, o in zip(runs, out, strict=True)
    ]
    weight = np.where(out, 0.0, 1.0)
    kept = [c for c, o in zip(runs, out, strict=True) if not o]
    assert fit(wrong, parameters, weight) == fit(runs, parameters, weight)
    for entry, other in zip(fit(runs, parameters, weight), fit(kept, parameters), strict=True):
        assert entry.multiplier == pytest.approx(other.multiplier, rel=1e-6)
    assert multipliers(fit(wrong, parameters)) != multipliers(fit(runs, parameters))


def test_a_wrong_run_weighs_less_than_its_square() -> None:
    """One run of twenty-five that took e^2 times as long moves a clock by less than a twentieth."""
    parameters = wide("clock")
    runs = measured_as(suite("llm-foundry-h100")[:25], parameters, {})
    wrong = [replace(runs[0], log_seconds=runs[0].log_seconds + 2.0), *runs[1:]]
    (clock,) = fit(wrong, parameters)
    assert 0.95 < clock.multiplier < 1


def test_a_number_needs_three_runs() -> None:
    runs, parameters = suite("llm-foundry-h100")[:3], wide("clock")
    assert fit(runs[:2], parameters) == []
    assert len(fit(runs[:2], parameters, trust=Trust(0.05, fewest=2))) == 1
    assert [v.runs for v in fit(runs, parameters)] == [3]
    assert fit([], parameters) == []
    assert fits(runs, parameters, []) == []


def test_points_evaluated_together_are_those_evaluated_alone() -> None:
    case = suite("zero-bubble")[0]
    points = [{}, {"clock": 0.9}, {"clock": 1.1, "node link": 0.7, "network": 1.3}]
    together = step_times(case, PLATFORM, points).seconds
    assert together.tolist() == [float(step_times(case, PLATFORM, [p]).seconds[0]) for p in points]
    assert together[1] > together[0]


@pytest.mark.parametrize("kind", [name for name, fold in FOLDS.items() if fold.only is None])
def test_parts_are_disjoint_and_complete(kind: str) -> None:
    for name in ("llm-foundry-h100", "zero-bubble"):
        masks = [mask for first, mask in folds_of(suite(name)) if first == kind]
        assert len(masks) != 1
        if masks:
            assert np.array(masks).sum(axis=0).tolist() == [1] * len(suite(name))


def test_what_is_held_out_is_what_the_kind_says() -> None:
    runs = suite("llm-foundry-h100")
    gpus = np.array([c.plan.cluster.gpus for c in runs])
    hidden = np.array([c.plan.model.hidden for c in runs])
    for kind, out in folds_of(runs):
        if kind == "scale":
            assert gpus[out].min() > 64 >= gpus[~out].max()
        if kind == "gpus":
            assert not set(gpus[out]) & set(gpus[~out])
        if kind == "models":
            assert len(set(hidden[out])) == 1
        if kind == "halves":
            assert 0.25 < out.mean() < 0.75
            recipes = np.array([recipe_of(c.row) for c in runs])
            assert not set(recipes[out]) & set(recipes[~out])


def test_a_platform_of_one_part_is_not_held_out() -> None:
    assert folds_of(suite("llm-foundry-h100")[:1]) == []


def predicted_seconds(document: CrossValidation, kind: str) -> list[float | None]:
    return [row.predicted_step_s[kind] for row in document.rows]


def test_held_out_predictions_do_not_depend_on_what_was_measured_there() -> None:
    """Larger runs 1.5 times as slow as they were: predictions of them from smaller ones stay, those
    of smaller ones move."""
    runs = suite("llm-foundry-h100")[::2]
    large = [c.plan.cluster.gpus > 64 for c in runs]
    other = [
        replace(c, log_seconds=c.log_seconds + np.log(1.5)) if big else c
        for c, big in zip(runs, large, strict=True)
    ]
    before, after = cross_validate(runs), cross_validate(other)
    assert predicted_seconds(before, "scale") == predicted_seconds(after, "scale")
    assert [x is not None for x in predicted_seconds(before, "scale")] == large
    assert predicted_seconds(before, "defaults") == predicted_seconds(after, "defaults")
    assert predicted_seconds(before, "halves") != predicted_seconds(after, "halves")
    assert not_none(after.kinds["scale"].all.mape) > not_none(before.kinds["scale"].all.mape)


def test_a_suite_is_predicted_without_itself() -> None:
    runs = [*suite("zero-bubble"), *suite("korthikanti-2022")]
    items = [c.row["suite"] == "korthikanti-2022" for c in runs]
    other = [
        replace(c, log_seconds=c.log_seconds + 0.3) if o else c
        for c, o in zip(runs, items, strict=True)
    ]
    before, after = without_each_suite(runs)[0], without_each_suite(other)[0]
    assert before[items].tolist() == after[items].tolist()
    assert (before[~np.array(items)] < after[~np.array(items)]).all()
    alone = without_each_suite(suite("zero-bubble"))[0]
    assert alone.tolist() == [
        float(step_times(c, (), [{}]).seconds[0]) for c in suite("zero-bubble")
    ]


def test_a_document_by_hand() -> None:
    """Measured as on a platform with a clock 10 % down: defaults are too fast, and the fit finds
    that clock."""
    runs = measured_as(suite("zero-bubble"), PLATFORM, {"clock": 0.9})
    document = cross_validate(runs, noise=0.02)
    kinds = document.kinds
    assert not_none(kinds["defaults"].all.bias) < -0.04
    mape = {name: not_none(kinds[name].all.mape) for name in ("clock", "halves", "defaults")}
    assert mape["clock"] < 0.01
    assert mape["halves"] < mape["defaults"] / 2
    (clock,) = document.clocks
    assert clock.fitted / clock.shipped == pytest.approx(0.9, rel=0.02)
    assert clock.platform == "zero-bubble/a100-sxm4-80gb/megatron-core"
    assert clock.power_law == pytest.approx(0.855, abs=0.005)
    assert kinds["defaults"].all.n == kinds["defaults"].suites["zero-bubble"].n == len(runs)


def test_the_order_of_layouts_is_judged_as_in_validation() -> None:
    """By the same ties: time the GPU is busy and collectives come from the same estimate."""
    runs = read_runs(suites=("deepspeed-a800-gist",))
    document = runs.document
    crossed = cross_validate(runs.cases, document.summary.noise.mean or 0.0)
    held_out = crossed.kinds["defaults"]
    judged = held_out.ranking
    assert plain(judged) == pytest.approx(plain(document.summary.ranking))  # sums in another order
    assert document.summary.ranking.groups
    errors = held_out.all
    time = plain(document.summary.time)
    assert {name: getattr(errors, name) for name in time} == pytest.approx(time)


def test_bands_rest_on_predictions_that_never_saw_the_suite() -> None:
    runs = read_runs(suites=("zero-bubble", "korthikanti-2022"))
    rows = runs.document.rows
    unseen = dict(
        zip((r.run_id for r in rows), without_each_suite(runs.cases)[0].tolist(), strict=True)
    )
    for row, line in zip(rows, time_rows(rows, unseen), strict=True):
        measured_s = not_none(row.measured_step_s)
        assert line["measured_over_predicted"] == measured_s / unseen[row.run_id]
        assert line["measured_over_default"] == measured_s / row.predicted_step_s
    assert bands.coverage(time_rows(rows, unseen)) != bands.coverage(time_rows(rows))


def test_rows_that_are_skipped_or_have_no_time_are_no_part_of_it(tmp_path: Path) -> None:
    good = read_all((), ("korthikanti-2022",))
    bad = [
        {**good[0], "outcome": "slow"},
        {**good[1], "peak_memory_gib": "much"},
        {**good[2], "outcome": "oom"},
        {**good[3], "step_s": ""},
        {**good[4], "gpu": "no-such-gpu"},
        {**good[5], "dp": "7"},
    ]
    table = tmp_path / "runs.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, list(good[0]))
        lines.writeheader()
        lines.writerows([bad[0], *good[:2], *bad[1:], *good[2:]])
    runs = read_runs((table,))
    crossed = cross_validate(runs.cases)
    assert [r.run_id for r in crossed.rows] == [r["run_id"] for r in good]
    predicted = {run.run_id: run.predicted_step_s for run in runs.document.rows}
    for row in crossed.rows:  # without another suite, by the shipped numbers
        assert row.predicted_step_s["suites"] == pytest.approx(predicted[row.run_id])


def test_studies_of_tables_without_a_time_have_empty_tables(tmp_path: Path) -> None:
    (first, *_) = read_all((), ("korthikanti-2022",))
    table = tmp_path / "runs.csv"
    with table.open("w", encoding="utf-8", newline="") as file:
        lines = csv.DictWriter(file, list(first))
        lines.writeheader()
        lines.writerow({**first, "step_s": "", "outcome": "oom"})
    runs = read_runs((table,))
    assert (runs.cases, ablations(runs.complete)) == ([], [])
    (only,) = bands.blocks(bands.coverage(time_rows(runs.document.rows)))
    assert only.text == ["no run with a time"]
    assert crossval.blocks(cross_validate(runs.cases), None)[0].rows
    assert not worth.block(worth.worths(runs.complete)).rows
    assert chances.block(chances.coverage(runs.document.rows)).rows


def test_every_shared_number_rests_on_three_runs_and_on_no_unexplained_bound() -> None:
    """As the page of the fit on all runs says, which is made again whenever a run or a model is."""
    lines = PAGE.read_text(encoding="utf-8").partition("# Fitted numbers")[2].splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    table = itertools.takewhile(lambda row: row[0] != "platform", cells)
    head, _, *rows = table
    numbers = [dict(zip(head, row, strict=True)) for row in rows]
    assert len(numbers) > 15
    for number in numbers:
        low, high = map(float, number["bounds"].split(" .. "))
        assert low <= float(number["factor"]) <= high, number
        assert int(number["runs"].replace(",", "")) >= 3, number
        assert number["on a bound"] != "not explained", number


def test_runs_make_no_number_less_sure_than_its_prior() -> None:
    runs = suite("korthikanti-2022") + suite("zero-bubble")
    values = fit(runs, SHARED, suite_weights(runs), ACROSS)
    assert values
    assert {v.label for v in values} <= {label for case in runs for label in labels(case, SHARED)}
    for v in values:
        assert v.parameter.low <= v.multiplier <= v.parameter.high
        assert v.spread <= v.parameter.spread * (1 + 1e-9), v.label
