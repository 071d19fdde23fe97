"""Random options, bytes and values are answered, or refused in one sentence, within seconds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bad_requests import FILES, SUFFIX, ask, estimate
from command import dpplan, refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.options import Options, rows

pytestmark = pytest.mark.usefixtures("within_seconds_and_nothing_written")


BOUNDED = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(
        ["gpt2", "llama-2-7b", "mixtral-8x7b", "deepseek-v2-lite", "no-model"]
    ),
    "gpu": st.sampled_from(["a100", "rtx4090", "v100-sxm2-16gb", "mi300x", "x"]),
    "gpus": st.sampled_from([1, 8, 16, 64, 96]) | st.integers(-1, 4096),
    "gpus_per_node": st.integers(0, 64),
    "nics_per_node": st.integers(0, 16),
    "intra_node": st.sampled_from(["nvlink3", "pcie4", "ib-hdr", ""]),
    "inter_node": st.sampled_from(["ib-hdr", "tcp-10", "pcie4"]),
    "nic_bandwidth": st.sampled_from(["1 bit/s", "200 Gbit/s", "9e99 TB/s", "3", 0.0]),
    "price": st.floats() | st.text(max_size=5),
    **{
        name: st.sampled_from([1, 2, 4, 8]) | st.integers(-1, 20)
        for name in ("tp", "pp", "vpp", "dp", "cp", "ep", "shard_group", "micro_batch")
    },
    "zero": st.integers(-1, 4),
    "sequence_parallel": st.booleans(),
    "flash_attention": st.booleans(),
    "schedule": st.sampled_from(
        ["1f1b", "gpipe", "interleaved", "zb-1p", "zb-2p", "dualpipe", "none"]
    ),
    "recompute": st.sampled_from(
        ["none", "selective", "full", "block:1", "block:99999", "group:3", "group:"]
    ),
    "offload": st.sampled_from(["none", "optimizer", "params", "all"]),
    "seq_len": st.integers(-1, 200_000),
    "global_batch": st.integers(-1, 5000),
    "precision": st.sampled_from(["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]),
    "optimizer": st.sampled_from(["adam", "adam8bit", "adafactor", "sgd", "sgd-momentum", "lion"]),
    "tokens": st.floats() | st.text(max_size=5),
    "top": st.integers(0, 3),
    "stack": st.sampled_from([*catalog.ids("stacks"), "no-stack"]),
}


WHERE = ("model", "gpu", "gpus")
SOME = st.sets(st.sampled_from(sorted(set(VALUES) - set(WHERE))), max_size=4)


@BOUNDED
@given(
    asked=SOME.flatmap(
        lambda names: st.fixed_dictionaries(
            {name: VALUES[name] for name in (*WHERE, *sorted(names))}
        )
    )
)
def test_any_options_are_answered_or_refused(asked: dict[str, Any]) -> None:
    assert set(VALUES) <= set(rows(Options))
    try:
        report = api.estimate(api.read_options(asked))
    except PlanError:
        return
    assert report.step.seconds > 0
    assert sum(report.step.components.values()) == pytest.approx(report.step.seconds)
    assert sum(report.memory.components.values()) == pytest.approx(report.memory.peak_bytes)
    for name in (
        "tp",
        "pp",
        "vpp",
        "dp",
        "cp",
        "ep",
        "zero",
        "shard_group",
        "micro_batch",
        "recompute",
        "schedule",
    ):
        assert name not in asked or getattr(report.layout, name) == asked[name]


@BOUNDED
@given(
    content=st.binary(max_size=300)
    | st.text(max_size=300).map(lambda t: t.encode("utf-8", "surrogatepass")),
    kind=st.sampled_from(FILES),
)
def test_any_bytes_are_refused_as_a_file(content: bytes, kind: str, tmp_path: Path) -> None:
    for suffix in (
        (".toml", ".json", ".yaml") if kind == "scenario" else (SUFFIX.get(kind, ".toml"),)
    ):
        file = tmp_path / f"random{suffix}"
        file.write_bytes(content)
        answer = ask(kind, file)
        if answer.status == 2:
            refused(answer)
        else:
            assert kind == "scenario"


JSON_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3)
    ),
    max_leaves=8,
)


MIXTRAL = json.loads(
    (Path(__file__).parent / "configs" / "mixtral-8x7b.json").read_text(encoding="utf-8")
)


@BOUNDED
@given(
    changed=st.dictionaries(st.sampled_from(sorted(MIXTRAL)), JSON_VALUE, min_size=1, max_size=3)
)
def test_a_config_json_with_any_values_is_answered_or_refused(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(MIXTRAL | changed))
    answer = estimate(
        model=file, stack="pytorch-fsdp", zero=3, shard_group=16, micro_batch=1, recompute="full"
    )
    if answer.status == 2:
        refused(answer)


@BOUNDED
@given(
    content=st.dictionaries(
        st.sampled_from(sorted(rows(Options))) | st.text(max_size=8), JSON_VALUE, max_size=4
    )
)
def test_a_scenario_with_any_values_is_answered_or_refused(
    content: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "scenario.json"
    file.write_text(json.dumps({"model": "gpt2", "gpu": "a100"} | content))
    answer = dpplan("estimate", "--scenario", file)
    if answer.status == 2:
        refused(answer)
