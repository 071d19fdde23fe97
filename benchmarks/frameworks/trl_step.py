"""A step of TRL's trainers for supervised fine-tuning and DPO: their fused head and loss over a
model of transformers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from trl.kernels import chunked_logprob
from trl.trainer import utils

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

_OUTPUTS = {"sft": ("log_probs", "entropy", "is_top1")}
_OF_PAIRS = ("log_probs", "entropy", "mean_logits", "is_top1")
_BETA = 0.1


@contextlib.contextmanager
def kernels(live: LiveBytes) -> Iterator[None]:
    """Triton's kernels, which work inside a tile, and CUDA's products that add in fp32; phases
    begin and end where the fused head does."""
    before = (
        chunked_logprob._forward_tile,
        chunked_logprob._backward_tile,
        chunked_logprob._addmm_fp32,
        utils._ChunkedLogProbFunction,
    )
    apply = utils._ChunkedLogProbFunction.apply

    def of_head(hidden: torch.Tensor, *args: Any) -> Any:
        if hidden.requires_grad:
            live.at_loss = live.by_origin.copy()
            live.phase("loss")
            hidden.register_hook(lambda gradient: live.phase("backward"))
        return apply(hidden, *args)

    chunked_logprob._forward_tile = lambda *args, **kwargs: None
    chunked_logprob._backward_tile = lambda *args, **kwargs: None
    chunked_logprob._addmm_fp32 = lambda *args: None
    utils._ChunkedLogProbFunction = SimpleNamespace(apply=of_head)
    try:
        yield
    finally:
        chunked_logprob._forward_tile, chunked_logprob._backward_tile = before[:2]
        chunked_logprob._addmm_fp32, utils._ChunkedLogProbFunction = before[2:]


def sft(model: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
    """The loss of SFTTrainer.compute_loss."""
    outputs = model(input_ids=words, labels=words, fused_lm_head=True, use_cache=False)
    return (-outputs.log_probs).sum() / outputs.label_mask.sum().clamp(min=1)


def dpo(model: Callable[..., Any], reference: nn.Module, words: torch.Tensor) -> torch.Tensor:
    """The loss of DPOTrainer._compute_loss: chosen and rejected in one batch."""
    given = {"input_ids": words, "labels": words, "fused_lm_head": True, "use_cache": False}
    chosen, rejected = model(**given).log_probs.sum(dim=1).chunk(2)
    with torch.no_grad():
        of_chosen, of_rejected = reference(**given).log_probs.sum(dim=1).chunk(2)
    margin = (chosen - of_chosen) - (rejected - of_rejected)
    return -functional.logsigmoid(_BETA * margin).mean()


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    pairs = setting.task == "dpo"
    with gpu_rules.rules(), transformers_step.traced(), fake() as live, kernels(live):
        model = transformers_step.model_of(setting)
        utils.add_fused_lm_head(model, outputs=_OUTPUTS.get(setting.task, _OF_PAIRS))
        reference = None
        if pairs:
            reference = transformers_step.model_of(setting).requires_grad_(False).eval()
            utils.add_fused_lm_head(reference)
            live.label(reference.parameters(), "reference")
            live.label(reference.buffers(), "reference")

        def loss(forward: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
            return sft(forward, words) if reference is None else dpo(forward, reference, words)

        return transformers_step.taken(setting, live, model, loss, 1 + pairs)
