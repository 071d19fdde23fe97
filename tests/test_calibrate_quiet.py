"""Which samples are a measurement: quiet moments, repeats that agree, and what becomes of the
others."""

from __future__ import annotations

from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_records import SESSION, node_records, raw

from planner.calibrate import cases, finish, measure, overhead, quiet, record, text
from planner.calibrate.cases import Case
from planner.calibrate.quiet import AGREE, Probe, Sample
from planner.calibrate.record import PROMPT
from planner.specs.document import plain

USUAL_S = 0.010


def at_rest(*seconds: float) -> list[Sample]:
    """Samples between two probes of the usual speed."""
    return [Sample(s, USUAL_S, USUAL_S) for s in seconds]


def test_quiet_samples_decide_and_disturbed_ones_are_scaled() -> None:
    mixed = [Sample(1.0, 0.010, 0.010), Sample(1.1, 0.0101, 0.010), Sample(5.0, 0.010, 0.050)]
    value = quiet.value_of(mixed, USUAL_S)
    assert value.quiet
    assert value.seconds == pytest.approx(
        (1.0 + 1.1 * 0.010 / 0.01005) / 2
    )  # each at the speed of its own probes
    assert (value.kept, value.tried) == (2, 3)
    scaled = quiet.value_of(
        [Sample(2.0, 0.020, 0.020), Sample(3.0, 0.020, 0.040), Sample(4.0, 0.040, 0.040)], USUAL_S
    )
    assert not scaled.quiet
    assert scaled.seconds == pytest.approx(1.0)
    assert "fewer than two" in scaled.why


@pytest.mark.parametrize(
    ("seconds", "value", "why"),
    [
        ((0.37, 0.37, 0.38, 3.92), 0.37, ""),  # one slow repeat of four is left out
        ((0.37, 7.47), None, "2 repeats have two speeds: 370 ms .. 7.47 s"),  # middle: 3.92
        ((0.37, 0.37, 3.92, 3.92), None, "two speeds"),
        ((0.37, 0.38, 3.92), None, "two speeds"),  # two are not a clear majority
        ((0.37, 3.92, 3.92, 3.92), None, "much faster"),  # the machine can do better
        ((0.30, 0.33, 0.37, 0.42, 0.47, 0.53), None, "disagree"),  # all over the place
        ((0.37,), None, "fewer than two"),
    ],
)
def test_what_disagrees_with_its_repeats_is_not_quiet(
    seconds: tuple[float, ...], value: float | None, why: str
) -> None:
    result = quiet.value_of(at_rest(*seconds), USUAL_S)
    assert result.quiet == (value is not None)
    assert why in result.why
    if value is not None:
        assert result.seconds == pytest.approx(value)
        assert result.kept == len(seconds) - 1


@given(
    st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(5e-3, 2e-2)), min_size=1, max_size=30),
    st.sampled_from([0.5, PROMPT]),
)
def test_what_is_called_quiet_agrees(samples: list[tuple[float, float]], share: float) -> None:
    every = [Sample(s, p, p) for s, p in samples]
    value = quiet.value_of(every, USUAL_S, share)
    near = sorted(s * USUAL_S / p for s, p in samples if quiet.is_usual(p, USUAL_S))
    assert value.tried == len(samples)
    assert value.kept == quiet.agreed(every, USUAL_S, share)
    if not value.quiet:
        assert value.why
        assert value.kept == 0
        return
    assert value.kept >= max(2.0, 0.5 * 2 * share * len(near))
    half = near[: max(2, ceil(2 * share * len(near)))]
    assert half[0] <= value.seconds <= half[-1]
    assert not quiet._two_speeds(half)


@pytest.mark.parametrize("slow_frac", [0.0, 0.1, 0.2])
def test_a_few_slow_repeats_move_nothing(slow_frac: float) -> None:
    """Noise of 3 %, and slow moments that probes did not see."""
    random = np.random.default_rng(5)
    for _ in range(50):
        times = np.exp(0.03 * random.standard_normal(12))
        slow = round(slow_frac * times.size)
        times[:slow] *= random.uniform(1.5, 10, slow)
        value = quiet.value_of(at_rest(*times), USUAL_S)
        assert value.quiet, value
        assert value.seconds == pytest.approx(1.0, abs=0.04)
        assert value.kept == times.size - slow


def test_half_slow_repeats_are_never_quiet() -> None:
    random = np.random.default_rng(6)
    for _ in range(50):
        times = np.exp(0.03 * random.standard_normal(12))
        times[:6] *= random.uniform(1.5, 10)
        assert not quiet.value_of(at_rest(*times), USUAL_S).quiet


def test_wide_noise_of_one_speed_needs_more_repeats() -> None:
    """Steps of ranks that wait for each other differ by 20 %: four leave the middle open, twenty do
    not, and then the middle is near."""
    random = np.random.default_rng(8)
    few, many = [], []
    for _ in range(50):
        times = np.exp(0.2 * random.standard_normal(24))
        few.append(quiet.value_of(at_rest(*times[:4]), USUAL_S).quiet)
        value = quiet.value_of(at_rest(*times), USUAL_S)
        many.append(value.quiet)
        assert not value.quiet or value.seconds == pytest.approx(1.0, abs=0.2)
    assert sum(few) < 35
    assert sum(many) > 40


def test_messages_may_wait_for_a_turn_now_and_then() -> None:
    """A third waited for a time slice; the prompt ones tell a slow pair from the others."""
    message = {"kind": "pair", "first": 0, "second": 1, "bytes": 1024}
    waited = [[3e-4, 0.01, 0.01]] * 8 + [[4e-3, 0.01, 0.01]] * 4
    product = {"kind": "gemm", "m": 8}
    even = [[1.0 + i / 50, 0.01, 0.01] for i in range(5)]
    first, second = record.merged([{**message, "samples": waited}, {**product, "samples": even}])
    assert first["quiet"]
    assert first["seconds"] == pytest.approx(3e-4)
    assert second["seconds"] == pytest.approx(1.04)
    apart = [[3e-4, 0.01, 0.01], [4e-3, 0.01, 0.01]] * 6
    assert record.merged([{**message, "samples": apart}])[0]["quiet"]
    assert not record.merged([{**product, "samples": apart}])[0]["quiet"]
    assert 0 < PROMPT < 0.5


def test_a_case_whose_repeats_disagree_is_visited_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first moment was slow though the probe was not; later ones agree, and it is not
    visited more often than that takes."""
    moments = iter([3.9, 0.37, 0.38, 0.37, 0.37, 0.37, 0.37, 0.37])
    probe = Probe(lambda: sum(range(20_000)))  # of any steady work
    monkeypatch.setattr(probe, "look", lambda: USUAL_S)
    probe.usual_s = USUAL_S
    records = record.Records(None, {})
    values: record.Record = {"kind": "loss", "tokens": 1, "vocab": 2, "precision": "fp32"}
    effort = cases.Effort(0.0, 0.0, 4, 4, 8, 60.0, 0.0, 0.0, 0)
    measure.measure(
        "kernels", [(values, lambda: lambda: next(moments))], probe, records, effort, 60.0, print
    )
    (only,) = record.merged(records.all, USUAL_S)
    assert (only["quiet"], only["kept"], only["tried"]) == (True, 4, 5)
    assert only["seconds"] == pytest.approx(0.37)


def unsettled(lines: list[dict[str, Any]], every: int, factor: float) -> list[dict[str, Any]]:
    """Raw records where half of the samples of every such GEMM are slower."""
    out, count = [], 0
    for line in lines:
        if line["kind"] == "gemm":
            count += 1
            if count % every == 0:
                slow = [
                    [(factor if i % 2 else 1.0) * s, *probes]
                    for i, (s, *probes) in enumerate(line["samples"])
                ]
                line = {**line, "samples": slow}
        out.append(line)
    return out


def test_what_is_not_quiet_is_named_and_in_no_fit(tmp_path: Path) -> None:
    lines = raw(node_records())
    clean = finish.finish(lines, SESSION, tmp_path / "clean.toml")
    assert clean.unquiet == []
    result = finish.finish(unsettled(lines, 4, 6.0), SESSION, tmp_path / "noisy.toml")
    assert result.cases == clean.cases
    assert result.quiet == result.cases - len(result.unquiet)
    assert len(result.unquiet) == sum(r["kind"] == "gemm" for r in lines) // 4
    assert all(u.case.startswith("gemm m=") and "two speeds" in u.why for u in result.unquiet)
    first, other = (x.fits["products fp32"] for x in (clean, result))
    assert other.cases + other.held_out < first.cases + first.held_out
    assert other.worst_error < 0.01
    assert other.numbers["gemm_efficiency"][0] == pytest.approx(
        first.numbers["gemm_efficiency"][0], rel=0.01
    )
    sentence = "".join(str(block) for block in text.blocks(result))
    assert result.unquiet[0].case in sentence
    assert "left out" in sentence


def test_agreement_is_wider_than_what_probes_let_through() -> None:
    """A step between the slowest and the fastest usual probe may differ by both."""
    assert quiet.SLACK < AGREE < quiet.SLACK**2


def test_fixed_times_that_nobody_could_measure_are_said_to_be_missing(tmp_path: Path) -> None:
    """Small decoders that are not quiet leave nothing for what a stack adds."""
    steps = [
        {
            "kind": "step",
            "case": plain(case),
            "precision": "fp32",
            "used_in_fit": True,
            "seconds": 2e-3 * case.layers,
        }
        for case in overhead.fitted_cases(1)
    ]
    lines = raw([*node_records(), *steps])
    result = finish.finish(lines, SESSION, tmp_path / "node.toml")
    assert "fixed times of stacks" not in result.refused
    lines[-1]["samples"] = [[x, USUAL_S, USUAL_S] for x in (0.37, 7.47)]
    result = finish.finish(lines, SESSION, tmp_path / "node.toml")
    assert Case(**steps[-1]["case"]).name in result.refused["fixed times of stacks"]
