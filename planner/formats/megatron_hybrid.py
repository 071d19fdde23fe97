"""Arguments of Megatron-LM on hybrid models: the letters of --hybrid-layer-pattern, one per layer,
and the widths of Mamba layers.

Letters and defaults: megatron/core/models/hybrid/hybrid_layer_allocation.py and
megatron/training/arguments.py of NVIDIA/Megatron-LM at d98e8a64 (2026-08).
"""

from __future__ import annotations

from typing import Any

from planner.formats.record import MODEL, Answer

PATTERNS = ("hybrid-layer-pattern", "hybrid-override-pattern")
WIDTHS = ("mamba-num-heads", "mamba-head-dim", "mamba-state-dim", "mamba-num-groups")
_NAMES = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_EXPAND = 2  # width of a Mamba layer over the model's, where its heads are not given
_PER_TOKEN = 2  # where --moe-router-topk is not given
_HEAD, _STATE, _GROUPS, _CHUNK = 64, 128, 8, 128
_STAGE, _MODULE = "|", "/"  # between stages of the pipeline; before a module of predictions
_FLAT = ("heads", "kv_heads", "head_dim", "ffn_hidden", "qk_norm", "bias_qkv")


def hybrid(answer: Answer) -> None:
    """The layers of a hybrid model, which replace the layers of a plain decoder."""
    name = next((pattern for pattern in PATTERNS if answer.get(pattern)), None)
    if name is None:
        return
    main, *modules = str(answer.get(name)).split(_MODULE)
    stages = main.split(_STAGE)
    letters = "".join(stages)
    if unknown := sorted(set(letters).union(*modules) - set(_NAMES)):
        answer.mark(name, "not understood", f"has the layer {unknown[0]!r}: give --model")
        return
    parts = _parts(answer)
    answer.state("model.layers", len(letters), name)
    answer.state("model.parts", [parts[name] for name in _NAMES if name in letters], name)
    answer.state(
        "model.stack", [{"layers": [_NAMES[letter] for letter in letters], "times": 1}], name
    )
    for entry in (*WIDTHS, "spec", "is-hybrid-model"):
        answer.mark(entry, "read")
    answer.drop(*(f"{MODEL}{name}" for name in (*_FLAT, *_of_experts(answer))))
    if modules:
        answer.state("mtp", len(modules), name)
        answer.state("model.mtp_layers", [_NAMES[letter] for letter in modules[0]], name)
    _stages(answer, name, [len(stage) for stage in stages])


def _of_experts(answer: Answer) -> list[str]:
    return [key for key in answer.model if key.startswith(("moe.", "latent."))]


def _stages(answer: Answer, name: str, layers: list[int]) -> None:
    """Stages of the pipeline that a pattern marks, where all are as long."""
    pp = answer.get("pipeline-model-parallel-size", 1)
    if len(layers) == 1 or not isinstance(pp, int):
        return
    chunks, rest = divmod(len(layers), max(pp, 1))
    if rest or len(set(layers)) > 1:
        answer.notes.append(f"--{name}: stages of {layers} layers; the estimate has equal ones")
    elif chunks > 1:
        answer.state("vpp", chunks, name)


def _parts(answer: Answer) -> dict[str, dict[str, Any]]:
    """The parts that each letter stands for, as in a model file."""
    get, hidden = answer.get, answer.option(f"{MODEL}hidden") or 0
    gated = answer.option(f"{MODEL}mlp") == "gated"
    acts = answer.option(f"{MODEL}activation") or "silu"
    width = get("mamba-head-dim", _HEAD)
    heads = answer.option(f"{MODEL}heads")
    experts = {
        key.removeprefix("moe."): answer.model[key].value
        for key in _of_experts(answer)
        if key.startswith("moe.") and answer.model[key].value is not None
    }
    wide = answer.option(f"{MODEL}ffn_hidden")
    return {
        "M": {
            "type": "mamba2",
            "name": "mamba",
            "heads": get("mamba-num-heads") or _EXPAND * hidden // width,
            "head_dim": width,
            "state": get("mamba-state-dim", _STATE),
            "groups": get("mamba-num-groups", _GROUPS),
            "chunk": _CHUNK,
        },
        "*": {
            "type": "attention",
            "name": "attention",
            "heads": heads,
            "kv_heads": answer.option(f"{MODEL}kv_heads") or heads,
            "head_dim": get("kv-channels") or hidden // (heads or 1),
            "rotary": answer.option(f"{MODEL}positions") == "rotary",
        },
        "-": {
            "type": "mlp",
            "name": "mlp",
            "ffn_hidden": wide,
            "gated": gated,
            "activation": acts,
            "bias": bool(answer.option(f"{MODEL}bias_mlp")),
        },
        "E": {
            "type": "moe",
            "name": "moe",
            "ffn_hidden": wide,
            "gated": gated,
            "activation": acts,
            "experts_per_token": _PER_TOKEN,
            **experts,
        },
    }
