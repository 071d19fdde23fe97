"""`dpplan strategies`: every strategy answers, as its estimate does."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from command import dpplan

from planner.formulas.params import parameter_count
from planner.verbs.strategies import STRATEGIES

REQUEST = (
    "strategies",
    "--model",
    "gpt2-medium",
    "--gpu",
    "a100",
    "--gpus",
    16,
    "--seq-len",
    1024,
    "--global-batch",
    512,
)


@cache
def answered() -> Any:
    return dpplan(*REQUEST, "--json").json()


def test_the_command_answers_for_every_strategy() -> None:
    found = answered()
    assert [one["name"] for one in found["strategies"]] == [one.name for one in STRATEGIES]
    refused = {one["name"] for one in found["strategies"] if one["refused"]}
    assert refused == {"data-parallel", "tf-mirrored"}  # two nodes
    for one in found["strategies"]:
        if one["refused"]:
            continue
        step = one["step"]
        assert step["seconds"] == pytest.approx(step["compute_s"] + step["exposed_s"])
        per_token = step["seconds"] * one["statistics"]["steps_factor"] / (512 * 1024)
        assert one["seconds_per_token"] == pytest.approx(per_token)
        assert one["timeline"] is None


def test_a_plan_of_the_table_is_what_estimate_answers() -> None:
    found = next(one for one in answered()["strategies"] if one["name"] == "zero-1")
    layout = found["layout"]
    words = [
        "estimate",
        *REQUEST[1:],
        "--stack",
        "deepspeed",
        "--zero",
        1,
        "--micro-batch",
        layout["micro_batch"],
        "--recompute",
        layout["recompute"],
        "--json",
    ]
    report = dpplan(*words).json()
    assert report["step"]["seconds"] == pytest.approx(found["step"]["seconds"])
    assert report["memory"]["device_bytes"] == pytest.approx(found["device_bytes"])


def test_one_strategy_in_full() -> None:
    found = dpplan(*REQUEST, "--strategy", "ddp", "--json").json()
    (one,) = found["strategies"]
    line = one["timeline"]
    assert sum(b["bytes"] for b in line["buckets"]) == pytest.approx(
        4 * parameter_count_of("gpt2-medium")
    )
    assert line["exposed_s"] == pytest.approx(line["tail_s"] + line["contention_s"])
    text = dpplan(*REQUEST, "--strategy", "ddp", "--plain").stdout
    assert "Buckets of the last backward pass" in text
    assert "backward  ====" in text
    explained = dpplan(*REQUEST, "--strategy", "top-k", "--explain", "--plain").stdout
    assert "break_even_bytes_per_s" in explained
    assert "sparse_bytes" in explained


def parameter_count_of(name: str) -> int:
    from planner.inputs.model import model_spec

    return parameter_count(model_spec(name)[0])


def test_the_statistical_cost_is_a_parameter() -> None:
    one = dpplan(*REQUEST, "--strategy", "diloco", "--json").json()["strategies"][0]
    other = dpplan(*REQUEST, "--strategy", "diloco", "--steps-factor", 1.25, "--json").json()[
        "strategies"
    ][0]
    assert other["seconds_per_token"] == pytest.approx(1.25 * one["seconds_per_token"])
    assert other["statistics"]["source"] == "stated in the request"
    assert other["step"] == one["step"]


def test_nothing_that_fits_is_status_3() -> None:
    answer = dpplan(
        "strategies",
        "--model",
        "llama-3.1-405b",
        "--gpu",
        "rtx4090",
        "--gpus",
        2,
        "--seq-len",
        1024,
        "--json",
    )
    assert answer.status == 3
    assert answer.json()["fits"] is False


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (["--gpus", "1"], "--gpus"),
        (["--tp", "2"], "--tp"),
        (["--zero", "3"], "--zero"),
        (["--stack", "deepspeed"], "--stack"),
        (["--offload", "optimizer"], "--offload"),
        (["--strategy", "zero"], "--strategy"),
        (["--density", "2"], "--density"),
        (["--steps-factor", "1.2"], "--steps-factor"),
        (["--explain"], "--explain"),
        (["--local-steps", "0"], "--local-steps"),
        (["--strategy", "ddp", "--servers", "-1"], "--servers"),
        (["--rank", "0"], "--rank"),
        (["--strategy", "tf-mirrored", "--explain"], "--strategy"),
    ],
)
def test_a_wrong_request_names_its_option(words: list[str], field: str) -> None:
    answer = dpplan(*REQUEST, *words, "--json")
    assert answer.status == 2
    assert answer.json()["error"]["field"] == field
    assert field in answer.stderr
