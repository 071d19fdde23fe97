"""Where values come from: kept through changes, read with their lines, said in answers."""

from __future__ import annotations

import pickle
from pathlib import Path

from command import dpplan

from planner.formats.plan import planned
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.specs.options import TYPED, Given, Options, Origin, over

SCRIPT = """torchrun pretrain_gpt.py \\
  --tensor-model-parallel-size 4 \\
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 \\
  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 256 --bf16
"""
FILE = Origin("file", "train.sh:3 --tp")


def test_origins_follow_the_values() -> None:
    given = Given({"model": "gpt2", "gpu": "h100", "gpus": 8, "tp": 2}, {"tp": FILE})
    options = read_options(given)
    assert (options.origin("tp"), options.origin("gpus"), options.origin("pp")) == (
        FILE,
        TYPED,
        None,
    )
    assert options.changed(gpus=16).origin("gpus") == Origin("search")
    assert options.changed(Origin("run", "runs.csv:a"), tp=4).origin("tp") == Origin(
        "run", "runs.csv:a"
    )
    assert options.changed(tp=None).origin("tp") is None
    assert options.changed(tp=2, pp=2).origin("tp") == FILE
    assert pickle.loads(pickle.dumps(options)).origins == {"tp": FILE}
    assert options == Options(model="gpt2", gpu="h100", gpus=8, tp=2)
    assert hash(options) == hash(options.changed(spelled=(), origins={}))


def test_nodes_give_their_origin_to_the_gpus() -> None:
    given = {"model": "gpt2", "gpu": "h100", "nodes": 2}
    options = read_options(given, {"nodes": Origin("file", "a.toml:3")})
    assert (options.gpus, options.origin("gpus")) == (16, Origin("file", "a.toml:3"))


def test_what_is_replaced_is_named_and_a_default_is_not() -> None:
    low = Given(
        {"tp": 2, "pp": 1, "zero": 1}, {"tp": FILE, "pp": Origin("default", "of a program")}
    )
    result = over(low, {"tp": 4, "pp": 2, "zero": 1})
    assert result == {"tp": 4, "pp": 2, "zero": 1}
    assert result.origins == {"tp": Origin("typed", "", "train.sh:3 --tp says 2")}


def test_a_recipe_says_each_option_with_its_line() -> None:
    plan = planned({"train.sh": SCRIPT}, {"gpu": "h100", "gpus": 8}).options
    assert plan.origins["tp"] == Origin("file", "train.sh:2 tensor-model-parallel-size")
    assert plan.origins["global_batch"] == Origin("file", "train.sh:4 global-batch-size")
    assert plan.origins["model"] == Origin("file", "train.sh")
    assert plan.origins["optimizer"].kind == "default"
    assert "gpus" not in plan.origins


def test_a_scenario_file_lies_between_recipe_and_words(tmp_path: Path) -> None:
    (tmp_path / "train.sh").write_text(SCRIPT)
    (tmp_path / "s.toml").write_text('gpu = "h100"\ngpus = 8\ntp = 2\nmicro-batch = 2\n')
    files = ("--recipe", tmp_path / "train.sh", "--scenario", tmp_path / "s.toml")
    document = dpplan("estimate", *files, "--micro-batch", 4, "--json").json()["scenario"]
    assert document["tp"] == {
        "value": 2,
        "from": "file",
        "where": "s.toml:3",
        "over": "train.sh:2 tensor-model-parallel-size says 4",
    }
    assert document["micro_batch"]["value"] == 4
    assert document["micro_batch"]["over"] == "s.toml:4 says 2; train.sh:4 micro-batch-size says 1"
    assert document["gpus"] == {"value": 8, "from": "file", "where": "s.toml:2"}


def test_what_is_left_open_says_why_it_is_so() -> None:
    filled = {entry.option: entry for entry in resolve(read_options(given())).filled}
    assert filled["seq_len"].value == 8192
    assert filled["seq_len"].origin.kind == "publication"
    assert filled["precision"].origin.kind == "default"
    assert filled["gpus_per_node"].value == 8
    document = dpplan("estimate", *words(), "--tp", 2, "--json").json()
    kinds = {name: value["from"] for name, value in document["scenario"].items()}
    assert (kinds["tp"], kinds["pp"], kinds["seq_len"]) == ("typed", "search", "publication")
    for name in ("dp", "zero", "micro_batch", "recompute"):
        assert document["scenario"][name]["value"] == document["layout"][name]


def given() -> dict[str, object]:
    return {"model": "llama-3-8b", "gpu": "h100", "gpus": 64}


def words() -> list[str]:
    return [word for name, value in given().items() for word in (f"--{name}", str(value))]
