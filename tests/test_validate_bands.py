"""What single mechanisms are worth, and the bands that measured runs give an answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from run_tables import entry, row

from planner.estimate.machine import SWITCHES, machine
from planner.evidence.band import Case, band_of, recorded, residuals
from planner.specs.columns import Columns
from planner.specs.document import changed
from planner.verbs.validate.ablation import MECHANISMS, ablations, with_each_off
from planner.verbs.validate.bands import coverage
from planner.verbs.validate.files import read_all
from planner.verbs.validate.plans import row_plan
from planner.verbs.validate.predict import predict, validate_rows


def test_every_mechanism_acts_somewhere_and_the_base_is_the_prediction() -> None:
    rows = [r for r in read_all([]) if r["step_s"]]
    chosen = [
        r
        for i, r in enumerate(rows)
        if i % 40 == 0
        or "fp8_recipe=rowwise" in r["options"]
        or int(r["ep"] or 1) > 8
        or r["suite"] == "narayanan-2021"
    ] + [row(gpu="h100-sxm5-80gb", tp=8, dp=1, sequence_parallel=0)]
    seen = {m.name: 0.0 for m in MECHANISMS}
    for r in chosen:
        plan, layout = row_plan(r)
        times = with_each_off(plan, Columns.of([layout], plan.cluster.gpus))[:, 0]
        assert times[0] == pytest.approx(float(predict(r).time.seconds[0]), rel=1e-12)
        for mechanism, off in zip(MECHANISMS, times[1:], strict=True):
            seen[mechanism.name] = max(seen[mechanism.name], abs(off / times[0] - 1))
    assert len(seen) == len(MECHANISMS)
    assert [name for name, change in seen.items() if change < 1e-4] == []


def test_switches_are_those_that_some_mechanism_uses() -> None:
    plan, _ = row_plan(row())
    base = machine(plan)
    used = {switch for m in MECHANISMS if m.off for switch in m.off(base).without}
    assert used == set(SWITCHES)
    assert "without" not in base.names()


def test_an_ablation_by_hand() -> None:
    """Without the step overhead a prediction is shorter by that time; errors before and after
    follow."""
    given = row(step_s=2, run_id="a")
    seconds = float(predict(given).time.seconds[0])
    overhead = float(machine(row_plan(given)[0]).step_overhead)
    rows = [
        given,
        row(run_id="b", step_s=1),
        row(run_id="c", step_s=4),
        row(run_id="d"),
        row(run_id="e", tp=3, step_s=1),
    ]
    (line,) = [x for x in ablations(rows) if x.mechanism == "step overhead"]
    assert line.mape_before == pytest.approx(sum(abs(seconds / s - 1) for s in (1, 2, 4)) / 3)
    assert line.mape_after == pytest.approx(
        sum(abs((seconds - overhead) / s - 1) for s in (1, 2, 4)) / 3
    )
    assert line.acts.n == 3
    assert (line.most.suite, line.most.n) == ("small", 3)
    assert ablations([row()]) == []


def runs_like(*ratios: float, **changes: Any) -> list[dict[str, Any]]:
    one = {"gpu": "g", "stack": "k", "gpus": 8, "parameters": 1e9} | changes
    return [
        {"run_id": f"s-{i}", "measured_over_predicted": ratio, **one}
        for i, ratio in enumerate(ratios)
    ]


CASE = Case("g", "k", 8, 1e9)
SPREAD = (0.9, 0.95, 0.98, 1.0, 1.02, 1.05, 1.1, 1.15)


def test_a_band_holds_the_expected_time_and_widens_away_from_the_evidence() -> None:
    ratios = np.linspace(0.8, 1.25, 46)
    many = [r for s in "abcdefgh" for r in runs_like(*ratios, suite=s)]
    near = band_of(residuals(many), CASE)
    assert near.low < 1 < near.high
    assert near.runs == 368
    assert near.basis.startswith("368 validated runs on g with k, median error ")
    few = band_of(residuals(runs_like(*ratios, suite="a")), CASE)
    assert few.low < near.low
    assert few.high > near.high
    larger = band_of(residuals(many), Case("g", "k", 64, 1e9))
    assert larger.low < near.low
    assert larger.high > near.high
    assert "none on more than 8 GPUs" in larger.basis


def test_runs_more_alike_weigh_more() -> None:
    wide = [
        r
        for s in "abcdefgh"
        for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, gpu="other", stack="other")
    ]
    narrow = [r for s in "ijkl" for r in runs_like(*SPREAD, suite=s)]
    here, there = (
        band_of(residuals(wide + narrow), CASE),
        band_of(residuals(wide + narrow), Case("other", "other", 8, 1e9)),
    )
    assert there.low < here.low
    assert there.high > here.high
    size = [r for s in "abcd" for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, parameters=1e12)]
    small, large = (
        band_of(residuals(size + narrow), CASE),
        band_of(residuals(size + narrow), Case("g", "k", 8, 1e12)),
    )
    assert small.high < large.high


def test_dense_runs_say_little_about_mixtures_of_experts() -> None:
    dense = [r for s in "abcdefgh" for r in runs_like(*SPREAD, suite=s)]
    sparse = [r for s in "ijkl" for r in runs_like(0.6, 0.8, 1.2, 1.5, suite=s, experts=8)]
    one, other = (
        band_of(residuals(dense + sparse), CASE),
        band_of(residuals(dense + sparse), Case("g", "k", 8, 1e9, True)),
    )
    assert other.low < one.low
    assert other.high > one.high


def test_a_large_suite_does_not_drown_the_others() -> None:
    """300 runs of one suite that are 20 % slow, and 8 suites of 8 that are right: the band follows
    the suites."""
    right = [r for s in "abcdefgh" for r in runs_like(*SPREAD, suite=s)]
    alone = band_of(residuals(right), CASE)
    joined = band_of(residuals(right + runs_like(*[1.2] * 300, suite="z")), CASE)
    assert joined.low < 0.96  # a pooled 10 % quantile would be above 1
    assert joined.high >= alone.high


@pytest.mark.parametrize(
    ("case", "said", "runs"),
    [
        (Case("g", "k", 8, 1e9), "8 validated runs on g with k, median error", 8),
        (Case("g", "z", 8, 1e9), "8 validated runs on g, other stacks, median error", 8),
        (
            Case("z", "k", 8, 1e9),
            "no validated run on z; 8 validated runs with k on other GPUs, median error",
            8,
        ),
        (
            Case("z", "z", 8, 1e9),
            "no validated run on z or with z; 8 validated runs on other GPUs, median error",
            0,
        ),
    ],
)
def test_a_band_says_what_it_rests_on(case: Case, said: str, runs: int) -> None:
    found = band_of(residuals(runs_like(*SPREAD)), case)
    assert found.basis.startswith(said)
    assert found.runs == runs
    nothing = band_of(residuals([]), case)
    assert (nothing.low, nothing.high, nothing.runs) == (0.7, 1.3, 0)
    assert nothing.basis == "no validated run: +-30%, assumed"


def test_coverage_by_hand() -> None:
    """Two suites alike hold each other's runs; a third that is off lies outside the bands the two
    give."""
    rows = [row(run_id=f"{s}-{i}", suite=s) for s in "abc" for i in range(len(SPREAD))]
    done = [
        changed(
            run,
            measured_step_s=run.predicted_step_s
            * SPREAD[i % len(SPREAD)]
            * (3 if run.suite == "c" else 1),
        )
        for i, run in enumerate(validate_rows(rows).rows)
    ]
    found = coverage(done)
    a, b, c = (found.suites[name] for name in "abc")
    assert c.inside == 0
    assert a == b
    assert a.inside_frac >= 0.6
    assert found.all.n == 24
    assert found.all.inside == sum(line.inside for line in found.suites.values())
    assert found.evidence == {"same GPU and software": found.all}
    assert c.score > a.score
    assert coverage([run for run in done if run.suite == "a"]).mean_of_suites is None


def test_bands_hold_what_they_promise_on_suites_they_never_saw() -> None:
    """Over the recorded residuals: about 80 % of runs and on average over suites, and sharper than
    one band for all."""
    runs = recorded()
    found = coverage(
        entry(
            1.0,
            float(np.exp(runs.log_ratio[i])),
            suite=str(runs.suite[i]),
            gpu=str(runs.gpu[i]),
            stack=str(runs.stack[i]),
            gpus=int(runs.gpus[i]),
            parameters=runs.parameters[i],
            experts=runs.experts[i],
        )
        for i in range(len(runs))
    )
    assert 0.72 <= found.all.inside_frac <= 0.88
    assert 0.72 <= found.mean_of_suites <= 0.90
    size = np.abs(runs.log_ratio)
    half = np.array(
        [np.quantile(size[runs.suite != suite], 0.8) for suite in runs.suite]
    )  # one band, from all other suites
    pooled = 2 * half + 10 * np.maximum(size - half, 0)
    assert found.all.score < float(pooled.mean()), "one band for all would do better"
