"""`dpplan strategies`: every strategy answers, as its estimate does."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from command import argv, dpplan

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
    document = answered()
    assert [strategy["name"] for strategy in document["strategies"]] == [
        strategy.name for strategy in STRATEGIES
    ]
    refused = {strategy["name"] for strategy in document["strategies"] if strategy["refused"]}
    assert refused == {"data-parallel", "tf-mirrored"}  # two nodes
    for entry in document["strategies"]:
        if entry["refused"]:
            continue
        step = entry["step"]
        assert step["seconds"] == pytest.approx(step["compute_s"] + step["exposed_s"])
        per_token = step["seconds"] * entry["statistics"]["steps_factor"] / (512 * 1024)
        assert entry["seconds_per_token"] == pytest.approx(per_token)
        assert entry["timeline"] is None


def test_a_plan_of_the_table_is_what_estimate_answers() -> None:
    strategy = next(
        strategy for strategy in answered()["strategies"] if strategy["name"] == "zero-1"
    )
    layout = strategy["layout"]
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
        "--stack-defaults",
        "--json",
    ]
    report = dpplan(*words).json()
    assert report["step"]["seconds"] == pytest.approx(strategy["step"]["seconds"])
    assert report["memory"]["device_bytes"] == pytest.approx(strategy["device_bytes"])


def test_one_strategy_in_full() -> None:
    document = dpplan(*REQUEST, "--strategy", "ddp", "--json").json()
    (strategy,) = document["strategies"]
    line = strategy["timeline"]
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
    document = dpplan(*REQUEST, "--strategy", "diloco", "--json").json()["strategies"][0]
    other = dpplan(*REQUEST, "--strategy", "diloco", "--steps-factor", 1.25, "--json").json()[
        "strategies"
    ][0]
    assert other["seconds_per_token"] == pytest.approx(1.25 * document["seconds_per_token"])
    assert other["statistics"]["source"] == "stated in the request"
    assert other["step"] == document["step"]


def test_nothing_that_fits_is_status_3() -> None:
    answer = dpplan(
        *argv("strategies --model llama-3.1-405b --gpu rtx4090 --gpus 2 --seq-len 1024 --json")
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


def test_no_method_heads_the_list_by_steps_that_it_is_assumed_not_to_need() -> None:
    """64 RTX 4090s over 10 GbE, where PowerSGD sends a hundredth: an exact method ranks first, and
    savings of others are given as the extra steps that they pay for."""
    words = ("strategies", "--model", "gpt2", "--gpu", "rtx4090", "--gpus", 64)
    slow = ("--inter-node", "tcp-10", "--global-batch", 512)
    document = dpplan(*words, *slow, "--json").json()
    by_name = {
        strategy["name"]: strategy for strategy in document["strategies"] if not strategy["refused"]
    }
    best = by_name[document["best"]]
    assert best["statistics"]["exact"]
    assert best["statistics"]["steps_factor"] == 1
    for entry in by_name.values():
        even = entry["statistics"]["break_even_steps"]
        if entry["statistics"]["exact"]:
            assert even is None
            assert entry["step"]["seconds"] >= best["step"]["seconds"] or not entry["fits"]
        else:
            assert even * entry["step"]["seconds"] == pytest.approx(best["step"]["seconds"])
    inexact = {name for name, value in by_name.items() if not value["statistics"]["exact"]}
    assert {"ddp-powersgd-hook", "top-k", "local-sgd", "diloco", "ps-async"} <= inexact
    assert by_name["ddp-powersgd-hook"]["statistics"]["break_even_steps"] > 2
    alone = dpplan(*words, *slow, "--strategy", "diloco", "--json").json()["strategies"][0]
    assert alone["statistics"] == by_name["diloco"]["statistics"]  # one answer to one question


def test_buckets_of_any_size() -> None:
    """Each gradient alone pays a start each; one bucket for all hides nothing."""
    words = ("strategies", "--model", "gpt2", "--gpu", "a100", "--gpus", 64, "--strategy", "ddp")
    document = {
        size: dpplan(*words, "--bucket", size, "--json").json()["strategies"][0]
        for size in ("1 B", "25 MiB", "1 TB")
    }
    counts = [len(entry["timeline"]["buckets"]) for entry in document.values()]
    assert counts[0] > counts[1] > counts[2] == 1
    alone, usual, first = (document[size]["step"] for size in document)
    assert usual["exposed_s"] < alone["exposed_s"]
    assert first["hidden_s"] == pytest.approx(0, abs=1e-9)
    assert usual["hidden_s"] > 0
