"""Every option of every verb changes some answer or is refused with a reason: none is ignored.

For each verb one small request, for each option its example from the table. Where an option matters
only beside others, or only with another value, CONTEXT says so. The echo of the command is not
compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from planner import api
from planner.inputs import catalog
from planner.rl import splits
from planner.rl import verb as rl_verb
from planner.rl.options import RlOptions
from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.specs.options import Options, Row, command_line, rows
from planner.specs.options.mechanisms import mechanism_of
from planner.specs.options.own import BatchOptions, CompareOptions, ScheduleOptions
from planner.specs.options.parallel import AllReduceOptions, InputOptions, StrategySettings
from planner.specs.options.recommend import Limits
from planner.specs.options.schema import from_example
from planner.specs.options.tune import TuneOptions
from planner.studies import check
from planner.studies.options import CheckOptions
from planner.verbs import allreduce, batch, batchnorm, compare, recommend, strategies
from planner.verbs import input as loading
from planner.verbs.batch import runs
from planner.verbs.recommend import links, models, swaps
from planner.verbs.schedule import draw
from planner.verbs.tune import sizes, tune

Given = dict[str, Any]
CALIBRATION = "tests/data/calibration.toml"
LOG = "tests/data/train.log"
NOTHING = ("tests/data/nothing.toml",) * 2  # two scenarios, all of whose options are given

# one layout of two nodes: an option that opens or moves part of it overrides what is here
REQUEST: Given = {
    "model": "gpt2",
    "gpu": "h100",
    "gpus": 8,
    "gpus_per_node": 4,
    "stack": "megatron-core",
    "zero": 1,
    "global_batch": 16,
    "seq_len": 512,
    "tokens": "1B",
    "tp": 1,
    "pp": 2,
    "cp": 1,
    "micro_batch": 1,
    "recompute": "none",
    "schedule": "1f1b",
    "stack_defaults": True,  # kernels are not searched, which takes half of the time
}
LINKS: Given = {"gpu": "h100", "gpus": 8, "gpus_per_node": 4}


def without(given: Given, *names: str) -> Given:
    return {name: value for name, value in given.items() if name not in names}


def _strategies(given: Given) -> Any:
    options = api.read_options(given)
    return strategies.answer(options, StrategySettings(), "zero-infinity")


VERBS: dict[str, tuple[Callable[[Given], Any], Given]] = {
    "estimate": (lambda given: api.estimate(api.read_options(given)), {**REQUEST, "advice": 0}),
    "search": (lambda given: api.search_layouts(api.read_options(given)), REQUEST),
    "compare": (lambda given: compare.compare(CompareOptions(files=NOTHING), given), REQUEST),
    "batch": (
        lambda given: batch.batch(BatchOptions(critical_batch="1M"), given),
        {**REQUEST, "gpus": 4},
    ),
    "tune": (
        lambda given: tune(TuneOptions(method="full", jobs=1), given),
        without(REQUEST, "tokens"),
    ),
    "schedule": (lambda given: draw(ScheduleOptions(), given).document, REQUEST),
    "strategies": (_strategies, without(REQUEST, "stack", "zero", "tp", "pp", "cp", "schedule")),
    "rl": (
        lambda given: rl_verb.rl(
            RlOptions(framework="nemo-rl", response_length=400, response_max=700), given
        ),
        without(REQUEST, "tokens", "global_batch", "seq_len"),
    ),
    "recommend cluster": (
        lambda given: recommend.ask("cluster", given, Limits(max_gpus=8), jobs=1),
        without(REQUEST, "gpus"),
    ),
    "recommend bandwidth": (
        lambda given: recommend.ask("bandwidth", given, Limits(), jobs=1),
        REQUEST,
    ),
    "recommend batch": (
        lambda given: recommend.ask("batch", given, Limits(), jobs=1),
        without(REQUEST, "global_batch"),
    ),
    "recommend model": (
        lambda given: recommend.ask("model", given, Limits(days=36_525), jobs=1),
        without(REQUEST, "model"),
    ),
    "recommend offload": (lambda given: recommend.ask("offload", given, Limits()), REQUEST),
    "check": (lambda given: check.check(CheckOptions(logs=(LOG,)), given).document, REQUEST),
    "allreduce": (lambda given: allreduce.answer(given, AllReduceOptions(bytes="1MB")), LINKS),
    "batchnorm": (lambda given: batchnorm.answer(given, "64,256x3"), LINKS),
    "input": (
        lambda given: loading.answer(given, InputOptions(samples_per_s=1e4, gpus=8)),
        {"sample_bytes": "100 kB"},
    ),
}

# of those that plan, `estimate` is asked of every option, of the others one for each option in turn
ALSO = ("search", "compare", "schedule")
MANY = ("batch", "tune", "rl", "check", *(verb for verb in VERBS if verb.startswith("recommend")))

OFFLOADED: Given = {"stack": "deepspeed", "zero": 3, "pp": 1, "schedule": None}
DRIVES: Given = {
    **OFFLOADED,
    "offload": "optimizer-nvme",
    "nvme_read": "10 GB/s",
    "nvme_write": "10 GB/s",
}
EXPERTS: Given = {"model": "deepseek-v2-lite", "ep": 4}
LORA: Given = {"lora": 8}
FREE: Given = {"tp": None, "pp": None, "cp": None, "schedule": None}
OWN: Given = {"capex": "30000", "price": None}
TWO_KINDS: Given = {
    "other_gpu": "a100",
    "other_share": "50%",
    "model": "docs/examples/model.toml",
    "seq_len": 2048,
    "global_batch": 64,
    "pp": 1,
    "schedule": None,
}

# what an option needs beside it to matter (None: left out), and where its example does not, a
# value; options of mechanisms that are not here have the EXAMPLE of their mechanism
CONTEXT: dict[str, Given] = {
    "model": {"model": "gpt2-medium"},
    "gpus": {"gpus": 16},
    "nodes": {"nodes": 4, "gpus": None},
    "gpus_per_node": {"gpus_per_node": 8},
    "cluster": {"gpu": None, "gpus_per_node": None},
    "inter_node": {"inter_node": "tcp-10"},
    "nic_bandwidth": {"nic_bandwidth": "1 Gbit/s"},
    "clock": {"clock": 0.5},
    "market": {"market": "community"},
    "host_link": {**OFFLOADED, "offload": "optimizer"},
    "host": {**OFFLOADED, "offload": "optimizer"},
    "host_threads": {**OFFLOADED, "offload": "optimizer"},
    "cpu_optimizer": {**OFFLOADED, "offload": "optimizer"},
    "cpu_update": {**OFFLOADED, "offload": "optimizer"},
    "nvme_read": {**DRIVES, "nvme_read": "1 GB/s"},
    "nvme_write": {**DRIVES, "nvme_write": "1 GB/s"},
    "nvme_capacity": {**DRIVES, "nvme_capacity": "1 MB"},
    "offload": OFFLOADED,
    "search_offload": {**OFFLOADED, "zero": 2, "model": "llama-2-7b", "gpu": "rtx4090"},
    "headroom": {**FREE, "micro_batch": None, "recompute": None, "model": "llama-2-7b"}
    | {"gpu": "rtx4090", "headroom": "60%"},
    "pp": {"pp": 1},
    "dp": {"dp": 2},
    "vpp": {"schedule": "interleaved", "vpp": 2},
    "ep": {"model": "mixtral-8x7b", "gpus": 64, "global_batch": 64},
    "etp": {**EXPERTS, "ep": 2},
    "dispatcher": EXPERTS,
    "ep_overlap": EXPERTS,
    "dispatcher_sms": {**EXPERTS, "ep_overlap": True},
    "shared_expert_overlap": EXPERTS,
    "expert_kernels": {**EXPERTS, "expert_kernels": "loop"},
    "expert_load": EXPERTS,
    "expert_spread": EXPERTS,
    "transpose_weights": {
        "gpu": "h100",
        "stack": "megatron-core",
        "precision": "fp8-delayed",
        "low_precision": "weights",
    },
    "teacher_top_k": {},  # refused without a teacher
    "divergence": {},
    # with room for 40 times the tokens memory limits the micro-batches
    "paged_stash": {**EXPERTS, "expert_load": 2.0, "capacity_factor": 40.0},
    "capacity_factor": {**EXPERTS, "capacity_factor": 40.0},
    "zero": {"zero": 0},
    "shard_group": {"stack": "pytorch-fsdp", "zero": 3, "pp": 1, "schedule": None},
    "sequence_parallel": {"tp": 2, "sequence_parallel": True},
    "grad_accum": {"grad_accum": 4, "micro_batch": None},
    "where": {"where": "micro_batch = 2", "micro_batch": None},
    "uneven_stages": {"pp": 8, "schedule": None},
    "zeropp": OFFLOADED,
    "hpz": OFFLOADED | {"hpz": 4},
    "sub_group_size": DRIVES,
    "dp_bucket": {"dp_bucket": "1 MB"},
    "cp_comm_type": {"cp": 2, "pp": 1, "schedule": None},
    "tp_overlap": {"tp": 2, "sequence_parallel": True, "stack": "nemo"},
    "island_nodes": {"island_nodes": 1, "oversubscription": 8.0},
    "oversubscription": {"island_nodes": 1, "oversubscription": 8.0},
    "lora_method": LORA,
    "lora_targets": LORA,
    "lora_dropout": LORA,
    "lora_precision": LORA,
    "lora_autocast": {**LORA, "lora_precision": "fp32", "lora_dropout": 0.1},
    "selective": {"recompute": "selective"},
    "overlap": {"pp": 1, "schedule": None},
    "fused_norm": {
        "stack": "pytorch-ddp",
        "zero": 0,
        "pp": 1,
        "schedule": None,
        "fused_norm": True,
    },
    "channels_last": {
        "model": "resnet-50",
        "stack": "pytorch-ddp",
        "zero": 0,
        "pp": 1,
        "schedule": None,
        "seq_len": None,
    },
    "lora_adapters": LORA,
    "fused_lora": LORA,
    "train_embeddings": LORA,
    "trainable_layers": {"pp": 1, "schedule": None},
    "lisa": {"pp": 1, "schedule": None},
    "lisa_states": {"pp": 1, "schedule": None, "lisa": 2},
    "pipeline_layout": {"pp": 4, "schedule": None},
    "precision": {"precision": "fp32"},
    "master_precision": {"stack_defaults": True},
    "stack_defaults": {**FREE, "micro_batch": None, "recompute": None},
    "allow_idle": {**FREE, "micro_batch": None, "gpus": 56, "global_batch": 64},
    "lifetime": OWN,
    "use": OWN,
    "electricity": OWN,
    "pue": OWN,
    "capex": OWN,
    "other_gpu": TWO_KINDS,
    "other_share": TWO_KINDS,
    "split": {**TWO_KINDS, "global_batch": 512},  # micro-batches enough to deal out unequally
    "failure_stops": {"mtbf": "2000 GPU-hours", "zero": 0},
    "slow_factor": {"slow_hosts": "5%"},
    "length_sigma": {"length_mean": 300.0},
    "excess_length": {"length_mean": 300.0},
    "short_length": {"length_mean": 300.0},
    "packing": {"length_mean": 300.0},
    "longest_row": {"length_mean": 50.0, "packing": "longest", "longest_row": 64},
    "task": {"task": "dpo", "micro_batch": 2},
    "reference": {"task": "dpo", "micro_batch": 2},
    "sample_bytes": {"sample_bytes": "1 GB", "data_storage": "1 MB/s"},
    "token_bytes": {"token_bytes": 64.0, "data_storage": "1 kB/s"},
    "decoded_bytes": {"decoded_bytes": "100 GB", "data_storage": "nfs"},
    "data_storage": {"data_storage": "1 kB/s"},
    "data_iops": {"data_iops": 0.1, "data_storage": "nfs"},
    "read_bytes": {"read_bytes": "100 B", "data_storage": "nfs", "data_iops": 10.0},
    "read_latency": {"read_latency": "100 s", "data_storage": "nfs", "workers": 1},
    "worker_rate": {"worker_rate": 0.01, "data_storage": "nfs", "workers": 1},
    "workers": {"workers": 4, "data_storage": "nfs", "worker_rate": 0.01},
    "prefetch": {"prefetch": 64, "data_storage": "nfs", "decoded_bytes": "1 GB"},
    "stack": {"stack": "torchtitan"},
    # Megatron's stack would be picked for this layout without it
    "for_target": {"stack": None, "for_target": "torchtitan"},
    "calibration": {"gpu": "rtx4090", "calibration": CALIBRATION},
    "top": {**FREE, "top": 1},
}


# a request of which nothing but the batch is fixed, as one types it first
BATCH = ("model", "gpu", "gpus", "global_batch", "seq_len", "tokens")
# a search of kernels could have what an option asks for already
PLAIN = {name: REQUEST[name] for name in BATCH} | {"stack": "pytorch-fsdp", "stack_defaults": True}
PARTS = ("schedule", "compare")  # that show least of a request, and take most options between them
# one request after another in which an option may have nothing that lets it act
IDLE: tuple[Given, ...] = (
    {},
    {"pp": 1, "schedule": None},
    {"dp": 1, "zero": None},
    {"offload": "none"},
    {"tokens": None},
    {"flash_attention": True},
    {"precision": "fp16"},
    {"state_precision": "bf16"},
    {"lora": 8},
)


def answer(verb: str, given: Given) -> str:
    ask, _ = VERBS[verb]
    return json.dumps(_without_echo(json.loads(to_json(ask(given)))), sort_keys=True)


@cache
def _base(verb: str, key: str) -> str:
    try:
        return answer(verb, json.loads(key))
    except PlanError as error:
        return str(error)


def _without_echo(document: Any) -> Any:
    if isinstance(document, dict):
        timed = {"seconds"} if "evaluated" in document else set()  # how long a search took
        return {
            name: _without_echo(value)
            for name, value in document.items()
            if name not in {"command", *timed}
        }
    return [_without_echo(entry) for entry in document] if isinstance(document, list) else document


FEW = {"models": ("gpt2", "gpt2-medium"), "gpus": ("a100-sxm4-80gb", "h100-sxm5-80gb")}
every = catalog.load_all


def _few(kind: str, spec: Any) -> Any:
    """The entries of FEW of a kind; of other kinds all."""
    return (
        [catalog.load(kind, spec, name) for name in FEW[kind]] if kind in FEW else every(kind, spec)
    )


@pytest.fixture(autouse=True)
def few_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two models and GPUs, and few batches, bandwidths and lengths, for verbs that try all."""
    monkeypatch.setattr(recommend.batches, "largest_published", lambda: ("", 64 * 2048))
    monkeypatch.setattr(runs, "_COUNTS", 2)
    monkeypatch.setattr(links, "_TIMES", (0.5, 2.0))
    monkeypatch.setattr(links, "_ROUNDS", 1)
    monkeypatch.setattr(swaps, "_LENGTHS", ())
    monkeypatch.setattr(models, "_TOGETHER", 1)
    monkeypatch.setattr(splits, "SHARES", ())
    monkeypatch.setattr(sizes, "CONTEXTS", ())
    monkeypatch.setattr(sizes, "MICRO_BATCHES", ())
    monkeypatch.setattr(catalog, "load_all", _few)


@pytest.mark.parametrize("row", rows(Options).values(), ids=lambda row: row.name)
def test_an_option_counts_or_is_refused(row: Row) -> None:
    """By all verbs that do not take it, and by the quick ones; verbs that try many requests and
    verbs that plan as an estimate does take turns."""
    turn = [*rows(Options)].index(row.name)
    in_turn = (MANY[turn % len(MANY)], ALSO[turn // len(MANY) % len(ALSO)])
    items = [v for v in VERBS if v not in (*MANY, *ALSO) or v in in_turn or v not in row.verbs]
    faults = {verb: _fault(verb, row) for verb in items}
    assert not {verb: fault for verb, fault in faults.items() if fault}


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(Options).values(), ids=lambda row: row.name)
def test_an_option_counts_or_is_refused_by_every_verb(row: Row) -> None:
    faults = {verb: _fault(verb, row) for verb in VERBS}
    assert not {verb: fault for verb, fault in faults.items() if fault}


def _fault(verb: str, row: Row) -> str:
    """The fault of an option of a verb; "" without one."""
    mechanism = mechanism_of(row.name)
    context = CONTEXT.get(row.name, dict(mechanism.EXAMPLE) if mechanism else {})
    value = context.get(row.name, from_example(row))
    beside = {**VERBS[verb][1], **without(context, row.name)}
    beside = {n: v for n, v in beside.items() if v is not None and verb in rows(Options)[n].verbs}
    given = {**beside, row.name: value}
    base = without(beside, row.name) if beside.get(row.name) == value else beside
    try:
        changed = answer(verb, given)
    except PlanError as error:
        named = error.field == row.flag and f"dpplan {verb}" in error.remedy
        if verb not in row.verbs:
            return "" if named else f"is refused for another reason: {error}"
        changed = str(error)
    if verb not in row.verbs:
        return "is taken"
    return "changes nothing" if changed == _base(verb, json.dumps(base)) else ""


@pytest.mark.parametrize("row", rows(Options).values(), ids=lambda row: row.name)
def test_a_plain_request_ignores_nothing(row: Row) -> None:
    """Only the option, without others that it may need; verbs take turns."""
    verbs = [verb for verb in PARTS if verb in row.verbs]
    if not verbs or row.name == "calibration":  # is a file
        return
    verb = verbs[[*rows(Options)].index(row.name) % len(verbs)]
    value = CONTEXT.get(row.name, {}).get(row.name, from_example(row))
    plain = {n: v for n, v in PLAIN.items() if verb in rows(Options)[n].verbs}
    base = without(plain, row.name) if plain.get(row.name) == value else plain
    before = _base(verb, json.dumps(base))
    try:
        after = answer(verb, {**base, row.name: value})
    except PlanError as error:
        assert error.field  # noqa: PT017  (either is right: it counts, or it is refused)
        return
    taken = {f'"{row.name}": {json.dumps(value)}', f'"{row.name}": "{value}"'}
    assert after != before or any(entry in before for entry in taken)


NEEDING = [row for row in rows(Options).values() if row.says.needs]


@pytest.mark.parametrize("row", NEEDING, ids=lambda row: row.name)
def test_an_option_that_nothing_lets_act_is_refused(row: Row) -> None:
    needs = row.says.needs
    assert needs is not None
    for verb in sorted(needs.verbs or row.verbs):
        for beside in IDLE:
            given = {**VERBS[verb][1], **beside, row.name: from_example(row)}
            known = rows(Options)
            given = {n: v for n, v in given.items() if v is not None and verb in known[n].verbs}
            if not needs.holds(Options(**{"model": "gpt2", **given})):
                with pytest.raises(PlanError) as error:
                    VERBS[verb][0](given)
                assert (error.value.field, error.value.remedy) == (row.flag, needs.says), verb
                assert row.flag not in command_line(Options(**{"model": "gpt2", **given}), verb)
                break
        else:
            pytest.fail(f"acts in every request of {verb}")


SETTINGS = [
    (record, row, name)
    for record in (Options, StrategySettings)
    for row in rows(record).values()
    for name in row.says.strategies
]


@pytest.mark.parametrize(
    ("record", "row", "name"), SETTINGS, ids=lambda name: getattr(name, "name", str(name))
)
def test_a_setting_acts_in_its_strategies_and_is_refused_by_others(
    record: type, row: Row, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strategies, "STRATEGIES", ())  # none is measured against all exact ones
    plain = {**PLAIN, "gpus_per_node": 2, "micro_batch": 1, "recompute": "none"}
    if (
        row.name == "host_link"
    ):  # copies from pageable memory wait for bridges that many GPUs share,
        plain |= {"gpus_per_node": 8, "model": "llama-2-7b"}  # and show where a step is short
    plain = {n: v for n, v in plain.items() if "strategies" in rows(Options)[n].verbs}

    def ask(strategy: str, given: Given) -> str:
        of_request = given if record is Options else {}
        settings = StrategySettings(**(given if record is not Options else {}))
        options = api.read_options({**plain, **of_request})
        return json.dumps(to_json(strategies.answer(options, settings, strategy)))

    given = {row.name: "1 MiB" if row.name == "bucket" else from_example(row)}
    assert ask(name, given) != ask(name, {})
    other = next(entry for entry in strategies.BY_NAME if entry not in row.says.strategies)
    with pytest.raises(PlanError) as error:
        ask(other, given)
    assert error.value.field == row.flag
    assert name in error.value.remedy
