"""Numbers of the machine that explain a step which `dpplan check` finds slower than predicted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sample_logs as samples
from command import dpplan

from planner.estimate import Estimates
from planner.inputs.options import read_options
from planner.studies.check.reasons import _FACTORS, _explaining
from planner.verbs.estimate import chosen

RECIPE = shlex.split(
    "--model gpt3-1.3b --gpu a100 --gpus 8 --stack megatron-core --global-batch 64 --seq-len 2048"
    " --zero 1 --micro-batch 4 --tp 1 --pp 1 --recompute none"
)


def _ran(**changed: Any) -> Estimates:
    words = [word.removeprefix("--").replace("-", "_") for word in RECIPE[::2]]
    numbers = [int(v) if v.isdecimal() else v for v in RECIPE[1::2]]
    return chosen(
        read_options(dict(zip(words, numbers, strict=True)) | {"stack_defaults": True} | changed)
    )


def _clock_reason(path: Path, seconds: float, *more: str) -> dict[str, Any]:
    path.write_text(samples.megatron(seconds), encoding="utf-8")
    reasons = dpplan("check", path, *RECIPE, *more, "--json").json()["against"]["reasons"]
    reason: dict[str, Any] = next(reason for reason in reasons if reason["name"] == "clock")
    return reason


def test_a_number_that_explains_the_step_explains_it(tmp_path: Path) -> None:
    """A run that was slower by a known number of the machine is explained by that number."""
    usual, slow = _ran(), float(_ran(clock=0.6).time.seconds[0])
    assert slow > 1.2 * float(usual.time.seconds[0])
    reason = _clock_reason(tmp_path / "a.log", slow)
    clock = float(usual.plan.cluster.gpu.kernels.sustained_clock)
    assert reason["factor"] == pytest.approx(0.6 / clock, rel=0.01)


def test_a_card_that_looks_capped_is_a_suspect(tmp_path: Path) -> None:
    """A run under a power limit is explained by that limit, unless a clock or a limit is stated."""
    path, capped = tmp_path / "a.log", float(_ran(power_limit="250 W").time.seconds[0])
    says = _clock_reason(path, capped)["says"]
    limit = re.search(r"capped at (\d+) of its 400 W .*\(--power-limit (\d+)\)", says)
    assert limit
    assert limit[1] == limit[2]
    assert float(limit[1]) == pytest.approx(250, rel=0.02)
    for given in (("--clock", "0.9"), ("--power-limit", "300 W")):
        assert "capped" not in _clock_reason(path, capped, *given)["says"]


def test_printed_flop_find_another_recipe_before_the_clock_is_blamed(tmp_path: Path) -> None:
    """The sample prints 180 TFLOP/s per GPU: at some step that is what this recipe needs, at three
    times as long a step it is three times the recipe's FLOP."""
    path, command = tmp_path / "a.log", ("check", tmp_path / "a.log", *RECIPE, "--json")
    path.write_text(samples.megatron(1.0), encoding="utf-8")
    ratio = dpplan(*command).json()["files"][0]["flops"]["ratio"]
    path.write_text(samples.megatron(3.0 / ratio), encoding="utf-8")
    first = dpplan(*command).json()["against"]["reasons"][0]
    assert first["name"] == "recipe"
    assert first["factor"] == pytest.approx(3.0, rel=0.02)
    path.write_text(samples.megatron(1.0 / ratio), encoding="utf-8")
    names = [x["name"] for x in dpplan(*command).json()["against"]["reasons"]]
    assert "recipe" not in names


def test_a_layer_that_fsdp_joins_in_fp32_is_named(tmp_path: Path) -> None:
    """A layer of Llama 2 7B has 202,383,360 parameters: 772 MiB in fp32, 774 with its rounding."""
    path = tmp_path / "a.log"
    path.write_text(samples.OLD_OUT_OF_MEMORY.replace("2.00 GiB (GPU", "774.00 MiB (GPU"))
    words = "--model llama-2-7b --gpu h100 --gpus 8 --stack pytorch-fsdp --zero 3 --stack-defaults"
    (out,) = dpplan("check", path, *words.split(), "--json").json()["files"][0]["shortages"]
    assert "one layer in fp32" in out["why"]


def test_the_explaining_factor_lies_between_points_of_the_grid() -> None:
    for factor in (0.3, 0.93, 1.0, 1.7, 9.0):
        assert _explaining(2.0 / _FACTORS, 2.0 / factor) == pytest.approx(factor, rel=0.01)
    assert _explaining(np.full(len(_FACTORS), 2.0), 3.0) is None


def explained(tmp_path: Path, script: str, more: str = "", **sizes: str) -> dict[str, Any]:
    """Why a run of this script ran out of memory, by a traceback with these sizes."""
    log, file = tmp_path / "out.log", tmp_path / "train.py"
    log.write_text(samples.TRACEBACK + samples.CARD_IS_FULL.format(**samples.FULL_CARD | sizes))
    file.write_text(script)
    words = shlex.split(f"--recipe {file} --gpu rtx4090 --gpus 1 {more} --json")
    out: dict[str, Any] = dpplan("check", log, *words).json()
    return out


def test_need_is_not_called_fragmentation_and_the_script_is_edited(tmp_path: Path) -> None:
    """Without checkpointing 4 x 2,048 tokens of an 8B model need far more than 24 GB."""
    answer = explained(tmp_path, samples.SCRIPT.format(micro=4, recompute=False))
    why = answer["out_of_memory"]
    assert (why["cause"], why["at"], why["card"]) == ("need", "step", None)
    assert why["missing_bytes"] == pytest.approx(
        why["needed_bytes"] - answer["prediction"]["memory"]["capacity_bytes"]
    )
    assert why["terms"][0]["name"] == "activations"
    assert "fragmentation is not the cause" in why["says"]
    for change in why["changes"]:
        assert change["fits"]
        assert change["edits"]
        assert change["step_seconds"] > 0
    places = {edit["place"] for change in why["changes"] for edit in change["edits"]}
    assert "train.py, line 9" in places


def test_what_fits_ran_out_for_another_reason(tmp_path: Path) -> None:
    script = samples.SCRIPT.format(micro=1, recompute=True)
    small = {"process": "10.42 GiB", "allocated": "9.60 GiB"}
    others = explained(tmp_path, script, **small)["out_of_memory"]
    assert others["cause"] == "others"
    assert "13.0 GiB" in others["says"]
    pieces = explained(tmp_path, script, allocated="18.00 GiB")["out_of_memory"]
    assert pieces["cause"] == "fragmentation"
    more = explained(tmp_path, script)["out_of_memory"]  # tensors hold what the recipe never does
    assert more["cause"] == "unexplained"
    assert not more["changes"]


def test_where_only_slow_changes_fit_the_smallest_card_is_named_with_its_price(
    tmp_path: Path,
) -> None:
    """In NF4 already, 405e9 x 0.56 bytes are 228 GB, which one 4090 can only stream."""
    quantised = (
        "--base-precision nf4 --recompute full --micro-batch 1 --seq-len 512 --loss-kernel fused"
    )
    script = samples.SCRIPT.format(micro=1, recompute=True).replace("3.1-8B", "3.1-405B")
    why = explained(tmp_path, script, quantised)["out_of_memory"]
    assert all(change["tokens_change_frac"] < -0.5 for change in why["changes"])
    card = why["card"]
    assert card["capacity_bytes"] >= card["device_bytes"] > 200 * 2**30
    assert card["usd_per_hour"] > 0
    assert card["gpu"] in card["command"]


def test_where_no_card_is_enough_the_question_of_methods_is_named(tmp_path: Path) -> None:
    script = samples.SCRIPT.replace("peft_config=peft", "").format(micro=1, recompute=True)
    why = explained(tmp_path, script.replace("3.1-8B", "3.1-405B"))["out_of_memory"]
    assert (why["changes"], why["card"]) == ([], None)
    assert "dpplan tune --model meta-llama/Llama-3.1-405B --gpu any" in why["elsewhere"]
