"""Promises of a request: scenario files equal flags, fixed options stay fixed, and files of a model
or a calibration are used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import argv, dpplan, refused

from planner.specs.layout import recompute_in

CONFIGS = Path(__file__).parent / "configs"


ASKED: dict[str, Any] = {
    "model": "llama-2-7b",
    "gpu": "a100",
    "gpus": 16,
    "tp": 2,
    "zero": 1,
    "sequence-parallel": True,
    "micro-batch": 2,
    "global-batch": 128,
    "seq-len": 4096,
    "precision": "bf16",
    "flash-attention": False,
    "tokens": "1.5T",
    "price": 2.5,
    "stack": "megatron-core",
    "recompute": "selective",
    "nic-bandwidth": "100 Gbit/s",
    "top": 3,
    "stack-defaults": True,  # kernels are not searched, which takes most of the time
}


def flags(request: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in request.items():
        words += (
            [f"--{name}" if value else f"--no-{name}"]
            if isinstance(value, bool)
            else [f"--{name}", str(value)]
        )
    return words


@pytest.fixture(scope="module")
def by_flags() -> Any:
    answer = dpplan("estimate", *flags(ASKED), "--json")
    assert answer.status == 0
    return apart(answer.json())[0]


def apart(answer: Any) -> tuple[Any, Any]:
    """An answer without its origins, and the origins."""
    scenario = answer.pop("scenario")
    if any("over" in entry for entry in scenario.values()):
        answer["assumptions"] = [
            assumption for assumption in answer["assumptions"] if " is typed: " not in assumption
        ]
    return answer, scenario


@pytest.mark.parametrize(
    ("suffix", "dashes"), [("toml", True), ("yaml", False), ("yml", True), ("json", False)]
)
def test_a_scenario_file_equals_flags(
    suffix: str, dashes: bool, tmp_path: Path, by_flags: Any
) -> None:
    request = ASKED if dashes else {name.replace("-", "_"): value for name, value in ASKED.items()}
    file = tmp_path / f"scenario.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps(request), encoding="utf-8")
    else:
        sign = " = " if suffix == "toml" else ": "
        file.write_text(
            "".join(f"{k}{sign}{json.dumps(v)}\n" for k, v in request.items()), encoding="utf-8"
        )
    answer = dpplan("estimate", "--scenario", file, "--json")
    assert answer.status == 0
    result, scenario = apart(answer.json())
    assert result == by_flags
    for line, name in enumerate(request, 2 if suffix == "json" else 1):
        where = f"scenario.{suffix}:{1 if suffix == 'json' else line}"
        value = {"value": ASKED[name.replace("_", "-")], "from": "file", "where": where}
        assert scenario[name.replace("-", "_")] == value


def test_flags_override_the_scenario_file(tmp_path: Path, by_flags: Any) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(
        json.dumps(
            {
                **ASKED,
                "tp": 16,
                "sequence-parallel": False,
                "flash-attention": True,
                "gpu": "rtx4090",
            }
        )
    )
    words = ["--tp", "2", "--sequence-parallel", "--no-flash-attention", "--gpu", "a100"]
    answer = dpplan("estimate", "--scenario", file, *words, "--json").json()
    text = "--tp 2 is typed: scenario.json:1 says 16"
    assert text in answer["assumptions"]
    assert text in dpplan("estimate", "--scenario", file, *words).stdout
    result, scenario = apart(answer)
    assert result == by_flags
    over = {"value": 2, "from": "typed", "where": "--tp", "over": "scenario.json:1 says 16"}
    assert scenario["tp"] == over
    assert {name for name, value in scenario.items() if "over" in value} == {
        "tp",
        "sequence_parallel",
        "flash_attention",
        "gpu",
    }


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("tp", [1, 4, 8]),
        ("pp", [1, 4]),
        ("vpp", [2]),
        ("dp", [2, 16]),
        ("zero", [0, 1, 2, 3]),
        ("micro-batch", [1, 4]),
        ("recompute", ["none", "selective", "full", "block:2", "group:4"]),
        ("schedule", ["1f1b", "gpipe", "zb-1p"]),
        ("sequence-parallel", [True, False]),
    ],
)
def test_what_is_fixed_stays_fixed(option: str, values: list[Any]) -> None:
    for value in values:
        by_name = {"model": "llama-2-7b", "gpu": "a100", "gpus": 32, "advice": 0, option: value}
        by_name["stack-defaults"] = option != "tp"  # once with free options, too
        if option in ("vpp", "schedule"):
            by_name["pp"] = 4
        if option == "sequence-parallel":
            by_name["tp"] = 4
        r = dpplan("estimate", *flags(by_name), "--json").json()
        assert "layout" in r, (by_name, r)
        for layout in (r["layout"], *(other["layout"] for other in r["alternatives"])):
            kept = value
            if option == "recompute":  # by the name of what it is in chunks of this many layers
                kept = recompute_in(value, -(-32 // (layout["pp"] * layout["vpp"])))
            assert layout[option.replace("-", "_")] == kept


@pytest.mark.parametrize("name", ["llama-2-70b", "mixtral-8x7b", "gpt2"])
def test_a_config_json_gives_the_answer_of_the_catalogue(name: str) -> None:
    request = [
        "--gpus",
        "64",
        "--gpu",
        "h100",
        "--stack",
        "pytorch-fsdp",
        "--stack-defaults",
        "--json",
    ]
    ours, theirs = (
        dpplan("estimate", "--model", model, *request).json()
        for model in (name, CONFIGS / f"{name}.json")
    )
    assert any("config.json" in text for text in theirs["assumptions"]) or name == "llama-2-70b"
    for r in (ours, theirs):
        for key in ("name", "title", "source"):
            r["model"].pop(key)
        for key in ("command", "pick", "scenario"):
            r.pop(key)
        lines = (*r["advice"], *r["alternatives"], *r["near_ties"])
        for other in (*lines, *filter(None, (r["tighter"],))):
            other.pop("command")
        for change in r["advice"]:
            change.pop("pick")
        r["assumptions"] = [text for text in r["assumptions"] if not text.startswith("config.json")]
    assert theirs == ours


CALIBRATION = """
schema_version = 1
gpu = "a100-sxm4-80gb"
date = "2026-11-01"
source = "a node"

[overlay.kernels.gemm_efficiency]
value = {efficiency}
kind = "measured"
source = "calibration of a node"
date = "2026-11-01"

[links.nvlink3.all_reduce_frac]
value = 0.5
kind = "measured"
source = "calibration of a node"
date = "2026-11-01"
"""
CALIBRATED = argv(
    "--model llama-2-7b --gpus 8 --gpu a100 --tp 4 --stack megatron-core --zero 1 --micro-batch 1 "
    "--recompute none --no-sequence-parallel --stack-defaults"
)


def calibrated(tmp_path: Path, efficiency: float) -> Any:
    file = tmp_path / "node.toml"
    file.write_text(CALIBRATION.format(efficiency=efficiency), encoding="utf-8")
    answer = dpplan("estimate", *CALIBRATED, "--calibration", file, "--json")
    assert answer.status == 0, answer.stderr
    return answer.json()


def test_a_calibration_moves_time_and_shows_as_measured(tmp_path: Path) -> None:
    shipped = dpplan("estimate", *CALIBRATED, "--json").json()
    slow, slower = calibrated(tmp_path, 0.4), calibrated(tmp_path, 0.2)
    assert slower["step"]["components"]["matmul"] == pytest.approx(
        2 * slow["step"]["components"]["matmul"], rel=0.05
    )
    assert slow["step"]["components"]["matmul"] > shipped["step"]["components"]["matmul"]
    for document in (slow, shipped):
        for stage in document["memory"]["per_stage"]:
            assert stage.pop("pass_seconds") > 0
    assert slow["memory"] == shipped["memory"]
    measured = {n["name"]: n for n in slow["machine"]}["gemm_efficiency"]
    assert (measured["value"], measured["kind"], measured["source"]) == (
        0.4,
        "measured",
        "calibration of a node",
    )
    assert slow["provenance"]["measured_frac"] > shipped["provenance"]["measured_frac"]
    assert sum(slow["provenance"].values()) == pytest.approx(1)


def test_a_calibration_of_a_link_moves_its_collectives_only(tmp_path: Path) -> None:
    shipped = dpplan("estimate", *CALIBRATED, "--json").json()
    file = tmp_path / "node.toml"
    text = CALIBRATION.format(efficiency=0.4)
    file.write_text(text[: text.index("[overlay")] + text[text.index("[links") :], encoding="utf-8")
    slow = dpplan("estimate", *CALIBRATED, "--calibration", file, "--json").json()
    moved = {
        c["operation"]
        for c, d in zip(slow["communication"], shipped["communication"], strict=True)
        if c["seconds"] > d["seconds"] * 1.01
    }
    assert moved == {"all_reduce"}
    assert slow["step"]["components"]["matmul"] == shipped["step"]["components"]["matmul"]
    assert slow["step"]["seconds"] > shipped["step"]["seconds"]


def test_a_calibration_is_for_one_gpu(tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(CALIBRATION.format(efficiency=0.4), encoding="utf-8")
    answer = dpplan(
        "estimate", "--model", "gpt2", "--gpus", "8", "--gpu", "h100", "--calibration", file
    )
    refused(answer, "--calibration", "a100-sxm4-80gb", "h100-sxm5-80gb")
