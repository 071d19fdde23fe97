"""Lengths of datasets: of files and as published, as options of a request."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command import dpplan, refused

from planner import api
from planner.inputs import catalog, dataset
from planner.inputs.dataset import lengths_of
from planner.specs.base import PlanError
from planner.specs.documents.tune import Tuning
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune

REQUEST: dict[str, Any] = {"model": "gpt2", "gpu": "a100", "gpus": 8}


def written(folder: Path, rows: list[Any], name: str = "data.jsonl") -> str:
    path = folder / name
    lines = json.dumps(rows) if name.endswith(".json") else "\n".join(map(json.dumps, rows))
    path.write_text(lines, "utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("row", "tokens"),
    [
        ({"input_ids": [1, 2, 3]}, 3),
        ({"num_tokens": 7, "text": "not counted"}, 7),
        ({"text": "a" * 394}, 100),
        ({"text": "中" * 394}, 300),  # three bytes each
        ({"instruction": "a" * 197, "input": "", "output": "b" * 197, "id": "c" * 999}, 100),
        ({"messages": [{"role": "user", "content": "a" * 394}]}, 100),
        ({"conversations": [{"from": "gpt", "value": [{"type": "text", "text": "a" * 394}]}]}, 100),
        # a pair is two sequences with the same prompt
        ({"prompt": "p" * 394, "chosen": "c" * 788, "rejected": "r" * 394}, 250),
        ("a" * 394, 100),
        ("a" * 391 + "\ud800", 100),  # half of a surrogate pair has three bytes, too
    ],
)
def test_tokens_of_an_example(tmp_path: Path, row: Any, tokens: float) -> None:
    known = lengths_of(written(tmp_path, [row, row]))
    assert known.examples == 2
    assert known.mean == pytest.approx(tokens)
    assert known.deviation == pytest.approx(0, abs=1e-9)
    assert lengths_of(written(tmp_path, [row], "data.json")).mean == pytest.approx(tokens)


@pytest.mark.parametrize("count", ["many", -5, 0, True])
@pytest.mark.parametrize("name", ["data.jsonl", "data.json"])
def test_a_length_that_is_no_number_is_named(tmp_path: Path, count: Any, name: str) -> None:
    path = written(tmp_path, [{"num_tokens": 7}, {"num_tokens": count}], name)
    with pytest.raises(PlanError, match=r"num_tokens of (line|example) 2 is .* not a number"):
        lengths_of(path)
    beside = written(tmp_path, [{"length": "short", "text": "a" * 394}], name)
    assert lengths_of(beside).mean == pytest.approx(100)


def test_the_spread_is_that_of_a_log_normal_with_this_mean_and_deviation(tmp_path: Path) -> None:
    known = lengths_of(written(tmp_path, [{"length": n} for n in (100, 300)]))
    assert (known.mean, known.deviation) == (200, 100)
    assert known.mean**2 * math.expm1(known.sigma**2) == pytest.approx(known.deviation**2)


def test_a_large_file_is_sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, [{"text": "a" * n} for n in range(1, 4001)])
    whole = lengths_of(path)
    monkeypatch.setattr(dataset, "_MOST_READ", 1000)
    monkeypatch.setattr(dataset, "_SAMPLES", 800)
    known = lengths_of(path)
    assert "are sampled" in known.says
    # lines of a place are alike in this file, and places are by bytes: long ones come more often
    assert known.mean == pytest.approx(whole.mean, rel=0.4)
    assert known.examples == pytest.approx(whole.examples, rel=0.4)


def test_published_lengths_are_options_of_the_request() -> None:
    named = api.estimate(api.read_options({**REQUEST, "lengths": "alpaca-gpt4"}))
    by_hub = api.estimate(api.read_options({**REQUEST, "lengths": "vicgalle/alpaca-gpt4"}))
    assert "--length-mean 167.6 --length-sigma 0.6603" in named.command
    assert named.step.seconds == by_hub.step.seconds
    assert any("52,002 examples as published" in each for each in named.assumptions)
    stated = {**REQUEST, "length_mean": 167.6, "length_sigma": 0.6603}
    assert api.estimate(api.read_options(stated)).step.seconds == named.step.seconds


def test_examples_that_are_left_out_are_not_trained_on() -> None:
    """The median is a sequence of 1,024, sigma 1: of 1,000 examples 500 are left, whose mean is
    0.5232 of it."""
    given = {"model": "qwen2.5-0.5b", "gpu": "rtx4090", "seq_len": 1024, "stack_defaults": True}
    given |= {"length_mean": round(1024 * math.exp(0.5), 3), "length_sigma": 1.0}

    def answered(**more: Any) -> Tuning:
        return tune(TuneOptions(jobs=1, method="full-bf16", examples=1000), {**given, **more})

    drop = answered(packing="padded", excess_length="drop")
    assert drop.data.dropped_frac == pytest.approx(0.5, rel=1e-5)
    assert drop.data.sequences in (500, 501)  # half, rounded up
    assert drop.data.useful_tokens == pytest.approx(500 * 0.523157 * 1024, rel=1e-4)
    packed = answered(packing="packed", excess_length="drop").data
    assert packed.sequences == math.ceil(500 * 0.523157)
    cut = answered(packing="padded")
    assert (cut.data.dropped_frac, cut.data.sequences) == (0, 1000)
    half, whole = drop.methods[0], cut.methods[0]
    assert half.run_s == pytest.approx((whole.run_s or 0) / 2, rel=0.05)
    assert half.longest_context == whole.longest_context


def test_the_table_is_whole() -> None:
    for row in dataset._rows():
        known = lengths_of(row["id"])
        assert 0 < known.sigma < 4
        assert known.mean < float(row["longest_tokens"])
        assert "@" in row["source"]
        assert not row["hub"] or lengths_of(row["hub"].upper()) == known
    assert len(dataset._rows()) >= 30


def test_wrong_datasets_are_refused_with_a_remedy(tmp_path: Path) -> None:
    words = ("estimate", "--model", "gpt2", "--gpu", "a100", "--lengths")
    refused(dpplan(*words, "alpca"), "--lengths", "alpaca-gpt4")
    refused(dpplan(*words, "train.parquet"), "--lengths", "JSON lines")
    refused(dpplan(*words, tmp_path / "none.jsonl"), "--lengths", "No such file")
    refused(dpplan(*words, written(tmp_path, [{"id": 3}])), "--lengths", "no example")
    (tmp_path / "bad.jsonl").write_text('{"text": "a"}\n\nno json\n')
    refused(dpplan(*words, tmp_path / "bad.jsonl"), "--lengths", "line 3 is not JSON")
    refused(dpplan(*words, "tulu-v2", "--length-mean", 9), "--lengths", "leave one out")
    with catalog.only_given({}), pytest.raises(PlanError, match="not read here"):
        lengths_of(written(tmp_path, [{"text": "a"}]))
