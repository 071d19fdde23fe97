"""Small Hugging Face models that torch runs on a CPU, and the plans that describe them."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import plans
import torch
import transformers
from live_bytes import LiveBytes
from not_none import not_none
from torch import nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
    noop_context_fn,
)
from transformers.models.llama.modeling_llama import eager_attention_forward

from planner.inputs.huggingface import read_config
from planner.mechanisms.optimizer_in_backward import InBackward
from planner.specs.model import ModelSpec
from planner.specs.plan import Plan

GROUP = 2  # layers of a recompute group

_LLAMA = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 352,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = {**_LLAMA, "num_key_value_heads": 2}
_PLAIN = {
    key: value
    for key, value in _LLAMA.items()
    if key not in ("num_key_value_heads", "intermediate_size")
}

# transformers' own modules without dropout; GPT-2 with the fused GELU (gelu_new, eight operators,
# keeps 6 B more per element)
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", _LLAMA),
    "llama, grouped queries": ("llama", {**_GROUPED, "tie_word_embeddings": True}),
    "mistral": ("mistral", {**_GROUPED, "sliding_window": None}),
    "qwen2": ("qwen2", _GROUPED),
    "qwen3": ("qwen3", {**_GROUPED, "head_dim": 16}),
    "gpt2": (
        "gpt2",
        {
            "vocab_size": 512,
            "n_embd": 128,
            "n_head": 8,
            "n_positions": 256,
            "activation_function": "gelu",
            "resid_pdrop": 0.0,
            "embd_pdrop": 0.0,
            "attn_pdrop": 0.0,
            "bos_token_id": 1,
            "eos_token_id": 2,
        },
    ),
    "opt": ("opt", {**_PLAIN, "ffn_dim": 512, "dropout": 0.0, "word_embed_proj_dim": 128}),
    "mixtral": ("mixtral", {**_GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": (
        "qwen3_moe",
        {
            **_GROUPED,
            "head_dim": 16,
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 96,
        },
    ),
}
DENSE = [name for name in MODELS if name not in ("mixtral", "qwen3_moe")]

MODES = {"none": "none", "selective": "selective", "full": "full", "group": f"group:{GROUP}"}


def fields_of(name: str, layers: int) -> dict[str, Any]:
    family, fields = MODELS[name]
    return {
        "model_type": family,
        **fields,
        "n_layer" if family == "gpt2" else "num_hidden_layers": layers,
    }


@cache
def spec(name: str, layers: int) -> ModelSpec:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(fields_of(name, layers)), "utf-8")
        return read_config(path)[0]


def every_second_product() -> Any:
    """torchtitan's rule (distributed/activation_checkpoint.py): attention and every second product
    are kept."""
    seen = {False: 0, True: 0}

    def policy(context: Any, function: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        if function == torch.ops.aten.mm.default:
            seen[context.is_recompute] += 1
            keep = seen[context.is_recompute] % 2 == 1
        else:
            keep = function == torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Group(nn.Module):
    """Layers that are repeated together; what else a model asks of a layer, the first answers."""

    def __init__(self, layers: list[nn.Module], context: Any = noop_context_fn) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.context = context

    def run(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        for layer in self.layers:
            hidden = layer(hidden, *args, **kwargs)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return hidden

    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return checkpoint(
            self.run, hidden, *args, use_reentrant=False, context_fn=self.context, **kwargs
        )

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            layers: Any = super().__getattr__("layers")
            return getattr(layers[0], name)


def _repeated_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, **more: Any
) -> tuple[torch.Tensor, None]:
    """Attention of several operators, repeated in backward."""
    if not hasattr(module, "num_key_value_groups"):
        module.num_key_value_groups = 1
    scaling = more.get("scaling") or getattr(module, "scaling", query.shape[-1] ** -0.5)

    def core(q: Any, k: Any, v: Any) -> torch.Tensor:
        return eager_attention_forward(module, q, k, v, mask, scaling=scaling, dropout=0.0)[0]

    return checkpoint(core, query, key, value, use_reentrant=False), None


transformers.AttentionInterface.register("repeated", _repeated_attention)


def build(
    name: str,
    layers: int,
    mode: str = "none",
    attention: str = "sdpa",
    dtype: torch.dtype = torch.bfloat16,
) -> nn.Module:
    """The model with a recompute mode of MODES."""
    torch.manual_seed(0)
    fields = fields_of(name, layers)
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    kind = "repeated" if mode == "selective" else attention
    result = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation=kind, dtype=dtype
    )
    result.train()
    if mode in ("full", "group", "per-op"):
        inner = result.transformer if hasattr(result, "transformer") else result.model
        inner = inner.decoder if hasattr(inner, "decoder") else inner
        where = "h" if hasattr(inner, "h") else "layers"
        every, size = list(getattr(inner, where)), GROUP if mode == "group" else 1
        context = every_second_product if mode == "per-op" else noop_context_fn
        setattr(
            inner,
            where,
            nn.ModuleList(Group(every[i : i + size], context) for i in range(0, len(every), size)),
        )
    return result


def tokens(batch: int, sequence: int) -> torch.Tensor:
    return torch.randint(3, 500, (batch, sequence), generator=torch.Generator().manual_seed(1))


def plan(
    name: str,
    layers: int,
    batch: int,
    sequence: int,
    mode: str = "none",
    micro: int = 1,
    precision: str = "bf16",
    in_backward: bool = False,
    kernel: str | None = None,
) -> Plan:
    """One GPU that runs transformers' modules; gradients are there from a micro-batch's backward to
    the step, as torch has it."""
    attention, shape = "eager" if mode == "selective" else kernel, spec(name, layers)
    if mode == "selective":  # attention is Llama's, whose softmax is in fp32
        left = tuple(word for word in shape.holds if word != "narrow softmax")
        shape = shape.model_copy(update={"holds": left})
    planned = plans.plan(
        shape,
        software="hf-deepspeed",
        gpus=1,
        seq_len=sequence,
        global_batch=batch * micro,
        attention=attention,
        selective="per-op" if mode == "per-op" else "attention",
        precision=precision,
        mechanisms=(InBackward(),) if in_backward else (),
        state_precision="bf16" if in_backward else None,
    )
    state = planned.stack.state.model_copy(
        update={"persistent_gradients": False, "optimizer_temporary": 0.0}
    )
    if in_backward:  # torch's own Adam, whose denominators are as large as the weights
        state = state.model_copy(update={"optimizer_temporary": state.master})
    # the oracle runs on the CPU, whose GEMMs have no workspaces
    stack = planned.stack.model_copy(update={"state": state, "workspaces": "none"})
    return planned.model_copy(update={"stack": stack})


def kept_bytes(
    name: str,
    layers: int,
    mode: str,
    batch: int,
    sequence: int,
    dtype: torch.dtype = torch.bfloat16,
    attention: str = "sdpa",
) -> int:
    """Bytes alive after forward beside parameters, tokens and logits."""
    model, words, live = (
        build(name, layers, mode, attention, dtype),
        tokens(batch, sequence),
        LiveBytes(),
    )
    for tensor in (*model.parameters(), *model.buffers(), words):
        live.add(tensor.data)
    before = live.now
    with live:
        out = model(input_ids=words, use_cache=False)
    return live.now - before - out.logits.untyped_storage().nbytes()


class MasterAdam:
    """AdamW on fp32 copies of 16-bit parameters, one tensor after the other."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.state = [
            tuple(torch.zeros_like(p, dtype=torch.float32) for _ in range(2)) for p in parameters
        ]
        self.master = [p.detach().float() for p in parameters]

    def bytes(self) -> int:
        return sum(t.nbytes for states in self.state for t in states) + sum(
            t.nbytes for t in self.master
        )

    @torch.no_grad()
    def step(self) -> None:
        for p, (first, second), master in zip(
            self.parameters, self.state, self.master, strict=True
        ):
            gradient = not_none(p.grad).float()
            first.lerp_(gradient, 0.1)
            second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
            master.addcdiv_(first, second.sqrt().add_(1e-8), value=-1e-3)
            p.copy_(master)
            del gradient
            p.grad = None


@dataclasses.dataclass(frozen=True)
class Step:
    """Bytes of a training step."""

    parameters: int
    gradients: int
    optimizer: int
    peak: int


def whole_step(name: str, layers: int, mode: str, batch: int, sequence: int, micro: int) -> Step:
    """Peak of the second step (the first allocates) of `micro` micro-batches."""
    model, words, live = build(name, layers, mode), tokens(batch, sequence), LiveBytes()
    listed = list(model.parameters())
    for tensor in (*listed, *model.buffers(), words):
        live.add(tensor.data)
    gradients = 0
    with live:
        optimizer = MasterAdam(listed)
        for _ in range(2):
            live.peak = live.now
            for _ in range(micro):
                out = model(input_ids=words, labels=words, use_cache=False)
                out.loss.backward()
                del out
            gradients = sum(not_none(p.grad).nbytes for p in listed)
            optimizer.step()
    return Step(sum(p.nbytes for p in listed), gradients, optimizer.bytes(), live.peak)


def step_in_backward(name: str, layers: int, mode: str, batch: int, sequence: int) -> Step:
    """Peak of the second step where every weight has an AdamW of its own, in its own type, that a
    hook runs as soon as its gradient is there (torchtune, training/memory.py)."""
    model, words, live = build(name, layers, mode), tokens(batch, sequence), LiveBytes()
    listed = list(model.parameters())
    for tensor in (*listed, *model.buffers(), words):
        live.add(tensor.data)
    optimizers = {p: torch.optim.AdamW([p], foreach=True) for p in listed}

    def update(p: Any) -> None:
        optimizers[p].step()
        optimizers[p].zero_grad()

    for p in listed:
        p.register_post_accumulate_grad_hook(update)
    with live:
        for _ in range(2):
            live.peak = live.now
            model(input_ids=words, labels=words, use_cache=False).loss.backward()
    states = [
        s
        for optimizer in optimizers.values()
        for kept in optimizer.state.values()
        for s in kept.values()
    ]
    moments = sum(s.nbytes for s in states if s.dim())
    return Step(
        sum(p.nbytes for p in listed), sum(p.grad is not None for p in listed), moments, live.peak
    )
