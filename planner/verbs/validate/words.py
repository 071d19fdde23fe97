"""Words of the `options` cell of a row: which of them an estimate holds.

A row is a test of the estimate only where every word that moves step or memory is in the estimate;
other rows are scored apart. A word is in it where `plans` reads it, where it says what every
estimate assumes, and where it says nothing of step and memory. The meaning of the words: the table
of options in docs/validation.md.
"""

from __future__ import annotations

from itertools import compress
from typing import get_args

from planner.estimate.memory import state_ledger, state_of
from planner.specs.decoder import decoder_of
from planner.specs.documents.validate import Task
from planner.specs.layers import parts_of
from planner.specs.names import CONTEXT_WAYS, GRAPH_SCOPES, StateType, UpcastName, is_recompute
from planner.specs.plan import Plan
from planner.verbs.validate.plans import FORMATS, LOSSES, OPTIMIZERS
from planner.verbs.validate.rows import Row, measured, options_of

# read by `plans`, with the values that it reads; an empty set: any value
READ: dict[str, frozenset[str]] = {
    "attention": frozenset(),
    "cp_comm_type": frozenset({*CONTEXT_WAYS, "p2p", "all_gather", "a2a", "a2a+p2p"}),
    "norm": frozenset({"fused", "eager"}),
    "grad_reduce": frozenset({"bf16", "fp32"}),
    "compile": frozenset({"1"}),
    "async_tp": frozenset({"1"}),
    "cuda_graph": frozenset(GRAPH_SCOPES),
    "tp_overlap": frozenset({"0", "1"}),
    "fp8_recipe": frozenset(),
    "fp_recipe": frozenset({"tensorwise", "rowwise", "blockwise", "mxfp8", "nvfp4"}),
    "fp8_param_gather": frozenset({"1"}),
    "selective": frozenset({"per_op"}),
    "fused_cross_entropy": frozenset({"1"}),
    "fused_ops": frozenset({"foak"}),
    "liger": frozenset({"fused_linear_ce"}),
    "loss": frozenset(LOSSES),
    "expandable_segments": frozenset({"1"}),
    "optimizer_in_bwd": frozenset({"1"}),
    "rank": frozenset(),
    "quant": frozenset(FORMATS),
    "upcast": frozenset(get_args(UpcastName)),
    "targets": frozenset(),
    "lora_dropout": frozenset(),
    "adapters": frozenset(),
    "adapter_dtype": frozenset({"fp32", "bf16"}),
    "overlap": frozenset({"none"}),
    "overlap_grad_reduce": frozenset({"0", "1"}),
    "overlap_param_gather": frozenset({"0", "1"}),
    "overlap_comm": frozenset({"0", "1"}),
    "bucket_elements": frozenset(),
    "zeropp": frozenset({"qwz", "qgz", "qwz+qgz"}),
    "hpz": frozenset(),
    "sub_group_size": frozenset(),
    "adam_moments": frozenset({"bf16"}),
    "optimizer": frozenset(OPTIMIZERS),
    "moments_dtype": frozenset(get_args(StateType)),
    "precision_aware": frozenset({"1"}),
    "flags": frozenset(
        {
            "offload-opt-m",
            "offload-opt-v",
            "offload-master",
            "offload-quants",
            "shard-weights",
            "shard-gradients",
            "optimizer and parameters to CPU",
        }
    ),
    "pp_layout": frozenset(),
    "first_stage_layers": frozenset(),
    "last_stage_layers": frozenset(),
    "release": frozenset(),
    "island_nodes": frozenset(),
    "oversubscription": frozenset(),
    "etp": frozenset(),
    "document_tokens": frozenset(),
    "document_sigma": frozenset(),
    "mtp": frozenset(),
    "grouped_gemm": frozenset({"0", "1"}),
    "te_op_fuser": frozenset({"0", "1"}),
    "dispatcher": frozenset({"none", "alltoall", "allgather", "deepep", "hybridep"}),
    "dispatcher_sms": frozenset(),
    "ep_overlap": frozenset({"0", "1"}),
    "capacity_factor": frozenset(),
    "paged_stash": frozenset({"1"}),
    "stash_factor": frozenset(),
}

# values that say what every estimate assumes
ASSUMED: dict[str, frozenset[str]] = {
    "activation_offload": frozenset({"none"}),
    "force_balance": frozenset({"1"}),  # experts get equally many tokens
    "permute_fusion": frozenset({"1"}),  # tokens are copied to experts by one kernel
    "fsdp": frozenset({"1", "torch-fsdp2", "megatron-fsdp"}),  # the stage stands in `zero`
    "optimizer_instances": frozenset({"1"}),
    "packing": frozenset({"concat"}),  # samples joined to full length
    "padding_free": frozenset({"1"}),
    "peft": frozenset({"none"}),
    "pp_algorithm": frozenset({"1f1b", "1f1b-interleaved"}),  # stands in `schedule`
}

_SWITCHES = ("flags", "cuda_graph")  # several words in one

# who ran it and under which name, and results printed beside the step
NEUTRAL = frozenset(
    {
        "cuda_graph_impl",  # who captures
        "framework_config",
        "hbm_percent",
        "measured_by",
        "offloaded_gb",
        "recipe",
        "task",  # fine-tuning of all parameters computes what pre-training does
        "trainer",
        "transformer_engine",
    }
)
# of kernels alone: nothing where the row has no time
_OF_TIME = frozenset({"deterministic", "no_wgrad_fusion", "delay_wgrad", "router_fusion"})
# words of fine-tuning, whichever value they have
_TUNED = {"peft", "task"}
# filled where `step_s` is the step of reinforcement learning, generation included
_OTHER_STEP = "algorithm"

# what a checkpoint keeps, on the host: the inputs of layers
_KEPT_BY_RECOMPUTE = ("checkpoint_inputs", "1", "all")
_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}


def task_of(row: Row, plan: Plan) -> Task:
    """What a row trains; all weights from scratch where it says nothing of fine-tuning."""
    words = options_of(row)
    if plan.training.adapter is not None:
        quantised = plan.training.base_precision is not None
        return "adapters on a quantised base" if quantised else "adapters"
    return "full fine-tuning" if _TUNED & words.keys() else "pre-training"


def not_expressed(row: Row, plan: Plan) -> list[str]:
    """Words of a row that its estimate leaves out, sorted."""
    words = options_of(row)
    neutral = NEUTRAL if measured(row, "step_s") else NEUTRAL | _OF_TIME
    out = [
        key
        for key, value in words.items()
        if key not in neutral and not _expressed(key, value, plan, words)
    ]
    # modules that a row repeats, where the stack repeats whole layers alone
    kind = row.get("recompute", "").partition(":")[0]
    modules = kind == "selective" and kind not in plan.stack.supports.recompute
    modules = modules and "recompute_modules" not in words
    others = [modules, row.get(_OTHER_STEP, "")]
    return sorted([*out, *compress(("recompute", _OTHER_STEP), others)])


def _expressed(key: str, value: str, plan: Plan, words: dict[str, str]) -> bool:
    if key in _SWITCHES and value not in READ[key]:  # all of which have to be read
        return READ[key].issuperset(value.replace("+", " ").split())
    if key in READ:
        return not READ[key] or value in READ[key]
    return value in ASSUMED.get(key, ()) or _as_planned(key, value, plan, words)


def _lists(words: dict[str, str]) -> bool:
    """Whether a policy of its own says what it keeps, or what of it leaves."""
    return bool({"kept_modules", "offload_modules"} & words.keys())


def _as_planned(key: str, value: str, plan: Plan, words: dict[str, str]) -> bool:
    """Whether the stack and the model of the estimate do what the word says."""
    states = state_ledger(plan)
    says: dict[str, bool] = {
        "activation_offload": value in _KEPT_BY_RECOMPUTE
        and "activations" in plan.stack.supports.offload,
        "autocast": value == plan.training.precision,
        "params_dtype": _BYTES.get(value) == states["parameters"],
        "grads_dtype": _BYTES.get(value) == states["gradients"]
        or _cast_for_the_update(value, plan),
        "master_dtype": _BYTES.get(value) == state_of(plan).master
        or (value == "fp32" and plan.training.master_precision == "remainder"),
        "peft": plan.training.adapter is not None
        and (value == "lora" or plan.training.base_precision is not None),
        "recompute_modules": "modules" in plan.stack.supports.recompute and is_recompute(value),
        "kept_modules": "keep" in plan.stack.supports.recompute,
        "remat_policy": is_recompute(value) or (value == "custom" and _lists(words)),
        "offload_modules": set(value.split("+")) <= set(plan.stack.supports.offload_modules),
        "hybrid_pattern": decoder_of(plan.model) is None,  # read of the row's arguments
        "mla": value == "1" and any(part.type == "latent" for part, _ in parts_of(plan.model)),
        "overlap_grad_reduce": value == "1" and plan.stack.overlap.gradient_sync,
        "overlap_param_gather": value == "1" and plan.stack.overlap.sharded_sync,
    }
    return says.get(key, False)


def _cast_for_the_update(value: str, plan: Plan) -> bool:
    """Whether gradients are fp32 only while the optimizer reads them: reduced in bf16, they
    accumulate in the type of the reduction."""
    return value == "fp32" and plan.training.gradient_reduce == "bf16"
