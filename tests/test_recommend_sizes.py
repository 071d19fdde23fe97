"""`dpplan recommend` bandwidth, batch and model: what it names is enough, a little less is not."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clusters_found import rerun
from command import dpplan
from hypothesis import given
from hypothesis import strategies as st
from not_none import not_none
from plans import flat_of

from planner import api
from planner.estimate import Estimates
from planner.formulas.params import parameter_count
from planner.inputs import catalog, readers
from planner.inputs.batch import largest_published
from planner.inputs.model import model_spec
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.report.bottleneck import exposed_s
from planner.search import batched
from planner.specs.layers import of_samples
from planner.specs.model import ModelSpec, stated
from planner.specs.options.recommend import Limits
from planner.verbs import recommend
from planner.verbs.recommend import links, models

CROSSING = {
    "model": "llama-2-7b",
    "gpu": "a100",
    "gpus": 32,
    "seq_len": 2048,
    "global_batch": 64,
    "stack": "megatron-core",
    "tp": 2,
    "pp": 2,
    "micro_batch": 1,
    "recompute": "none",
    "stack_defaults": True,
}


@cache
def crossing() -> Estimates:
    chosen = batched.choose([resolve(api.read_options(CROSSING)).plans])[0]
    assert isinstance(chosen, batched.Chosen)
    return chosen.estimates


@pytest.mark.parametrize("wire", ["network", "intra-node link"])
def test_more_bandwidth_never_waits_longer(wire: str) -> None:
    times = np.geomspace(0.01, 1000, 40)
    shares, time = links.exposed_share(crossing().plan, crossing().table, wire, times)
    assert (np.diff(shares) <= 1e-12).all()
    assert (np.diff(time.seconds) <= 1e-12).all()


def test_the_bandwidth_named_is_enough_and_a_little_less_is_not() -> None:
    plan, table = crossing().plan, crossing().table
    out = recommend.bandwidth(CROSSING)
    for wire, value in out.wires.items():
        for share, need in value.free.items():
            if need is None:
                assert value.latency_frac >= float(share)
                continue
            around = np.array([0.999, 1.001]) * need / value.bytes_per_s_per_gpu
            below, above = links.exposed_share(plan, table, wire, around)[0]
            assert above < float(share) <= below
    assert any(need for wire in out.wires.values() for need in wire.free.values())


def test_the_cluster_as_it_is_is_the_estimate() -> None:
    out = recommend.bandwidth(CROSSING)
    full = api.estimate(api.read_options(CROSSING))
    assert out.step.seconds == pytest.approx(full.step.seconds)
    now = next(entry for entry in out.searched if entry.times == 1)
    assert now.step_seconds == pytest.approx(full.step.seconds, rel=1e-6)
    assert [entry.step_seconds for entry in out.searched] == sorted(
        (entry.step_seconds for entry in out.searched), reverse=True
    )
    wires = out.wires
    assert wires["network"].exposed_s + wires["intra-node link"].exposed_s == pytest.approx(
        float(total(exposed_s(crossing().time))[0])
    )
    again = rerun(next(entry for entry in out.searched if entry.times == 8).command)
    assert again.step.seconds == pytest.approx(
        next(o for o in out.searched if o.times == 8).step_seconds, rel=1e-9
    )


def test_one_node_has_no_network() -> None:
    out = recommend.bandwidth({**CROSSING, "gpus": 8})
    assert list(out.wires) == ["intra-node link"]
    assert out.searched == []


def test_batches_within_a_share_of_the_best() -> None:
    given_ = {
        "model": "gpt2",
        "gpu": "a100",
        "gpus": 8,
        "seq_len": 4096 // 4,
        "stack": "pytorch-ddp",
        "micro_batch": 1,
    }
    out = recommend.batch(given_)
    rates = {row.global_batch: row.throughput.tokens_per_s_per_gpu for row in out.rows}
    best = max(rates.values())
    assert rates[out.best] == best
    for share, size in out.saturates.items():
        assert rates[size] >= (1 - float(share)) * best
        assert all(
            rate < (1 - float(share)) * best for smaller, rate in rates.items() if smaller < size
        )
    assert all(size % 8 == 0 for size in rates)
    row = out.rows[2]
    assert rerun(row.command).throughput.tokens_per_s_per_gpu == pytest.approx(
        row.throughput.tokens_per_s_per_gpu
    )
    assert max(rates) * out.seq_len <= largest_published()[1]


def test_odd_numbers_of_gpus_get_batches_that_divide() -> None:
    given_ = {
        "model": "gpt2",
        "gpu": "a100",
        "gpus": 24,
        "seq_len": 1024,
        "stack": "pytorch-ddp",
        "micro_batch": 1,
    }
    assert all(row.global_batch % 24 == 0 for row in recommend.batch(given_).rows)


@cache
def largest_found() -> Any:
    given_ = {
        "model": "gpt2-xl",
        "gpu": "rtx4090",
        "gpus": 2,
        "seq_len": 512,
        "global_batch": 16,
        "stack": "pytorch-ddp",
    }
    return recommend.largest(Limits(), given_)


def test_the_largest_of_the_catalogue_fits_and_no_larger_does() -> None:
    part = largest_found().catalogue
    answer = part.answer
    models = catalog.load_all("models", ModelSpec)
    others = [model for model in models if of_samples(model) or model.traced]
    known = [parameter_count(model) for model in models if model not in others]
    assert not {row.model for row in part.rows} & {model.name for model in others}
    larger = [row for row in part.rows if row.parameters > answer.parameters]
    assert len(larger) == sum(count > answer.parameters for count in known)
    ruled_out = [row for row in larger if row.refused][
        -1
    ]  # the smallest of those that are not evaluated
    bare = {
        "gpu": "rtx4090",
        "gpus": 2,
        "seq_len": 128,
        "tp": 1,
        "global_batch": 2,
        "stack": "pytorch-fsdp",
    }
    assert not api.estimate(api.read_options({"model": ruled_out.model, **bare})).memory.fits
    assert [row.parameters for row in part.rows] == sorted(
        (row.parameters for row in part.rows), reverse=True
    )
    assert not any(row.within for row in part.rows if row.parameters > answer.parameters)
    assert rerun(answer.command).memory.fits


def test_the_largest_scaled_shape_fits_and_the_next_does_not(tmp_path: Path) -> None:
    family = largest_found().family
    shape, above = family.shape, family.above
    assert not above.fits
    assert above.parameters > family.answer.parameters
    file = tmp_path / "scaled.toml"
    file.write_text(recommend.model_toml(shape))
    given_ = {
        "gpu": "rtx4090",
        "gpus": 2,
        "seq_len": 512,
        "global_batch": 16,
        "stack": "pytorch-ddp",
    }
    full = api.estimate(api.read_options({"model": str(file), **given_}))
    assert full.memory.fits
    assert full.memory.device_bytes == pytest.approx(family.answer.memory.device_bytes)
    assert full.model.parameters == family.answer.parameters


@pytest.mark.parametrize(
    "name", ["llama-2-70b", "gpt2", "deepseek-v3", "gemma-2-9b", "qwen3-235b-a22b"]
)
def test_a_shape_scaled_by_one_is_the_model(name: str) -> None:
    model = model_spec(name)[0]
    same = models.scaled(model, flat_of(model).heads, model.layers)
    assert parameter_count(same) == pytest.approx(
        parameter_count(model), rel=0.02
    )  # MLP widths are rounded to 128
    assert (same.hidden, same.vocab) == (model.hidden, model.vocab)
    ours, theirs = flat_of(same), flat_of(model)
    assert (ours.kv_heads, ours.head_dim) == (theirs.kv_heads, theirs.head_dim)
    read = catalog.build(
        type(model),
        readers.read_toml(
            recommend.model_toml(stated(same, exclude_none=True, exclude={"aliases"}))
        ),
        "x",
        "x",
    )
    assert parameter_count(read) == parameter_count(same)


@given(index=st.integers(0, 40))
def test_scaled_shapes_grow_with_heads_and_layers(index: int) -> None:
    model = model_spec("llama-2-7b")[0]
    rungs = models.ladder(model)
    heads, layers = rungs[index % len(rungs)]
    shape = models.scaled(model, heads, layers)
    assert flat_of(shape).heads % 8 == 0
    assert shape.layers % 4 == 0
    assert parameter_count(models.scaled(model, heads + 8, layers)) > parameter_count(shape)
    assert parameter_count(models.scaled(model, heads, layers + 4)) > parameter_count(shape)


def test_days_bound_the_model() -> None:
    given_ = {
        "gpu": "a100",
        "gpus": 8,
        "seq_len": 512,
        "global_batch": 64,
        "stack": "pytorch-ddp",
        "tokens": "10B",
        "micro_batch": 1,
        "stack_defaults": True,
    }
    loose, tight = (
        recommend.largest(Limits(days=days), given_).catalogue.answer for days in (100.0, 2.0)
    )
    assert not_none(not_none(tight).days) <= 2.0
    assert not_none(tight).parameters <= not_none(loose).parameters


def test_model_out_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "m.toml"
    words = [
        "--model",
        "gpt2",
        "--gpu",
        "rtx5060ti-16gb",
        "--gpus",
        1,
        "--seq-len",
        256,
        "--global-batch",
        4,
        "--stack",
        "pytorch-ddp",
        "--stack-defaults",
    ]
    answer = dpplan("recommend", "model", *words, "--model-out", file, "--json")
    assert answer.status == 0
    assert dpplan("estimate", "--model", file, *words[2:]).status == 0
