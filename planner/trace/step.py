"""A step of a module under a recorder: forward and backward, or forward with frozen weights."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter

from planner.trace.record import Recorder
from planner.trace.regions import Recorded, Region


@contextlib.contextmanager
def _followed(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    handles = []
    for module in model.modules():
        handles.append(module.register_forward_pre_hook(recorder.entered, with_kwargs=True))
        handles.append(module.register_forward_hook(recorder.left))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def tensors_with_gradients(output: Any) -> list[torch.Tensor]:
    """Tensors of a module's output from which a backward pass can begin: a loss, else all."""
    if hasattr(output, "to_tuple"):  # of transformers and diffusers
        output = output.to_tuple()
    tensors = [
        x
        for x in tree_iter(output)
        if isinstance(x, torch.Tensor) and x.is_floating_point() and x.requires_grad
    ]
    losses = [x for x in tensors if x.numel() == 1]
    return losses[:1] or tensors


def frozen(
    model: nn.Module,
    run: Callable[[], Any],
    blocks: set[str],
    compute: torch.dtype,
    attach: Callable[[Recorder], None],
    trained: Collection[str],
) -> list[Region]:
    """Regions of a forward pass in which no weights but `trained` have gradients: their saved
    tensors are what other weights need no more."""
    weights = [x for name, x in model.named_parameters() if name not in trained and x.requires_grad]
    recorder = Recorder(model, blocks, compute)
    attach(recorder)
    for weight in weights:
        weight.requires_grad_(False)
    try:
        hooks = torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda x: x)
        with _followed(model, recorder), recorder, hooks:
            run()
        recorder.divide()
    finally:
        for weight in weights:
            weight.requires_grad_(True)
    return recorder.regions


def step(
    model: nn.Module,
    run: Callable[[], Any],
    blocks: set[str],
    compute: torch.dtype,
    attach: Callable[[Recorder], None] = lambda recorder: None,
) -> tuple[Recorded, Recorder, Any]:
    """Forward and backward of a module. run: calls it. attach: hands the recorder to code that
    knows the words of attention. Returns what was recorded, the recorder, whose `fused` is to be
    called, and the module's output."""
    recorder = Recorder(model, blocks, compute)
    attach(recorder)
    with _followed(model, recorder):
        hooks = torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda x: x)
        with recorder, hooks:
            output = run()
            ends = tensors_with_gradients(output)
            recorder._label(ends)
    gradients = [torch.ones_like(x) for x in ends]
    for x in gradients:  # made unseen, perhaps where a tensor was that is gone
        recorder.storages.pop(x.untyped_storage()._cdata, None)
    recorder.divide()
    recorder.backwards, recorder.turn = True, recorder.chain
    if ends:
        with recorder:
            torch.autograd.backward(ends, gradients)
    for name, weight in model.named_parameters():
        region = recorder.owner.get(name)
        if region is None:
            region = next(
                (i for path, i in recorder.block_at.items() if name.startswith(f"{path}.")), 0
            )
        recorder.owner[name] = region
        recorder.regions[region].parameters += weight.numel()
    total = sum(weight.numel() for weight in model.parameters())
    return Recorded(recorder.regions, total, recorder.owner, recorder.division), recorder, output
