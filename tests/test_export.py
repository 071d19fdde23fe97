"""`dpplan export`: what is written is read back as it was, for every framework."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import yaml
from command import dpplan
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import api
from planner.formats import axolotl, launch
from planner.formats import recipe as formats
from planner.formats.documents.export import Export
from planner.formats.options import ExportOptions
from planner.formats.target import PlanToWrite, Target
from planner.formats.verbs.export import lost_in
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.search import Search
from planner.specs.hardware import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.names import REMAT_POLICIES, TargetName
from planner.specs.options import Options, options_of_command

ROOT = Path(__file__).parent.parent
CHECK = "dpplan preflight --model gpt2 --gpu h100"
GPU = catalog.load("gpus", GpuSpec, "h100")
TARGETS = {target.kind: target for target in formats.targets()}
PLAN: dict[str, Any] = {"model": "llama-2-7b", "gpu": "h100", "gpus": 16, "global_batch": 64}
POWERS = st.sampled_from((1, 2, 4))

_DEGREES = ("tp", "pp", "cp")
# parts of a plan that each framework can state: models, ZeRO stages, recompute, precision
_DENSE = ("llama-3.1-8b", "llama-3.1-70b")
_LLAMAS = (*_DENSE, "llama-2-7b")
_MIXED = ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3")
_KEPT = tuple(f"keep:{'+'.join(names)}" for names in REMAT_POLICIES.values())
SAYS: dict[str, dict[str, tuple[Any, ...]]] = {
    "megatron": {
        "model": (*_LLAMAS, *_MIXED, "gpt3-13b", "qwen3-8b"),
        "zero": (0, 1),
        "recompute": ("none", "full", "selective", "block:2", "group:4", "core_attn+moe_act"),
        "precision": ("bf16", "fp16", "fp8-delayed", "fp8-blockwise", "mxfp8", "nvfp4"),
        "optimizer": ("adam", "muon", "sgd-momentum"),
        "cp_comm_type": ("ring", "ulysses", "all-gather"),
        "ep": (1, 2, 4),
        "moments_precision": ("bf16", "fp8"),
        "gradient_precision": ("bf16",),
        "dispatcher": ("alltoall", "deepep", "hybridep", "allgather"),
        "expert_kernels": ("grouped", "loop", "fused"),
        "schedule": ("1f1b", "interleaved"),
        "placement": ("tp-cp-pp-dp",),
        "cuda_graphs": ("attn+moe_router", "full", "layer"),
        "sequence_parallel": (True, False),
        "dp_overlap": ("none", "reduce"),
        "dp_bucket": (160e6,),
    },
    "torchtitan": {
        "model": (*_DENSE, "qwen3-30b-a3b", "deepseek-v3"),
        "zero": (0, 2, 3),
        "shard_group": (2, 4),
        "recompute": ("none", "full", "selective"),
        "precision": ("bf16", "fp32", "fp8-tensorwise", "fp8-rowwise", "mxfp8"),
        "optimizer": ("adam",),
        "cp_comm_type": ("all-gather", "ring"),
        "ep": (1, 2),
        "compile": (True,),
        "optimizer_in_backward": (True,),
        "schedule": ("1f1b", "gpipe", "interleaved", "zb-v"),
        "sequence_parallel": (True,),
    },
    "nanotron": {
        "model": _LLAMAS,
        "zero": (0, 1),
        "recompute": ("none", "full"),
        "precision": ("bf16", "fp32"),
        "optimizer": ("adam", "sgd"),
        "cp_comm_type": ("all-gather",),
        "schedule": ("1f1b", "gpipe"),
        "sequence_parallel": (True, False),
    },
    "maxtext": {
        "model": (*_LLAMAS, "mixtral-8x7b"),
        "zero": (0, 1, 3),
        "shard_group": (2, 4),
        "recompute": ("none", "full", *_KEPT),
        "precision": ("bf16", "fp32", "fp8-delayed", "fp8-tensorwise", "mxfp8", "nvfp4"),
        "optimizer": ("adam", "muon"),
        "cp_comm_type": ("all-gather", "ring", "ulysses"),
        "sequence_parallel": (True,),
        "pp": (1,),
    },
    "verl": {
        "model": _LLAMAS,
        "zero": (2, 3),
        "shard_group": (2, 4),
        "recompute": ("none", "full"),
        "precision": ("bf16",),
        "optimizer": ("adam",),
        "cp_comm_type": ("ulysses",),
        "offload": ("params",),
        "fused_kernels": (True,),
        "state_precision": ("bf16",),
        "tp": (1,),
        "pp": (1,),
    },
}
_FAMILY: dict[str, tuple[Any, ...]] = {
    "model": ("qwen2.5-7b", "qwen3-8b"),
    "recompute": ("none", "full"),
    "precision": ("bf16",),
    "optimizer": ("adam",),
    **dict.fromkeys(_DEGREES, (1,)),
}
_OF_ZERO_3 = {"hpz": (8,), "zeropp": ("qwz", "qwz+qgz"), "sub_group_size": (1e8, 2e7)}
SAYS |= {
    "deepspeed": {**_FAMILY, **_OF_ZERO_3, "zero": (0, 1, 2, 3)},
    "accelerate": {**_FAMILY, "zero": (2, 3)},
}
_TRAINED: dict[str, tuple[Any, ...]] = {  # with FSDP
    **_FAMILY,
    "model": ("llama-3.1-8b", "qwen3-8b"),
    "zero": (2, 3),
    "optimizer": ("adam", "adam8bit"),
    "loss_kernel": ("fused-linear",),
    "compile": (True,),
}
_OF_LORA = {"lora": (16,), "lora_targets": ("all-linear", "q_proj+v_proj"), "lora_dropout": (0.05,)}
_QUANTISED = ("nf4", "nf4-double", "int8")
_OBJECTIVES = {"task": ("dpo", "kto"), "reference": ("precomputed",)}
_SUBSPACE = {"optimizer_rank": (64,), "optimizer_in_backward": (True,)}
_BY_TRL = {
    **_OF_LORA,
    **_OBJECTIVES,
    **_SUBSPACE,
    "base_precision": _QUANTISED,
    "attention": ("flash2", "eager"),
    "optimizer": ("adam", "adam8bit", "galore", "apollo"),
}
_EXCESS = {"excess_length": ("truncate", "drop")}
_TUNED = {
    **_OF_LORA,
    "base_precision": ("nf4-double",),
    "lora_method": ("dora",),
    "loss_kernel": ("chunked",),
    "offload": ("params",),
}
SAYS |= {
    "hf-trainer": _TRAINED,
    "trl": {**_TRAINED, **_BY_TRL},
    "ms-swift": {
        **_TRAINED,
        **_BY_TRL,
        "zero": (3,),
        "reference": (None,),
        "excess_length": ("truncate", "drop", "split"),
    },
    "torchtune": {**_TRAINED, **_TUNED, "zero": (3,)},
}
_PAIRS = {**_BY_TRL, "task": ("dpo", "kto", "orpo", "simpo")}
SAYS |= {
    "axolotl": {**_FAMILY, **_PAIRS, "zero": (2, 3), **_EXCESS, "short_length": (None, 32)},
    "llama-factory": {
        **_FAMILY,
        **_PAIRS,
        "zero": (1, 2, 3),
        "base_precision": (*_QUANTISED, "hqq"),
        "optimizer": ("adam", "galore", "apollo"),
        "reference": (None,),  # it has no pass before the run
    },
}
_OF_EXPERTS = ("ep", "dispatcher", "expert_kernels")


@st.composite
def plans(draw: st.DrawFn, kind: str) -> PlanToWrite:
    """A plan that a framework can say, without options that do nothing in it."""
    says = SAYS[kind]
    model = catalog.load("models", ModelSpec, draw(st.sampled_from(says["model"])))
    degrees = {name: draw(st.sampled_from(says.get(name, (1, 2, 4)))) for name in _DEGREES}
    if "cp_comm_type" not in says:
        degrees["cp"] = 1
    tp, pp, cp, dp = (*degrees.values(), draw(POWERS))
    micro, count = draw(POWERS) * (tp if kind == "maxtext" else 1), draw(POWERS) * pp
    options: dict[str, Any] = {
        "model": model.name,
        "stack": TARGETS[kind].stacks[0],
        "gpus": tp * pp * cp * dp,
        **degrees,
        "seq_len": draw(st.sampled_from((2048, 4096))),
        "micro_batch": micro * (cp if kind == "maxtext" else 1),
    }
    if says["model"] != _FAMILY["model"]:  # whose trainers count steps of their data
        options["tokens"] = draw(st.sampled_from((1e9, 3e11)))
    options["global_batch"] = options["micro_batch"] * count * dp
    always = ("zero", "recompute", "precision", "optimizer", "sequence_parallel", "schedule")
    for name, values in says.items():
        if name not in options and (name in always or draw(st.booleans())):
            options[name] = draw(st.sampled_from(values))
    if kind in ("torchtitan", "maxtext") and options["cp"] > 1 and options["zero"] < 2:
        options["zero"] = 3  # they shard weights over ranks of context parallelism, too
    for name in _idle(options, model, dp):
        options.pop(name, None)
    if options.get("schedule") in ("interleaved", "zb-v"):
        options["vpp"] = 2
    if kind == "axolotl" and axolotl.refuses_frozen(options):
        options.pop("base_precision", None)
    return PlanToWrite(options, model, max(1, options["gpus"] // 8), min(8, options["gpus"]))


def _idle(options: dict[str, Any], model: ModelSpec, dp: int) -> set[str]:
    """Options that do nothing beside the others."""
    ranks = dp * options["cp"]
    idle = {
        "zero": ranks == 1,
        "shard_group": options["zero"] < 2 or ranks <= 4 or dp < options.get("shard_group", 1),
        "offload": ranks == 1,
        "sequence_parallel": options["tp"] == 1,
        "cp_comm_type": options["cp"] == 1,
        "schedule": options["pp"] == 1,
        "placement": options["pp"] == 1 or dp == 1,
        **dict.fromkeys(_OF_EXPERTS, model.routed is None or dp < options.get("ep", 1)),
    }
    idle["ep"] |= options.get("ep") == 1
    of_lora = ("lora_targets", "lora_dropout", "base_precision", "lora_method")
    idle |= dict.fromkeys(of_lora, "lora" not in options)
    idle |= dict.fromkeys(_SUBSPACE, options["optimizer"] not in ("galore", "apollo"))
    # all that there is without ZeRO; DeepSpeed's own stage 0 is torch's DDP, which has no switch
    idle["dp_overlap"] = ranks == 1 or options["zero"] == 0
    idle |= dict.fromkeys(_OF_ZERO_3, ranks == 1 or options["zero"] < 3)
    idle["task"] = options.get("task") not in (None, "kto") and options["micro_batch"] % 2 > 0
    idle["reference"] = (
        not options.get("reference") or idle["task"] or options.get("task") not in ("dpo", "kto")
    )
    # ranks that shard hold whole groups of context parallelism
    idle["shard_group"] |= bool(options.get("shard_group", 1) % options["cp"])
    return {name for name, does_nothing in idle.items() if does_nothing}


def files_of(target: Target, request: PlanToWrite) -> dict[str, str]:
    write = dict(target.write(request, ()))
    return {**write, **launch.scripts(target, request, GPU, ("a comment",), CHECK)}


@pytest.mark.parametrize("examples", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", SAYS)
def test_what_is_written_is_read_back(kind: str, examples: int) -> None:
    target = TARGETS[kind]

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(plans(kind))
    def holds(request: PlanToWrite) -> None:
        files = files_of(target, request)
        assert lost_in(target, request, files) == []
        for name in ("jobset.yaml", "skypilot.yaml"):
            assert isinstance(yaml.safe_load(files[name]), dict)

    holds()


# plans of fine-tuning that some frameworks have words for
TUNED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("trl axolotl llama-factory ms-swift", {"task": "reward"}),
    ("axolotl", {"lisa": 2, "lisa_states": "visited"}),
    ("ms-swift", {"lisa": 8, "lisa_states": "visited"}),
    ("llama-factory", {"optimizer": "galore8bit", "optimizer_rank": 64}),
    ("llama-factory", {"optimizer": "apollo-mini"}),
    ("trl axolotl ms-swift", {"optimizer": "galore8bit", "optimizer_rank": 64}),
    ("trl ms-swift", {"task": "distil", "teacher": "llama-3.1-70b", "divergence": "jsd"}),
    ("ms-swift", {"task": "distil", "teacher": "llama-3.1-70b", "teacher_top_k": 64}),
    (
        "axolotl",
        {
            "task": "distil",
            "reference": "precomputed",
            "teacher_top_k": 64,
            "loss_kernel": "fused-linear",
        },
    ),
    (
        "torchtune",
        {"task": "distil", "teacher": "llama-3.1-70b", "lora": 8, "divergence": "reverse"},
    ),
)


def tuned(kind: str) -> Iterator[PlanToWrite]:
    """Targets of a framework."""
    common = {"model": "llama-3.1-8b", "stack": TARGETS[kind].stacks[0], "gpus": 8, "tp": 1}
    common |= {"pp": 1, "cp": 1, "zero": 3, "micro_batch": 2, "global_batch": 64, "seq_len": 2048}
    common |= {"optimizer": "adam", "recompute": "full"}
    model = catalog.load("models", ModelSpec, "llama-3.1-8b")
    for kinds, more in TUNED:
        if kind in kinds.split():
            yield PlanToWrite({**common, **more}, model, 1, 8)


def test_what_fine_tunes_is_read_back() -> None:
    for kind in TARGETS:
        for request in tuned(kind):
            lost = lost_in(TARGETS[kind], request, files_of(TARGETS[kind], request))
            assert lost == [], (kind, request.options)


def test_every_framework_is_offered() -> None:
    assert set(TARGETS) == set(get_args(TargetName)) == set(SAYS)


def exported(given: dict[str, Any], **value: Any) -> Export:
    return api.export(api.read_options(given), ExportOptions(**value))


def test_what_cannot_be_said_is_listed() -> None:
    export = exported({**PLAN, "pp": 1, "optimizer": "lion", "clock": 0.7}, to="megatron")
    listed = {entry.option: entry for entry in export.not_expressible}
    assert set(listed) == {"optimizer"}  # a clock affects only the prediction
    assert export.plan["stack"] == "megatron-core"
    assert "NOT IN THESE FILES: optimizer lion" in export.files[0].text
    assert "PREDICTED" in export.files[0].text


def test_eight_bit_adam_is_one_that_the_shards_take() -> None:
    """bitsandbytes' states fail under FSDP 2; without shards of torch its optimizer is written."""
    given = {"model": "qwen2.5-7b", "gpu": "h100", "gpus": 8, "optimizer": "adam8bit"}
    for kind in ("axolotl", "trl", "hf-trainer", "ms-swift", "accelerate", "deepspeed"):
        zero = 2 if kind == "deepspeed" else 3
        files = exported({**given, "zero": zero, "global_batch": 64}, to=kind).files
        text = "".join(file.text for file in files)
        word = "adamw_bnb_8bit" if kind == "deepspeed" else "adamw_torch_8bit"
        assert word in text, kind


def test_frozen_weights_that_a_schema_refuses_are_listed() -> None:
    given = {"model": "qwen2.5-7b", "gpu": "h100", "gpus": 8, "lora": 16, "task": "dpo"}
    export = exported({**given, "base_precision": "nf4", "global_batch": 64}, to="axolotl")
    assert [entry.option for entry in export.not_expressible] == ["base_precision"]
    assert "load_in_4bit" not in export.files[0].text
    assert "NOT IN THESE FILES: base_precision nf4: its FSDP 2" in export.files[0].text


def test_widths_of_a_plain_decoder_are_not_made_up() -> None:
    """A model of parts or towers has none: its files say that it is missing, and torchtune, which
    names every model by a builder, is refused in the name of the option."""
    given = {"model": "falcon-h1-7b", "gpu": "h100", "gpus": 8}
    export = exported(given, to="megatron")
    assert "model" in {entry.option for entry in export.not_expressible}
    assert not any(
        width in file.text for file in export.files for width in ("--hidden-size", "--num-layers ")
    )
    with pytest.raises(PlanError, match="torchtune has no builder") as refusal:
        exported(given, to="torchtune")
    assert refusal.value.field == "--model"


def test_what_is_no_causal_decoder_is_refused_before_anything_is_searched() -> None:
    why = {
        "t5-base": "a tower (decoder)",
        "bert-base": "is an encoder",
        "clip-vit-b-32": "a model of",
        "flux-1-dev": "a model of",
        "resnet-50": "a model of images",
    }
    for model, words in why.items():
        with pytest.raises(PlanError) as refusal:
            exported({"model": model, "gpu": "h100", "gpus": 8}, to="trl")
        assert words in refusal.value.remedy, model
        assert "causal language models" in refusal.value.remedy


@cache
def promises() -> ModuleType:
    """The benchmark of all pairs."""
    path = ROOT / "benchmarks" / "export_promise.py"
    spec = importlib.util.spec_from_file_location("export_promise", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["export_promise"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", SAYS)
def test_a_file_plans_what_was_picked(kind: str) -> None:
    """Three requests of the benchmark for each target, others for each: read back and estimated
    again the files take the step and the memory of the pick."""
    wanted = promises().requests()
    start = list(SAYS).index(kind)
    for request in wanted[start :: len(SAYS)][:3]:
        result = promises().pair(request, TARGETS[kind])
        assert result.outcome in ("equal", "no model"), result.line


def test_the_head_of_a_file_has_the_numbers_of_that_file() -> None:
    """If a request states an option that a framework lacks, beside the numbers of the pick."""
    given = {**PLAN, "model": "llama-3.1-8b", "optimizer": "muon"}
    export = exported(given, to="torchtitan")
    assert "optimizer" in {entry.option for entry in export.not_expressible}
    assert export.picked is not None
    on_cluster = {**given, "gpu": None, "cluster": "aws-p5"}
    assert exported(on_cluster, to="torchtitan").picked is not None
    assert "--where" not in export.command
    files = promises().written(export, per_node=False)
    back, _ = promises().read_back(files, given)
    assert back == pytest.approx(promises().numbers_of(export.predicted))
    assert back != pytest.approx(promises().numbers_of(export.picked))
    assert "PICKED, and not what these files say: " in files["train.toml"]
    estimated = api.estimate(
        api.read_options(options_of_command(export.pick, Options, "estimate")), brief=True
    )
    assert estimated.step.seconds == pytest.approx(export.picked.step.seconds)


def test_an_estimate_for_a_framework_is_what_its_export_writes() -> None:
    words = ["--model", "llama-2-7b", "--gpu", "h100", "--gpus", "16", "--global-batch", "64"]
    for kind in ("torchtitan", "torchtune", "maxtext", "verl"):
        answer = dpplan("estimate", *words, "--for", kind, "--json").read(Estimate)
        written = dpplan("export", *words, "--to", kind, "--json").read(Export)
        assert answer.layout == written.predicted.layout, kind
        assert answer.step.seconds == pytest.approx(written.predicted.step.seconds), kind
        assert f"--for-target {kind}" in answer.command
        assert answer.pick == written.pick
        best = dpplan("search", *words, "--for", kind, "--top", "1", "--json").read(Search).top[0]
        assert best.layout == answer.layout, kind
    refused = dpplan("estimate", *words, "--for", "nanotron", "--stack", "torchtitan")
    assert "is not what nanotron is" in refused.stderr
    refused = dpplan("export", *words, "--for", "trl", "--to", "torchtune")
    assert "name two frameworks" in refused.stderr


def test_a_stack_that_a_framework_is_not_is_refused() -> None:
    with pytest.raises(PlanError, match="is not what nanotron is"):
        exported({**PLAN, "stack": "torchtitan"}, to="nanotron")


def test_a_saved_answer_is_exported(tmp_path: Path) -> None:
    words = "--model llama-2-7b --gpu h100 --gpus 16 --global-batch 64 --stack torchtitan --json"
    for verb in ("estimate", "search"):
        answer = dpplan(*f"{verb} {words}".split())
        saved = tmp_path / f"{verb}.json"
        saved.write_text(answer.stdout)
        whole = answer.json()
        layout = (whole if verb == "estimate" else whole["top"][0])["layout"]
        recipe = dpplan("export", str(saved), "--to", "torchtitan", "--json").read(Export)
        assert recipe.predicted.layout.micro_batch == layout["micro_batch"]
        assert recipe.predicted.layout.recompute == layout["recompute"]
        second = dpplan("export", str(saved), "--to", "torchtitan", "--rank", "2", "--json")
        assert second.read(Export).predicted.layout != recipe.predicted.layout
    saved.write_text(json.dumps({"command": "dpplan list gpus", "layout": {}}))
    refused = dpplan("export", str(saved), "--to", "torchtitan")
    assert refused.status == 2
    assert "is not an answer of a layout" in refused.stderr


def test_files_are_written_into_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "recipe"
    words = "export --to torchtitan --model llama-3.1-8b --gpu h100 --gpus 16 --global-batch 64"
    printed = dpplan(*words.split(), "--out", str(folder))
    assert printed.status == 0
    names = {"train.toml", "run.sh", "job.sbatch", "jobset.yaml", "skypilot.yaml"}
    assert {path.name for path in folder.iterdir()} == names
    assert "data_parallel_shard_degree" not in printed.stdout
    for name in ("run.sh", "job.sbatch"):
        assert subprocess.run(["bash", "-n", str(folder / name)], check=False).returncode == 0
    back = formats.read({n: (folder / n).read_text() for n in ("train.toml", "job.sbatch")})
    assert back.options["gpus"] == 16
    taken = dpplan(*words.split(), "--out", str(folder / "run.sh"))
    assert taken.status == 2
    assert "give a folder" in taken.stderr
