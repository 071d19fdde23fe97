"""Bytes that torch keeps when only some modules are recomputed, against the formulas, without a
GPU.

Every module is written as Megatron-Core's kernels keep it: a norm that saves its input, a SwiGLU
that saves its input, experts that work on gathered copies. Discarding an output and computing it
again when backward needs it keeps what torch's checkpoint over the module and its reader keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import plans
import pytest

pytest.importorskip("torch", reason="the oracle is torch, of the dev extra")

import torch
from live_bytes import LiveBytes
from torch import nn
from torch.utils.checkpoint import checkpoint

from planner.estimate import evaluate
from planner.estimate.memory import PHASES

pytestmark = pytest.mark.oracle

H, FFN, HEADS, TOKENS = 256, 704, 4, 128
QUERY, KV, NOPE, ROPE, VALUE = 96, 64, 32, 8, 48
EXPERTS, CHOSEN, WIDE, SHARED = 4, 2, 320, 192
BF16 = torch.bfloat16


class _Kept(torch.autograd.Function):
    """A kernel of which autograd keeps what it reads, and optionally its output. Its backward is
    not run."""

    @staticmethod
    def forward(context: Any, run: Any, out: bool, *read: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = run(*read)
        context.save_for_backward(*read, *([answer] if out else []))
        return answer

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        raise NotImplementedError


def _swiglu(both: torch.Tensor, *weight: torch.Tensor) -> torch.Tensor:
    gate, up = both.chunk(2, -1)
    return math.prod(weight, start=torch.nn.functional.silu(gate) * up)


def _core(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Norm(nn.Module):
    """Keeps its input, and a statistic per token in fp32 that is left out here."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, dtype=BF16))

    def forward(self, x: torch.Tensor) -> Any:
        def run(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.rms_norm(x, x.shape[-1:], weight)

        return _Kept.apply(run, False, x, self.weight)


def _again(repeated: bool, run: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> Any:
    return checkpoint(run, x, use_reentrant=False) if repeated else run(x)


class Mlp(nn.Module):
    """Two GEMMs and a gate; act: the gate's output is discarded."""

    def __init__(self, width: int, act: bool = False) -> None:
        super().__init__()
        self.up, self.down = (
            nn.Linear(a, b, False, dtype=BF16) for a, b in ((H, 2 * width), (width, H))
        )
        self.act = act

    def forward(self, x: torch.Tensor, *weight: torch.Tensor) -> Any:
        def rest(both: torch.Tensor) -> Any:
            return self.down(_Kept.apply(_swiglu, False, both, *weight))

        return _again(self.act, rest, self.up(x))


class Latent(nn.Module):
    """Latent attention, whose core saves queries, keys, values and its output."""

    def __init__(self, modules: frozenset[str]) -> None:
        super().__init__()
        self.modules_again = modules
        shapes = {
            "down_q": (H, QUERY),
            "down_kv": (H, KV + ROPE),
            "up_q": (QUERY, HEADS * (NOPE + ROPE)),
            "up_kv": (KV, HEADS * (NOPE + VALUE)),
            "out": (HEADS * VALUE, H),
        }
        self.linear = nn.ModuleDict(
            {name: nn.Linear(a, b, False, dtype=BF16) for name, (a, b) in shapes.items()}
        )
        self.norm = Norm(H)
        self.norms = nn.ModuleList(Norm(n) for n in (QUERY, KV))

    def _down(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        return torch.cat([self.linear["down_q"](x), self.linear["down_kv"](x)], -1)

    def _attend(self, low: torch.Tensor) -> Any:
        low_q, low_kv, rope = low.split([QUERY, KV, ROPE], -1)
        q = self.linear["up_q"](self.norms[0](low_q)).view(TOKENS, HEADS, -1)
        both = self.linear["up_kv"](self.norms[1](low_kv)).view(TOKENS, HEADS, -1)
        k, v = both.split([NOPE, VALUE], -1)
        k = torch.cat([k, rope.unsqueeze(1).expand(-1, HEADS, -1)], -1)
        q, k, v = (x.contiguous() for x in (q, k, v))
        return _Kept.apply(_core, True, q, k, v).flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low = _again("layernorm" in self.modules_again, self._down, x)
        core = _again("mla_up_proj" in self.modules_again, self._attend, low)
        out: torch.Tensor = x + self.linear["out"](core)
        return out


class Experts(nn.Module):
    """Every expert gets as many copies, weighted before its last GEMM; a shared one beside them."""

    def __init__(self, modules: frozenset[str]) -> None:
        super().__init__()
        self.norm = Norm(H)
        self.router = nn.Linear(H, EXPERTS, False, dtype=BF16)
        self.experts = nn.ModuleList(Mlp(WIDE, "moe_act" in modules) for _ in range(EXPERTS))
        self.shared = Mlp(SHARED)
        self.modules_again = modules

    def _routed(self, x: torch.Tensor) -> torch.Tensor:
        chosen = torch.arange(TOKENS * CHOSEN).reshape(EXPERTS, -1) % TOKENS
        weights = self.router(x).float().softmax(-1).to(BF16)
        out = _again("shared_experts" in self.modules_again, self.shared, x)
        for i, expert in enumerate(self.experts):
            here = expert(x[chosen[i]], weights[chosen[i], i, None])
            out = out.scatter_add(0, chosen[i, :, None].expand(-1, H), here)
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + _again("moe" in self.modules_again, self._routed, self.norm(x))


class Dense(nn.Module):
    """The norm is part of the first GEMM."""

    def __init__(self, modules: frozenset[str]) -> None:
        super().__init__()
        self.run = nn.Sequential(Norm(H), Mlp(FFN))
        self.again = "mlp" in modules

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + _again(self.again, self.run, x)


def measured(modules: str, layers: int) -> int:
    """Bytes alive after the forward pass of this many layers, the first of them dense."""
    torch.manual_seed(0)
    names = frozenset(modules.split("+"))
    blocks = [m for i in range(layers) for m in (Latent(names), (Experts if i else Dense)(names))]
    model, live = nn.Sequential(*blocks), LiveBytes()
    x = torch.randn(TOKENS, H, dtype=BF16, requires_grad=True)
    for tensor in (*model.parameters(), x):
        live.add(tensor.data)
    before = live.now
    with live:
        out = model(x)
    return live.now - before - out.untyped_storage().nbytes()


def predicted(modules: str, layers: int) -> float:
    shape = plans.model(
        hidden=H,
        heads=HEADS,
        kv_heads=HEADS,
        head_dim=NOPE + ROPE,
        ffn_hidden=FFN,
        layers=layers,
        latent={
            "query_rank": QUERY,
            "kv_rank": KV,
            "nope_head_dim": NOPE,
            "rope_head_dim": ROPE,
            "value_head_dim": VALUE,
        },
        moe={
            "experts": EXPERTS,
            "experts_per_token": CHOSEN,
            "ffn_hidden": WIDE,
            "shared_ffn_hidden": SHARED,
            "dense_layers": 1,
        },
    )
    plan = plans.plan(shape, software="megatron-core", gpus=1, seq_len=TOKENS, global_batch=1)
    memory = evaluate(plan, plans.rows(1, {"recompute": modules})).memory
    return float(memory.timeline[0][PHASES.index("forward")]["activations"][0])


@pytest.mark.parametrize(
    "modules",
    [
        "mlp",
        "moe_act",
        "shared_experts",
        "moe",
        "mla_up_proj",
        "mla_up_proj+mlp+moe_act+shared_experts",
        "mla_up_proj+mlp+moe",
    ],
)
def test_bytes_that_modules_free(modules: str) -> None:
    for layers in (1, 3):
        saw = measured("none", layers) - measured(modules, layers)
        difference = predicted("none", layers) - predicted(modules, layers)
        assert difference == pytest.approx(saw, rel=0.03), layers


def test_bytes_that_a_norm_of_its_own_frees() -> None:
    """Only latent attention: torch's checkpoint cannot tell the norm output that experts read from
    their gathered copies."""
    saw = measured("none", 1) - measured("layernorm", 1)
    assert predicted("none", 1) - predicted("layernorm", 1) == pytest.approx(saw, rel=0.02)
