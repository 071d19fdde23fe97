"""The layout of a row: what its cells state, what follows from them, and within which bounds what
they leave open is searched."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from planner.formats.record import Stated, Used
from planner.specs.capabilities import has, values
from planner.specs.layout import PLACEMENTS
from planner.specs.names import is_recompute
from planner.specs.pipeline_layout import Chunk, layout_text, pipeline_layout
from planner.specs.stack import StackSpec
from planner.studies.runs.cells import Row, Skip, whole
from planner.studies.runs.half import Half
from planner.studies.runs.model import repeats
from planner.studies.runs.table import WORD

_OFFLOAD_ZERO = 3  # ZeRO stage of a run that offloads and says no more, where the stack has it
_SHARDING = {"shard-gradients": 2, "shard-weights": 3}  # of LLMQ (its README): ZeRO stages
_FLAGS = frozenset(
    {
        *("offload-opt-m", "offload-opt-v", "offload-master", "offload-quants"),
        *("shard-weights", "shard-gradients"),
    }
)
_ALL_TO_HOST = "optimizer and parameters to CPU"
# MaxText's names of tensors, and the names here; the layer's input is always kept
_KEPT = dict.fromkeys(("query_proj", "key_proj", "value_proj"), "qkv_proj") | {
    "mlpwi_0": "mlpwi",
    "mlpwi_1": "mlpwi",
    "decoder_layer_input": "",
}
_DEGREES = ("tp", "pp", "dp")
# 1F1B over one stage per rank or several: zero-bubble schedules, and those that join two, are
# switched on, and so are printed where they ran
_USUAL = ("1f1b", "interleaved")


def read_layout(half: Half) -> None:
    """Options of the layout. Raises Skip where cells contradict each other."""
    row, stack = half.row, half.stack
    chunks = _pipeline_layout(row, half.words, half.model.layers)
    if chunks is not None:
        _put(half, "pipeline_layout", layout_text(chunks), WORD + "pp_layout")
        for word in ("first_stage_layers", "last_stage_layers"):
            half.answer.mark(WORD + word, "read")
    degrees = _degrees(row, whole(row, "gpus"))
    for name, degree in degrees.items():
        _put(half, name, degree, name)
    tp, pp, cp, dp = (degrees[name] for name in ("tp", "pp", "cp", "dp"))
    vpp, schedule = _virtual(row, pp, None if chunks is None else len(chunks), stack)
    _put(half, "vpp", vpp, "vpp")
    _put(half, "schedule", schedule, "schedule")
    _put(half, "micro_batch", _micro_batch(row, dp), "micro_batch")
    ranks = dp * cp if dp and cp else None
    _expert_parallel(half, tp * ranks if tp and ranks else None)
    zero, least = _sharded(half, pp, ranks)
    _put(half, "zero", zero, "zero")
    group = whole(row, "shard_group", 0) * (cp or 1)
    group = min(group, ranks) if group and ranks else group or ranks or 0
    shared = zero is not None and has(stack, "hybrid_zero", zero)
    grouped = bool(group) and shared and ranks != 1
    states = bool(group) and bool(row.get("shard_group")) and group != ranks
    _put(half, "shard_group", group if grouped or states else None, "shard_group")
    _put(half, "sequence_parallel", _sequence_parallel(half, tp), "sequence_parallel")
    _put(half, "recompute", _recompute(half), "recompute")
    if pp != 1:
        half.imply("placement", PLACEMENTS[0], "the usual order")
    _search(half, least, group)


def _put(half: Half, option: str, value: object, where: str) -> None:
    """Set an option from several cells, in place of the value of one."""
    half.answer.options.pop(option, None)
    if value is not None:
        half.answer.options[option] = Stated(value, where, "", implied=not half.row.get(where))


def _search(half: Half, least: int, group: int) -> None:
    """Where cells are open: what the search keeps to, and no room to spare, since the run ran."""
    stages, conditions = values(half.stack, "zero"), []
    if half.get("zero") is None:
        if min(stages) < least <= max(stages):
            conditions.append(f"zero >= {least}")
        if group and has(half.stack, "shard_group"):
            conditions.append(f"shard_group = {group}")
    if half.get("recompute") is None and half.stack.unstated.recompute:
        conditions.append(f"recompute = {half.stack.unstated.recompute}")
    if half.get("schedule") is None and not {*values(half.stack, "schedule")} <= {*_USUAL}:
        conditions.append(f"schedule = {','.join(_USUAL)}")
    if conditions:
        half.imply("where", tuple(conditions), "what published runs do where none says it")
    half.imply("headroom", "0%", "it ran")


def _micro_batch(row: Row, dp: int | None) -> int | None:
    stated = whole(row, "micro_batch") or 1 if row.get("micro_batch", "") else None
    global_batch = whole(row, "global_batch")
    if dp and global_batch % (dp * (stated or 1)):
        raise Skip(
            f"global_batch {global_batch} is not a multiple of dp {dp} x micro_batch {stated or 1}"
        )
    return stated or 1 if dp == global_batch else stated


def _expert_parallel(half: Half, ranks: int | None) -> None:
    """The cell, where a stage of the pipeline has ranks for this many; else the cells contradict
    each other, and it is searched."""
    degree = whole(half.row, "ep") or 1 if half.row.get("ep", "") else None
    if degree and ranks and half.model.routed and ranks % degree:
        why = f"a stage has {ranks} ranks, which ep {degree} does not divide"
        half.answer.arguments["ep"] = Used(degree, "not understood", why)
        degree = None
    _put(half, "ep", degree, "ep")


def _sequence_parallel(half: Half, tp: int | None) -> bool | None:
    stated, stack = half.get("sequence_parallel"), half.stack
    if tp == 1 or (stated is None and tp is not None and not has(stack, "sequence_parallel")):
        return False
    known = "sequence_parallel" in stack.unstated.model_fields_set
    return stack.unstated.sequence_parallel if stated is None and tp and known else stated


def _degrees(row: Row, gpus: int) -> dict[str, int | None]:
    """Parallel degrees: a single empty one follows from the others, several are open. Unprinted
    context parallelism is 1, unless replicas are open too."""
    names = (*_DEGREES, "cp")
    stated = {name: whole(row, name, minimum=1) for name in names if row.get(name, "")}
    left = [name for name in _DEGREES if name not in stated]
    taken = prod(stated.values())
    if left and taken < gpus and gpus % taken == 0:
        if len(left) == 1:
            stated[left[0]] = gpus // taken
        else:
            return {name: stated.get(name) for name in names}
    degrees = {name: stated.get(name, 1) for name in names}
    tp, pp, dp, cp = degrees.values()
    if tp * pp * cp * dp != gpus:
        raise Skip(
            f"tp {tp} x pp {pp} x cp {cp} x dp {dp} = {tp * pp * cp * dp}, but gpus is {gpus}"
        )
    return dict(degrees)


def _virtual(
    row: Row, pp: int | None, chunks: int | None, stack: StackSpec
) -> tuple[int | None, str | None]:
    """Virtual stages and schedule; of a pipeline whose row says neither both are open. 1F1B over
    virtual stages is the interleaved schedule."""
    stated, schedule = row.get("vpp", ""), row.get("schedule", "")
    if stated:
        vpp = whole(row, "vpp") or 1
    elif chunks is not None and pp:
        vpp = int(whole({"vpp": str(chunks / pp)}, "vpp", minimum=1))
    elif pp == 1 or schedule not in ("", "interleaved") or not _interleaves(stack):
        vpp = 1
    else:
        return None, schedule or None
    if chunks is not None and pp and pp * vpp != chunks:
        raise Skip(f"pp_layout has {chunks} chunks, pp {pp} x vpp {vpp} = {pp * vpp}")
    if schedule in ("", *_USUAL):
        schedule = "interleaved" if vpp > 1 else "1f1b"
    return vpp, schedule


def _stages(stack: StackSpec, least: int, pp: int | None) -> list[int]:
    """ZeRO stages from this one on that the stack has."""
    stages = values(stack, "zero" if pp == 1 else "zero_with_pipeline")
    return [stage for stage in stages if stage >= least]


def _interleaves(stack: StackSpec) -> bool:
    return has(stack, "schedule", "interleaved")


def _pipeline_layout(row: Row, options: Mapping[str, str], layers: int) -> tuple[Chunk, ...] | None:
    """Contents of pipeline chunks, if the row states them: all of them, or only that the first or
    the last stage has other layers than those between, which share the rest."""
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


def _recompute(half: Half) -> str | None:
    """The way to recompute that the row says, modules where it lists them and what a policy keeps,
    or recipes of its model; None: open."""
    row, words = half.row, half.words
    known = values(half.stack, "recompute", on_request=True)
    stated = row.get("recompute", "") or repeats(row, half.stack)
    listed = words.get("recompute_modules", "")
    if stated == "selective" and "modules" in known and is_recompute(listed):
        return listed
    kept, policy = words.get("kept_modules", ""), words.get("remat_policy", "")
    if kept and "keep" in known:
        named = dict.fromkeys(_KEPT.get(name, name) for name in kept.split("+"))
        results = f"keep:{'+'.join(name for name in named if name)}"
        return results if is_recompute(results) else stated
    if policy == "custom" and "offload_modules" in words:
        return "full"  # nothing else stays
    if is_recompute(policy):
        return policy
    if stated == "selective" and stated not in values(half.stack, "recompute") and not listed:
        why = f"{half.stack.title} repeats other modules, which no cell lists"
        half.answer.arguments["recompute"] = Used(stated, "not understood", why)
        stated = stated if stated in known else ""
    return stated or (known[0] if len(known) == 1 else None)


def _sharded(half: Half, pp: int | None, ranks: int | None) -> tuple[int | None, int]:
    """(ZeRO stage where it is known, the least that it can be where it is not), and what lives in
    host memory, by the cells and by LLMQ's switches. With sharded weights LLMQ keeps no whole copy
    of them on the GPU, on one GPU neither, and makes one of the master weights for every pass,
    unless quantised weights persist."""
    row, words = half.row, half.words
    flags = words.get("flags", "")
    offload = half.get("offload") or "none"
    if offload == "optimizer" or "offload" in flags:
        offload = "params" if "parameters" in flags else "optimizer"
    may_offload = offload != "none" and _OFFLOAD_ZERO in values(half.stack, "zero")
    least = whole(row, "zero", _OFFLOAD_ZERO if may_offload else half.stack.unstated.zero)
    least = max([least, *(stage for switch, stage in _SHARDING.items() if switch in flags)])
    listed = words.get("activation_offload") or words.get("offload_modules", "none")
    if offload == "none" and listed != "none" and has(half.stack, "offload", "activations"):
        offload = "activations"
    if "offload-master" in flags and "quants" not in flags and least >= _OFFLOAD_ZERO:
        offload = "params"
    _put(half, "offload", None if offload == "none" else offload, "optimizer_offload")
    if flags and (flags == _ALL_TO_HOST or set(flags.replace("+", " ").split()) <= _FLAGS):
        half.answer.mark(WORD + "flags", "read")
    if row.get("zero", ""):
        return least, least
    return (least if ranks == 1 or len(_stages(half.stack, least, pp)) < 2 else None), least
