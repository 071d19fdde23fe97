"""Defaults that decide an answer are answered both ways; thin evidence and an order within the
bands stand in the headline; nothing that does not fit is the verdict."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from planner import api
from planner.evidence.band import OnGpu, on_gpu
from planner.specs.options.parallel import StrategySettings
from planner.specs.options.recommend import Limits
from planner.verbs import strategies
from planner.verbs.recommend.clusters import cluster
from planner.verbs.recommend.swaps import offload
from planner.views.recommend import view
from planner.views.screen import verdict

MAVERICK = {
    "model": "llama-4-maverick",
    "gpu": "h100",
    "gpus": 16384,
    "tokens": "22T",
    "stack_defaults": True,
}
SMALL = {"model": "llama-3.1-8b", "gpu": "h100", "gpus": 64, "tokens": "1T", "tp": 2, "pp": 1}
SMALL |= {"zero": 1, "stack": "megatron-core", "recompute": "none", "stack_defaults": True}


def both_ways_of(**given: Any) -> list[str]:
    return api.estimate(api.read_options(given)).both_ways


def test_a_default_batch_on_many_gpus_is_answered_both_ways_first() -> None:
    estimate = api.estimate(api.read_options({**MAVERICK, "precision": "fp8"}))
    batch = next(
        both_way
        for both_way in estimate.both_ways
        if both_way.startswith("the default batch decides")
    )
    assert "512 sequences" in batch
    assert "--global-batch 8192" in batch
    assert batch.count("days") == 2
    assert batch.count("USD") == 2
    assert "The default batch decides" in verdict(estimate)


def test_a_stated_value_is_not_answered_otherwise() -> None:
    stated = both_ways_of(**SMALL, global_batch=512, precision="bf16", price=2.0)
    assert stated == []
    assert len(both_ways_of(**SMALL, global_batch=512, precision="bf16")) == 1  # the kind of price
    assert any(
        "--precision fp8" in entry for entry in both_ways_of(**SMALL, global_batch=512, price=2.0)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"market": "spot"}, "machines that are taken back decide: one of the job's every 33"),
        (
            {"model": "llama-3.1-405b", "gpus": 16384, "tp": 8, "pp": 16, "global_batch": 2048},
            "between failures decides: one per 50,677 GPU-hours leaves {} with one per 14,000",
        ),
        ({"gpu": "rtx4090", "tp": 4, "recompute": "full"}, "with the 10 of --cluster runpod"),
        ({"model": "qwen3-8b"}, "4,096 tokens are {}, and --seq-len 32768 --global-batch 64"),
    ],
)
def test_other_defaults_that_decide_are_answered_both_ways(
    changes: dict[str, Any], words: str
) -> None:
    given = {**SMALL, "global_batch": 512, "precision": "bf16", **changes}
    sentences = both_ways_of(**given)
    assert any(all(word in sentence for word in words.split("{}")) for sentence in sentences), (
        sentences
    )


def test_machines_that_are_taken_back_come_first_and_doubts_before_all() -> None:
    """Stated options decide before open ones; nothing is reported ahead of a doubt."""
    given = {**SMALL, "market": "spot", "global_batch": 512, "seq_len": 12}
    estimate = api.estimate(api.read_options(given), brief=False)
    assert estimate.both_ways[0].startswith("machines that are taken back decide")
    assert len(estimate.both_ways) > 1
    text = verdict(estimate, 1)
    assert text.startswith("DOUBTFUL: --seq-len 12")
    assert text.index("Fits") < text.index("Machines that are taken back decide")
    rest = [sentence.split(" decides")[0] for sentence in estimate.both_ways[1:]]
    assert f"So does {rest[0]} (--full)" in text
    alone = msgspec.structs.replace(
        estimate, both_ways=["one default decides", estimate.both_ways[0]]
    )
    assert "So do machines that are taken back (--full)" in verdict(alone, 1)


def test_a_network_that_is_stated_is_not_answered_otherwise() -> None:
    given = {**SMALL, "gpu": "rtx4090", "tp": 4, "recompute": "full", "global_batch": 512}
    assert not any(
        "network" in entry for entry in both_ways_of(**given, nic_bandwidth="100 Gbit/s")
    )


def test_evidence_on_a_card_is_thin_by_suites_or_by_error() -> None:
    assert OnGpu(0, 0, 0.0).is_thin
    assert OnGpu(50, 2, 0.05).is_thin
    assert OnGpu(50, 6, 0.2).is_thin
    assert not OnGpu(50, 6, 0.05).is_thin
    assert not on_gpu("h100-sxm5-80gb").is_thin
    assert on_gpu("mi210-64gb").is_thin
    assert on_gpu("a card").words("a card") == "no validated run on a card"


def test_the_headline_says_what_it_rests_on_and_what_could_as_well_be_first() -> None:
    """Two kinds of equal price differ only in speed, by less than their bands."""
    given = {name: value for name, value in SMALL.items() if name not in ("gpu", "gpus")}
    given |= {"global_batch": 512, "price": 2.0}
    document = cluster(Limits(max_gpus=64), given, ["h100", "h200", "mi210-64gb"])
    best = document.answers.cheapest
    assert best is not None
    thin = {kind.machine: kind.answer.thin for kind in document.types if kind.answer is not None}
    assert thin["h100"] is None
    assert "mi210-64gb" in str(thin["mi210-64gb"])
    assert "h200" in {best.machine, *document.undecided}
    assert "h100" in {best.machine, *document.undecided}
    text = "\n".join(str(line) for line in view(document).blocks[0].text)
    assert "order       within their bands cheapest, too:" in text
    far = cluster(Limits(max_gpus=64), given, ["h100", "a100"])
    assert far.undecided == []


def test_what_does_not_fit_is_no_verdict() -> None:
    result = offload({"model": "llama-3.1-8b", "gpu": "rtx4090", "gpus": 2})
    assert not any(choice.fits for choice in result.choices)
    assert result.verdict is None
    assert "neither fits" in str(view(result).blocks[0].text[1])


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ddp", {}, "buckets of 25.0 MiB"),
        ("ddp", {"bucket": "100 MB"}, "buckets of 95.4 MiB"),
        ("local-sgd", {}, "(8)"),
        ("local-sgd", {"local_steps": 32}, "(32)"),
    ],
)
def test_a_strategy_is_described_with_the_numbers_of_the_request(
    name: str, settings: dict[str, Any], words: str
) -> None:
    given = {"model": "gpt2", "gpu": "a100", "gpus": 16, "micro_batch": 4, "recompute": "none"}
    options = strategies.answer(api.read_options(given), StrategySettings(**settings), name)
    assert words in options.strategies[0].differs
