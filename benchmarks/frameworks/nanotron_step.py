"""A step of nanotron's Llama on one rank of a fake world, with its fp32 accumulator of gradients
and its own ZeRO-1.

Weights and buffers of gradients are small and real: its accumulator slices storages, which fake
tensors do not. Kernels of flash_attn, which need a GPU, are functions here that keep and return
tensors of the same shapes: attention its inputs, output and statistics, norms their input and a
deviation per row; rotation works in place on keys and values, as theirs does.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

from benchmarks.frameworks import stepping
from benchmarks.frameworks.fake_world import world
from benchmarks.frameworks.live import LiveBytes
from benchmarks.frameworks.nanotron_modules import OnCpu, install, unused
from benchmarks.frameworks.setting import Counted, Setting

_FIELDS = ("hidden_size", "intermediate_size", "num_attention_heads", "num_hidden_layers")
_FIELDS = (*_FIELDS, "num_key_value_heads", "tie_word_embeddings", "vocab_size")


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any) -> Any:
        out, statistics = torch.empty_like(q), q.new_empty(q.shape[:2], dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, statistics)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return tuple(torch.empty_like(tensor) for tensor in ctx.saved_tensors[:3])


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight, x.new_empty(x.shape[:-1], dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        x, weight, _ = ctx.saved_tensors
        return torch.empty_like(x), torch.empty_like(weight)


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return torch.empty_like(gradient)


class _RotatedInPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


class _Rotary(torch.nn.Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, q: Any, kv: Any) -> Any:
        return _Rotated.apply(q), _RotatedInPlace.apply(kv)


def _import_logging() -> None:
    """Import nanotron.logging, which needs the name of a class of its configuration, which needs
    it: neither can be imported first in the package of 0.4."""
    importlib.import_module("nanotron")
    names = "nanotron.config", "nanotron.config.config"
    for name in names:
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(LoggingArgs=None, __path__=[])
    importlib.import_module("nanotron.logging")
    for name in names:
        del sys.modules[name]


install(
    lambda q, k, v, **_: _Attention.apply(q, k, v),
    unused,
    _Rotary,
    lambda x, weight, *_, **__: _Norm.apply(x, weight),
)
_import_logging()
_trainer: Any = importlib.import_module("nanotron.trainer")  # first: it imports all others
_accumulating: Any = importlib.import_module("nanotron.optim.gradient_accumulator")
_config: Any = importlib.import_module("nanotron.config")
_helpers: Any = importlib.import_module("nanotron.helpers")
_llama: Any = importlib.import_module("nanotron.models.llama")
_models: Any = importlib.import_module("nanotron.models")
_modes: Any = importlib.import_module("nanotron.parallel.tensor_parallel.enum")
_parallel: Any = importlib.import_module("nanotron.parallel")


def _buffers(named_parameters: Any) -> Any:
    """FP32GradientAccumulator.build_grad_buffers with views in place of slices of a storage, which
    are storages of their own."""
    weights = [(name, weight) for name, weight in named_parameters if weight.requires_grad]
    flat, buffers = torch.zeros(sum(weight.numel() for _, weight in weights)), {}
    parts = flat.split([weight.numel() for _, weight in weights])
    for (name, weight), part in zip(weights, parts, strict=True):
        buffers[name] = {"half": weight, "fp32_grad": part.view_as(weight)}
    return buffers, flat


@contextlib.contextmanager
def _context(setting: Setting) -> Iterator[Any]:
    """Groups of its ranks, of which the first runs."""
    os.environ |= {"WORLD_SIZE": str(setting.ranks), "RANK": "0", "LOCAL_RANK": "0"}
    world(setting.ranks)
    torch_itself: Any = torch
    torch_itself.cuda.set_device = lambda *_: None
    torch_itself.cuda.current_device = lambda: "cpu"
    with OnCpu():
        yield _parallel.ParallelContext(setting.tensor, 1, setting.replicas)


def _optimizer_arguments(zero: int) -> Any:
    rate = SimpleNamespace(learning_rate=1e-4)
    numbers = {"weight_decay": 0.0, "adam_eps": 1e-8, "adam_beta1": 0.9, "adam_beta2": 0.95}
    return SimpleNamespace(
        learning_rate_scheduler=rate,
        torch_adam_is_fused=True,
        accumulate_grad_in_fp32=True,
        zero_stage=zero,
        **numbers,
    )


def _marked(model: Any, live: LiveBytes) -> None:
    """Phases begin and end where the loss is computed."""

    def normed(module: Any, args: Any, output: Any) -> None:
        output["hidden_states"].register_hook(lambda gradient: live.phase("backward"))

    def enters(module: Any, args: Any, kwargs: Any) -> None:
        live.label([kwargs["sharded_logits"]], "logits")
        live.at_loss = dict(live.by_origin)
        live.phase("loss")

    model.model.final_layer_norm.register_forward_hook(normed)
    model.loss.register_forward_pre_hook(enters, with_kwargs=True)


def run(setting: Setting) -> Counted:
    """Two steps on real tensors, of which the second is counted."""
    _accumulating.FP32GradientAccumulator.build_grad_buffers = staticmethod(_buffers)
    fields = {name: setting.config[name] for name in _FIELDS}
    config = _config.LlamaConfig(**fields, max_position_embeddings=setting.seq_len + 1)
    mode = _modes.TensorParallelLinearMode.REDUCE_SCATTER
    arguments = _config.ParallelismArgs(
        setting.replicas, 1, setting.tensor, tp_mode=mode, tp_linear_async_communication=False
    )
    with _context(setting) as context, LiveBytes() as live:
        model = _models.build_model(
            lambda: _llama.LlamaForTraining(config, context, arguments), context, torch.bfloat16
        )
        _trainer.mark_tied_parameters(model, context, arguments)
        optimizer, accumulator = _helpers.init_optimizer_and_grad_accumulator(
            model, _optimizer_arguments(setting.zero), context
        )
        _marked(model, live)
        shape = setting.micro_batch, setting.seq_len
        batch = {name: torch.zeros(shape, dtype=torch.long) for name in ("input_ids", "label_ids")}
        batch |= {
            name: torch.ones(shape, dtype=torch.bool) for name in ("input_mask", "label_mask")
        }
        live.label(batch.values(), "batch")
        gradients = 0

        def labelled() -> None:
            nonlocal gradients
            live.label(model.buffers(), "buffers")
            live.label(model.parameters(), "parameters")
            live.label([accumulator._contiguous_fp32_grad_buffer], "gradients")
            live.label((each["fp32"] for each in accumulator.parameters.values()), "states")
            live.label_states(optimizer.get_base_optimizer())
            gradients = live.by_origin["gradients"]

        labelled()
        for _ in range(2):
            live.restart()
            for _ in range(setting.accumulation):
                live.phase("forward")
                loss = model(**batch)["loss"] / setting.accumulation
                accumulator.backward(loss)
                del loss
            live.phase("step")
            optimizer.step()
            labelled()
            optimizer.zero_grad()
        return stepping.counted(live, gradients)
