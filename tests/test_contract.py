"""The public contract: documents, exit statuses, scenario files, and what a request promises to
keep."""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Answer, dpplan, dpplan_process, refused

from planner.ledger import FORMULAS
from planner.specs.components import BOTTLENECKS, MEMORY, STEP
from planner.specs.documents.error import Refusal
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.search import Search
from planner.specs.documents.validate import Validation

CONFIGS = Path(__file__).parent / "configs"

REQUESTS = {
    "dense, searched": "--model llama-70b --gpus 2048 --gpu rtx4090 --tokens 2T",
    "dense, fixed": (
        "--model llama-70b --gpus 64 --gpu a100 --tp 4 --pp 8 --vpp 2 --dp 2 --zero 1 --micro-batch"
        " 1 --recompute full --schedule interleaved --global-batch 64 --stack megatron-core"
        " --sequence-parallel"
    ),
    "experts": "--model mixtral-8x7b --gpus 64 --gpu h100 --tokens 300B --price 1.99",
    "one GPU": "--model gpt2 --gpus 1 --gpu rtx4090",
    "hybrid shard": (
        "--model llama-3-8b --gpus 32 --gpu h100 --stack pytorch-fsdp --zero 3 --shard-group 8"
    ),
    "offload": (
        "--model llama-2-13b --gpus 8 --gpu rtx4090 --stack deepspeed --zero 3 --offload optimizer"
        " --recompute full"
    ),
    "nothing fits": "--model llama-70b --gpus 8 --gpu rtx4090 --tp 8",
}


@cache
def estimated(name: str) -> Answer:
    return dpplan("estimate", *REQUESTS[name].split(), "--json")


@pytest.mark.parametrize("name", REQUESTS)
class TestEstimate:
    def test_the_document_is_as_declared(self, name: str) -> None:
        found = estimated(name).read(Estimate)
        assert set(found.step.components) <= set(STEP)
        assert set(found.step.hidden) <= set(STEP)
        assert found.step.bottleneck in BOTTLENECKS
        for stage in found.memory.per_stage:
            for part in (stage.components, *(phase.components for phase in stage.phases)):
                assert set(part) == set(MEMORY)

    def test_exit_status_tells_whether_it_fits(self, name: str) -> None:
        answer = estimated(name)
        fits = answer.json()["memory"]["fits"]
        assert fits == (name != "nothing fits")
        assert answer.status == (0 if fits else 3)
        assert answer.stderr == ""

    def test_memory_adds_up_on_the_worst_rank(self, name: str) -> None:
        memory = estimated(name).json()["memory"]
        assert sum(memory["components"].values()) == pytest.approx(memory["peak_bytes"], rel=1e-12)
        assert max(s["peak_bytes"] for s in memory["per_stage"]) == pytest.approx(
            memory["peak_bytes"], rel=1e-12
        )
        assert memory["per_stage"][memory["worst_stage"]]["peak_bytes"] == pytest.approx(
            memory["peak_bytes"], rel=1e-12
        )
        for stage in memory["per_stage"]:
            assert sum(stage["components"].values()) == pytest.approx(
                stage["peak_bytes"], rel=1e-12
            )
        assert memory["peak_bytes"] + sum(memory["outside"].values()) == pytest.approx(
            memory["device_bytes"], rel=1e-12
        )
        assert memory["peak_bytes"] <= memory["reserved_bytes"] <= memory["device_bytes"]
        assert min(memory["components"].values()) >= 0

    def test_step_time_adds_up(self, name: str) -> None:
        step = estimated(name).json()["step"]
        assert sum(step["components"].values()) == pytest.approx(step["seconds"], rel=1e-12)
        assert min(step["components"].values()) >= 0
        assert 0 < step["low"] <= step["seconds"] <= step["high"]

    def test_figures_agree_with_each_other(self, name: str) -> None:
        r = estimated(name).json()
        layout, cluster, throughput, training = (
            r["layout"],
            r["cluster"],
            r["throughput"],
            r["training"],
        )
        assert layout["tp"] * layout["pp"] * layout["cp"] * layout["dp"] == cluster["gpus"]
        assert (
            layout["dp"] * layout["micro_batch"] * layout["grad_accum"]
            == layout["global_batch"]
            == training["global_batch"]
        )
        tokens = training["global_batch"] * training["seq_len"] / r["step"]["seconds"]
        assert throughput["tokens_per_s"] == pytest.approx(tokens)
        assert throughput["tokens_per_s_per_gpu"] == pytest.approx(tokens / cluster["gpus"])
        assert 0 < throughput["mfu"] <= throughput["hfu"] < 1
        assert r["model"]["active_parameters"] <= r["model"]["parameters"]
        assert sum(r["provenance"].values()) == pytest.approx(1)
        for c in r["communication"]:
            assert 0 <= c["hidden_seconds"] <= c["seconds"] * (1 + 1e-12)
            assert c["bytes"] > 0
            assert c["count"] > 0

    def test_text_is_ascii_when_piped(self, name: str) -> None:
        answer = dpplan("estimate", *REQUESTS[name].split())
        assert answer.status == estimated(name).status
        assert answer.stdout.isascii()
        assert "\x1b" not in answer.stdout


def test_run_figures_follow_from_tokens_and_price() -> None:
    r = estimated("experts").json()
    run, cluster = r["run"], r["cluster"]
    assert run["tokens"] == 300e9
    assert run["days"] * 86400 * run["goodput"] == pytest.approx(
        300e9 / r["throughput"]["tokens_per_s"]
    )
    assert run["gpu_hours"] == pytest.approx(run["days"] * 24 * cluster["gpus"])
    assert run["cost_usd"] == pytest.approx(run["gpu_hours"] * 1.99)


def test_what_does_not_fit_comes_with_reasons_and_changes_that_work() -> None:
    r = estimated("nothing fits").json()
    assert r["memory"]["peak_bytes"] > r["memory"]["capacity_bytes"]
    assert all("reason" in a for a in r["alternatives"] if "family" in a)
    assert r["advice"], "nothing is advised"
    words = r["advice"][0]["command"].split()
    assert words[:2] == ["dpplan", "estimate"]
    followed = dpplan(*words[1:], "--json")
    assert followed.status == 0
    assert followed.json()["step"]["seconds"] == pytest.approx(r["advice"][0]["step_seconds"])


def test_advice_for_a_slow_layout_is_what_its_command_answers() -> None:
    request = [
        "--model",
        "mixtral-8x7b",
        "--gpus",
        "64",
        "--gpu",
        "h100",
        "--recompute",
        "full",
        "--ep",
        "8",
        "--tp",
        "8",
    ]
    r = dpplan("estimate", *request, "--json").json()
    assert r["memory"]["fits"]
    assert len(r["advice"]) > 1
    for advice in r["advice"]:
        assert advice["tokens_per_s"] > 1.01 * r["throughput"]["tokens_per_s"]
        followed = dpplan(*advice["command"].split()[1:], "--json").json()
        assert followed["step"]["seconds"] == pytest.approx(advice["step_seconds"])
        assert followed["layout"] == advice["layout"]
        assert followed["stack"]["id"] == advice["stack"]


def test_the_command_in_the_answer_asks_the_same_again() -> None:
    first = estimated("dense, fixed").json()
    assert dpplan(*first["command"].split()[1:], "--json").json() == first


# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "estimate --model no-such-model --gpus 8 --gpu a100",
        "estimate --model llama-70b --gpus 8 --gpu a100 --tp 3",
        "search --model llama-70b --gpus 8 --gpu no-such-gpu",
        "validate no-such-file.csv",
        "list no-such-kind",
    ],
)
def test_an_error_is_one_json_document_and_one_sentence(words: str) -> None:
    answer = dpplan(*words.split(), "--json")
    refused(answer)
    assert answer.read(Refusal).error.remedy
    assert dpplan(*words.split()).stdout == ""


@pytest.mark.parametrize(
    "words",
    [
        "estimate --model llama-70b --gpus eight --json",
        "estimate --model llama-70b --no-such-option 3 --json",
        "estimate --model llama-70b --gpus --json",
        "search --model llama-70b --tp 1.5 --json",
        "list --json",
        "nonsense --json",
        "estimate stray --json",
    ],
)
def test_words_that_are_no_options_are_refused_in_the_same_way(words: str) -> None:
    answer = dpplan(*words.split())
    refused(answer)
    assert answer.read(Refusal).error.field


def test_a_process_keeps_its_streams_apart() -> None:
    words = (
        "--model gpt2 --gpus 8 --gpu a100 --tp 2 --pp 2 --micro-batch 1 --stack megatron-core"
        " --zero 1"
    )
    answer = dpplan_process("estimate", *words.split(), "--json")
    assert answer.status == 0
    assert answer.stderr == ""
    assert answer.json()["layout"]["pp"] == 2
    broken = dpplan_process(
        "estimate", "--model", "gpt2", "--gpus", "8", "--gpu", "a100", "--tp", "5", "--json"
    )
    refused(broken)
    assert broken.json()["error"]["field"]


# -------------------------------------------------------------------------------------------------


def test_search_document() -> None:
    answer = dpplan(
        "search", "--model", "mixtral-8x7b", "--gpus", "64", "--gpu", "h100", "--top", "3", "--json"
    )
    assert answer.status == 0
    found = answer.json()
    answer.read(Search)
    assert len(found["top"]) == 3
    assert 0 < found["feasible"] <= found["evaluated"]
    assert all(isinstance(count, int) and count > 0 for count in found["rejected"].values())
    assert found["rejected"].get("does not fit memory", 0) == found["evaluated"] - found["feasible"]
    seconds = [one["step"]["seconds"] for one in found["top"]]
    assert seconds == sorted(seconds)
    best = dpplan(
        "estimate", "--model", "mixtral-8x7b", "--gpus", "64", "--gpu", "h100", "--json"
    ).json()
    assert best["layout"] == found["top"][0]["layout"]
    assert best["step"]["seconds"] == pytest.approx(seconds[0])


def test_the_front_gets_slower_as_it_gets_smaller() -> None:
    front = dpplan(
        "search", "--model", "llama-3-8b", "--gpus", "16", "--gpu", "a100", "--top", "1", "--json"
    ).json()["pareto"]
    assert len(front) > 1
    for faster, slower in pairwise(front):
        assert faster["step_seconds"] <= slower["step_seconds"]
        assert faster["device_bytes"] > slower["device_bytes"]


def test_search_without_a_fit_exits_3() -> None:
    answer = dpplan(
        "search", "--model", "llama-3.1-405b", "--gpus", "8", "--gpu", "rtx3090", "--json"
    )
    assert answer.status == 3
    found = answer.json()
    assert found["feasible"] == 0
    assert found["top"] == []
    assert found["evaluated"] > 0


@pytest.mark.parametrize("kind", ["gpus", "models", "networks", "stacks", "schedules", "clusters"])
def test_list_documents(kind: str) -> None:
    entries = dpplan("list", kind, "--json").json()
    assert len(entries) >= 5
    assert all(isinstance(entry["id"], str) for entry in entries)
    ids = [entry["id"] for entry in entries]
    assert len(set(ids)) == len(ids)
    text = dpplan("list", kind)
    assert text.status == 0
    assert text.stdout.isascii()
    assert all(name in text.stdout for name in ids)


def test_every_listed_alias_names_its_entry() -> None:
    for kind in ("gpus", "models", "networks", "stacks", "clusters"):
        entries = dpplan("list", kind, "--json").json()
        names = [name for entry in entries for name in (entry["id"], *entry["aliases"])]
        assert len(set(names)) == len(names), f"an alias of {kind} is taken twice"


HEADER = (
    "run_id,suite,gpu,gpus,gpus_per_node,stack,layers,hidden,heads,vocab,seq_len,precision,tp,pp,dp,zero,micro_batch,"
    "global_batch,step_s,peak_memory_gib,memory_kind,outcome"
)
ROWS = [
    "a,first,a100-sxm4-80gb,8,8,megatron-core,24,2048,16,50304,2048,bf16,8,1,1,1,4,64,2.0,20,allocated,ok",
    "b,second,a100-sxm4-80gb,8,8,megatron-core,24,2048,16,50304,2048,bf16,1,1,8,1,4,64,1.5,,,ok",
    "c,second,no-such-gpu,8,8,megatron-core,24,2048,16,50304,2048,bf16,1,1,8,1,4,64,1.5,,,ok",
]


def test_validate_document(tmp_path: Path) -> None:
    runs = tmp_path / "runs.csv"
    runs.write_text("\n".join([HEADER, *ROWS]), encoding="utf-8")
    answer = dpplan("validate", runs, "--json")
    assert answer.status == 0
    document = answer.json()
    answer.read(Validation)
    assert [r["run_id"] for r in document["rows"]] == ["a", "b"]
    assert set(document["suites"]) == {"first", "second"}
    assert [s["run_id"] for s in document["skipped"]] == ["c"]
    assert dpplan("validate", runs).stdout.isascii()


# -------------------------------------------------------------------------------------------------

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
}


def flags(asked: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in asked.items():
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
    return answer.json()


@pytest.mark.parametrize("suffix", ["toml", "yaml", "yml", "json"])
@pytest.mark.parametrize("dashes", [True, False])
def test_a_scenario_file_equals_flags(
    suffix: str, dashes: bool, tmp_path: Path, by_flags: Any
) -> None:
    asked = ASKED if dashes else {name.replace("-", "_"): value for name, value in ASKED.items()}
    file = tmp_path / f"scenario.{suffix}"
    if suffix == "json":
        file.write_text(json.dumps(asked), encoding="utf-8")
    else:
        sign = " = " if suffix == "toml" else ": "
        file.write_text(
            "".join(f"{k}{sign}{json.dumps(v)}\n" for k, v in asked.items()), encoding="utf-8"
        )
    answer = dpplan("estimate", "--scenario", file, "--json")
    assert answer.status == 0
    assert answer.json() == by_flags


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
    assert dpplan("estimate", "--scenario", file, *words, "--json").json() == by_flags


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
        asked = {"model": "llama-2-7b", "gpu": "a100", "gpus": 32, option: value}
        if option in ("vpp", "schedule"):
            asked["pp"] = 4
        if option == "sequence-parallel":
            asked["tp"] = 4
        r = dpplan("estimate", *flags(asked), "--json").json()
        assert "layout" in r, (asked, r)
        assert r["layout"][option.replace("-", "_")] == value
        for other in r["alternatives"]:
            assert other["layout"][option.replace("-", "_")] == value


# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama-2-70b", "mixtral-8x7b", "gpt2"])
def test_a_config_json_gives_the_answer_of_the_catalogue(name: str) -> None:
    request = ["--gpus", "64", "--gpu", "h100", "--json"]
    ours, theirs = (
        dpplan("estimate", "--model", model, *request).json()
        for model in (name, CONFIGS / f"{name}.json")
    )
    assert any("config.json" in text for text in theirs["assumptions"]) or name == "llama-2-70b"
    for r in (ours, theirs):
        for key in ("name", "title", "source"):
            r["model"].pop(key)
        r.pop("command")
        for advice in r["advice"]:
            advice.pop("command")
        r["assumptions"] = [text for text in r["assumptions"] if not text.startswith("config.json")]
    assert theirs == ours


# -------------------------------------------------------------------------------------------------


def calls(tree: dict[str, Any]) -> list[dict[str, Any]]:
    return [tree, *(inner for call in tree.get("calls", []) for inner in calls(call))]


@pytest.fixture(scope="module")
def explained() -> Any:
    return dpplan("estimate", *REQUESTS["dense, fixed"].split(), "--explain", "--json").json()


def test_explain_adds_the_tree_and_changes_nothing_else(explained: Any) -> None:
    assert {k: v for k, v in explained.items() if k not in ("explain", "offload")} == estimated(
        "dense, fixed"
    ).json()


def test_every_explained_formula_states_equation_unit_source_and_numbers(explained: Any) -> None:
    formulas = [call for call in calls(explained["explain"]) if "equation" in call]
    assert len(formulas) > 50
    for call in formulas:
        assert all(
            isinstance(call[key], str) and call[key]
            for key in ("name", "equation", "unit", "source")
        ), call["name"]
        assert call["inputs"], call["name"]
        assert all("value" in given for given in call["inputs"].values())
        assert call["output"] is not None


def test_explained_numbers_reproduce_themselves(explained: Any) -> None:
    """Each formula, called with the numbers that the tree shows going in, gives the number that it
    shows coming out."""
    functions = {
        what.name: getattr(import_module(f"planner.{what.module}"), what.name)
        for what in FORMULAS.values()
    }
    checked = set()
    for call in calls(explained["explain"]):
        given = {name: what["value"] for name, what in call.get("inputs", {}).items()}
        if not given or not all(
            isinstance(v, int | float | list) for v in (call["output"], *given.values())
        ):
            continue
        shown = {
            name: np.array(v, float) if isinstance(v, list) else v for name, v in given.items()
        }  # one value per stage
        again = np.asarray(functions[call["name"]](**shown)).reshape(-1)
        assert again == pytest.approx(np.asarray(call["output"], float).reshape(-1), rel=1e-12), (
            call["name"]
        )
        checked.add(call["name"])
    assert {"gemm_s", "state_bytes"} <= checked
    assert len(checked) > 10


def test_explain_as_text_names_every_formula_with_its_source(explained: Any) -> None:
    text = dpplan("estimate", *REQUESTS["dense, fixed"].split(), "--explain").stdout
    assert text.isascii()
    for call in calls(explained["explain"]):
        assert call["name"] in text
        if "equation" in call:
            assert call["equation"].encode("ascii", "backslashreplace").decode() in text
            assert call["source"].encode("ascii", "backslashreplace").decode() in text


def test_explain_memory_prints_every_stage_and_phase() -> None:
    given = (*REQUESTS["dense, fixed"].split(), "--explain", "memory")
    report, text = dpplan("estimate", *given, "--json").json(), dpplan("estimate", *given).stdout
    assert [call["name"] for call in report["explain"]["calls"]] == ["memory"]
    for stage in report["memory"]["per_stage"]:
        assert f"stage {stage['stage']}, {stage['layers']:g} layers: peak " in text
        assert max(phase["bytes"] for phase in stage["phases"]) == stage["peak_bytes"]
        for phase in stage["phases"]:
            assert sum(phase["components"].values()) == pytest.approx(phase["bytes"], rel=1e-12)
            assert f"    {phase['name']}: " in text
    assert "elasticity" not in text
    assert "elasticity" in dpplan("estimate", *given[:-1], "time").stdout


def test_explain_knows_two_parts() -> None:
    for words in (("--explain", "disk"), ("memory",)):
        refused(
            dpplan("estimate", *REQUESTS["dense, fixed"].split(), *words), "--explain", words[-1]
        )


# -------------------------------------------------------------------------------------------------

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
CALIBRATED = [
    "--model",
    "llama-2-7b",
    "--gpus",
    "8",
    "--gpu",
    "a100",
    "--tp",
    "4",
    "--stack",
    "megatron-core",
    "--zero",
    "1",
    "--micro-batch",
    "1",
    "--recompute",
    "none",
    "--no-sequence-parallel",
]


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
