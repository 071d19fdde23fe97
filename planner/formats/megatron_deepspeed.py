"""Arguments of Megatron-LM as other programs and older releases spell them: Megatron-DeepSpeed
(Microsoft, BigScience), and Megatron-LM before --recompute-granularity.

Names: megatron/arguments.py of deepspeedai/Megatron-DeepSpeed@4efb479d, of
bigscience-workshop/Megatron-DeepSpeed, and of NVIDIA/Megatron-LM v2.5 and v3.0.
"""

from __future__ import annotations

from planner.formats.record import Answer

_MARKS = ("deepspeed", "zero-stage", "deepspeed-activation-checkpointing")
_OLD_METHODS = ("checkpoint-activations-method", "activations-checkpoint-method")
_OLD_COUNTS = ("checkpoint-num-layers", "activations-checkpoint-num-layers")
_GRANULARITY = "activations-checkpoint-granularity"
_ENDS = "type:transformer|embedding"  # layers of a stage, where embeddings count as a layer


def is_deepspeed(answer: Answer) -> bool:
    """Whether the program is Megatron-DeepSpeed."""
    return any(answer.get(name) not in (None, False) for name in _MARKS)


def stack(answer: Answer) -> None:
    """The stack and its ZeRO stage."""
    mark = next(name for name in _MARKS if answer.get(name) not in (None, False))
    answer.state("stack", "megatron-deepspeed", mark)
    stage, config = "zero-stage", "deepspeed-config"
    if answer.get(stage) == 0 and answer.get("bf16"):
        note = "in bf16 DeepSpeed shards the fp32 states by itself (BF16_Optimizer)"
        answer.imply("zero", 1, note, stage)
    elif stage in answer.values:
        answer.state("zero", answer.get(stage), stage)
    else:
        answer.mark(config, "not understood", "is another file: give it beside this one")
        answer.imply("zero", 1, "--zero-stage is 1.0 by default")
    answer.mark(config, "implied", "repeats what the arguments say")
    answer.leave("dp_overlap", mark)
    for name in _MARKS:
        answer.mark(name, "read")
    if answer.get("cpu-optimizer"):
        answer.state("offload", "optimizer", "cpu-optimizer")
    if answer.get("no-pipeline-parallel"):
        answer.mark("no-pipeline-parallel", "implied", "ZeRO beside no pipeline")


def old_recompute(answer: Answer) -> bool:
    """Recompute by the arguments before --recompute-granularity, where there are some: of all
    layers, of groups (uniform) or of the first N layers of a stage (block)."""
    method = next((name for name in _OLD_METHODS if answer.get(name)), "")
    count = next((name for name in _OLD_COUNTS if name in answer.values), "")
    layers = answer.get(count, 1)
    names = [name for name in ("checkpoint-activations", method, count) if name in answer.values]
    if answer.get(_GRANULARITY) == "selective":
        answer.state("recompute", "selective", _GRANULARITY)
    elif answer.get(method) == "block":
        answer.state("recompute", f"block:{layers}", method)
    elif answer.get("checkpoint-activations") or method or answer.get(_GRANULARITY) == "full":
        switch = next(iter([*names, _GRANULARITY]))
        answer.state("recompute", "full" if layers in (None, 1) else f"group:{layers}", switch)
    else:
        for name in (count, "deepspeed-activation-checkpointing"):
            answer.mark(name, "irrelevant", "acts with --checkpoint-activations")
        return False
    for name in names:
        answer.mark(name, "read")
    return True


def ends_count(answer: Answer) -> bool:
    """Whether embedding and loss count as a layer of their stages."""
    name = "pp-partition-method"
    text = str(answer.get(name, "")).strip("'\"")
    if text in (_ENDS, "type:embed|transformer"):
        answer.mark(name, "read")
        return True
    answer.mark(name, "implied" if text in ("type:transformer", "parameters") else "not understood")
    return False
