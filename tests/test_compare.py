"""`dpplan compare`: parts of differences, sweeps, scaling, ranges, equal cost and power, what it
refuses."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import dpplan, refused
from comparisons import SMALL, gpus_compared, swept
from hypothesis import given, settings
from hypothesis import strategies as st
from not_none import not_none

from planner.formulas import scaling as formulas
from planner.inputs.options import read_options
from planner.specs.base import PlanError
from planner.specs.document import plain
from planner.specs.documents.compare import Comparison, EqualCount, Point
from planner.specs.options.own import CompareOptions
from planner.verbs import compare
from planner.verbs.compare import dimensions, scaling
from planner.verbs.compare.equal import EQUAL_FRAC
from planner.verbs.counts import nearer
from planner.verbs.requests import answer
from planner.views.compare import view


def equal_of(point: Point) -> EqualCount:
    assert isinstance(point.equal, EqualCount)
    return point.equal


def test_parts_sum_to_the_whole_difference() -> None:
    out = gpus_compared()
    rows, points = out.difference.rows, out.points
    assert out.difference.to == "rtx4090"
    assert out.difference.per == "step"
    for row, point in zip(rows, points, strict=True):
        assert sum(row.components.values()) == pytest.approx(row.difference_s, abs=1e-12)
        assert row.difference_s == pytest.approx(
            point.step.seconds - points[0].step.seconds, rel=1e-9, abs=1e-12
        )
        assert row.change_frac["step_seconds"] == pytest.approx(
            point.step.seconds / points[0].step.seconds - 1
        )
    assert any(rows[2].components.values())
    assert not any(rows[0].components.values())


def test_unequal_batches_are_compared_per_token() -> None:
    out = compare.compare(CompareOptions(vary=("global_batch=32,64",)), {**SMALL, "gpus": 8})
    assert not_none(out.difference).per == "million tokens"
    for row, point in zip(not_none(out.difference).rows, out.points, strict=True):
        assert row.seconds == pytest.approx(1e6 / point.throughput.tokens_per_s)


def test_every_request_is_an_estimate_of_its_own() -> None:
    for point in (gpus_compared().points[1], swept().points[2]):
        words = shlex.split(point.command)
        assert words[:2] == ["dpplan", "estimate"]
        full = dpplan(*words[1:], "--json").json()
        assert full["step"]["seconds"] == pytest.approx(point.step.seconds, rel=1e-9)
        assert full["layout"] == plain(point.layout)
        assert full["memory"]["device_bytes"] == pytest.approx(point.memory.device_bytes, rel=1e-12)
        assert full["run"]["cost_usd"] == pytest.approx(point.run.cost_usd)


def test_strategies_are_kept_apart() -> None:
    out = compare.compare(
        CompareOptions(vary=("strategy=ddp,zero1,zero2,zero3,3d",)),
        {k: v for k, v in SMALL.items() if k != "stack"} | {"gpus": 8},
    )
    assert [(p.stack, p.layout.zero) for p in out.points] == [
        ("pytorch-ddp", 0),
        ("deepspeed", 1),
        ("deepspeed", 2),
        ("pytorch-fsdp", 3),
        ("megatron-core", 1),
    ]
    assert all(p.layout.tp == p.layout.pp == 1 for p in out.points[:4])


def test_differences_are_to_the_first_that_fits() -> None:
    out = compare.compare(
        CompareOptions(vary=("gpu=rtx4090,mi300x",)),
        {"model": "llama-2-7b", "gpus": 1, "seq_len": 512, "global_batch": 2, "optimizer": "sgd"},
    )
    assert [p.memory.fits for p in out.points] == [False, True]
    assert not_none(out.difference).to == "mi300x"


def test_scenario_files_side_by_side(tmp_path: Path) -> None:
    for name, gpus in (("a", 8), ("b", 16)):
        (tmp_path / f"{name}.toml").write_text(
            f'gpu = "a100"\ngpus = {gpus}\nglobal_batch = 32\nseq_len = 2048\n'
        )
    files = [str(tmp_path / "a.toml"), str(tmp_path / "b.toml")]
    out = dpplan(
        "compare", *files, "--model", "gpt2", "--seq-len", 512, "--stack", "pytorch-ddp", "--json"
    ).json()
    assert [p["cluster"]["gpus"] for p in out["points"]] == [8, 16]
    assert [p["tokens_per_step"] for p in out["points"]] == [
        32 * 512
    ] * 2  # options of the command line are stronger
    assert out["dimensions"][0] == {"name": "scenario", "values": files, "swept": False}


@pytest.mark.parametrize("at", ["cost", "power"])
def test_equal_counts_spend_the_same_within_half_a_node(at: Any) -> None:
    given_ = {k: v for k, v in SMALL.items() if k != "gpu"} | {
        "gpus": 32,
        "global_batch": 5040,
        "tokens": "10B",
    }
    out = compare.compare(CompareOptions(vary=("gpu=a100,rtx4090,h100",), at=at), given_)
    power = {"a100": 400, "rtx4090": 450, "h100": 700}
    each = [
        not_none(p.cluster.usd_per_gpu_hour) if at == "cost" else power[p.label] for p in out.points
    ]
    clusters = [p.cluster for p in out.points]
    target = 32 * each[0]
    assert clusters[0].gpus == 32
    assert equal_of(out.points[0]).off_frac == 0
    for point, c, entry in zip(out.points[1:], clusters[1:], each[1:], strict=True):
        assert c.gpus % c.gpus_per_node == 0
        equal = equal_of(point)
        assert equal.amount == pytest.approx(c.gpus * entry)
        assert equal.off_frac == pytest.approx(c.gpus * entry / target - 1)
        if not equal.without_layout:
            assert abs(c.gpus * entry - target) <= entry * c.gpus_per_node / 2 + 1e-9
    assert len({c.gpus for c in clusters}) > 1


LAYOUTS = {
    "model": "gpt2",
    "seq_len": 512,
    "global_batch": 1024,
    "stack": "megatron-core",
    "schedule": "1f1b",
    "recompute": "none",
    "cp": 1,
    "stack_defaults": True,
}


@pytest.mark.parametrize(
    ("at", "gpus"), [("cost", 4), ("power", 24), ("cost", 104), ("power", 512), ("cost", 2048)]
)
def test_the_nearest_count_with_a_layout_is_taken_however_far(at: Any, gpus: int) -> None:
    given_ = LAYOUTS | {"gpus": gpus, "global_batch": 1040 if gpus == 104 else 1024 * 3}
    point = compare.compare(CompareOptions(vary=("gpu=rtx4090,a100",), at=at), given_).points[1]
    equal, node = equal_of(point), point.cluster.gpus_per_node if gpus > 8 else 8
    assert equal.amount / equal.gpus * equal.exact_gpus == pytest.approx(equal.target)
    near = nearer(equal.exact_gpus, equal.gpus, node)
    assert sorted(near) == sorted({*equal.without_layout, *equal.slower})
    for count in equal.without_layout[:3]:
        alone = read_options(given_ | {"gpu": "a100", "gpus": count})
        assert answer([alone])[0].report is None
    if equal.slower:
        assert abs(equal.off_frac) <= EQUAL_FRAC


def test_equal_money_in_4090s_and_a100s_is_an_answer() -> None:
    given_ = {"model": "llama-70b", "gpus": 2048, "tokens": "1T", "stack": "megatron-core"}
    out = compare.compare(CompareOptions(vary=("gpu=rtx4090,a100",), at="cost"), given_)
    assert [point.refused for point in out.points] == [None, None]
    assert out.prices.markets == ["on-demand"]
    text = "\n".join(out.notes)
    assert "GPUs would be equal" in text
    assert "against" in text


def test_equal_cost_is_of_the_market_asked_for() -> None:
    def taken(**given: object) -> int:
        options = CompareOptions(vary=("gpu=rtx4090,a100",), at="cost")
        point = compare.compare(options, LAYOUTS | {"gpus": 256} | given).points[1]
        return round(equal_of(point).exact_gpus)

    assert taken() == round(256 * 0.74 / 1.79)
    assert taken(market="community") == round(256 * 0.34 / 1.39)
    assert taken(price=2.0) == 256
    assert 240 < taken(capex="20000") < 256 * 450 / 400  # electricity apart they cost the same


def test_no_price_no_equal_cost() -> None:
    def at_equal_cost(gpus: str) -> Comparison:
        options = CompareOptions(vary=(f"gpu={gpus}",), at="cost")
        return compare.compare(options, LAYOUTS | {"gpus": 8})

    with pytest.raises(PlanError, match="no price") as error:
        at_equal_cost("gb200-186gb,a100")
    assert error.value.field == "--at"
    assert "no price" in not_none(at_equal_cost("a100,gb200-186gb").points[1].refused)


def test_a_sweep_keeps_the_batch_or_the_batch_per_gpu() -> None:
    assert {p.layout.global_batch for p in swept().points} == {64}
    weak = compare.compare(
        CompareOptions(sweep=("gpus=8..32",), scaling="weak"), {**SMALL, "global_batch": 24}
    )
    assert [p.layout.global_batch for p in weak.points] == [24, 48, 96]
    assert weak.curves[0].amdahl is None


def test_curve_by_hand() -> None:
    curve = swept().curves[0]
    rate = {p.value: p.tokens_per_s for p in curve.points}
    assert list(rate) == [8, 16, 32, 64]
    third = curve.points[2]
    assert third.speed_up == pytest.approx(rate[32] / rate[8])
    assert third.efficiency == pytest.approx(rate[32] / rate[8] / 4)
    assert third.marginal_frac == pytest.approx((rate[32] - rate[16]) / 16 / (rate[8] / 8))
    parts = curve.parts
    last = swept().points[3].step
    lines = parts.components.values()
    assert sum(line.last_s for line in lines) == pytest.approx(last.seconds)
    assert sum(line.excess_s for line in lines) == pytest.approx(parts.excess_s, abs=1e-12)
    assert parts.ideal_s == pytest.approx(swept().points[0].step.seconds / 8)
    assert parts.ideal_s + parts.excess_s == pytest.approx(last.seconds)


def test_two_sweeps_make_a_curve_each() -> None:
    out = compare.compare(
        CompareOptions(sweep=("gpus=8,16", "micro-batch=1,2")), {**SMALL, "global_batch": 64}
    )
    assert [(c.axis, c.label) for c in out.curves] == [
        ("gpus", "micro batch 1"),
        ("gpus", "micro batch 2"),
    ]
    assert len(out.points) == 4
    assert all(p.layout.micro_batch == p.values["micro_batch"] for p in out.points)


def test_a_sweep_of_another_number() -> None:
    out = compare.compare(
        CompareOptions(sweep=("nic-bandwidth=25..100 Gbit/s",)),
        {**SMALL, "gpus": 16, "global_batch": 64},
    )
    curve = out.curves[0]
    assert (curve.axis, curve.unit, curve.parts, curve.amdahl) == (
        "nic_bandwidth",
        "Gbit/s",
        None,
        None,
    )
    steps = [p.step_seconds for p in curve.points]
    assert [p.value for p in curve.points] == [25, 50, 100]
    assert steps == sorted(steps, reverse=True)
    assert "nic bandwidth (Gbit/s)" in "\n".join(view(out, {}).blocks[0].header)


@given(serial=st.floats(0, 10), parallel=st.floats(0.1, 1e4), first=st.integers(1, 64))
def test_amdahl_finds_what_made_the_times(serial: float, parallel: float, first: int) -> None:
    gpus = first * 2.0 ** np.arange(6)
    result = formulas.amdahl_fit(gpus, formulas.amdahl_s(serial, parallel, gpus))
    assert formulas.amdahl_s(*result, gpus) == pytest.approx(
        formulas.amdahl_s(serial, parallel, gpus), rel=1e-6
    )


def test_amdahl_parts_are_never_negative() -> None:
    gpus = np.array([1.0, 2.0, 4.0])
    assert (
        formulas.amdahl_fit(gpus, 1 / gpus**1.2)[0] == 0.0
    )  # faster than in proportion: nothing serial
    assert formulas.amdahl_fit(gpus, gpus)[1] == 0.0  # slower with more: nothing parallel


@given(rates=st.lists(st.floats(0.01, 3.0), min_size=1, max_size=6), share=st.floats(0.05, 0.95))
def test_more_gpus_stop_paying_where_they_bring_less(rates: list[float], share: float) -> None:
    line = [(1.0, 1.0)]
    for gain in rates:
        gpus, rate = line[-1]
        line.append((2 * gpus, rate + gain * gpus))
    gained = scaling.gains(line)
    assert gained[0] == scaling.Gain(1.0, 1.0, None)
    marginal = [gain.marginal_frac for gain in gained]
    assert marginal[1:] == pytest.approx(rates, rel=1e-6)
    for (gpus, rate), entry in zip(line, gained, strict=True):
        assert entry.speed_up == pytest.approx(rate)
        assert entry.efficiency == pytest.approx(rate / gpus)
    stop = scaling.stop_index(marginal, share)
    brought = [frac for frac in marginal[1:stop] if frac is not None]
    assert all(frac >= share for frac in brought)
    assert (stop is None) == all(frac >= share for frac in rates_of(marginal))
    if stop is not None:
        assert rates_of(marginal)[stop - 1] < share


def rates_of(marginal: list[float | None]) -> list[float]:
    return [frac for frac in marginal if frac is not None]


def test_nothing_that_fits_has_no_gain() -> None:
    assert scaling.gains([]) == []
    assert scaling.stop_index([], 0.5) is None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("gpus=8..64", [8, 16, 32, 64]),
        ("gpus=8..100", [8, 16, 32, 64]),
        ("gpus=8..512*4", [8, 32, 128, 512]),
        ("gpus=16..64+16", [16, 32, 48, 64]),
        ("gpus=1,3,8", [1, 3, 8]),
        ("gpus=1,8..32", [1, 8, 16, 32]),
        ("seq-len=1k..4k", [1024, 2048, 4096]),
        ("seq-len=4k,32k", [4096, 32768]),
        ("tokens=1B..4B", ["1000000000", "2000000000", "4000000000"]),
        ("clock=0.5..0.7+0.1", [0.5, 0.6, 0.7]),
        ("nic_bandwidth=100..400 Gbit/s", ["100 Gbit/s", "200 Gbit/s", "400 Gbit/s"]),
    ],
)
def test_ranges(text: str, values: list[Any]) -> None:
    result = dimensions.swept(text)
    assert (
        [v.update[result.name] for v in result.values] == pytest.approx(values)
        if isinstance(values[0], float)
        else values
    )
    assert [v.update[result.name] for v in result.values] == values or isinstance(values[0], float)


@given(
    first=st.integers(1, 1000),
    times=st.integers(2, 9),
    count=st.integers(0, 5),
    beyond=st.floats(0, 0.99),
)
def test_a_range_ends_at_or_before_its_last(
    first: int, times: int, count: int, beyond: float
) -> None:
    last = int(first * times**count * (1 + beyond * (times - 1)))
    items = [v.update["gpus"] for v in dimensions.swept(f"gpus={first}..{last}*{times}").values]
    assert items == [first * times**i for i in range(count + 1)]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--sweep", "gpus"], "NAME=VALUES"),
        (["--sweep", "gpus=8.."], "not a range"),
        (["--sweep", "gpus=64..8"], "must go up"),
        (["--sweep", "gpus=8..64*1"], "factor above 1"),
        (["--sweep", "gpus=8..64+0"], "step above 0"),
        (["--sweep", "gpus=1..1000000+1"], "more than 20,000"),
        (["--sweep", "gpu=a100"], "is not a number"),
        (["--sweep", "gpus=8,8"], "twice"),
        (["--sweep", "nothing=1..2"], "is not an option"),
        (["--vary", "gpu=a100,a100"], "twice"),
        (["--vary", "strategy=ddp,fsdp"], "is not a strategy"),
        (["--vary", "tp=a,b"], "--tp"),
        (["--vary", "gpu=a100"], "two requests"),
        ([], "two requests"),
        (["--vary", "gpus=8,16", "--sweep", "gpus=8..16"], "varied twice"),
        (["--vary", "gpu=a100,h100", "--at", "price"], "--at"),
        (["--sweep", "gpus=8..16", "--at", "cost"], "--at"),
        (["--vary", "gpu=a100,h100", "--scaling", "weak"], "--scaling"),
        (["--sweep", "gpus=8..16", "--scaling", "some"], "--scaling"),
        (["--sweep", "gpus=8..16", "--stop-below", "2"], "--stop-below"),
        (["--sweep", "gpus=8..16", "--jobs", "0"], "--jobs"),
        (["--sweep", "gpus=1..20+1", "--sweep", "tp=1..8", "--sweep", "pp=1..8"], "two at most"),
        (["--sweep", "gpus=1..1000+1", "--sweep", "global-batch=1..1000+1"], "4,000"),
        (["--vary", "zero=1,7"], "--zero"),
        (["--sweep", "gpus=5,7", "--tp", "2"], "none of the 2 requests"),
        (["no-such-file.toml", "--vary", "tp=1,2"], "cannot be read"),
        (["--sweep", "gpus=8,16,20", "--scaling", "weak", "--global-batch", "9"], "--global-batch"),
    ],
)
def test_wrong_comparisons_are_refused(words: list[str], text: str) -> None:
    given_ = [
        "--model",
        "gpt2",
        "--seq-len",
        "512",
        *([] if any("gpu=" in w for w in words) else ["--gpu", "a100"]),
    ]
    refused(dpplan("compare", *given_, *words), text)


@settings(max_examples=3, deadline=None)
@given(bandwidths=st.lists(st.integers(10, 800), min_size=2, max_size=4, unique=True))
def test_sweep_order_does_not_matter(bandwidths: list[int]) -> None:
    fixed = {
        **SMALL,
        "gpus": 16,
        "global_batch": 64,
        "tp": 2,
        "pp": 1,
        "micro_batch": 1,
        "zero": 1,
        "recompute": "none",
    }

    def steps(values: list[int]) -> dict[float, float]:
        text = "nic_bandwidth=" + ",".join(f"{v} Gbit/s" for v in values)
        return {
            p.value: p.step_seconds
            for p in compare.compare(CompareOptions(sweep=(text,)), fixed).curves[0].points
        }

    assert steps(bandwidths) == pytest.approx(steps(bandwidths[::-1]))


def test_what_is_typed_and_varied_is_refused_and_a_file_gives_way(tmp_path: Path) -> None:
    file = tmp_path / "one.toml"
    file.write_text('model = "gpt2"\ngpu = "a100"\ngpus = 8\nstack = "pytorch-ddp"\n')
    words = ["compare", "--scenario", file, "--global-batch", 32, "--seq-len", 512]
    for typed, varied in (
        (["--gpus", 8], ["--sweep", "gpus=8,16"]),
        (["--zero", 0], ["--vary", "strategy=ddp,zero1"]),
    ):
        refused(dpplan(*words, *typed, *varied), str(typed[0]), "leave one of them out")
    out = dpplan(*words, "--vary", "gpus=8,16", "--json").json()
    assert [p["cluster"]["gpus"] for p in out["points"]] == [8, 16]


def test_requests_that_come_to_the_same_say_so() -> None:
    fixed = {"model": "gpt2", "gpu": "a100", "gpus": 8, "global_batch": 32, "stack": "pytorch-ddp"}
    first, other = (
        compare.compare(CompareOptions(vary=(text,)), fixed).notes
        for text in ("uneven_stages=true,false", "micro_batch=1,2")
    )
    assert "uneven_stages true and uneven_stages false have the same answer" in first
    assert not any("same answer" in note for note in other)


@pytest.mark.parametrize(
    "words",
    [
        "--vary pp=1,2,4",
        "--vary schedule=1f1b,interleaved",
        "--vary tp=2,1",
        "--vary recompute=none,block:1,group:2",
        "--vary cp=1,2 --vary vpp=1,2",
        "--sweep pp=1..4",
    ],
)
def test_plans_of_other_pipelines_are_compared_together(words: str) -> None:
    small = "--model llama-3.2-1b --gpu a100 --gpus 8 --stack megatron-core --stack-defaults"
    assert dpplan("compare", *small.split(), *words.split(), "--json").json()["points"]
