"""The public contract: documents, exit statuses, and what an error says."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from command import argv, dpplan, dpplan_process, refused
from contract_requests import REQUESTS, estimate_of

from planner.estimate.ties import TIE
from planner.specs.components import BOTTLENECKS, MEMORY, STEP
from planner.specs.documents.error import Refusal
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.search import Search
from planner.specs.names import KINDS
from planner.specs.options import MECHANISMS
from planner.studies.documents.validate import Validation


@pytest.mark.parametrize("name", REQUESTS, scope="class")  # one request after the other
class TestEstimate:
    def test_the_document_is_as_declared(self, name: str) -> None:
        estimate = estimate_of(name).read(Estimate)
        assert set(estimate.step.components) <= set(STEP)
        assert set(estimate.step.hidden) <= set(STEP)
        assert estimate.step.bottleneck in BOTTLENECKS
        off = {
            x for each in MECHANISMS if each.NAME not in estimate.mechanisms for x in each.MEMORY
        }
        for stage in estimate.memory.per_stage:
            for part in (stage.components, *(phase.components for phase in stage.phases)):
                assert set(part) == set(MEMORY) - off

    def test_exit_status_tells_whether_it_fits(self, name: str) -> None:
        answer = estimate_of(name)
        fits = answer.json()["memory"]["fits"]
        assert fits == (name != "nothing fits")
        assert answer.status == (0 if fits else 3)
        assert answer.stderr == ""

    def test_memory_adds_up_on_the_worst_rank(self, name: str) -> None:
        memory = estimate_of(name).json()["memory"]
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
        step = estimate_of(name).json()["step"]
        assert sum(step["components"].values()) == pytest.approx(step["seconds"], rel=1e-12)
        assert min(step["components"].values()) >= 0
        assert 0 < step["low"] <= step["seconds"] <= step["high"]

    def test_figures_agree_with_each_other(self, name: str) -> None:
        r = estimate_of(name).json()
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
        assert answer.status == estimate_of(name).status
        assert answer.stdout.isascii()
        assert "\x1b" not in answer.stdout


def test_run_figures_follow_from_tokens_and_price() -> None:
    r = estimate_of("experts").json()
    run, cluster = r["run"], r["cluster"]
    assert run["tokens"] == 300e9
    assert run["days"] * 86400 * run["goodput"] == pytest.approx(
        300e9 / r["throughput"]["tokens_per_s"]
    )
    assert run["gpu_hours"] == pytest.approx(run["days"] * 24 * cluster["gpus"])
    assert run["cost_usd"] == pytest.approx(run["gpu_hours"] * 1.99)


def test_what_does_not_fit_comes_with_reasons_and_changes_that_work() -> None:
    r = estimate_of("nothing fits").json()
    assert r["memory"]["peak_bytes"] > r["memory"]["capacity_bytes"]
    assert all("reason" in a for a in r["alternatives"] if "family" in a)
    assert r["advice"], "nothing is advised"
    words = r["advice"][0]["command"].split()
    assert words[:2] == ["dpplan", "estimate"]
    followed = dpplan(*words[1:], "--advice", 0, "--json")
    assert followed.status == 0
    assert followed.json()["step"]["seconds"] == pytest.approx(r["advice"][0]["step_seconds"])


def test_the_command_in_the_answer_asks_the_same_again() -> None:
    first = estimate_of("dense, fixed").json()
    assert dpplan(*first["command"].split()[1:], "--json").json() == first


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
        "list nonsense --json",
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
        " --zero 1 --stack-defaults"
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


def test_search_document() -> None:
    answer = dpplan(
        *argv("search --model mixtral-8x7b --gpus 64 --gpu h100 --top 3 --json --stack-defaults")
    )
    assert answer.status == 0
    document = answer.json()
    answer.read(Search)
    assert len(document["top"]) == 3
    assert 0 < document["feasible"] <= document["evaluated"]
    assert all(isinstance(count, int) and count > 0 for count in document["rejected"].values())
    assert (
        document["rejected"].get("does not fit memory", 0)
        == document["evaluated"] - document["feasible"]
    )
    seconds = [entry["step"]["seconds"] for entry in document["top"]]
    for faster, slower in pairwise(seconds):  # within a tie the one with more room comes first
        assert slower >= faster / (1 + TIE)
    assert all(entry["memory"]["verdict"] == "fits" for entry in document["top"])
    best = estimate_of("experts").json()
    assert best["layout"] == document["top"][0]["layout"]
    assert best["step"]["seconds"] == pytest.approx(seconds[0])
    assert len(document["pareto"]) > 1
    for faster, slower in pairwise(document["pareto"]):
        assert faster["step_seconds"] <= slower["step_seconds"]
        assert faster["device_bytes"] > slower["device_bytes"]


def test_search_without_a_fit_exits_3() -> None:
    words = "search --model llama-3.1-405b --gpus 8 --gpu rtx3090 --stack-defaults --json"
    answer = dpplan(*argv(words))
    assert answer.status == 3
    document = answer.json()
    assert document["feasible"] == 0
    assert document["top"] == []
    assert document["evaluated"] > 0


@pytest.mark.parametrize("kind", KINDS)
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
    for kind in set(KINDS) - {"schedules"}:
        entries = dpplan("list", kind, "--json").json()
        names = [name for entry in entries for name in (entry["id"], *entry["aliases"])]
        assert len(set(names)) == len(names), f"an alias of {kind} is taken twice"


HEADER = (
    "run_id,suite,gpu,gpus,gpus_per_node,stack,layers,hidden,heads,vocab,seq_len,precision,"
    "tp,pp,dp,zero,micro_batch,global_batch,step_s,peak_memory_gib,memory_kind,outcome"
)
ROWS = [
    (
        "a,first,a100-sxm4-80gb,8,8,megatron-core,24,2048,16,50304,2048,bf16,8,1,1,1,4,64,2.0,20,"
        "allocated,ok"
    ),
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
