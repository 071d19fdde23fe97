"""Documents: every key is declared, and every answer is as declared."""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import sample_logs
from command import ROOT, dpplan

from planner import api, plugins
from planner.specs import components, documents
from planner.specs.base import Spec
from planner.specs.document import UNSET, Document, plain, read, to_json
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.run import Storage
from planner.specs.documents.training import Training
from planner.specs.training import TrainingSpec

_IN_DOCUMENTS = re.compile(r"planner\.\w+\.documents\b")  # charts are documents of their own


def fields(kind: type) -> tuple[msgspec.inspect.Field, ...]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return info.fields


def _declared() -> list[type[Document]]:
    """Documents that the planner and its parts declare."""
    for package in (documents, *plugins.modules("documents")):
        for iter_module in pkgutil.iter_modules(getattr(package, "__path__", ())):
            importlib.import_module(f"{package.__name__}.{iter_module.name}")
    out, waiting = [], [Document]
    while waiting:
        below = waiting.pop().__subclasses__()
        out += below
        waiting += below
    return [kind for kind in out if _IN_DOCUMENTS.match(kind.__module__)]


def test_every_key_is_declared_with_a_sentence() -> None:
    for kind in _declared():
        for field in fields(kind):
            text = field.type
            assert isinstance(text, msgspec.inspect.Metadata), (kind, field.name)
            assert (text.extra_json_schema or {}).get("description"), (kind, field.name)


# keys of `training` since version 1; one that goes needs another `SCHEMA_VERSION`
TRAINING_1 = """
active_layers adapter attention base_group base_precision base_upcast capacity_factor compile
context_way cpu_optimizer cpu_update cuda_graphs data_bucket data_overlap dispatcher dispatcher_sms
divergence ep_overlap etp expandable_segments expert_kernels expert_load expert_spread fused_kernels
fused_norm global_batch gradient_precision gradient_reduce hpz lisa_states loss_chunks loss_kernel
low_parts master_precision moments_precision offload_modules optimizer optimizer_in_backward
optimizer_rank overlap paged_stash precision reference selective seq_len shared_expert_overlap
state_precision sub_group_size task teacher_gpus teacher_precision teacher_top_k tensor_overlap
tokens train_embeddings trainable_layers wide_layers zeropp
"""


def test_training_of_a_report_keeps_its_keys_where_a_mechanism_states_them() -> None:
    assert {*TRAINING_1.split()} <= {*Training.model_fields}

    def training(**value: Any) -> dict[str, Any]:
        request = {"model": "qwen3-0.6b", "gpu": "a100", "stack_defaults": True, **value}
        report = api.estimate(api.read_options(request), brief=True)
        return dict(json.loads(to_json(report))["training"])

    off = {"zeropp": [], "optimizer_in_backward": False, "cpu_update": "after"}
    plainly = training(gpus=8)
    assert {name: plainly[name] for name in off} == off
    assert not {"hpz", "paged_stash"} & plainly.keys()
    shards = training(gpus=16, hpz=8, zeropp="qgz+qwz", offload="optimizer", cpu_update="delayed")
    wanted = {"hpz": 8, "zeropp": ["qwz", "qgz"], "cpu_update": "delayed"}
    assert {name: shards[name] for name in wanted} == wanted
    alone = {"gpus": 1, "global_batch": 1, "optimizer_in_backward": True}
    assert training(**alone)["optimizer_in_backward"] is True
    halves = {"gpus": 8, "tp": 2, "sequence_parallel": True, "tp_overlap": "user-buffers"}
    assert training(**halves)["tensor_overlap"] == "user-buffers"
    experts = {"model": "moonlight-16b-a3b", "gpus": 64, "capacity_factor": 1.5}
    assert training(**experts, paged_stash=1.1)["paged_stash"] == 1.1


def test_a_document_comes_back_from_its_json() -> None:
    first = Storage("disk", np.float64(1e9), 2.0, float("inf"), 4.0, 0.5)
    text = to_json([first])
    assert '"stop_s":null' in text
    with pytest.raises(msgspec.ValidationError, match="stop_s"):
        read(text, list[Storage])
    whole = msgspec.structs.replace(first, stop_s=3.0)
    assert read(to_json([whole]), list[Storage]) == [whole]
    assert plain(whole)["bytes_per_s"] == 1e9


def test_a_spec_inside_a_document_has_the_keys_that_are_set() -> None:
    class Holder(Document):
        spec: TrainingSpec

    first = Holder(TrainingSpec(seq_len=1024, global_batch=8, tokens=1e9))
    assert isinstance(first.spec, Spec)
    assert "attention" not in plain(first)["spec"]
    assert read(to_json(first), Holder) == first


def test_every_component_and_bottleneck_has_its_sentence() -> None:
    kinds = {component.kind for component in components.STEP.values()}
    assert kinds == {*components.BOTTLENECKS, components.COMMUNICATION} - {*components.WIRES}
    assert all("{share}" in bottleneck for bottleneck in components.BOTTLENECKS.values())
    for entry in (*(c.says for c in components.STEP.values()), *components.MEMORY.values()):
        assert entry.strip()


ASKED: dict[str, tuple[str, ...]] = {
    "estimate": (
        "--model mixtral-8x7b --gpu h100 --gpus 64 --seq-len 8192 --ep 8 --tokens 1T --explain"
        " --stack megatron-core",
        "--model llama-3.1-8b --gpu h100 --gpus 16 --seq-len 65536 --tp 2 --cp 2 --pp 1"
        " --stack megatron-core",
        "--model llama-2-7b --gpu a100 --gpus 8 --zero 1 --recompute full --micro-batch 1"
        " --require fits --require 'step > 1 s' --scenario docs/examples/scenario.toml",
        "--model llama-2-7b --gpu rtx4090 --gpus 2 --seq-len 2048 --stack pytorch-fsdp",
        "--model llama-2-7b --gpu h100 --gpus 8 --gpus-per-node 2 --stack megatron-core"
        " --where pp=1 --recompute none --micro-batch 1 --global-batch 2 --advice 0",
        "--model llama-3-8b --gpu l40s --gpus 4 --advice 0",
        "--recipe tests/data/recipes/undecided.sh --gpu h100 --advice 0",
        "--model gpt2 --gpu a100 --gpus 2 --offload params --zero 3 --chart roofline",
        "--model gpt2 --gpu h200 --gpus 8 --offload params-nvme",
        "--model gpt2 --gpu a100 --gpus 2 --offload activations --stack megatron-core --explain",
        "--model gpt2 --gpu a100 --gpus 2 --jitter 0.5% --lora 8 --chart crossover",
        "--model gpt2 --gpu a100 --gpus 2 --pp 2 --pipeline-layout 'Et*7|t*5L'",
        "--model gpt2 --gpu a100 --gpus 16 --jitter 0.5% --slow-hosts 1% --other-gpu h100"
        " --other-share 50% --length-mean 300 --data-storage nfs --workers 2 --worker-rate 1",
    ),
    "search": (
        "--model llama-2-7b --gpu a100 --gpus 8 --top 1",
        "--model llama-2-7b --gpu rtx4090 --gpus 1 --top 1",
    ),
    "recommend cluster": (
        "--model llama-2-7b --tokens 100B --days 10 --gpu a100 --max-gpus 128 --stack pytorch-fsdp",
        "--model llama-70b --tokens 10B --days 1 --gpu rtx4090 --max-gpus 4",
        "--model gpt2-xl --tokens 100B --days 0.35 --gpu h100 --max-gpus 64 --stack pytorch-fsdp",
        "--model llama-2-7b --tokens 100B --days 10 --gpu a100 --max-gpus 128 --stack pytorch-fsdp"
        " --market spot",
    ),
    "recommend bandwidth": ("--model gpt2-xl --gpu a100 --gpus 16 --stack pytorch-fsdp",),
    "recommend batch": ("--model gpt2-xl --gpu a100 --gpus 16 --stack pytorch-fsdp",),
    "recommend model": ("--model gpt2-xl --gpu a100 --gpus 2 --stack pytorch-fsdp",),
    "recommend offload": ("--model gpt2-xl --gpu a100 --gpus 2",),
    "compare": (
        "--model gpt2-xl --gpus 8 --vary gpu=rtx4090,a100 --tokens 10B",
        "--model llama-70b --gpus 1 --vary gpu=rtx4090,a100",
        "--model gpt2-xl --gpu a100 --sweep gpus=8..32 --stack pytorch-fsdp",
        "--model llama-70b --gpu rtx4090 --sweep gpus=1..16 --stack pytorch-fsdp",
        "--model gpt2-xl --gpus 8 --vary gpu=rtx4090,a100 --at cost --stack pytorch-fsdp",
    ),
    "batch": (
        "--model gpt2-xl --gpu a100 --sweep gpus=8..64 --global-batch 64 --tokens 10B"
        " --critical-batch 2M --stack pytorch-fsdp",
        "--model llama-2-7b --gpu rtx4090 --sweep gpus=1..16 --global-batch 64 --tokens 1B"
        " --critical-batch 2M --stack pytorch-fsdp",
    ),
    "tune": (
        "--model qwen2.5-0.5b --gpu a100 --seq-len 512 --largest --method full --jobs 1"
        " --stack hf-trainer",
        "--model llama-2-70b --gpu rtx4090 --seq-len 512 --method full --length-mean 300 --jobs 1",
        "--model gpt2 --gpu rtx4090 --gpu a100 --seq-len 512 --method lora --jobs 1",
    ),
    "read": (
        "tests/data/recipes/megatron.sh --gpu h100 --gpus 32",
        "tests/data/recipes/megatron.yaml",
        "tests/data/recipes/undecided.sh --gpu h100 --advice 0",
        "tests/data/recipes/megatron.yaml --gpu a100 --gpus 7",
        "docs/examples/train.sh --gpu a100-sxm4-40gb --gpus 64 --micro-batch 4",
    ),
    "rl": ("--model qwen2.5-0.5b --gpu a100 --gpus 2 --prompts 16 --explain",),
    "strategies": (
        "--model gpt2-xl --gpu a100 --gpus 16 --strategy ddp --explain",
        "--model gpt2-xl --gpu a100 --gpus 16",
    ),
    "allreduce": ("--gpu a100 --gpus 64",),
    "export": ("--to megatron --model gpt2 --gpu a100 --gpus 8 --optimizer lion --tokens 1B",),
    "batchnorm": ("--gpu a100 --gpus 16 --channels 53x512",),
    "input": ("--samples-per-s 1000 --gpus 8 --sample-bytes 100kB",),
    "schedule": (
        "--schedule 1f1b --pp 4 --microbatches 6 --activation-bytes 1GiB",
        "--schedule interleaved --pp 2 --vpp 2 --microbatches 4 --p2p-s 0.1",
        "--model gpt2 --gpu a100 --gpus 2 --pp 2 --stack megatron-core",
    ),
    "check": (
        "tests/data/train.log {folder}/trace.json {folder}/memory.pickle {folder}/verl.log"
        " {folder}/rl.json --model gpt2 --gpu a100"
        " --gpus 2 --save {folder}/saved.toml --append {folder}/rows.csv",
        "{folder}/full.log --recipe {folder}/train.py --gpu rtx4090 --gpus 1 --base-precision nf4"
        " --seq-len 512",
    ),
    "validate": (
        "docs/examples/runs.csv {wrong} planner/studies/data/runs/deepspeed-a800-gist.csv"
        " planner/studies/data/runs/zero-bubble.csv",
    ),
    **{answer: ("",) for answer in documents.by_answer() if answer.startswith("list ")},
}


_PHASED = shlex.split("--model gpt2 --gpu a100 --gpus 1 --prompts 16 --response-length 64")


def _set(value: Any) -> Iterator[tuple[type, str]]:
    """Keys that a document and its parts have, by declaration."""
    if isinstance(value, Document):
        for name in value.__struct_fields__:
            if (inner := getattr(value, name)) is not UNSET:
                yield type(value), name
                yield from _set(inner)
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _set(inner)


def _parts(kind: type, seen: set[type]) -> set[type]:
    """A declaration with the declarations nested in it."""

    def among(node: Any) -> Iterator[type]:
        if isinstance(node, msgspec.inspect.StructType):
            yield node.cls
        for name in ("type", "types", "item_type", "value_type"):
            inner = getattr(node, name, ())
            for entry in inner if isinstance(inner, tuple) else (inner,):
                yield from among(entry)

    seen.add(kind)
    for field in fields(kind):
        for part in among(field.type):
            if part not in seen:
                _parts(part, seen)
    return seen


@pytest.mark.parametrize("answer", ASKED)
def test_answers_are_as_declared_and_every_key_occurs(
    answer: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Keys of the parts of an estimate occur in its own answers; others may hold them empty."""
    monkeypatch.chdir(ROOT)
    kind: Any = documents.declared(answer)
    wrong = tmp_path / "wrong.csv"
    runs = Path("docs/examples/runs.csv").read_text(encoding="utf-8").splitlines()
    wrong.write_text(
        f"{runs[0]}\n{runs[1].replace('a100-sxm4-80gb', 'no-such-gpu')}\n", encoding="utf-8"
    )
    if answer == "check":
        for name in ("trace.json", "memory.pickle", "verl.log"):
            sample_logs.write(tmp_path, name)
        script = sample_logs.SCRIPT.format(micro=1, recompute=True).replace("8B", "405B")
        (tmp_path / "train.py").write_text(script)
        message = sample_logs.CARD_IS_FULL.format(**sample_logs.FULL_CARD)
        (tmp_path / "full.log").write_text(sample_logs.TRACEBACK + message)
        (tmp_path / "rl.json").write_text(dpplan("rl", *_PHASED, "--json").stdout)
    seen: set[tuple[type, str]] = set()
    # kernels are searched only for the first estimate, which takes most of the time
    quick = answer.split()[0] in ("estimate", "search", "recommend", "compare", "batch", "tune")
    for i, words in enumerate(ASKED[answer]):
        given = shlex.split(words.format(wrong=wrong, folder=tmp_path))
        plain = ["--stack-defaults"] if quick and (i or answer != "estimate") else []
        plain += (
            ["--advice=0"] if i > 1 and answer == "estimate" and "--advice" not in given else []
        )
        result = dpplan(*answer.split(), *given, *plain, "--json")
        seen |= set(_set(result.read(list[kind] if answer.startswith("list ") else kind)))
    parts = _parts(kind, set()) - (set() if answer == "estimate" else _parts(Estimate, set()))
    promised = {(part, field.name) for part in parts for field in fields(part)}
    assert {f"{part.__name__}.{name}" for part, name in promised - seen} == set()


def test_no_declaration_is_forgotten() -> None:
    """A declaration that no answer contains is an answer or its base class; `Figures` pass their
    keys on."""
    answers = [documents.declared(answer) for answer in documents.by_answer()]
    items = {part for kind in answers for part in _parts(kind, set())}
    bases = {base for kind in items for base in kind.__mro__}
    assert {kind.__name__ for kind in _declared() if kind not in items | bases} == {"Figures"}
