"""Shared by the steps of all frameworks: optimizer, weights without data, and the row of a step."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.optim import AdamW

from benchmarks.frameworks.live import LiveBytes
from benchmarks.frameworks.setting import Counted, Setting


def moved(module: nn.Module, change: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    """nn.Module._apply, which cannot swap fake tensors."""
    for child in module.children():
        moved(child, change)
    for name, weight in module._parameters.items():
        if weight is not None:
            data = change(weight.detach())
            module._parameters[name] = nn.Parameter(data, requires_grad=weight.requires_grad)
    for name, buffer in module._buffers.items():
        module._buffers[name] = None if buffer is None else change(buffer)
    return module


def optimizer_of(setting: Setting, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """torch's AdamW in the setting's implementation, of a part of the weights under ZeRO-1."""
    if setting.zero == 1:
        return ZeroRedundancyOptimizer(parameters, AdamW, lr=1e-4, **{setting.optimizer: True})
    return AdamW(parameters, lr=1e-4, **{setting.optimizer: True})


def two_steps(
    live: LiveBytes,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    step: Callable[[Callable[[], None]], None],
) -> Counted:
    """Two steps of a model, of which the second is counted. step: takes what gives parameters,
    gradients and states their origin, which it calls before and after the update."""
    gradients = 0

    def labelled() -> None:
        nonlocal gradients
        live.label_model(model, optimizer)
        gradients = live.by_origin["gradients"]

    labelled()
    for _ in range(2):
        live.restart()
        step(labelled)
    return counted(live, gradients)


def counted(live: LiveBytes, gradients: int) -> Counted:
    """The second step as a row."""
    lasting, at_loss = live.by_origin, live.at_loss
    peaks = live.peaks
    return Counted(
        parameters=lasting["parameters"],
        gradients=gradients,
        states=lasting["states"],
        # none of a stage without the loss
        activations=at_loss.get("activations", 0),
        logits=at_loss.get("logits", 0),
        forward=peaks["forward"],
        loss=peaks.get("loss", 0),
        backward=peaks["backward"],
        step=peaks["step"],
        peak=live.peak,
    )
