"""Options: how the work is divided over GPUs. What is left out is searched."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from planner.specs.names import (
    ContextWay,
    OffloadName,
    PlacementName,
    ScheduleName,
    Selective,
    TensorOverlap,
    offload_modules_name,
    recompute_name,
)
from planner.specs.options import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, option, rows
from planner.specs.options.verbs import (
    METHODS,
    OF_METHODS,
    OF_SEQUENCES,
    PARTS,
    PHASES,
    REQUESTS,
    SEARCHES,
)

MOST_DEGREE = 1_000_000
_SEARCHED = "searched"
_LAYOUT = Group("layout", "Layout", "Auto is searched; a fixed degree stays fixed.")
_BY_STRATEGY = "is set by each strategy, which is data-parallel alone"


@dataclass(frozen=True, kw_only=True)
class LayoutOptions(Record):
    """The columns of a layout."""

    GROUP: ClassVar = _LAYOUT
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = _BY_STRATEGY

    tp: Annotated[
        int | None,
        option(
            "Tensor-parallel degree",
            label="Tensor parallel",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            form="shown",
            brief=True,
            slider=True,
        ),
    ] = None
    pp: Annotated[
        int | None,
        option(
            "Pipeline-parallel degree: number of pipeline stages",
            label="Pipeline parallel",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            form="shown",
            brief=True,
            slider=True,
        ),
    ] = None
    vpp: Annotated[
        int | None,
        option(
            "Virtual pipeline stages per rank (interleaved and breadth-first schedules; 2 for the"
            " V-shaped ones)",
            label="Virtual stages per rank",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            form="folded",
            slider=True,
        ),
    ] = None
    dp: Annotated[
        int | None,
        option(
            "Data-parallel degree: number of replicas",
            label="Data parallel",
            least=1,
            most=MOST_DEGREE,
            example="4",
            unset=_SEARCHED,
            form="shown",
            slider=True,
        ),
    ] = None
    cp: Annotated[
        int | None,
        option(
            "Context-parallel degree: ranks that share each sequence",
            label="Context parallel",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            form="folded",
            slider=True,
        ),
    ] = None
    ep: Annotated[
        int | None,
        option(
            "Expert-parallel degree of a mixture of experts; ep x etp divides tp x dp x cp",
            label="Expert parallel",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            form="folded",
            slider=True,
        ),
    ] = None
    zero: Annotated[
        int | None,
        option(
            "ZeRO stage: 0 replicates, 1 shards optimizer states, 2 also gradients, 3 also"
            " parameters (FSDP)",
            label="ZeRO stage",
            least=0,
            most=3,
            aliases=aliases.ZERO,
            example="1",
            unset=_SEARCHED,
            form="shown",
            brief=True,
        ),
    ] = None
    shard_group: Annotated[
        int | None,
        option(
            "Ranks over which ZeRO-3 shards; replicas of the shard group make it hybrid sharding",
            label="Shard group",
            least=1,
            most=MOST_DEGREE,
            example="4",
            unset=_SEARCHED,
            form="folded",
        ),
    ] = None
    sequence_parallel: Annotated[
        bool | None,
        option(
            "Sequence parallelism: norms and dropout sharded over tensor-parallel ranks",
            label="Sequence parallel",
            example="false",
            unset=_SEARCHED,
            form="folded",
        ),
    ] = None
    schedule: Annotated[
        ScheduleName | None,
        option(
            "Pipeline schedule (dpplan list schedules)",
            label="Pipeline schedule",
            aliases=aliases.SCHEDULES,
            example="gpipe",
            unset=_SEARCHED,
            form="folded",
        ),
    ] = None
    recompute: Annotated[
        str | None,
        option(
            "Activation recomputation: none, selective, full, block:N (N layers of each pipeline"
            " chunk), group:K (one checkpoint per K layers of a chunk), Megatron's modules such as"
            " core_attn+layernorm+moe_act, or MaxText's policies such as save_qkv_proj",
            label="Recompute",
            aliases=aliases.RECOMPUTE,
            read=recompute_name,
            example="full",
            unset=_SEARCHED,
            verbs=REQUESTS,
            form="shown",
            brief=True,
        ),
    ] = None
    micro_batch: Annotated[
        int | None,
        option(
            "Micro-batch size: sequences per data-parallel replica and forward pass",
            label="Micro-batch size",
            least=1,
            most=MOST_DEGREE,
            example="2",
            unset=_SEARCHED,
            verbs=REQUESTS,
            form="shown",
            brief=True,
            slider=True,
        ),
    ] = None
    offload: Annotated[
        OffloadName | None,
        option(
            "What is offloaded to host memory, or with -nvme to NVMe drives",
            label="Offload",
            aliases=aliases.OFFLOADS,
            example="optimizer",
            unset="nothing",
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            form="folded",
        ),
    ] = None
    placement: Annotated[
        PlacementName | None,
        option(
            "Rank order, fastest-varying first: tp-cp-dp-pp places replicas on neighbouring ranks,"
            " tp-cp-pp-dp pipeline stages",
            label="Rank order",
            example="tp-cp-pp-dp",
            unset=_SEARCHED,
            form="folded",
        ),
    ] = None


LAYOUT = tuple(rows(LayoutOptions))  # options that are columns of a layout


def _pipeline(text: str) -> str:
    from planner.specs.pipeline_layout import layout_name

    return layout_name(text)


def _condition(text: str) -> str:
    from planner.specs.where import constraint

    return constraint(text).text


def _has_stages(given: Any) -> bool:
    return given.gpus > 1 and given.pp != 1


@dataclass(frozen=True, kw_only=True)
class SearchOptions(Record):
    """Which layouts are searched."""

    GROUP: ClassVar = _LAYOUT
    VERBS: ClassVar = SEARCHES
    WHY_NOT: ClassVar = _BY_STRATEGY

    cp_comm_type: Annotated[
        ContextWay | None,
        option(
            "How context-parallel ranks share a sequence: ring (keys and values pass around),"
            " all-gather, ulysses (all-to-all by heads) or hybrid (ulysses in a node, ring beyond)",
            label="Context parallel by",
            aliases=aliases.CONTEXT_WAYS,
            example="ulysses",
            unset="as the stack does",
            needs=Needs(
                lambda given: given.cp != 1,
                "is of context parallelism: leave it out, or give --cp above 1",
            ),
            form="folded",
        ),
    ] = None
    selective: Annotated[
        Selective | None,
        option(
            "What selective recomputation repeats: attention (the scores of attention) or per-op"
            " (torchtitan's selection by operator)",
            label="Selective recompute of",
            example="per-op",
            unset="as the stack does",
            needs=Needs(
                lambda given: given.recompute == "selective",
                "is of selective recomputation: take --recompute selective",
                "--recompute selective",
            ),
            form="folded",
        ),
    ] = None
    offload_modules: Annotated[
        str | None,
        option(
            "Modules that --offload activations moves, joined by +: Megatron's attn_norm,"
            " qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act, or MaxText's"
            " decoder_layer_input, qkv_proj, context, out_proj, mlpwi",
            label="Offloaded modules",
            read=offload_modules_name,
            example="expert_fc1+moe_act",
            unset="all that is kept",
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            needs=Needs(
                lambda given: given.offload == "activations",
                "selects which activations are offloaded: give --offload activations, too",
                "--offload activations",
            ),
            form="folded",
        ),
    ] = None
    tp_overlap: Annotated[
        TensorOverlap | None,
        option(
            "Overlap of tensor-parallel collectives with GEMMs under sequence parallelism: none,"
            " async (torch's asynchronous tensor parallelism) or user-buffers (tp_comm_overlap of"
            " Transformer Engine)",
            label="Tensor parallel overlap",
            example="none",
            unset="as the stack does",
            needs=Needs(
                lambda given: given.tp != 1 and given.sequence_parallel is not False,
                "is of tensor parallelism with sequence parallelism: leave it out, or give --tp"
                " above 1",
            ),
            form="folded",
        ),
    ] = None
    grad_accum: Annotated[
        int | None,
        option(
            "Gradient-accumulation steps: micro-batches of a replica per optimizer step; without"
            " --global-batch, the batch is micro-batch x dp x this",
            label="Gradient accumulation",
            least=1,
            most=MOST_DEGREE,
            example="8",
            unset="global batch / (micro-batch x dp)",
            verbs=SEARCHES - PHASES,
            why_not=OF_SEQUENCES,
            form="folded",
        ),
    ] = None
    where: Annotated[
        tuple[str, ...],
        option(
            "Search only layouts for which this holds, such as 'tp <= 8' or 'recompute = none'",
            label="Conditions on layouts",
            read=_condition,
            length=1000,
            example="tp <= 2",
            form="folded",
        ),
    ] = ()
    headroom: Annotated[
        float | str | None,
        option(
            "Share of GPU memory that the chosen layout leaves free, e.g. 5%; 0% takes the"
            " fastest that is expected to fit",
            label="Memory left free",
            unit="1",
            least=1e-6,
            most=0.9,
            or_zero=True,
            example="5%",
            verbs=SEARCHES - PARTS,
            unset="as much as a 95 % chance to fit needs",
            form="folded",
        ),
    ] = None
    search_offload: Annotated[
        bool,
        option(
            "Also search every kind of offloading that the stack supports",
            label="Search offloading",
            verbs=SEARCHES - METHODS,
            why_not=OF_METHODS,
            needs=Needs(
                lambda given: given.offload is None,
                "searches what --offload fixes: leave one of them out",
            ),
            form="folded",
        ),
    ] = False
    uneven_stages: Annotated[
        bool | None,
        option(
            "Pipelines whose stages differ in layers: also where layers divide, or never",
            label="Uneven stages",
            example="false",
            unset="where layers do not divide and the stack can",
            needs=Needs(
                _has_stages,
                "is of pipelines, and there is one stage: leave it out, or give more --gpus and no"
                " --pp 1",
                verbs=SEARCHES - {"recommend cluster"},  # whose GPUs are looked for
            ),
            form="folded",
        ),
    ] = None
    pipeline_layout: Annotated[
        str | None,
        option(
            "What every pipeline chunk holds, as in Megatron's --pipeline-model-parallel-layout:"
            " E embedding, t layer, m MTP layer, L head, bars between chunks, (tt|)*29 repeats",
            label="Pipeline layout",
            read=_pipeline,
            length=4000,
            example="Et*4|t*3|t*3|ttL",
            unset="layers dealt out as the stack does it",
            form="folded",
        ),
    ] = None
