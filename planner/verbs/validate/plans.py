"""From a row to a plan and a layout: what the cells say, and what the stack does where they are
empty."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from math import ceil, log2
from typing import Any, get_args

import numpy as np

from planner.estimate import evaluate
from planner.formulas.refusals import lacking
from planner.inputs import catalog
from planner.inputs.calibration import Calibration, stack_spec
from planner.inputs.cluster import cluster_spec
from planner.specs.cluster import ClusterSpec
from planner.specs.columns import Columns
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.names import (
    CONTEXT_WAYS,
    GRAPH_SCOPES,
    OPTIMIZER_NAMES,
    ContextWay,
    GraphScope,
    OptimizerName,
    TensorOverlap,
)
from planner.specs.options import Options
from planner.specs.pipeline_layout import Chunk, layout_text, pipeline_layout
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import Fp8Recipe, TrainingSpec, scores_on_chip
from planner.verbs.validate.models import family_of, grows_segments, plain_gpt, row_model
from planner.verbs.validate.rows import Row, Skip, number, options_of, whole

# words that say of fused norm, RoPE and gate
_FUSING = ("fused_ops", "liger", "transformer_engine")
_FUSED_LOSS = {"fused_cross_entropy", "fused_ops"}
# year and month, as NeMo numbers its containers, or a round of MLPerf Training: each order as text
_RELEASE = re.compile(r"\d\d\.\d\d|v\d\.\d")
# year and month in the name of a file of benchmarks, as torchtitan names its own
_DATED = re.compile(r"_20(\d\d)(\d\d)[_.]")
_RECIPES = {"fp8-cs": "tensorwise", "fp8-mx": "mxfp8"}  # scaling of fp8, as NeMo names it
_OFFLOAD_ZERO = 3  # ZeRO stage of a run that offloads and says no more, where the stack has it
_SHARDING = {"shard-gradients": 2, "shard-weights": 3}  # of LLMQ (its README): ZeRO stages
# of Megatron-Core's --cp-comm-type, and the names here
_CONTEXT_WAYS: dict[str, ContextWay] = {
    **{way: way for way in CONTEXT_WAYS},
    "p2p": "ring",
    "all_gather": "all-gather",
    "a2a": "ulysses",
    "a2a+p2p": "hybrid",
}
_RL_WORDS = 2048  # of a chunk of logits of prime-rl's RL trainer
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
    options = options_of(row)
    measured = calibration if calibration and calibration.gpu == row["gpu"] else None
    named = _printed(row["stack"], row.get("source_ref", ""))
    stack = _released(stack_spec(named, measured), _release(row, options))
    model = row_model(row, stack)
    cluster = _cluster(row, model.name, measured)
    stated = _pipeline_layout(row, options, model.layers)
    layout = _layout(row, options, stack, None if stated is None else len(stated))
    training = _training(row, options, stack, model)
    if cluster.gpu.rate(training.precision) is None:
        raise Skip(f"precision is {training.precision}, which {cluster.gpu.title} does not have")
    request = LayoutRequest(pipeline_layout=None if stated is None else layout_text(stated))
    plan = Plan(model=model, cluster=cluster, training=training, stack=stack, request=request)
    if lacks := lacking(plan, layout):
        raise Skip(f"{stack.title} does not have {' and '.join(lacks)}")
    return plan, layout if row.get("zero", "") else _sharded_enough(plan, layout)


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


def _pipeline_layout(row: Row, options: dict[str, str], layers: int) -> tuple[Chunk, ...] | None:
    """What the chunks of a pipeline hold where a row says it: all of them, or only that the first
    or the last stage has other layers than those between, which share the rest."""
    if "pp_layout" in options:
        try:
            chunks = pipeline_layout(options["pp_layout"])
        except ValueError as error:
            raise Skip(f"pp_layout {error}") from None
        if sum(chunk.layers for chunk in chunks) != layers:
            raise Skip(f"pp_layout has other layers than the {layers} of the model")
        return chunks
    ends = [options.get(f"{end}_stage_layers") for end in ("first", "last")]
    if ends == [None, None]:
        return None
    pp, vpp = whole(row, "pp", 1, minimum=1), whole(row, "vpp", 1) or 1
    stated = [None if text is None else whole({"layers": text}, "layers") for text in ends]
    inner, rest = pp - len(stated) + stated.count(None), layers - sum(n or 0 for n in stated)
    if pp < 2 or rest < 0 or (inner and rest % inner) or (not inner and rest):
        raise Skip(f"first and last stage leave {rest} layers to {inner} stages")
    first, last = stated
    each = [rest // inner if inner else 0] * pp
    each[0], each[-1] = each[0] if first is None else first, each[-1] if last is None else last
    if any(n % vpp for n in each):
        raise Skip(f"layers of the stages do not divide by vpp {vpp}")
    end = pp * vpp - 1
    return tuple(Chunk(i == 0, each[i % pp] // vpp, 0, i == end) for i in range(pp * vpp))


def _layout(row: Row, options: dict[str, str], stack: StackSpec, chunks: int | None) -> Layout:
    """The layout that the cells say, with the stack's own defaults where they are empty. chunks: of
    the pipeline, where the row says what they hold."""
    gpus, unstated = whole(row, "gpus"), stack.unstated
    tp, pp, cp, dp = (whole(row, name, 1, minimum=1) for name in ("tp", "pp", "cp", "dp"))
    if tp * pp * cp * dp != gpus:
        raise Skip(
            f"tp {tp} x pp {pp} x cp {cp} x dp {dp} = {tp * pp * cp * dp}, but gpus is {gpus}"
        )
    vpp = whole(row, "vpp", chunks / pp if chunks else 1) or 1
    if chunks is not None and pp * vpp != chunks:
        raise Skip(f"pp_layout has {chunks} chunks, pp {pp} x vpp {vpp} = {pp * vpp}")
    zero, offload = _sharded(row, options, stack)
    micro_batch = whole(row, "micro_batch", 1) or 1
    global_batch = whole(row, "global_batch")
    if global_batch % (dp * micro_batch):
        raise Skip(
            f"global_batch {global_batch} is no multiple of dp {dp} x micro_batch {micro_batch}"
        )
    sequence = row.get("sequence_parallel", "")
    schedule = row.get("schedule", "") or "1f1b"
    shard = whole(row, "shard_group", 0)
    return Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=whole(row, "ep", 1) or 1,
        zero=zero,
        shard_group=min(shard * cp, dp * cp) if shard else dp * cp,
        sequence_parallel=sequence == "1"
        or (sequence == "" and tp > 1 and unstated.sequence_parallel),
        recompute=row.get("recompute", "") or unstated.recompute,
        # 1F1B over virtual stages is the interleaved schedule
        schedule="interleaved" if schedule == "1f1b" and vpp > 1 else schedule,  # type: ignore[arg-type]
        micro_batch=micro_batch,
        offload=offload,  # type: ignore[arg-type]
    )


def _sharded(row: Row, options: dict[str, str], stack: StackSpec) -> tuple[int, str]:
    """ZeRO stage, and what lives in host memory: by the cells, and by LLMQ's switches. With
    sharded weights it keeps no whole copy of them on the GPU, on one GPU neither, and makes one of
    the master weights for every pass, unless quantised weights persist."""
    flags = options.get("flags", "")
    offload = "none"
    if row.get("optimizer_offload", "") == "1" or "offload" in flags:
        offload = "params" if "parameters" in flags else "optimizer"
    may_offload = offload != "none" and _OFFLOAD_ZERO in stack.supports.zero
    zero = whole(row, "zero", _OFFLOAD_ZERO if may_offload else stack.unstated.zero)
    zero = max([zero, *(stage for switch, stage in _SHARDING.items() if switch in flags)])
    words = options.get("activation_offload", "none")
    if offload == "none" and words != "none" and "activations" in stack.supports.offload:
        offload = "activations"
    if "offload-master" in flags and "quants" not in flags and zero >= _OFFLOAD_ZERO:
        offload = "params"
    return zero, offload


def _training(
    row: Row, options: dict[str, str], stack: StackSpec, model: ModelSpec
) -> TrainingSpec:
    recipe = options.get("fp8_recipe") or options.get("fp_recipe", "")
    recipe = _RECIPES.get(recipe, recipe)
    return TrainingSpec(
        seq_len=whole(row, "seq_len"),
        global_batch=whole(row, "global_batch"),
        precision=row.get("precision", "") or "bf16",  # type: ignore[arg-type]
        attention=_attention(row, options, stack),  # type: ignore[arg-type]
        context_way=_CONTEXT_WAYS.get(options.get("cp_comm_type", "")),
        fused_norm={"fused": True, "eager": False}.get(options.get("norm", "")),
        fused_kernels=any(word in options for word in _FUSING),
        fused_cross_entropy=_fuses_loss(options, stack) or None,
        compile=True if "compile" in options else None,
        cuda_graphs=_graphs(options),
        tensor_overlap=_tensor_overlap(options),
        fp8_recipe=recipe if recipe in get_args(Fp8Recipe) else None,  # type: ignore[arg-type]
        selective="per_op" if options.get("selective") == "per_op" else "attention",
        gradient_reduce=options.get("grad_reduce") or family_of(row).gradient_reduce.get(stack.id),  # type: ignore[arg-type]
        overlap=False if options.get("overlap") == "none" else None,
        **_states(options, row.get("precision", "") or "bf16", stack),
        expandable_segments={"0": False, "1": True}.get(
            options.get("expandable_segments", ""), grows_segments(row, stack)
        ),
        optimizer_in_backward="optimizer_in_bwd" in options,
        loss_chunks=_loss_chunks(
            options, stack, model, whole(row, "seq_len") * whole(row, "micro_batch", 1)
        ),
        etp=_count(options, "etp"),
        dispatcher=_dispatcher(options),  # type: ignore[arg-type]
        dispatcher_sms=_count(options, "dispatcher_sms"),
        ep_overlap={"0": False, "1": True}.get(options.get("ep_overlap", "")),
        capacity_factor=float(options["capacity_factor"]) if "capacity_factor" in options else None,
    )


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


def _fuses_loss(options: dict[str, str], stack: StackSpec) -> bool:
    return bool(_FUSED_LOSS & options.keys()) or stack.unstated.fused_cross_entropy


def _loss_chunks(options: dict[str, str], stack: StackSpec, model: ModelSpec, tokens: int) -> int:
    """Chunks of a fused head and loss: Liger's are a power of two of tokens, with about as many
    logits as there are hidden elements (fused_linear_cross_entropy.py of linkedin/Liger-Kernel);
    the RL trainer of prime-rl takes 2,048 words at a time (auto_setup_fused_lm_head_chunk_size
    in its config)."""
    if options.get("trainer") == "rl":
        return ceil(model.vocab / _RL_WORDS)
    liger = stack.fusion.liger and _fuses_loss(options, stack)
    if not liger and options.get("liger") != "fused_linear_ce":
        return 1
    least = ceil(tokens / ceil(model.vocab / model.hidden))
    return ceil(tokens / 2 ** ceil(log2(least)))


def _count(options: dict[str, str], name: str) -> int | None:
    """A whole number among the options, None where the row does not state it."""
    return whole(options, name) if name in options else None


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


def _sharded_enough(plan: Plan, layout: Layout) -> Layout:
    """A layout whose ZeRO stage is not printed: it ran, so it is the first stage from the default
    on whose memory fits."""
    supports = plan.stack.supports
    stages = [
        z
        for z in supports.zero
        if z >= layout.zero and (layout.pp == 1 or z in supports.zero_with_pipeline)
    ]
    layouts = [layout.model_copy(update={"zero": z}) for z in stages]
    if layout.dp * layout.cp == 1 or len(layouts) < 2:
        return layout
    fits = evaluate(plan, Columns.of(layouts, plan.cluster.gpus)).fits
    return layouts[int(np.argmax(fits))] if fits.any() else layouts[-1]
