"""A step of Megatron-core's GPT model of its local layers, on one rank of a fake world: its own
layers, gradient buffers, schedule without pipelining and distributed optimizer.

What a machine without CUDA lacks is replaced: calls that ask for the device or its random numbers,
and kernels whose values do not matter where bytes are counted. Of Apex: its fused layer norm (by
torch's, which keeps the same), the causal softmax in 16 bit, the weight gradient that a GEMM adds
to the fp32 buffer, FusedAdam (by torch's fused one). Of Transformer Engine: rotation in one kernel.
Functions that torch.compile fuses are counted as one kernel (SwiGLU), or run as their operators
(dropout is off, so that a residual addition is one).
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch import nn
from torch._dynamo import config as dynamo
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_BF16 = torch.bfloat16


def _softmax_forward(scores: torch.Tensor, scale: Any) -> torch.Tensor:
    return torch.empty_like(scores)


def _softmax_backward(gradient: torch.Tensor, softmax: torch.Tensor, scale: Any) -> torch.Tensor:
    return gradient  # csrc/megatron/scaled_upper_triang_masked_softmax.h writes over it


def _added(input: torch.Tensor, gradient: torch.Tensor, weight_gradient: torch.Tensor) -> None:
    return None


sys.modules.setdefault(
    "scaled_upper_triang_masked_softmax_cuda",
    SimpleNamespace(forward=_softmax_forward, backward=_softmax_backward),  # type: ignore[arg-type]
)
sys.modules.setdefault(
    "scaled_masked_softmax_cuda",
    SimpleNamespace(get_batch_per_block=lambda *shape: 1),  # type: ignore[arg-type]
)
sys.modules.setdefault(
    "fused_weight_gradient_mlp_cuda",
    SimpleNamespace(wgrad_gemm_accum_fp32=_added),  # type: ignore[arg-type]
)

from megatron.core import optimizer as optimizers  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
    param_and_grad_buffer,
)
from megatron.core.fusions import fused_bias_swiglu  # noqa: E402
from megatron.core.models.common.embeddings import rope_utils  # noqa: E402
from megatron.core.models.gpt import GPTModel, gpt_layer_specs  # noqa: E402
from megatron.core.optimizer import clip_grads  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel import random as generators  # noqa: E402
from megatron.core.transformer import TransformerConfig, torch_norm  # noqa: E402
from megatron.core.transformer.module import Float16Module  # noqa: E402


class OnDevice(TorchFunctionMode):
    """Tensors that are made on the GPU, or go there, stay on the CPU."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if str((kwargs or {}).get("device", "")).startswith("cuda"):
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **(kwargs or {}))


def _kind(tensor: torch.Tensor) -> str:
    return {_BF16: "torch.cuda.BFloat16Tensor"}.get(tensor.dtype, "torch.cuda.FloatTensor")


class Rotated(torch.autograd.Function):
    """Rotation of queries or keys in one kernel, which keeps only the angles."""

    @staticmethod
    def forward(ctx: Any, heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(angles)
        return torch.empty_like(heads)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return torch.empty_like(gradients[0]), None


def _norm(
    kind_of: type, config: Any, hidden_size: int, eps: float = 1e-5, **more: Any
) -> nn.Module:
    kind: Any = nn.RMSNorm if config.normalization == "RMSNorm" else nn.LayerNorm
    norm: nn.Module = kind(hidden_size, eps=eps, dtype=config.params_dtype)
    for weight in norm.parameters():
        weight.sequence_parallel = config.sequence_parallel
    return norm


def _half(joint: torch.Tensor) -> torch.Tensor:
    return joint.new_empty((*joint.shape[:-1], joint.shape[-1] // 2))


@contextlib.contextmanager
def _one_by_one(*args: Any, **kwargs: Any) -> Iterator[SimpleNamespace]:
    """Collectives of buffers after each other: a fake world has no coalesced ones."""
    yield SimpleNamespace(wait=lambda: None)


def _norm_of(*args: Any) -> tuple[torch.Tensor, None]:
    """The norm of gradients, whose kernel writes one number."""
    return torch.zeros(1), None


def _same_objects(objects: list[Any], of_rank: Any, group: Any = None) -> None:
    objects[:] = [of_rank] * len(objects)


@contextlib.contextmanager
def on_device() -> Iterator[None]:
    """All that is replaced."""
    rotated = lambda heads, angles, interleaved=False: Rotated.apply(heads, angles)  # noqa: E731
    state = torch.zeros(16, dtype=torch.uint8)
    with (
        patch.object(dynamo, "disable", True),
        patch.object(torch.cuda, "current_device", lambda: torch.device("cpu")),
        patch.object(generators, "_get_cuda_rng_state", lambda *args, **kwargs: state),
        patch.object(generators, "_set_cuda_rng_state", lambda *args, **kwargs: None),
        patch.object(torch.cuda, "get_rng_state", lambda *args: state),
        patch.object(torch.cuda, "manual_seed", lambda seed: None),
        patch.object(dist, "all_gather_object", _same_objects),  # of names of parameters
        patch.object(param_and_grad_buffer, "_coalescing_manager", _one_by_one),
        patch.object(clip_grads, "multi_tensor_applier", _norm_of),
        patch.object(rope_utils, "fused_apply_rotary_pos_emb", rotated),
        patch.object(fused_bias_swiglu, "swiglu", _half),
        patch.object(fused_bias_swiglu, "swiglu_back", lambda gradient, joint: joint.clone()),
        patch.object(torch_norm.WrappedTorchNorm, "__new__", _norm),
        patch.object(torch.optim, "AdamW", functools.partial(torch.optim.AdamW, fused=True)),
        patch.object(torch.Tensor, "item", lambda tensor: 1.0),  # fake ones have no values
        patch.object(torch.Tensor, "type", _kind),
        patch.object(torch.Tensor, "cuda", lambda tensor: tensor),
        OnDevice(),
    ):
        yield


def config_of(setting: Setting) -> TransformerConfig:
    """The configuration of a model with RMSNorm, SwiGLU and rotation."""
    fields = setting.config
    recompute: dict[str, Any] = {}
    if setting.recompute != "none":
        recompute["recompute_granularity"] = setting.recompute
    if setting.recompute == "full":
        recompute |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    return TransformerConfig(
        num_layers=fields["num_hidden_layers"],
        hidden_size=fields["hidden_size"],
        num_attention_heads=fields["num_attention_heads"],
        num_query_groups=fields["num_key_value_heads"],
        ffn_hidden_size=fields["intermediate_size"],
        gated_linear_unit=True,
        activation_func=nn.functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        bf16=True,
        params_dtype=_BF16,
        use_cpu_initialization=True,
        perform_initialization=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        masked_softmax_fusion=True,
        bias_activation_fusion=True,
        apply_rope_fusion=True,
        gradient_accumulation_fusion=True,
        tensor_model_parallel_size=setting.tensor,
        sequence_parallel=setting.tensor > 1,
        finalize_model_grads_func=finalize_model_grads,
        **recompute,
    )


def marked(model: GPTModel, live: LiveBytes) -> None:
    """Phases begin and end where the loss is computed."""

    def enters(module: nn.Module, args: Any, kwargs: Any) -> None:
        hidden = args[0] if args else kwargs["input_"]
        live.at_loss = dict(live.by_origin)
        hidden.register_hook(lambda gradient: live.phase("backward"))

    model.output_layer.register_forward_pre_hook(enters, with_kwargs=True)
    compute = model.compute_language_model_loss

    def loss(labels: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
        live.label([logits], "logits")
        live.phase("loss")
        computed: torch.Tensor = compute(labels, logits)
        return computed

    model.compute_language_model_loss = loss


def _step(setting: Setting, live: LiveBytes, model: Any) -> None:
    """All micro-batches of a step, as pretrain_gpt.py gives them."""
    shape = setting.micro_batch, setting.seq_len
    words = torch.zeros(shape, dtype=torch.long)
    places = torch.arange(setting.seq_len).unsqueeze(0).expand_as(words)
    live.label([words, places], "batch")

    def forward(batches: Any, model: nn.Module) -> tuple[torch.Tensor, Any]:
        live.phase("forward")
        losses = model(words, places, None, labels=words)
        return losses, lambda losses: (losses.float().mean(), {})

    get_forward_backward_func()(
        forward_step_func=forward,
        data_iterator=iter(()),
        model=[model],
        num_microbatches=setting.accumulation,
        seq_length=setting.seq_len,
        micro_batch_size=setting.micro_batch,
        forward_only=False,
    )


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    if dist.is_initialized():
        dist.destroy_process_group()
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=setting.ranks)
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(setting.tensor, create_gloo_process_groups=False)
    with gpu_rules.rules(), fake() as live, on_device():
        generators.model_parallel_cuda_manual_seed(1)
        config = config_of(setting)
        inner = GPTModel(
            config=config,
            transformer_layer_spec=gpt_layer_specs.get_gpt_layer_local_spec(
                normalization="RMSNorm"
            ),
            vocab_size=setting.config["vocab_size"],
            max_sequence_length=setting.seq_len,
            position_embedding_type="rope",
            share_embeddings_and_output_weights=setting.config["tie_word_embeddings"],
        )
        marked(inner, live)
        with patch.object(nn.Module, "_apply", stepping.moved):
            narrow = Float16Module(config, inner)
        buffers = DistributedDataParallelConfig(
            grad_reduce_in_fp32=True, use_distributed_optimizer=setting.zero == 1
        )
        model = DistributedDataParallel(config, buffers, narrow)
        optimizer = optimizers.get_megatron_optimizer(
            optimizers.OptimizerConfig(
                optimizer="adam",
                lr=1e-4,
                bf16=True,
                params_dtype=_BF16,
                use_distributed_optimizer=setting.zero == 1,
            ),
            [model],
            use_gloo_process_groups=False,
        )
        config.grad_scale_func = optimizer.scale_loss

        def labelled() -> None:
            live.label_model(inner)
            grads = [buffer.grad_data for buffer in model.buffers]
            live.label(grads, "gradients")
            for part in optimizer.chained_optimizers:
                groups = part.optimizer.param_groups
                live.label((p for group in groups for p in group["params"]), "states")
                live.label_states(part.optimizer)

        labelled()
        for _ in range(2):
            live.restart()
            model.zero_grad_buffer()
            optimizer.zero_grad()
            _step(setting, live, model)
            live.phase("step")
            optimizer.step()
            labelled()
        return stepping.counted(live, live.by_origin["gradients"])
