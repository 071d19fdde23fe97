"""Arguments of Megatron-LM on experts and latent attention."""

from __future__ import annotations

import re

from planner.formats import megatron_table as names
from planner.formats.record import Answer


def experts(answer: Answer) -> None:
    """Experts: how many layers have them, how they are computed, how tokens reach them."""
    get = answer.get
    if not (get("num-experts") or get("num-moe-experts")):
        for name in [n for n in answer.values if n.startswith("moe-")]:
            answer.mark(name, "irrelevant", "there are no experts")
        answer.drop(*[f"model.{key}" for key in answer.model if key.startswith("moe.")])
        return
    _layers_of_experts(answer)
    if get("use-transformer-engine-op-fuser"):
        answer.state("expert_kernels", "fused", "use-transformer-engine-op-fuser")
        answer.mark("moe-grouped-gemm", "implied", "the fuser has grouped GEMMs")
    elif "moe-grouped-gemm" in answer.values:
        kernels = "grouped" if get("moe-grouped-gemm") else "loop"
        answer.state("expert_kernels", kernels, "moe-grouped-gemm")
    else:
        answer.imply("expert_kernels", "loop", "no --moe-grouped-gemm")
    _dispatcher(answer)
    if get("moe-paged-stash"):
        size = "moe-paged-stash-buffer-size-factor-cuda"
        answer.state("paged_stash", max(float(get(size, 1.0)), 1.0), "moe-paged-stash")
        answer.mark(size, "read")


def _layers_of_experts(answer: Answer) -> None:
    """--moe-layer-freq: every N-th layer, or a list of ones and zeros as Python writes it."""
    name = "moe-layer-freq"
    stated = answer.get(name)
    if stated is None:
        return
    if isinstance(stated, int):
        answer.state("model.moe.every", stated, name)
        return
    layers = _repeated(str(stated) if not isinstance(stated, list) else "+".join(map(str, stated)))
    if layers is None:
        return
    dense = layers.index(1) if 1 in layers else len(layers)
    if all(layers[dense:]):
        answer.state("model.moe.dense_layers", dense, name)


_REPEATED = re.compile(r"\[([01](?:,[01])*)\](?:\*(\d{1,5}))?")


def _repeated(text: str) -> list[int] | None:
    """A list of ones and zeros such as `([0]*3+[1]*12)`; None for anything else."""
    short = text.replace(" ", "").strip("()")
    parts = short.split("+")
    matches = [_REPEATED.fullmatch(part) for part in parts]
    if not all(matches):
        return None
    out = [int(n) for match in matches if match for n in match[1].split(",") * int(match[2] or 1)]
    return out


def _dispatcher(answer: Answer) -> None:
    kind, backend = "moe-token-dispatcher-type", "moe-flex-dispatcher-backend"
    stated = answer.get(kind, "allgather")
    if answer.get("moe-enable-deepep") or stated == "flex":
        chosen = answer.get(backend, "deepep")
        answer.state("dispatcher", chosen, backend if backend in answer.values else kind)
        for name in (kind, "moe-enable-deepep"):
            answer.mark(name, "read")
    elif kind in answer.values:
        answer.state("dispatcher", stated, kind)
        answer.mark(backend, "irrelevant", "acts with the dispatcher flex")
    else:
        answer.imply("dispatcher", stated, f"no --{kind}")


def latent(answer: Answer) -> None:
    """Latent attention, whose widths act only with its switch."""
    if not answer.get("multi-latent-attention"):
        answer.drop(*[f"model.{key}" for key in answer.model if key.startswith("latent.")])
        return
    answer.mark("multi-latent-attention", "read")
    table = {row.name: row.option for row in names.MODEL}
    for name, width in names.LATENT.items():
        if name not in answer.values:
            answer.imply(table[name], width, f"no --{name}")
    answer.drop("model.head_dim", "model.qk_norm", "model.bias_qkv")  # it has its own
    answer.imply("model.head_dim", answer.option(table["qk-head-dim"]), "of latent attention")
