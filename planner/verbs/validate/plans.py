"""From a row to a plan and a layout: what the cells say, and what a stack does where they are
empty."""

from __future__ import annotations

import re

import numpy as np

from planner.estimate import evaluate
from planner.estimate.columns import to_table
from planner.inputs import catalog
from planner.inputs import cluster as request
from planner.inputs.calibration import Calibration, stack_spec
from planner.specs.layout import Layout, LayoutRequest
from planner.specs.model import Experts, LatentAttention, ModelSpec
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.specs.training import TrainingSpec
from planner.verbs.validate.rows import Row, Skip, number, options_of, whole

_RELEASE = re.compile(
    r"\d\d\.\d\d"
)  # year and month, as NeMo numbers its containers: these order as text

# what a stack does where a recipe is not printed
_SHARDED = ("composer-fsdp", "fms-fsdp", "torchtitan", "lightning-fsdp", "pytorch-fsdp")
_DISTRIBUTED_OPTIMIZER = ("megatron-core", "nemo", "meta-llama3", "hai-llm")
_ALWAYS_RECOMPUTES = ("megatron-lm-2021", "megatron-deepspeed", "bmtrain")

# latent attention is not in the columns; the families that have it share these ranks (their public
# configs)
_LATENT = {
    "deepseek": (1536, 512, 128, 64, 128),
    "kimi": (1536, 512, 128, 64, 128),
    "moonlight": (None, 512, 128, 64, 128),
}


def row_model(row: Row) -> ModelSpec:
    """Transformer shape of a row."""
    heads = whole(row, "heads", minimum=1)
    hidden = whole(row, "hidden")
    head_dim = whole(row, "head_dim", hidden // heads)
    name = row.get("model", "") or "model"
    gated = row.get("mlp", "") in ("swiglu", "geglu", "")
    layers = whole(row, "layers")
    norm = "layernorm" if row.get("norm", "") == "layernorm" else "rmsnorm"
    moe = None
    experts = whole(row, "experts", 0)
    latent = None
    if experts > 1:
        width = whole(row, "moe_ffn_hidden")
        family = next((f for f in _LATENT if f in name.lower()), None)
        moe = Experts(
            experts=experts,
            experts_per_token=whole(row, "experts_per_token"),
            ffn_hidden=width,
            shared_ffn_hidden=width * whole(row, "shared_experts", 0),
            dense_layers=whole(row, "dense_layers", 0),
            group_limit=4 if family == "deepseek" else None,
        )
        if family and head_dim == 128:
            q, kv, nope, rope, value = _LATENT[family]
            latent = LatentAttention(
                query_rank=q,
                kv_rank=kv or 1,
                nope_head_dim=nope or 1,
                rope_head_dim=rope or 1,
                value_head_dim=value or 1,
            )
    positions = {"rope": "rotary", "learned": "learned", "alibi": "alibi"}.get(
        row.get("positions", ""), "none"
    )
    mpt = name.lower().startswith("mpt")
    return ModelSpec(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=whole(row, "kv_heads", heads) or heads,
        head_dim=head_dim,
        ffn_hidden=whole(row, "ffn_hidden", 4 * hidden) or 4 * hidden,
        vocab=whole(row, "vocab", 32_000),
        max_positions=whole(row, "seq_len", minimum=1),
        mlp="gated" if gated else "plain",
        activation="silu" if gated else "gelu",
        norm=norm,  # type: ignore[arg-type]
        norm_bias=norm == "layernorm" and not mpt,
        positions=positions,  # type: ignore[arg-type]
        tied_embeddings=row.get("tied_embeddings", "") == "1",
        bias_qkv=not gated and not mpt,
        bias_attention_out=not gated and not mpt,
        bias_mlp=not gated and not mpt,
        dropout=_legacy_gpt(row["stack"], row),
        latent=latent,
        moe=moe,
    )


def _legacy_gpt(stack: str, row: Row) -> bool:
    """Megatron's own defaults for a GPT with learned positions: dropout 0.1, attention without the
    flash switch."""
    return (
        stack == "megatron-core"
        and row.get("positions") == "learned"
        and row.get("flash_attention", "") == ""
    )


def row_plan(row: Row, calibration: Calibration | None = None) -> tuple[Plan, Layout]:
    """Plan and layout of a row; raises Skip where it cannot be expressed."""
    options = options_of(row)
    measured = calibration if calibration and calibration.gpu == row["gpu"] else None
    stack = _released(stack_spec(row["stack"], measured), options.get("release", ""))
    family = stack.release_of or stack.id
    model = row_model(row)
    gpus = whole(row, "gpus")
    nics, speed = row.get("nics_per_node", ""), row.get("nic_gbps", "")
    cluster, _ = request.cluster_spec(
        gpu=row["gpu"],
        gpus=gpus,
        gpus_per_node=whole(row, "gpus_per_node", 0) or None,
        intra_node=row.get("intra_node") or None,
        inter_node=row.get("inter_node") or None,
        nics_per_node=int(number(row, "nics_per_node")) if nics else None,
        nic_bandwidth=f"{number(row, 'nic_gbps')} Gbit/s" if speed else None,
        calibration=measured,
    )
    tp, pp, cp, dp = (whole(row, name, 1, minimum=1) for name in ("tp", "pp", "cp", "dp"))
    if tp * pp * cp * dp != gpus:
        raise Skip(
            f"tp {tp} x pp {pp} x cp {cp} x dp {dp} = {tp * pp * cp * dp}, but gpus is {gpus}"
        )
    vpp = whole(row, "vpp", 1) or 1
    default_zero = 3 if family in _SHARDED else 1 if family in _DISTRIBUTED_OPTIMIZER else 0
    offloaded = row.get("optimizer_offload", "") == "1" or "offload" in options.get("flags", "")
    zero = whole(
        row, "zero", 3 if offloaded and 3 in stack.supports.zero else default_zero
    )  # offloading is a ZeRO feature
    micro_batch = whole(row, "micro_batch", 1) or 1
    global_batch = whole(row, "global_batch")
    if global_batch % (dp * micro_batch):
        raise Skip(
            f"global_batch {global_batch} is no multiple of dp {dp} x micro_batch {micro_batch}"
        )
    recompute = row.get("recompute", "") or ("full" if family in _ALWAYS_RECOMPUTES else "none")
    sequence = row.get("sequence_parallel", "")
    schedule = row.get("schedule", "") or ("interleaved" if vpp > 1 else "1f1b")
    if schedule == "1f1b" and vpp > 1:
        schedule = "interleaved"
    shard = whole(row, "shard_group", 0)
    offload = "none"
    if offloaded:
        offload = "params" if "parameters" in options.get("flags", "") else "optimizer"
    layout = Layout(
        tp=tp,
        pp=pp,
        vpp=vpp,
        dp=dp,
        cp=cp,
        ep=whole(row, "ep", 1) or 1,
        zero=zero,
        shard_group=min(shard * cp, dp * cp) if shard else dp * cp,
        sequence_parallel=sequence == "1"
        or (sequence == "" and tp > 1 and family in ("nemo", "megatron-core")),
        recompute=recompute,
        schedule=schedule,  # type: ignore[arg-type]
        micro_batch=micro_batch,
        offload=offload,  # type: ignore[arg-type]
    )
    attention = options.get("attention")
    if attention is None and row.get("flash_attention", "") in ("0", "1"):
        wants = row["flash_attention"] == "1"
        has = stack.fusion.attention.startswith("flash")
        attention = None if wants == has else "flash2" if wants else "fused_softmax"
    elif attention is None and _legacy_gpt(family, row):
        attention = "fused_softmax"
    recipe = options.get("fp8_recipe", "")
    training = TrainingSpec(
        seq_len=whole(row, "seq_len"),
        global_batch=global_batch,
        precision=row.get("precision", "") or "bf16",  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        fused_norm={"fused": True, "eager": False}.get(options.get("norm", "")),
        fused_cross_entropy=True if "fused_cross_entropy" in options else None,
        compile=True if "compile" in options else None,
        async_tensor_parallel="async_tp" in options,
        fp8_recipe={"rowwise": "rowwise", "tensorwise": "tensorwise"}.get(recipe),  # type: ignore[arg-type]
        selective="per_op" if options.get("selective") == "per_op" else "attention",
        gradient_reduce=options.get("grad_reduce"),  # type: ignore[arg-type]
        overlap=False if options.get("overlap") == "none" else None,
        moment_bytes=4.0 if options.get("adam_moments") == "bf16" else None,
    )
    if cluster.gpu.rate(training.precision) is None:
        raise Skip(f"precision is {training.precision}, which {cluster.gpu.title} does not have")
    uneven = model.layers % (pp * vpp) != 0
    plan = Plan(
        model=model,
        cluster=cluster,
        training=training,
        stack=stack,
        request=LayoutRequest(uneven_stages=uneven),
    )
    return plan, layout if row.get("zero", "") else _sharded_enough(plan, layout)


def _released(stack: StackSpec, release: str) -> StackSpec:
    """The profile of this release of a stack: the latest that is not newer, the stack's own where
    none is or none is named."""
    if not _RELEASE.match(release):
        return stack
    later = [
        s
        for s in catalog.load_all("stacks", StackSpec)
        if s.release_of == stack.id and s.since and s.since <= release
    ]
    return max(later, key=lambda s: s.since or "", default=stack)


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
    fits = evaluate(plan, to_table(layouts)).fits
    return layouts[int(np.argmax(fits))] if fits.any() else layouts[-1]
