"""From a row to a plan and a layout: what the cells say, and what the stack does where they are
empty."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import ceil
from typing import Any

from planner.formats.megatron_table import CONTEXT_WAY_WORDS
from planner.inputs import catalog
from planner.inputs.calibration import Calibration, stack_spec
from planner.inputs.cluster import cluster_spec
from planner.specs.adapters import ALL, WORDS, AdapterSpec
from planner.specs.capabilities import lacks
from planner.specs.cluster import ClusterSpec
from planner.specs.data import LengthsSpec
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.names import (
    GRAPH_SCOPES,
    OFFLOAD_MODULES,
    OPTIMIZER_NAMES,
    SYNC_PARTS,
    BaseName,
    GraphScope,
    LossKernel,
    LowPart,
    OffloadModule,
    OptimizerName,
    Precision,
    SyncPart,
    TensorOverlap,
)
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec, scores_on_chip
from planner.verbs.validate import recipes
from planner.verbs.validate.layouts import completed, stated
from planner.verbs.validate.models import family_of, plain_gpt, row_model
from planner.verbs.validate.rows import Row, Skip, number, options_of, whole

# words that say of fused norm, RoPE and gate
_FUSING = ("fused_ops", "liger", "transformer_engine")
_FUSED_LOSS = {"fused_cross_entropy", "fused_ops"}
# year and month, as NeMo numbers its containers, or a round of MLPerf Training: each order as text
_RELEASE = re.compile(r"\d\d\.\d\d|v\d\.\d")
# year and month in the name of a file of benchmarks, as torchtitan names its own
_DATED = re.compile(r"_20(\d\d)(\d\d)[_.]")
# recipes of rows in 8 bit as NeMo and Megatron-LM name them, and the precisions here
_RECIPES: dict[str, Precision] = {
    "delayed": "fp8-delayed",
    "tensorwise": "fp8-tensorwise",
    "rowwise": "fp8-rowwise",
    "blockwise": "fp8-blockwise",
    "mxfp8": "mxfp8",
    "fp8-cs": "fp8-tensorwise",
    "fp8-ds": "fp8-delayed",
    "fp8-mx": "mxfp8",
}
_OFFLOAD_ZERO = 3  # ZeRO stage of a run that offloads and says no more, where the stack has it
_SHARDING = {"shard-gradients": 2, "shard-weights": 3}  # of LLMQ (its README): ZeRO stages
_RL_WORDS = 2048
_DOCUMENTS = "document_tokens"  # mean of documents packed so that they do not see each other
_SIGMA = 0.5  # of the logarithm of their lengths where a row does not state it
# formats of frozen weights of rows: QLoRA's is with double quantisation, in torchtune always
FORMATS: dict[str, BaseName] = {"bnb-nf4": "nf4-double", "nf4": "nf4-double", "gptq": "gptq"}
# losses of rows, and their kernels
LOSSES: dict[str, LossKernel] = {"fast_ce": "fused", "chunked_ce": "chunked"}
# optimizers of rows, and the names here
OPTIMIZERS: dict[str, OptimizerName] = {
    **{name: name for name in OPTIMIZER_NAMES},
    "adamw": "adam",
    "adam_pax": "adam",
    "adamw8bit": "adam8bit",
    "paged_adamw": "paged-adam",
    "paged_adamw8bit": "paged-adam8bit",
    "dist_muon": "muon",
}


def row_plan(row: Row, calibration: Calibration | None = None) -> tuple[Plan, Layout]:
    """Plan and layout of a row. Raises Skip, PlanError or ValidationError where it cannot be
    expressed."""
    row = recipes.completed(row)
    options = options_of(row)
    measured = calibration if calibration and calibration.gpu == row["gpu"] else None
    named = _printed(row["stack"], row.get("source_ref", ""))
    stack = _released(stack_spec(named, measured), _release(row, options))
    model = row_model(row, stack)
    cluster = _cluster(row, model.name, measured)
    found = stated(row, stack, model)
    training = _training(row, options, stack, model)
    if cluster.gpu.rate(training.precision) is None:
        raise Skip(f"precision is {training.precision}; {cluster.gpu.lacks(training.precision)}")
    request = LayoutRequest(pipeline_layout=found.request.pipeline_layout)
    plan = Plan(
        model=model,
        cluster=cluster,
        training=training,
        stack=stack,
        request=request,
        lengths=_lengths(options),
    )
    layout = completed(plan, found)
    used = {name: getattr(layout, name) for name in ("tp", "pp", "cp", "ep")}
    if lacking := lacks(stack, {**used, "precision": training.precision}):
        raise Skip(f"{stack.title} does not have {' and '.join(map(str, lacking))}")
    return plan, layout


def _lengths(options: dict[str, str]) -> LengthsSpec | None:
    """Documents of rows that are packed with boundaries between them; None: full sequences."""
    if _DOCUMENTS not in options:
        return None
    mean = number(options, _DOCUMENTS)
    return LengthsSpec(mean_tokens=mean, sigma=number(options, "document_sigma", _SIGMA))


def left_open(row: Row, plan: Plan) -> tuple[str, ...]:
    """Cells of a row that leave its layout open: those were searched."""
    return stated(recipes.completed(row), plan.stack, plan.model).open


def _cluster(row: Row, model: str, calibration: Calibration | None) -> ClusterSpec:
    cards, speed = row.get("nics_per_node", ""), row.get("nic_gbps", "")
    tiers = options_of(row)
    asked = Options(
        model=model,
        gpu=row["gpu"],
        gpus=whole(row, "gpus"),
        gpus_per_node=whole(row, "gpus_per_node", 0) or None,
        intra_node=row.get("intra_node") or None,
        inter_node=row.get("inter_node") or None,
        nics_per_node=int(number(row, "nics_per_node")) if cards else None,
        nic_bandwidth=f"{number(row, 'nic_gbps')} Gbit/s" if speed else None,
        island_nodes=whole(tiers, "island_nodes") if "island_nodes" in tiers else None,
        oversubscription=number(tiers, "oversubscription") if "oversubscription" in tiers else None,
    )
    return cluster_spec(asked, calibration)[0]


def _offloaded(options: dict[str, str]) -> tuple[OffloadModule, ...]:
    """The modules that the row says are offloaded, as far as they have names here."""
    named = options.get("offload_modules", "").split("+")
    return tuple(module for module in OFFLOAD_MODULES if module in named)


def _training(
    row: Row, options: dict[str, str], stack: StackSpec, model: ModelSpec
) -> TrainingSpec:
    return TrainingSpec(
        seq_len=whole(row, "seq_len"),
        global_batch=whole(row, "global_batch"),
        precision=_precision(row, options),
        low_parts=_low_parts(options, stack),
        wide_layers=family_of(row).bf16_layers.get(options.get("fp_recipe", ""), 0),
        attention=_attention(row, options, stack),  # type: ignore[arg-type]
        context_way=CONTEXT_WAY_WORDS.get(options.get("cp_comm_type", "")),
        fused_norm={"fused": True, "eager": False}.get(options.get("norm", "")),
        fused_kernels=any(word in options for word in _FUSING),
        loss_kernel=_loss_kernel(options, stack),
        compile=True if "compile" in options else None,
        cuda_graphs=_graphs(options),
        tensor_overlap=_tensor_overlap(options),
        offload_modules=_offloaded(options),
        selective="per-op" if options.get("selective") == "per_op" else "attention",
        gradient_reduce=options.get("grad_reduce") or family_of(row).gradient_reduce.get(stack.id),  # type: ignore[arg-type]
        overlap=False if options.get("overlap") == "none" else None,
        **_replicas(options),
        **_states(options, row.get("precision", "") or "bf16", stack),
        expandable_segments={"0": False, "1": True}.get(options.get("expandable_segments", "")),
        optimizer_in_backward="optimizer_in_bwd" in options,
        adapter=row_adapter(options),
        base_precision=FORMATS.get(options.get("quant", "")),
        base_upcast=options.get("upcast"),  # type: ignore[arg-type]
        loss_chunks=ceil(model.vocab / _RL_WORDS) if options.get("trainer") == "rl" else 1,
        etp=_count(options, "etp"),
        expert_kernels=_expert_kernels(options),  # type: ignore[arg-type]
        dispatcher=_dispatcher(options),  # type: ignore[arg-type]
        dispatcher_sms=_count(options, "dispatcher_sms"),
        ep_overlap={"0": False, "1": True}.get(options.get("ep_overlap", "")),
        capacity_factor=float(options["capacity_factor"]) if "capacity_factor" in options else None,
        paged_stash=max(float(options.get("stash_factor", 1)), 1.0)
        if "paged_stash" in options
        else None,
    )


# words for communication between replicas beside compute, and what each switches off
_BESIDE: dict[str, tuple[SyncPart, ...]] = {
    "overlap_grad_reduce": ("reduce",),
    "overlap_param_gather": ("forward", "backward"),
    "overlap_comm": SYNC_PARTS,
}
_BUCKET_BYTES = 2.0  # of an element of a bucket, as DeepSpeed counts them


def _replicas(options: dict[str, str]) -> dict[str, Any]:
    """How replicas are kept in step, as far as the row says it."""
    off = {part for word, parts in _BESIDE.items() if options.get(word) == "0" for part in parts}
    elements = options.get("bucket_elements")
    return {
        "data_overlap": [part for part in SYNC_PARTS if part not in off] if off else None,
        "data_bucket": None if elements is None else _BUCKET_BYTES * float(elements),
        "zeropp": options["zeropp"].split("+") if "zeropp" in options else (),
        "hpz": _count(options, "hpz"),
        "sub_group_size": float(number(options, "sub_group_size", 0.0)) or None,
    }


def _precision(row: Row, options: dict[str, str]) -> Precision:
    """Number format of a row: its recipe where it names one."""
    stated = row.get("precision", "") or "bf16"
    if stated == "fp4":
        return "nvfp4"
    recipe = options.get("fp8_recipe") or options.get("fp_recipe", "")
    return _RECIPES.get(recipe, "fp8") if stated == "fp8" else stated  # type: ignore[return-value]


def _low_parts(options: dict[str, str], stack: StackSpec) -> tuple[LowPart, ...] | None:
    """Weights where a row says that they are gathered in 8 bit, beside what the stack does."""
    if options.get("fp8_param_gather") != "1":
        return None
    return ("weights", "dispatch") if stack.precision.dispatch else ("weights",)


def _graphs(options: dict[str, str]) -> tuple[GraphScope, ...]:
    """Scopes of CUDA graphs that the row names, as far as a plan has them."""
    named = options.get("cuda_graph", "").split("+")
    return tuple(scope for scope in GRAPH_SCOPES if scope in named)


def _tensor_overlap(options: dict[str, str]) -> TensorOverlap | None:
    """How tensor-parallel collectives run beside GEMMs where the row says it."""
    if "async_tp" in options:
        return "async"
    return {"1": "user-buffers", "0": "none"}.get(options.get("tp_overlap", ""))  # type: ignore[return-value]


def _states(options: dict[str, str], precision: str, stack: StackSpec) -> dict[str, Any]:
    """Optimizer and types of states that a row names, as fields of TrainingSpec."""
    optimizer = OPTIMIZERS.get(options.get("optimizer", ""), "adam")
    moments = options.get("adam_moments") or options.get("moments_dtype")
    # bf16 weights without a master copy that is named have none; moments are made like weights
    has_master = options.get("master_dtype", "none") != "none"
    bf16 = options.get("params_dtype") == "bf16" and moments in (None, "bf16") and not has_master
    if bf16:
        return {"optimizer": optimizer, "state_precision": "bf16"}
    aware = options.get("precision_aware") == "1"
    master = options.get("master_dtype")
    if master == "fp32" and aware and precision == "bf16":
        master = "remainder"  # store_param_remainders, on by default (optimizer_config.py)
    return {
        "optimizer": optimizer,
        "moments_precision": moments if moments != "fp32" else None,
        "master_precision": master if stack.state.master and master != "fp32" else None,
        "gradient_precision": options.get("grads_dtype") if aware else None,
    }


def _loss_kernel(options: dict[str, str], stack: StackSpec) -> LossKernel | None:
    """The kernel of the loss: Liger's, with the head, where it is named, and where it is what the
    stack fuses the loss with."""
    if options.get("liger") == "fused_linear_ce":
        return "fused-linear"
    if _FUSED_LOSS & options.keys() or stack.unstated.fused_cross_entropy:
        return "fused-linear" if stack.fusion.liger else "fused"
    return LOSSES.get(options.get("loss", ""))


# what of a row's words says that adapters are trained, whatever the frozen weights are kept in
_ADAPTED = ("lora", "qlora", "gptq-lora")


def row_adapter(options: dict[str, str]) -> AdapterSpec | None:
    """Adapters of a row; None: all is trained, or no rank is stated."""
    rank = _count(options, "rank")
    if rank is None or options.get("peft") not in _ADAPTED:
        return None
    words = tuple(word.lower() for word in options.get("targets", ALL).split("+"))
    if unknown := [word for word in words if word not in WORDS]:
        raise Skip(f"targets names {unknown[0]!r}, no matrix that is known")
    return AdapterSpec(
        rank=rank,
        targets=words,
        dropout=number(options, "lora_dropout", 0.0),
        precision=options.get("adapter_dtype") or _adapter_type(options),  # type: ignore[arg-type]
        resident=_count(options, "adapters") or 1,
        fused="fused_ops" in options,
        autocast="autocast" in options,
    )


def _adapter_type(options: dict[str, str]) -> str | None:
    """That of the weights where they are bf16 and nothing is kept in fp32 (torchtune)."""
    return "bf16" if options.get("params_dtype") == "bf16" else None


def _count(options: dict[str, str], name: str) -> int | None:
    """A whole number among the options, None where the row does not state it."""
    return whole(options, name) if name in options else None


def _expert_kernels(options: dict[str, str]) -> str | None:
    """How experts are computed: Transformer Engine's operation fuser has one kernel for them."""
    if options.get("te_op_fuser") == "1":
        return "fused"
    looped = options.get("grouped_gemm") == "0"
    return "loop" if looped else "grouped" if _says_kernels(options) else None


def _says_kernels(options: dict[str, str]) -> bool:
    """Whether a row has all words of the recipe that it names, or those of its experts."""
    return bool({"te_op_fuser", "grouped_gemm", "recipe"} & options.keys())


def _dispatcher(options: dict[str, str]) -> str | None:
    """Dispatcher that the row names; "none", where every rank has all experts, is none."""
    named = options.get("dispatcher", "none")
    return None if named == "none" else named


def _attention(row: Row, options: dict[str, str], stack: StackSpec) -> str | None:
    """Attention kernel that the row names; None: the stack's own."""
    if "attention" in options:
        return options["attention"]
    if "transformer_engine" in options and stack.family != "jax":
        return "cudnn"  # as its DotProductAttention chooses; in JAX behind NVTE_FUSED_ATTN alone
    flash = row.get("flash_attention", "")
    if flash in ("0", "1"):
        wants, has = flash == "1", scores_on_chip(stack.fusion.attention)
        return None if wants == has else "flash2" if wants else "fused_softmax"
    return stack.unstated.gpt_attention if plain_gpt(row) else None


def _release(row: Row, options: dict[str, str]) -> str:
    """The release that a row names, else the month of its benchmark."""
    dated = _DATED.search(row.get("source_ref", ""))
    return options.get("release") or (".".join(dated.groups()) if dated else "")


def _released(stack: StackSpec, release: str) -> StackSpec:
    """The profile of this release of a stack: the latest that is not newer and numbered alike, the
    stack's own where none is or none is named."""
    if not _RELEASE.match(release):
        return stack
    alike = release.startswith("v")
    later = [
        s
        for s in catalog.load_all("stacks", StackSpec)
        if s.release_of == stack.id and s.since and s.since <= release
        if s.since.startswith("v") == alike
    ]
    return max(later, key=lambda s: s.since or "", default=stack)


def _printed(stack: str, reference: str) -> str:
    """The profile of the runs of a stack that this source prints, by the narrowest pattern; the
    stack itself where there is none."""
    found = (
        (len(pattern), s.id)
        for s in catalog.load_all("stacks", StackSpec)
        if (pattern := s.printed_in.get(stack)) and fnmatchcase(reference, pattern)
    )
    return max(found, default=(0, stack))[1]
