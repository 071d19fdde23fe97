"""The chance to fit: its distribution from measured peaks and runs that ran or failed, and what a
search makes of it."""

from __future__ import annotations

import csv
import math
import shlex
from typing import Any

import numpy as np
import plans
import pytest
from command import dpplan, refused
from not_none import not_none

from benchmarks.studies.chances import coverage
from benchmarks.studies.residuals import memory_rows
from planner import api
from planner.estimate.ties import AMPLE, TIE, fastest
from planner.evidence import memory as evidence
from planner.evidence.memory import Case, chance_within, needed_room, observed, shares
from planner.search import Wanted, best, fastest_that_fits, ranked, search
from planner.search.choose import ENOUGH, LITTLE, NONE, choice
from planner.search.room import fit_chance, room
from planner.specs.base import PlanError
from planner.specs.layout import LayoutRequest
from planner.studies.validate.files import read_all
from planner.studies.validate.predict import validate_rows

CASE = Case("k", "g", 0, sharded=False, pipeline=False, offload=False, experts=False)


def runs_with(
    relation: str, *ratios: float, suite: str = "a", stack: str = "k"
) -> list[dict[str, str]]:
    """Runs like CASE that say this of their need over the predicted one."""
    return [
        {
            "suite": suite,
            "stack": stack,
            "gpu": "g",
            "experts": "0",
            "relation": relation,
            "need_over_predicted": str(ratio),
            "least_over_predicted": str(ratio),
            "recompute": "none",
            "sharded": "0",
            "pipeline": "0",
            "offload": "0",
            "adapters": "0",
            "quantised": "0",
        }
        for ratio in ratios
    ]


def of(*rows: dict[str, str]) -> np.ndarray:
    return shares(observed(rows), [CASE])[0]


def test_without_runs_the_chance_is_even_and_wide() -> None:
    nothing = of()
    assert chance_within(nothing, np.array(0.0)) == pytest.approx(0.5, abs=0.02)
    assert needed_room(nothing, 0.95) > 1.2
    assert chance_within(nothing, np.array([-3.0, 3.0])).tolist() == [0, 1]


def test_measured_peaks_move_and_narrow_it() -> None:
    many = [row for i in range(40) for row in runs_with("=", 1.1, suite=f"s{i}")]
    result = of(*many)
    assert needed_room(result, 0.5) == pytest.approx(1.1, rel=0.02)
    assert needed_room(result, 0.95) < needed_room(of(*many[:4]), 0.95) < needed_room(of(), 0.95)
    # forty runs of one suite say less than one each of forty suites
    assert needed_room(of(*runs_with("=", *[1.1] * 40)), 0.95) > needed_room(result, 0.95)


def test_runs_of_other_stacks_count_less() -> None:
    ours, other = (
        of(*(row for i in range(10) for row in runs_with("=", 1.1, suite=f"s{i}", stack=stack)))
        for stack in ("k", "another")
    )
    assert needed_room(ours, 0.95) < needed_room(other, 0.95)


def test_that_it_ran_or_failed_counts() -> None:
    at = np.array(math.log(1.05))
    plain = chance_within(of(), at)
    ran = [row for i in range(5) for row in runs_with("<", 1.05, suite=f"s{i}")]
    failed = [row for i in range(5) for row in runs_with(">", 1.05, suite=f"s{i}")]
    assert chance_within(of(*ran), at) > plain > chance_within(of(*failed), at)
    # what ran with ten times the need says nothing of a need near the prediction
    far = [row for i in range(5) for row in runs_with("<", 10.0, suite=f"s{i}")]
    assert needed_room(of(*far), 0.95) == pytest.approx(needed_room(of(), 0.95), rel=0.05)


def test_half_failures_at_one_place_halve_the_chance_there() -> None:
    """Self-consistency by hand: with many trials at one bound the chance there is the share that
    ran."""
    rows = [row for i in range(150) for row in runs_with("<", 1.2, suite=f"r{i}")]
    rows += [row for i in range(50) for row in runs_with(">", 1.2, suite=f"f{i}")]
    assert chance_within(of(*rows), np.array(math.log(1.2))) == pytest.approx(0.75, abs=0.02)


def test_the_chance_falls_with_need_and_rises_with_capacity() -> None:
    p = plans.plan(plans.model(), gpus=8)
    need = np.linspace(0.3, 3, 200) * p.usable_bytes
    kinds = np.zeros(len(need), dtype=np.int8)
    chances = evidence.fit_chances(p, kinds, need)
    assert np.all(np.diff(chances) <= 0)
    assert chances[0] > evidence.WANTED > evidence.NEVER > chances[-1]
    limit = evidence.limits(p)[0]
    assert evidence.fit_chances(p, kinds[:1], np.array([limit]))[0] == pytest.approx(0.95, abs=1e-6)
    assert np.all(evidence.limits(p, 0.99) <= evidence.limits(p))
    assert np.all(evidence.limits(p) <= evidence.limits(p, 0.5))


@pytest.mark.parametrize(
    ("fits", "chance", "words"),
    [
        (True, 0.97, "fits"),
        (True, 0.6, "may not fit"),
        (False, 0.4, "probably does not fit"),
        (False, 0.01, "does not fit"),
    ],
)
def test_the_verdict_carries_the_chance(fits: bool, chance: float, words: str) -> None:
    assert evidence.verdict(fits, chance) == words


def test_ties_prefer_room_up_to_ample() -> None:
    seconds = np.array([1.0, 1 + TIE / 2, 1 + TIE / 3, 2.0])
    repeated, device = np.zeros(4), np.array([4.0, 3.0, 2.0, 1.0])
    chances = np.array([0.95, 0.98, 0.96, 1.0])
    assert fastest(seconds, repeated, device) == 0
    assert fastest(seconds, repeated, device, chances) == 1
    # among ample ones the fastest
    assert fastest(seconds, repeated, device, np.array([0.95, 0.9999, AMPLE, 1.0])) == 2
    # work done once comes before room
    assert fastest(seconds, np.array([0.0, 0.1, 0.1, 0]), device, chances) == 0


@pytest.fixture(scope="module")
def tight() -> plans.Plan:
    """About 10e9 parameters on eight GPUs: some layouts fit, some do not."""
    model = plans.model(
        layers=32, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn_hidden=13824
    )
    return plans.plan(model, seq_len=4096)


WHOLE = Wanted(whole=True)


def asking(p: plans.Plan, **request: Any) -> plans.Plan:
    return p.model_copy(update={"request": LayoutRequest(**request)})


def test_the_layout_taken_has_the_wanted_chance(tight: plans.Plan) -> None:
    estimates = search(tight).estimates
    assert estimates is not None
    taken, row = choice(estimates), best(estimates)
    assert taken.rank[0] == ENOUGH
    assert taken.row == row
    chances = fit_chance(estimates, np.flatnonzero(estimates.fits))
    assert fit_chance(estimates, np.array([row]))[0] >= evidence.WANTED > chances.min()
    enough = np.flatnonzero(estimates.fits)[chances >= evidence.WANTED]
    assert estimates.time.seconds[row] <= estimates.time.seconds[enough].min() * (1 + TIE)
    # the list goes on with what leaves too little, the likeliest first
    rows = ranked(estimates, len(estimates.table))
    listed = fit_chance(estimates, rows)
    few = np.flatnonzero(listed < evidence.WANTED)
    assert len(few)
    assert np.all(listed[: few[0]] >= evidence.WANTED)
    assert np.all(np.diff(listed[few[0] :]) <= 0)


def test_headroom_zero_takes_the_fastest_that_is_expected_to_fit(tight: plans.Plan) -> None:
    plain = search(asking(tight, headroom=0.0)).estimates
    assert plain is not None
    assert best(plain) == fastest_that_fits(plain)
    assert plain.time.seconds[best(plain)] <= plain.time.seconds[plain.fits].min() * (1 + TIE)


@pytest.mark.parametrize("free", [0.1, 0.4])
def test_headroom_is_left_free(tight: plans.Plan, free: float) -> None:
    estimates = search(asking(tight, headroom=free)).estimates
    assert estimates is not None
    assert estimates.memory.device[best(estimates)] <= tight.usable_bytes * (1 - free)
    searched = search(asking(tight, where=(f"headroom >= {100 * free:g}%",)), wanted=WHOLE)
    # a condition that all satisfy: the same layouts are looked at, and none left out by a bound
    estimates = search(asking(tight, where=("tp >= 1",)), wanted=WHOLE).estimates
    assert searched.estimates is not None
    assert estimates is not None
    assert np.all(searched.estimates.memory.device <= tight.usable_bytes * (1 - free))
    assert sum(searched.rejected.values()) + searched.estimates.space.count == searched.enumerated
    assert searched.rejected[f"where headroom >= {100 * free:g}%"] == int(
        (estimates.memory.device > tight.usable_bytes * (1 - free)).sum()
    )


def test_where_none_leaves_enough_the_likeliest_is_taken(tight: plans.Plan) -> None:
    most = search(asking(tight, headroom=0.9)).estimates
    assert most is not None
    taken = choice(most)
    assert taken.rank[0] == LITTLE
    assert taken.fits
    assert most.memory.device[taken.row] == most.memory.device[most.fits].min()
    some = np.flatnonzero(most.fits)
    share = room(most, some).how_much(np.arange(len(some)))
    assert taken.rank[1] == pytest.approx(-share.max())
    none = choice(most, np.flatnonzero(~most.fits))
    assert none.rank[0] == NONE
    assert not none.fits


def test_an_estimate_says_what_speed_would_cost_in_risk() -> None:
    values = {"model": "llama-3-8b", "gpu": "l40s", "gpus": 4}
    sure = api.estimate(api.read_options(values), brief=True)
    assert sure.memory.verdict == "fits"
    assert sure.memory.fit_chance >= evidence.WANTED
    assert sure.tighter is not None
    assert sure.tighter.fit_chance < sure.memory.fit_chance
    again = api.estimate(api.read_options({**values, "headroom": "0%"}), brief=True)
    assert again.layout == sure.tighter.layout
    assert again.tighter is None
    assert again.step.seconds == pytest.approx(
        sure.step.seconds * (1 - sure.tighter.faster_frac), rel=1e-6
    )


def test_a_layout_that_may_not_fit_is_told_what_gives_it_room() -> None:
    words = (
        "--model llama-3.1-8b --gpu h100 --gpus 8 --tp 1 --pp 2 --cp 1 --zero 1 --recompute none"
    )
    words += " --stack-defaults"  # options of the stack make room too
    answer = dpplan("estimate", *words.split(), "--micro-batch", "1")
    assert answer.status == 0  # it is expected to fit
    assert "May not fit (chance to fit " in answer.stdout
    first = dpplan("estimate", *words.split(), "--micro-batch", "1", "--json").json()["advice"][0]
    again = dpplan("estimate", *shlex.split(first["command"])[2:], "--json").json()
    assert again["memory"]["verdict"] == "fits"


@pytest.mark.parametrize(
    "text", ["headroom = 5%", "headroom > 5", "headroom > wide", "headroom in 5%,6%"]
)
def test_conditions_on_headroom_that_say_nothing_are_refused(text: str) -> None:
    with pytest.raises(PlanError, match="headroom"):
        api.read_options({"model": "gpt2", "gpus": 1, "where": [text]})


def test_headroom_beyond_a_share_is_refused() -> None:
    words = "--model gpt2 --gpu h100 --gpus 1 --headroom 120%"
    refused(dpplan("estimate", *words.split()), "--headroom", "0.9")


def test_what_ships_is_what_the_shipped_runs_say() -> None:
    """Some suites give the lines of the file that ships; a change of memory rewrites it."""
    suites = ("torchtitan", "megatron-bridge", "bigscience-v100")
    fresh = {row["run_id"]: row for row in memory_rows(validate_rows(read_all((), suites)).rows)}
    with evidence.OBSERVED.open(encoding="utf-8", newline="") as file:
        shipped = {r["run_id"]: r for r in csv.DictReader(file) if r["suite"] in suites}
    assert fresh.keys() == shipped.keys()
    assert fresh
    for name, row in fresh.items():
        assert shipped[name]["relation"] == row["relation"]
        assert float(shipped[name]["need_over_predicted"]) == pytest.approx(
            row["need_over_predicted"], abs=1e-3
        ), f"{name}: run python -m benchmarks.studies.residuals"


def test_chances_of_unseen_suites_are_scored() -> None:
    rows = validate_rows(read_all((), ("torchtitan", "bigscience-a100"))).rows
    document = coverage(rows)
    assert document.n == sum(row.need is not None for row in rows)
    assert sum(line.n for line in document.reliability) == document.n
    assert document.peaks == 54
    assert 0.8 <= not_none(document.below_frac) <= 1
    for line in document.reliability:
        assert line.n == 0 or not_none(line.low) <= not_none(line.mean_chance) <= not_none(
            line.high
        )
