"""A step of transformers' models as its Trainer runs it on one GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from transformers import masking_utils

from benchmarks.frameworks import gpu_rules
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting
from benchmarks.frameworks.stepping import optimizer_of, two_steps

_BF16 = torch.bfloat16
_GROUPED: Any = getattr(torch.nn.functional, "grouped_mm", None)  # none before torch 2.10
Loss = Callable[[Callable[..., Any], torch.Tensor], torch.Tensor]


def model_of(setting: Setting) -> nn.Module:
    """The model in training mode, its weights in the type of the setting."""
    fields = setting.config
    config = transformers.AutoConfig.for_model(fields.pop("model_type"), **fields)
    config.use_cache = False
    model = transformers.AutoModelForCausalLM.from_config(
        config,
        attn_implementation=setting.attention,
        dtype=torch.float32 if setting.base == "fp32" else _BF16,
    ).train()
    if setting.recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def marked(model: nn.Module, live: LiveBytes) -> None:
    """Phases begin and end where the loss is computed: from its call until the gradient of the
    head's input is there."""
    head = model.get_output_embeddings()

    def enters(module: nn.Module, args: tuple[torch.Tensor, ...]) -> None:
        if args[0].requires_grad:
            args[0].register_hook(lambda gradient: live.phase("backward"))

    head.register_forward_pre_hook(enters)
    compute = model.loss_function

    def loss(logits: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        live.label([logits], "logits")
        live.at_loss = dict(live.by_origin)
        live.phase("loss")
        return compute(logits, *args, **kwargs)

    model.loss_function = loss


def in_fp32(forward: Callable[..., Any]) -> Callable[..., Any]:
    """accelerate's ConvertOutputsToFp32, which Accelerator.prepare wraps around the model."""

    def run(*args: Any, **kwargs: Any) -> Any:
        output = forward(*args, **kwargs)
        for name, value in output.items():
            if isinstance(value, torch.Tensor) and value.dtype is _BF16:
                output[name] = value.float()
        return output

    return run


def own_loss(forward: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
    """The loss that the model computes."""
    loss: torch.Tensor = forward(input_ids=words, labels=words)["loss"]
    return loss


def step(
    setting: Setting,
    live: LiveBytes,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    labelled: Callable[[], None],
    loss_of: Loss = own_loss,
    sequences: int = 1,
) -> None:
    """One step of Trainer.training_step and the optimizer. sequences: of an example."""
    forward = in_fp32(model) if setting.precision == "mixed" else model
    shape = (sequences * setting.micro_batch, setting.seq_len)
    words = [torch.zeros(shape, dtype=torch.long) for _ in range(setting.accumulation)]
    live.label(words, "batch")
    for i, batch in enumerate(words):
        live.phase("forward")
        if isinstance(model, FSDPModule):  # Accelerator.no_sync
            model.set_requires_gradient_sync(i == len(words) - 1)
        waits = isinstance(model, FullyShardedDataParallel) and i < len(words) - 1
        with model.no_sync() if waits else contextlib.nullcontext():
            with torch.autocast("cpu", _BF16, enabled=setting.precision == "mixed"):
                loss = loss_of(forward, batch)
            (loss / setting.accumulation).backward()
        del loss
    labelled()
    live.phase("step")
    optimizer.step()
    labelled()
    optimizer.zero_grad()


def _grouped(input: torch.Tensor, weight: torch.Tensor, *, offs: torch.Tensor) -> torch.Tensor:
    """grouped_mm of CUDA, which multiplies fp32 experts one after the other."""
    if weight.dtype is _BF16:
        return _GROUPED(input, weight, offs=offs)
    return torch.ops.transformers.grouped_mm_fallback(input, weight, offs)


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Code of transformers on fake tensors: rows are whole sequences, which it reads the values of
    position ids to tell, and would build a mask; experts in fp32."""
    packed = masking_utils.find_packed_sequence_indices
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    if _GROUPED is not None:
        torch.nn.functional.grouped_mm = _grouped
    try:
        yield
    finally:
        masking_utils.find_packed_sequence_indices = packed
        if _GROUPED is not None:
            torch.nn.functional.grouped_mm = _GROUPED


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    with gpu_rules.rules(), traced(), fake() as live:
        return train(setting, live)


def train(
    setting: Setting,
    live: LiveBytes,
    prepare: Callable[[Setting, nn.Module], nn.Module] = lambda setting, model: model,
) -> Counted:
    """A step on real or fake tensors. prepare: shards the model, or adapts it."""
    model = model_of(setting)
    marked(model, live)
    return taken(setting, live, prepare(setting, model))


def taken(
    setting: Setting,
    live: LiveBytes,
    model: nn.Module,
    loss_of: Loss = own_loss,
    sequences: int = 1,
) -> Counted:
    """Two steps of a model, of which the second is counted."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizer_of(setting, trained)

    def once(labelled: Callable[[], None]) -> None:
        step(setting, live, model, optimizer, labelled, loss_of, sequences)

    return two_steps(live, model, optimizer, once)
