"""A step of TRL's trainers for supervised fine-tuning, DPO and GRPO: their fused head and loss over
a model of transformers."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import nn
from torch.nn import functional
from trl import GRPOConfig, GRPOTrainer
from trl.kernels import chunked_logprob
from trl.trainer import grpo_trainer, utils

from benchmarks.frameworks import gpu_rules, transformers_step
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

# GRPOTrainer.__init__ asks for the entropy, which is logged
_OUTPUTS = {"sft": ("log_probs", "entropy", "is_top1"), "grpo": ("log_probs", "entropy")}
_OF_PAIRS = ("log_probs", "entropy", "mean_logits", "is_top1")
_BETA = 0.1


def scored(function: Any, sequences: int, hidden: torch.Tensor, *args: Any) -> Any:
    """The head of the second half of every sequence, as hidden_states[mask] selects it on a GPU:
    that indexing has no shape without values."""
    words, rest = args[:2], args[3:]
    width, length = hidden.shape[-1], hidden.shape[0] // sequences
    half = (length + 1) // 2
    chosen = hidden.view(sequences, length, width)[:, -half:].reshape(-1, width)
    targets = args[2].view(sequences, length)[:, -half:].reshape(-1)
    outputs = function(chosen, *words, targets, *rest)
    whole = (hidden.shape[0] // length, length)
    return tuple(
        None
        if value is None
        else torch.cat([value.new_zeros((whole[0], length - half)), value.view(-1, half)], 1)
        for value in outputs
    )


@contextlib.contextmanager
def kernels(live: LiveBytes, setting: Setting) -> Iterator[None]:
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
        if setting.task == "grpo":
            return scored(apply, setting.micro_batch, hidden, *args)
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


def grpo(model: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
    """The loss of GRPOTrainer._compute_loss with its defaults: the second half of every sequence is
    a completion. Metrics are numbers that fake tensors have none of."""
    arguments = GRPOConfig(output_dir="", use_cpu=True, bf16=False, report_to=[])
    alone = SimpleNamespace(
        num_processes=1,
        sync_gradients=True,
        autocast=contextlib.nullcontext,
        gather=lambda value: value,
        reduce=lambda value, reduction: value,
    )
    trainer = SimpleNamespace(
        **{name: value for name, value in vars(arguments).items() if not name.startswith("_")}
    )
    trainer.args, trainer.accelerator, trainer.model = arguments, alone, SimpleNamespace(training=1)
    trainer.aux_loss_enabled = trainer._entropy_bonus_enabled = False
    trainer.epsilon_low = arguments.epsilon
    trainer.epsilon_high = arguments.epsilon_high or arguments.epsilon
    trainer.current_gradient_accumulation_steps = 1
    trainer._metrics = defaultdict(lambda: defaultdict(list))
    of_tokens = inspect.unwrap(GRPOTrainer._get_per_token_logps_and_entropies)
    trainer._get_per_token_logps_and_entropies = functools.partial(of_tokens, trainer)
    prompts, completions = words.chunk(2, dim=1)
    inputs = {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": completions,
        "completion_mask": torch.ones_like(completions),
        "advantages": torch.ones(len(words)),
        "num_items_in_batch": torch.ones(()),
    }
    extremes = {"nanmin": torch.amin, "nanmax": torch.amax}
    with (
        patch.object(torch.Tensor, "item", lambda value: 0.0),
        patch.multiple(grpo_trainer, **extremes),
    ):
        loss: torch.Tensor = inspect.unwrap(GRPOTrainer._compute_loss)(trainer, model, inputs)
    return loss


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    pairs = setting.task == "dpo"
    with gpu_rules.rules(), transformers_step.traced(), fake() as live, kernels(live, setting):
        model = transformers_step.model_of(setting)
        utils.add_fused_lm_head(model, outputs=_OUTPUTS.get(setting.task, _OF_PAIRS))
        reference = None
        if pairs:
            reference = transformers_step.model_of(setting).requires_grad_(False).eval()
            utils.add_fused_lm_head(reference)
            live.label(reference.parameters(), "reference")
            live.label(reference.buffers(), "reference")

        def loss(forward: Callable[..., Any], words: torch.Tensor) -> torch.Tensor:
            if reference is not None:
                return dpo(forward, reference, words)
            return {"sft": sft, "grpo": grpo}[setting.task](forward, words)

        return transformers_step.taken(setting, live, model, loss, 1 + pairs)
