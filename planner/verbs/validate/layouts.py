"""From a row to its layout: what the cells state, what follows from them, and for what they leave
open the layout that an estimate takes.

A published run ran, and whoever publishes one has tuned it: a cell that its source does not print
is searched among the layouts that the row allows, never filled with a constant. `[unstated]` of a
stack says what its program does without being told; that is known, not open.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from planner.estimate import Estimates, Outline, evaluate
from planner.search import layouts, search
from planner.search.choose import fastest_that_fits, smallest
from planner.specs.layout import Layout, LayoutRequest, ScheduleName
from planner.specs.model import ModelSpec
from planner.specs.names import is_recompute, recompute_name
from planner.specs.pipeline_layout import Chunk, layout_text, pipeline_layout
from planner.specs.plan import Plan
from planner.specs.stack import StackSpec
from planner.verbs.validate.models import repeats
from planner.verbs.validate.rows import Row, Skip, options_of, whole

_OFFLOAD_ZERO = 3  # ZeRO stage of a run that offloads and says no more, where the stack has it
_SHARDING = {"shard-gradients": 2, "shard-weights": 3}  # of LLMQ (its README): ZeRO stages
# MaxText's names of tensors, and the names here; the layer's input is always kept
_KEPT = dict.fromkeys(("query_proj", "key_proj", "value_proj"), "qkv_proj") | {
    "mlpwi_0": "mlpwi",
    "mlpwi_1": "mlpwi",
    "decoder_layer_input": "",
}
_DEGREES = ("tp", "pp", "dp")
# cells that a row may leave open, in the order in which they are named; degrees besides
OPEN = (*_DEGREES, "cp", "vpp", "ep", "zero", "sequence_parallel", "recompute", "micro_batch")
# 1F1B over one stage per rank or several: zero-bubble schedules, and those that join two, are
# switched on, and so are printed where they ran
_USUAL: tuple[ScheduleName, ...] = ("1f1b", "interleaved")


@dataclass(frozen=True)
class Stated:
    """What a row says of its layout. None in the request: it is open."""

    request: LayoutRequest
    least_zero: int  # ZeRO stage from which on a stage that is not stated is taken

    @property
    def open(self) -> tuple[str, ...]:
        """The cells that are left open and have more than one meaning."""
        return tuple(name for name in OPEN if getattr(self.request, name) is None)


def stated(row: Row, stack: StackSpec, model: ModelSpec) -> Stated:
    """What the cells of a row say of its layout. Raises Skip where they contradict each other."""
    options, supports, unstated = options_of(row), stack.supports, stack.unstated
    gpus = whole(row, "gpus")
    chunks = _pipeline_layout(row, options, model.layers)
    degrees = _degrees(row, gpus)
    tp, pp, cp, dp = (degrees[name] for name in ("tp", "pp", "cp", "dp"))
    vpp, schedule = _virtual(row, pp, None if chunks is None else len(chunks), stack)
    micro_batch = whole(row, "micro_batch") or 1 if row.get("micro_batch", "") else None
    global_batch = whole(row, "global_batch")
    if dp and global_batch % (dp * (micro_batch or 1)):
        raise Skip(
            f"global_batch {global_batch} is no multiple of dp {dp} x micro_batch"
            f" {micro_batch or 1}"
        )
    if dp and global_batch == dp:
        micro_batch = micro_batch or 1
    ranks = dp * cp if dp and cp else None
    zero, least, offload = _sharded(row, options, stack)
    if zero is None and (ranks == 1 or len(_stages(stack, least, pp)) < 2):
        zero = least
    told = row.get("sequence_parallel", "")
    sequence = told == "1" if told else None
    if sequence is None and tp is not None:
        if tp == 1 or not supports.sequence_parallel:
            sequence = False
        elif "sequence_parallel" in unstated.model_fields_set:
            sequence = unstated.sequence_parallel
    shard = whole(row, "shard_group", 0) * (cp or 1)
    experts = model.routed is not None and supports.expert
    request = LayoutRequest(
        tp=tp,
        pp=pp,
        cp=cp,
        dp=dp,
        vpp=vpp,
        schedule=schedule,
        ep=whole(row, "ep") or 1 if row.get("ep", "") else None if experts else 1,
        zero=zero,
        shard_group=(min(shard, ranks) if ranks else shard) if shard else ranks,
        sequence_parallel=sequence,
        recompute=_recompute(row, options, stack),
        micro_batch=micro_batch,
        offload=offload,  # type: ignore[arg-type]
        placement=supports.placements[0],
        pipeline_layout=None if chunks is None else layout_text(chunks),
    )
    return Stated(request, least)


def completed(plan: Plan, found: Stated) -> Layout:
    """The layout of a row: as stated, with what is open as an estimate would have it among the
    layouts that the row allows. Raises Skip where the rules allow none."""
    asked = found.request
    if not found.open:
        return _layout(asked)
    supports = plan.stack.supports
    usual = (*_USUAL, asked.schedule)
    narrowed = supports.model_copy(
        update={
            "zero": [z for z in supports.zero if z >= found.least_zero] or supports.zero,
            "schedules": tuple(s for s in supports.schedules if s in usual),
            "hybrid_shard": supports.hybrid_shard and asked.shard_group is not None,
        }
    )
    stack = plan.stack.model_copy(update={"supports": narrowed})
    open_plan = plan.model_copy(update={"stack": stack, "request": asked})
    estimates: Estimates | Outline | None = search(open_plan).estimates
    if estimates is None:  # its own cells break a rule, and it ran: rules say nothing of it
        table = layouts(open_plan)
        if not len(table):
            left = ", ".join(found.open)
            raise Skip(f"no layout is possible with {plan.stack.title}, whatever {left} is")
        estimates = evaluate(open_plan, table)
    row = fastest_that_fits(estimates)  # it ran: no room to spare is asked for
    return _row(estimates, smallest(estimates) if row is None else row)


def _row(estimates: Estimates | Outline, row: int) -> Layout:
    if isinstance(estimates, Estimates):
        return estimates.table.layout(row)
    return estimates.rows(np.array([row])).layout(0)


def _layout(asked: LayoutRequest) -> Layout:
    """The layout of a request that leaves nothing open."""
    return Layout(**{name: getattr(asked, name) for name in Layout.model_fields})


def _degrees(row: Row, gpus: int) -> dict[str, int | None]:
    """Parallel degrees: one that is empty is what the others leave, several are open. Context
    parallelism that is not printed is none, unless replicas are open too."""
    names = (*_DEGREES, "cp")
    told = {name: whole(row, name, minimum=1) for name in names if row.get(name, "")}
    left = [name for name in _DEGREES if name not in told]
    taken = prod(told.values())
    if left and taken < gpus and gpus % taken == 0:
        if len(left) == 1:
            told[left[0]] = gpus // taken
        else:
            return {name: told.get(name) for name in names}
    found = {name: told.get(name, 1) for name in names}
    tp, pp, dp, cp = found.values()
    if tp * pp * cp * dp != gpus:
        raise Skip(
            f"tp {tp} x pp {pp} x cp {cp} x dp {dp} = {tp * pp * cp * dp}, but gpus is {gpus}"
        )
    return dict(found)


def _virtual(
    row: Row, pp: int | None, chunks: int | None, stack: StackSpec
) -> tuple[int | None, ScheduleName | None]:
    """Virtual stages and schedule; of a pipeline whose row says neither both are open. 1F1B over
    virtual stages is the interleaved schedule."""
    told, schedule = row.get("vpp", ""), row.get("schedule", "")
    if told:
        vpp = whole(row, "vpp") or 1
    elif chunks is not None and pp:
        vpp = int(whole({"vpp": str(chunks / pp)}, "vpp", minimum=1))
    elif pp == 1 or schedule not in ("", "interleaved") or not _interleaves(stack):
        vpp = 1
    else:
        return None, schedule or None
    if chunks is not None and pp and pp * vpp != chunks:
        raise Skip(f"pp_layout has {chunks} chunks, pp {pp} x vpp {vpp} = {pp * vpp}")
    if schedule in ("", "1f1b"):
        schedule = "interleaved" if vpp > 1 else "1f1b"
    return vpp, schedule


def _stages(stack: StackSpec, least: int, pp: int | None) -> list[int]:
    """ZeRO stages from this one on that the stack has."""
    supports = stack.supports
    return [
        z for z in supports.zero if z >= least and (pp == 1 or z in supports.zero_with_pipeline)
    ]


def _interleaves(stack: StackSpec) -> bool:
    return "interleaved" in stack.supports.schedules


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


def _recompute(row: Row, options: dict[str, str], stack: StackSpec) -> str | None:
    """The way to recompute that the row says, modules where it lists them and what a policy keeps,
    or recipes of its model; None: open."""
    known = stack.supports.recompute
    told = row.get("recompute", "") or repeats(row, stack)
    listed = options.get("recompute_modules", "")
    if told == "selective" and "modules" in known and is_recompute(listed):
        return recompute_name(listed)
    kept, policy = options.get("kept_modules", ""), options.get("remat_policy", "")
    if kept and "keep" in known:
        named = dict.fromkeys(_KEPT.get(name, name) for name in kept.split("+"))
        results = f"keep:{'+'.join(name for name in named if name)}"
        return recompute_name(results) if is_recompute(results) else told
    if policy == "custom" and "offload_modules" in options:
        return "full"  # nothing else stays
    if is_recompute(policy):
        return recompute_name(policy)
    return told or (known[0] if len(known) == 1 else None)


def _sharded(row: Row, options: dict[str, str], stack: StackSpec) -> tuple[int | None, int, str]:
    """(ZeRO stage where it is stated, the least that it can be where it is not, what lives in host
    memory), by the cells and by LLMQ's switches. With sharded weights LLMQ keeps no whole copy of
    them on the GPU, on one GPU neither, and makes one of the master weights for every pass, unless
    quantised weights persist."""
    flags = options.get("flags", "")
    offload = "none"
    if row.get("optimizer_offload", "") == "1" or "offload" in flags:
        offload = "params" if "parameters" in flags else "optimizer"
    may_offload = offload != "none" and _OFFLOAD_ZERO in stack.supports.zero
    least = whole(row, "zero", _OFFLOAD_ZERO if may_offload else stack.unstated.zero)
    least = max([least, *(stage for switch, stage in _SHARDING.items() if switch in flags)])
    words = options.get("activation_offload") or options.get("offload_modules", "none")
    if offload == "none" and words != "none" and "activations" in stack.supports.offload:
        offload = "activations"
    if "offload-master" in flags and "quants" not in flags and least >= _OFFLOAD_ZERO:
        offload = "params"
    return least if row.get("zero", "") else None, least, offload
