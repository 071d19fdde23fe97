"""Steps of reinforcement learning in logs of verl and NeMo RL, beside the phases that `dpplan rl`
predicts."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import sample_logs as samples
from command import dpplan, refused

from planner.formats import recipe as formats
from planner.rl.options import RlOptions
from planner.specs.options import rows

_LOGPROBS = ("old log-probabilities", "reference log-probabilities")
RECIPE = shlex.split("--model gpt2 --gpu a100 --gpus 8 --tp 1 --pp 1 --micro-batch 1 --zero 1")


def test_a_recipe_of_verl_says_the_whole_step() -> None:
    """In options of `dpplan rl`, which takes them; its own defaults where it says nothing."""
    text = (Path(__file__).parent / "data" / "recipes" / "verl.sh").read_text()
    recipe = formats.read({"verl.sh": text})
    (note,) = recipe.notes
    words = shlex.split(note.partition("with ")[2].partition(", and")[0])
    request = dict(zip(words[::2], words[1::2], strict=True))
    assert request | {"--prompts": "512", "--responses": "16", "--update-batch": "2048"} == request
    assert (
        request | {"--algorithm": "ppo", "--reference": "no", "--response-max": "6144"} == request
    )
    given = {flag.removeprefix("--").replace("-", "_"): value for flag, value in request.items()}
    assert set(given) <= set(rows(RlOptions))
    known = {name: str(v) for name, v in recipe.by_verb["rl"].items() if v is not None}
    assert known == given


def test_phases_of_reinforcement_learning_beside_the_prediction(tmp_path: Path) -> None:
    """Phases of both programs under the names of `dpplan rl`, within a prediction that is as they
    are, and outside of one that is twice as long."""
    request = "--model gpt2 --gpu a100 --gpus 1 --prompts 16 --response-length 64 --reference yes"
    answer = dpplan("rl", *shlex.split(request), "--json").json()
    step, names = answer["step_s"], [phase["name"] for phase in answer["phases"]]
    assert names == ["generation", "reward", *_LOGPROBS, "training", "moves", "refit"]
    ours = dict(zip(names, (0.35, 0.01, 0.1, 0.1, 0.4, 0.03, 0.01), strict=True))
    for entry in answer["phases"]:
        entry |= {
            "seconds": 1.5 * ours[entry["name"]],
            "low": 0.0,
            "high": 2.0 * ours[entry["name"]],
        }
    answer |= {"step_s": 1.5, "step_low_s": 1.2, "step_high_s": 1.8}
    beside = tmp_path / "rl.json"
    beside.write_text(json.dumps(answer))
    together = " + ".join(_LOGPROBS)
    for name, want in {
        "verl.log": {"generation": 0.35, "adv": 0.01, "training": 0.4, "moves + refit": 0.04},
        "verl.csv": {"generation": 0.35, "training": 0.4, "moves + refit": 0.04},
        "nemo-rl.log": {"generation": 0.35, together: 0.2, "training": 0.4, "moves + refit": 0.03},
    }.items():
        log = samples.write(tmp_path, name)
        document = dpplan("check", log, beside, "--json").json()
        assert [file["kind"] for file in document["files"]] == ["log", "prediction"]
        if name.endswith(".log"):
            assert document["files"][0]["tokens_per_s"] == pytest.approx(18432 / 1.5, rel=0.01)
        values = {line["name"]: line for line in document["reinforcement"]["lines"]}
        for phase, share in want.items():
            assert values[phase]["measured_s"] == pytest.approx(1.5 * share, abs=0.006), (
                name,
                phase,
            )
        assert values["training"]["predicted_s"] == pytest.approx(0.6)
        assert values["moves + refit"]["predicted_s"] == pytest.approx(0.06)
        assert values["training"]["inside"]
        assert document["reinforcement"]["verdict"] == "inside the band"
    assert "adv" not in values
    answer |= {"step_s": 3.0 * step, "step_low_s": 2.0, "step_high_s": 4.0}
    beside.write_text(json.dumps(answer))
    text = dpplan("check", log, beside)
    assert text.status == 3
    assert "Faster than the band" in text.stdout
    # steps that generate are not held against a step of training
    alone = dpplan("check", log, *RECIPE, "--json").json()
    assert alone["against"] is None
    assert "dpplan rl --json" in alone["files"][0]["notes"][0]
    refused(dpplan("check", log, *RECIPE, "--append", tmp_path / "x.csv"), "--append")
    beside.write_text(json.dumps({**answer, "phases": 3}))
    refused(dpplan("check", log, beside), "LOG")
