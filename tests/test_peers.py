"""Other tools on the facts of fine-tuning: tables between their sizes, and fitcheck-llm."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import facts, peers

KNOWN = {fact.id: fact for fact in facts.read()}


def request_of(name: str, folder: Path) -> peers.Asked:
    (answered,) = facts.answers([KNOWN[name]])
    assert isinstance(answered, facts.Answered)
    return peers.Asked(answered, KNOWN[name].options(folder))


def test_a_table_is_read_between_its_sizes(tmp_path: Path) -> None:
    """Qwen2.5 7B has 7.62e9 parameters: between 19 and 22 GB of Unsloth's 7B and 8B."""
    lora = request_of("ex01", tmp_path)
    assert lora.method == peers.LORA
    gib = peers.of_tables(lora)
    gb = 19 + (7.615616512 - 7) * (22 - 19)
    assert gib["Unsloth's table"] == pytest.approx(gb * 1e9 / 2**30)
    assert gib["LLaMA-Factory's table"] < gib["Unsloth's table"]


def test_gpus_share_what_a_table_says(tmp_path: Path) -> None:
    alone, shared = (request_of(name, tmp_path) for name in ("ex26", "ex05"))
    assert (alone.options.gpus, shared.options.gpus) == (1, 2)
    for tool, gib in peers.of_tables(alone).items():
        assert peers.of_tables(shared)[tool] == pytest.approx(gib / 2)


def test_fitcheck_takes_one_gpu_alone(tmp_path: Path) -> None:
    request = peers.request(request_of("ex01", tmp_path))
    assert request is not None
    assert request["training"]["lora_rank"] == 8
    assert request["training"]["lora_targets"][0] == "q_proj"
    assert request["model"]["num_params"] == 7_615_616_512
    assert peers.request(request_of("ex05", tmp_path)) is None


def test_the_record_is_of_facts() -> None:
    assert set(peers.recorded()) <= set(KNOWN)
