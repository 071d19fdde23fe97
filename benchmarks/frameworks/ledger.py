"""The planner's ledger of a setting."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.frameworks.setting import DEEPSPEED_BUCKET, Counted, Setting
from planner import api

STACKS = {
    "transformers": "hf-trainer",
    "peft": "hf-trainer",
    "accelerate": "hf-fsdp",
    "fsdp1": "hf-fsdp1",
    "trl": "trl",
    "grpo": "trl",
    "ddp": "hf-trainer",
    "torchtitan": "torchtitan-25.04",
    "megatron": "megatron-core-local",
    "deepspeed": "hf-deepspeed",
    "litgpt": "litgpt",
    "torchtune": "torchtune-0.6",
    "nanotron": "nanotron",
    "diffusers": "hf-trainer",
}
ATTENTION = {"eager": "eager", "sdpa": "flash2", "softmax": "fused_softmax"}
# torch's AdamW over lists of tensors makes a temporary of every weight, which the fused one,
# the Trainer's since torch 2.8, does not
_FOREACH = """id = "{stack}-foreach"
title = "{stack}, AdamW over lists"
aliases = []
source = "torch/optim/adamw.py"
base = "{stack}"

[state]
optimizer_temporary = 4
"""
# a training script that gives hf-trainer's model to torch's optimizer of a part of the weights
_ZERO_1 = """id = "{stack}-zero1"
title = "{stack}, ZeroRedundancyOptimizer"
aliases = []
source = "torch/distributed/optim/zero_redundancy_optimizer.py"
base = "{stack}"

[supports]
zero_on_request = [1]
"""
# buckets of the sizes that deepspeed_step asks for: two of ZeRO-1 and 2, one of ZeRO-3; the loss of
# transformers since 4.46 (hf-trainer's), where the stack's measured runs have an older one
_BUCKETS = f"""id = "{{stack}}-buckets"
title = "{{stack}}, small buckets"
aliases = []
source = "reduce_bucket_size and sub_group_size of deepspeed/runtime/zero/config.py"
base = "{{stack}}"

[state]
buckets_from = "backward"
fixed_buckets = {4 * DEEPSPEED_BUCKET}
zero3_buckets = {2 * DEEPSPEED_BUCKET}
zero3_turn = {2 * DEEPSPEED_BUCKET}

[activations]
logits = 12
"""
# release 0.4: no gathered input is made again, 16-bit logits are gone when fp32 ones are there, and
# ZeRO-1 reduces the accumulator's buffer in place of DDP's buckets (make_ddp of trainer.py); the
# stack's measured runs, of its main branch, have all three
_RELEASED = """id = "{stack}-0.4"
title = "{stack} 0.4"
aliases = []
source = "nanotron 0.4"
base = "{stack}"

[state]
bucket = {bucket}

[activations]
logits = 8
gathered_inputs = "always"
"""
_PAIR = 2  # sequences of an example: chosen and rejected
_NAMED = {"parameters", "optimizer", "reference_model", "logits"}
_OUTSIDE = ("workspaces",)  # of GEMM libraries, which torch's CPU code has none of


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def model_path(model: str) -> str:
    """A config.json with the model, or the name of one that has none."""
    fields = json.loads(model)
    if len(fields) == 1:
        return str(fields["model_type"])
    folder = Path(_folder().name) / str(abs(hash(model)))
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(model, encoding="utf-8")
    return str(path)


@cache
def stack_of(framework: str, optimizer: str, zero: int) -> str:
    """The stack of a framework, or a file of it with another implementation of AdamW."""
    stack = STACKS[framework]
    file = _FOREACH if optimizer == "foreach" and framework != "litgpt" else None
    if framework == "deepspeed":
        file = _BUCKETS
    elif framework == "ddp" and zero == 1:
        file = _ZERO_1
    elif framework == "nanotron":
        file = _RELEASED.replace("{bucket}", "0" if zero else "2")
    if file is None:
        return stack
    path = Path(_folder().name) / f"{stack}-{optimizer}-{zero}.toml"
    path.write_text(file.format(stack=stack), encoding="utf-8")
    return str(path)


def options_of(setting: Setting) -> dict[str, Any]:
    """The request that a user would type."""
    sequences = setting.micro_batch * (_PAIR if setting.task == "dpo" else 1)
    chosen: dict[str, Any] = {
        "model": model_path(setting.model),
        "gpu": "b300",
        "gpus": setting.ranks,
        "stack": stack_of(setting.framework, setting.optimizer, setting.zero),
        "micro_batch": sequences,
        "global_batch": sequences * setting.accumulation * setting.replicas,
        "seq_len": setting.seq_len,
        "recompute": setting.recompute,
        "attention": ATTENTION[setting.attention],
        "optimizer": "adam",
        "stack_defaults": True,
    }
    if setting.ranks > 1:
        chosen |= {"zero": setting.zero, "dp": setting.replicas}
    elif setting.framework == "litgpt":  # without FSDP
        chosen["zero"] = 0
    if setting.zero:
        chosen["shard_group"] = setting.replicas
    if setting.tensor > 1:
        chosen["tp"] = setting.tensor
    if setting.framework in ("megatron", "nanotron"):
        chosen["sequence_parallel"] = setting.tensor > 1
    if setting.pipeline > 1:
        chosen |= {"pp": setting.pipeline, "schedule": setting.schedule}
    if setting.precision == "bf16" and setting.framework != "deepspeed":  # which keeps fp32 copies
        chosen["state_precision"] = "bf16"
    if setting.lora:
        chosen |= {"lora": setting.lora, "lora_targets": "all-linear"}
    if setting.framework == "torchtune":  # of the configurations of its recipes
        chosen["loss_kernel"] = "chunked"
    if setting.task == "grpo":  # rows with a mask
        chosen |= {"packing": "padded", "length_mean": setting.seq_len, "loss_share": 0.5}
        if setting.attention == "sdpa":
            del chosen["attention"]
    elif setting.task:
        chosen["task"] = setting.task
    return {name: value for name, value in chosen.items() if value is not None}


def ledger(setting: Setting) -> tuple[Counted, dict[str, dict[str, float]]]:
    """The planner's bytes as a row, and its leaves by phase."""
    estimate = api.estimate(api.Options(**options_of(setting)), brief=True)
    stage = estimate.memory.per_stage[setting.stage]
    phases = {
        phase.name: {n: b for n, b in phase.components.items() if n not in _OUTSIDE}
        for phase in stage.phases
    }
    sums = {name: round(sum(leaves.values())) for name, leaves in phases.items()}
    step, at_loss = phases["optimizer step"], dict(phases["loss"])
    if setting.framework != "diffusers":  # whose loss is behind autocast, and its copies
        at_loss["cast_copies"] = phases["forward"].get("cast_copies", 0.0)
    # what has no origin of its own in the count: gradients that do not stay are among activations
    named = _NAMED | ({"gradients"} if phases["load"]["gradients"] else set())
    row = Counted(
        parameters=round(step["parameters"]),
        gradients=round(step["gradients"]),
        states=round(step["optimizer"]),
        activations=round(sum(size for name, size in at_loss.items() if name not in named)),
        logits=0,
        forward=sums["forward"],
        loss=sums["loss"],
        backward=max(sums["backward"], sums["end of backward"], sums["gradient synchronisation"]),
        step=sums["optimizer step"],
        peak=max(sums.values()),
    )
    return row, phases


def compiled_activations(setting: Setting) -> float:
    """The ledger's bytes kept for backward where the model is compiled."""
    options = options_of(setting) | {"compile": True}
    estimate = api.estimate(api.Options(**options), brief=True)
    (stage,) = estimate.memory.per_stage
    (forward,) = (phase for phase in stage.phases if phase.name == "forward")
    return forward.components["activations"]
