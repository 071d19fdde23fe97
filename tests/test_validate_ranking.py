"""Order of layouts among measured runs: groups, correlation, picks and ties, by hand."""

from __future__ import annotations

from typing import Any

import pytest
from run_tables import entry, row

from planner.specs.document import plain
from planner.studies.documents.validate import Group, Noise, Ranking
from planner.studies.validate.errors import summarise
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.ranking import groups_of, ranked


def ranking(*pairs: tuple[float, float], **changes: Any) -> Ranking:
    runs = [entry(p, m, layout=f"{i}", **changes) for i, (p, m) in enumerate(pairs)]
    return summarise(runs).ranking


def test_perfect_and_reversed_order() -> None:
    up = [(float(i), float(i)) for i in range(1, 6)]
    assert plain(ranking(*up)) == {
        "groups": 1,
        "spearman": pytest.approx(1),
        "pick_regret_mean": 0,
        "pick_regret_max": 0,
        "ties": 0,
    }
    down = ranking(*[(p, 6 - m) for p, m in up])
    assert down.spearman == pytest.approx(-1)
    assert down.pick_regret_max == pytest.approx(4)  # takes the 5 s layout where 1 s was possible


def test_spearman_with_ties_by_hand() -> None:
    """Predicted 1 2 2 4 5 has ranks 1, 2.5, 2.5, 4, 5; measured 1 3 2 2 5 has 1, 4, 2.5, 2.5, 5.
    Covariance (-2)(-2) + (-.5)(1) + (-.5)(-.5) + (1)(-.5) + (2)(2) = 7.25; both variances 9.5: 7.25
    / 9.5."""
    result = ranking((1, 1), (2, 3), (2, 2), (4, 2), (5, 5))
    assert result.spearman == pytest.approx(7.25 / 9.5)


def test_pick_regret_by_hand() -> None:
    """The layout predicted fastest took 1.2 s, the fastest one 1.0 s."""
    result = ranking((2, 1.0), (1, 1.2), (3, 2.0), (4, 1.5), (5, 3.0))
    assert result.pick_regret_mean == pytest.approx(0.2)
    two = [
        entry(p, m, layout=f"{i}", group=g)
        for g, measured in (("g", (1.0, 1.2, 2.0, 1.5, 3.0)), ("h", (1.0, 2.0, 3.0, 4.0, 5.0)))
        for i, (p, m) in enumerate(zip((2, 1, 3, 4, 5), measured, strict=True))
    ]
    both = summarise(two).ranking
    assert both.groups == 2
    assert both.pick_regret_mean == pytest.approx((0.2 + 1.0) / 2)
    assert both.pick_regret_max == pytest.approx(1.0)


def test_no_order_at_all_correlates_with_nothing() -> None:
    assert ranking(*[(1.0, float(m)) for m in range(1, 6)]).spearman == 0


def test_a_group_needs_five_layouts() -> None:
    none = Ranking(groups=0, spearman=None, pick_regret_mean=None, pick_regret_max=None, ties=0)
    assert ranking((1, 1), (2, 2), (3, 3), (4, 4)) == none
    same = [entry(float(i), float(i), layout="one") for i in range(1, 9)]
    assert summarise(same).ranking == none


def test_groups_are_rows_that_differ_only_in_layout() -> None:
    rows = [
        row(run_id=f"a{t}{m}", tp=t, dp=8 // t, micro_batch=m, step_s=1 + t / 10 + m / 100)
        for t in (1, 2, 4)
        for m in (1, 2)
    ]
    elsewhere = [dict(r, run_id=f"b{i}", seq_len="1024") for i, r in enumerate(rows)]
    release = [dict(r, run_id=f"c{i}", options="release=2") for i, r in enumerate(rows)]
    kernels = [dict(r, run_id=f"d{i}", options="selective=per_op") for i, r in enumerate(rows)]
    assert validate_rows(rows).summary.ranking.groups == 1
    assert validate_rows(rows + elsewhere).summary.ranking.groups == 2
    assert validate_rows(rows + release).summary.ranking.groups == 2
    assert validate_rows(rows + kernels).summary.ranking.groups == 1  # what is recomputed is layout
    failed = [dict(r, step_s="", outcome="oom") for r in rows[:2]]
    assert validate_rows(rows[2:] + failed).summary.ranking.groups == 0


def test_noise_floor_by_hand() -> None:
    """One recipe measured as 1.0, 1.1 and 1.5 s (median 1.1), another as 2 and 4 s (median 3), a
    third once."""
    rows = [row(run_id=f"a{s}", source="x", step_s=s) for s in (1.0, 1.1, 1.5)]
    rows += [row(run_id=f"b{s}", seq_len=1024, step_s=s) for s in (2, 4)]
    rows += [row(run_id="c", seq_len=512, step_s=9), row(run_id="d", seq_len=1024, outcome="oom")]
    out = validate_rows(rows)
    deviations = [r.repeat_deviation for r in out.rows]
    assert deviations[:5] == pytest.approx([1 / 1.1 - 1, 0, 1.5 / 1.1 - 1, 2 / 3 - 1, 4 / 3 - 1])
    assert deviations[5:] == [None, None]
    noise = out.summary.noise
    expected = [1 - 1 / 1.1, 0, 1.5 / 1.1 - 1, 1 / 3, 1 / 3]
    assert (noise.n, noise.mean) == (5, pytest.approx(sum(expected) / 5))
    assert (noise.median, noise.worst) == (pytest.approx(1 / 3), pytest.approx(1.5 / 1.1 - 1))
    assert out.suites["small"].noise == noise


@pytest.mark.parametrize(
    "changes",
    [{"options": "release=2"}, {"vocab": 50257}, {"micro_batch": 2}, {"inter_node": "ib-hdr"}],
)
def test_runs_of_different_recipes_are_no_repeats(changes: dict[str, Any]) -> None:
    out = validate_rows(
        [
            row(run_id="a", step_s=1, inter_node=""),
            row(run_id="b", step_s=2, **{"inter_node": "", **changes}),
        ]
    )
    assert len(out.rows) == 2
    assert out.summary.noise == Noise(n=0, mean=None, median=None, worst=None)


def groups(*pairs: tuple[float, float], noise: float = 0.0) -> list[Group]:
    runs = [entry(p, m, layout=f"{i}", run_id=f"r{i}") for i, (p, m) in enumerate(pairs)]
    return groups_of(ranked(runs), noise)


def test_a_group_names_pick_best_and_ties() -> None:
    """The pick of 1.00 s took 1.2; 1.02 and 1.03 lie within a noise floor of 3.5 % of it, and the
    worst of them took 2.0."""
    (group,) = groups((2, 1.0), (1.0, 1.2), (1.02, 2.0), (1.03, 1.5), (1.04, 3.0), noise=0.035)
    assert (group.pick.run_id, group.best.run_id) == ("r1", "r0")
    assert group.pick_regret == pytest.approx(0.2)
    assert (group.ties, group.worst_tie_regret) == (2, pytest.approx(1.0))
    assert (group.runs, group.layouts) == (5, 5)
    (alone,) = groups((2, 1.0), (1.0, 1.2), (1.02, 2.0), (1.03, 1.5), (1.04, 3.0))
    assert (alone.ties, alone.worst_tie_regret) == (0, pytest.approx(0.2))


def test_equal_predictions_are_decided_by_busy_time_and_collectives() -> None:
    tied = [
        entry(1.0, 2.0, layout="a", run_id="a", gpu_busy_s=0.9, collectives=5),
        entry(1.0, 3.0, layout="b", run_id="b", gpu_busy_s=0.8, collectives=7),
        entry(1.0, 1.0, layout="c", run_id="c", gpu_busy_s=0.8, collectives=6),
        entry(1.1, 4.0, layout="d", run_id="d", gpu_busy_s=0.1, collectives=1),
        entry(1.2, 5.0, layout="e", run_id="e", gpu_busy_s=0.1, collectives=1),
    ]
    for order in (tied, tied[::-1]):
        (group,) = groups_of(ranked(order))
        assert group.pick.run_id == "c"
        assert group.ties == 2


def test_the_worst_group_comes_first() -> None:
    good = [entry(float(i), float(i), layout=f"{i}", group="good") for i in range(1, 6)]
    bad = [entry(float(i), 7.0 - i, layout=f"{i}", group="bad") for i in range(1, 6)]
    assert [g.group for g in groups_of(ranked(good + bad))] == ["bad", "good"]


def test_offload_is_layout_and_the_cluster_is_not() -> None:
    rows = [row(run_id=f"a{m}", micro_batch=m, step_s=m, optimizer_offload=0) for m in (1, 2, 4, 8)]
    document = validate_rows(
        [*rows, row(run_id="b", step_s=3, optimizer_offload=1, stack="deepspeed", zero=2)]
    )
    assert document.summary.ranking.groups == 0  # another stack
    same = [dict(r, stack="deepspeed", zero="2") for r in rows]
    offloaded = row(run_id="b", step_s=3, optimizer_offload=1, stack="deepspeed", zero=2)
    assert validate_rows([*same, offloaded]).summary.ranking.groups == 1
    elsewhere = dict(offloaded, intra_node="nvlink2")
    assert (
        validate_rows([*(dict(r, intra_node="") for r in same), elsewhere]).summary.ranking.groups
        == 0
    )
