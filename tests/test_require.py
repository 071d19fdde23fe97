"""Requirements on an estimate: reading, judging, exit status, scenario files."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
from command import ROOT, argv, dpplan, refused
from hypothesis import given
from hypothesis import strategies as st
from not_none import not_none

from planner.report import require
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate, Requirement

WORDS = argv(
    "--model llama-2-7b --gpu a100 --gpus 16 --tp 2 --pp 1 --zero 1 --micro-batch 1 --recompute "
    "full --stack megatron-core --advice 0 --tokens 100B"
)


@cache
def report() -> Estimate:
    return dpplan("estimate", *WORDS, "--json").read(Estimate)


def judged(text: str) -> Requirement:
    return require.judge(require.read([text]), report())[0]


def test_status_4_when_one_of_several_does_not_hold_0_when_all_do() -> None:
    answer = dpplan("estimate", *WORDS, "--require", "memory < 90%", "--require", "fits", "--json")
    assert answer.status == 0
    assert [requirement["holds"] for requirement in answer.json()["requirements"]] == [True, True]
    failed = dpplan("estimate", *WORDS, "--require", "fits", "--require", "step < 1 ms", "--json")
    assert failed.status == 4
    assert failed.stderr == ""
    assert [requirement["holds"] for requirement in failed.json()["requirements"]] == [True, False]
    text = dpplan("estimate", *WORDS, "--require", "step < 1 ms")
    assert text.status == 4
    assert "DOES NOT HOLD" in text.stdout
    assert text.stdout.isascii()


def test_status_3_wins_where_nothing_fits() -> None:
    words = argv("--model llama-70b --gpus 8 --gpu rtx4090 --tp 8 --advice 0 --require fits --json")
    answer = dpplan("estimate", *words)
    assert answer.status == 3
    assert answer.json()["requirements"][0]["holds"] is False


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memory < 90", "unit"),
        ("memory < 3 s", "is in s"),
        ("foo < 3", "unknown quantity"),
        ("mfu > 40", "share"),
        ("days", "limit"),
        ("days = 3", "< <= > >="),
        ("days != 3", "< <= > >="),
        ("fits < 3", "takes no comparison"),
        ("fits.high", "takes no comparison"),
        ("days.mid < 3", "days.low"),
        ("goodput.low > 1%", "no band"),
        ("cost < 90%", "not a share"),
        ("< 3", "must read like"),
        ("", "must not be empty"),
        ("memory < ", "unit"),
        ("step < nan", "expected a number"),
        ("cost < 1e999", "finite"),
        ("memory < 90% and fits", "unknown unit"),
    ],
)
def test_a_requirement_that_cannot_be_read_is_refused(text: str, sentence: str) -> None:
    refused(dpplan("estimate", *WORDS, "--require", text), "--require", sentence)


def test_what_the_request_leaves_unknown_is_refused() -> None:
    refused(dpplan("estimate", *WORDS[:-2], "--require", "days < 30"), "--require", "--tokens")
    refused(dpplan("search", "--scenario", "docs/examples/preflight.toml"), "--require", "estimate")


def test_values_are_those_of_the_report() -> None:
    r = report()
    same = {
        "memory": r.memory.device_bytes,
        "headroom": r.memory.headroom_bytes,
        "step": r.step.seconds,
        "step.low": r.step.low,
        "step.high": r.step.high,
        "mfu": r.throughput.mfu,
        "days": r.run.days,
        "tokens-per-s": r.throughput.tokens_per_s,
        "cost": r.run.cost_usd,
        "energy": r.run.energy_kwh,
        "gpu-hours": r.run.gpu_hours,
        "goodput": r.run.goodput,
    }
    limit = {"B": "1 GiB", "1": "50%"}
    for name, value in same.items():
        unit = require.QUANTITIES[name.partition(".")[0]].unit
        assert judged(f"{name} > {limit.get(unit, '1')}").value == pytest.approx(value), name


def test_every_quantity_can_be_asked_for_and_its_ends_enclose_it() -> None:
    limit = {"B": "1 GiB", "1": "50%"}
    for name, quantity in require.QUANTITIES.items():
        here = judged(f"{name} >= {limit.get(quantity.unit, '1')}")
        assert here.holds == (not_none(here.value) >= not_none(here.limit))
        if quantity.has_band:
            low, high = (
                judged(f"{name}.{end} >= {limit.get(quantity.unit, '1')}").value
                for end in ("low", "high")
            )
            assert not_none(low) <= not_none(here.value) <= not_none(high)
            assert not_none(low) < not_none(high), name


def test_limits_with_units_and_counts() -> None:
    assert judged("memory < 50%").limit == pytest.approx(0.5 * report().memory.capacity_bytes)
    assert judged("memory < 10 GiB").limit == 10 * 2**30
    assert judged("days < 48 h").limit == pytest.approx(2)
    assert judged("days < 30").limit == judged("days < 30 days").limit == pytest.approx(30)
    assert judged("energy < 2 MWh").limit == pytest.approx(2000)
    assert judged("cost < 25k").limit == judged("cost < 25,000 USD").limit == 25000
    assert judged("mfu > 40%").limit == judged("mfu > 0.4").limit == pytest.approx(0.4)
    assert judged("step < 1 min").limit == 60


@given(seconds=st.floats(1e-3, 1e6), compare=st.sampled_from(["<", "<=", ">", ">="]))
def test_a_limit_splits_the_line(seconds: float, compare: str) -> None:
    opposite = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}[compare]
    assert (
        judged(f"step {compare} {seconds!r} s").holds
        != judged(f"step {opposite} {seconds!r} s").holds
    )


@given(text=st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(PlanError):  # the only error there is
        assert judged(text).holds in (True, False)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "a.toml",
            (
                'model = "gpt2"\ngpu = "a100"\ngpus = 8\nadvice = 0\nrequire = ["fits", "step < 1'
                ' ms"]\n'
            ),
        ),
        ("a.yaml", 'model: gpt2\ngpu: a100\ngpus: 8\nadvice: 0\nrequire: [fits, "step < 1 ms"]\n'),
        (
            "a.yml",
            "model: gpt2\ngpu: a100\ngpus: 8\nadvice: 0\nrequire:\n  - fits\n  - step < 1 ms\n",
        ),
        (
            "a.json",
            (
                '{"model": "gpt2", "gpu": "a100", "gpus": 8, "advice": 0, "require": ["fits", "step'
                ' < 1 ms"]}'
            ),
        ),
    ],
)
def test_a_scenario_file_may_hold_a_list(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    answer = dpplan("estimate", "--scenario", path, "--json")
    assert answer.status == 4
    assert [requirement["text"] for requirement in answer.json()["requirements"]] == [
        "fits",
        "step < 1 ms",
    ]
    assert (
        dpplan("estimate", "--scenario", path, "--require", "fits").status == 0
    )  # the command line wins


@pytest.mark.parametrize(
    "text", ["require = 3", "require = [3]", "require = [[]]", "tp = [1]", "require = {a = 1}"]
)
def test_other_lists_in_a_scenario_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(f'model = "gpt2"\ngpu = "a100"\n{text}\n', encoding="utf-8")
    refused(dpplan("estimate", "--scenario", path))


def test_the_command_in_the_answer_repeats_the_requirements() -> None:
    first = dpplan(
        "estimate", *WORDS, "--require", "memory < 90%", "--require", "fits", "--json"
    ).json()
    assert dpplan(*shlex.split(first["command"])[1:], "--json").json() == first


@pytest.mark.parametrize(
    ("status", "skip", "started"),
    [(0, "", True), (3, "", False), (4, "", False), (2, "", False), (4, "1", True)],
)
def test_the_job_script_of_the_docs_starts_what_may_start(
    tmp_path: Path, status: int, skip: str, started: bool
) -> None:
    """With stand-ins for dpplan and srun on the path."""
    for name, body in (("dpplan", f"exit {status}"), ("srun", "echo started")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    script = (ROOT / "docs/examples/preflight.sh").read_text(encoding="utf-8")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "DPPLAN_SKIP": skip}
    done = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout == "started\n") == started
    assert done.returncode == (0 if started else status)
