"""Train a decoder for a few steps on one rank or with torch.distributed; measure the time of its
parts and the memory of each rank."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from planner.calibrate.cases import Case
from planner.calibrate.decoder import Decoder, loss_of
from planner.calibrate.device import DTYPES, Device
from planner.calibrate.kernels import LEARNING_RATE, adam

T = TypeVar("T")
_LOSSES = 2  # steps whose loss is kept: it falls, or the training is wrong


@dataclass(frozen=True)
class Run:
    """A decoder ready to train: one step, its parts, and bytes of its states."""

    step: Callable[[], float]  # seconds of one optimizer step
    parts: Callable[[], dict[str, float]]  # seconds of forward, backward and optimizer of one step
    states: Callable[[], dict[str, int]]  # bytes of parameters, gradients and optimizer, this rank
    loss: list[float] = field(default_factory=list)  # of the first steps; none of a pipeline


def tensor_plan(case: Case) -> dict[str, Any]:
    """Which GEMMs a tensor-parallel rank holds a part of: columns of what comes in, rows of what
    goes out.

    Attention and MLP take their input as one distributed tensor, as torchtitan has it, so that
    GEMMs that share it share the reduction of its gradient: left to themselves q, k, v, gate and up
    make five all-reduces of a layer's backward where two do. Logits stay split for the loss.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
    )

    whole = Replicate()
    plan: dict[str, Any] = {
        "embed": RowwiseParallel(input_layouts=whole),
        "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    for i in range(case.layers):
        for name, inputs in (("attention", (whole, None)), ("mlp", (whole,))):
            plan[f"layers.{i}.{name}"] = PrepareModuleInput(
                input_layouts=inputs, desired_input_layouts=inputs
            )
        for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up"):
            plan[f"layers.{i}.{name}"] = ColwiseParallel()
        for name in ("attention.o", "mlp.down"):
            plan[f"layers.{i}.{name}"] = RowwiseParallel()
    return plan


def _local_bytes(tensors: Iterable[torch.Tensor | None]) -> int:
    """Bytes on this rank."""
    from torch.distributed.tensor import DTensor

    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors if t is not None)
    return sum(t.nbytes for t in local)


def _as_shard(parameter: torch.Tensor) -> torch.Tensor | None:
    """The gradient, placed as its parameter: the embedding's of a tensor-parallel rank is a partial
    sum until something reads it as its shard."""
    from torch.distributed.tensor import DTensor

    gradient = parameter.grad
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        return gradient.redistribute(placements=parameter.placements)
    return gradient


def _states(
    parameters: Sequence[torch.Tensor],
    backward: Callable[[], object],
    optimizer: torch.optim.Optimizer,
) -> dict[str, int]:
    """Bytes of parameters, gradients and optimizer on this rank after one step."""
    backward()
    gradients = _local_bytes([_as_shard(p) for p in parameters])
    optimizer.step()
    inner = getattr(optimizer, "optim", optimizer)  # of a ZeroRedundancyOptimizer, its own part
    moments = [v for state in inner.state.values() for k, v in state.items() if k != "step"]
    sizes = {
        "parameters": _local_bytes(parameters),
        "gradients": gradients,
        "optimizer": _local_bytes(moments),
    }
    optimizer.zero_grad(set_to_none=True)
    return sizes


def _split(model: Decoder, case: Case, device: Device, precision: str, ranks: int) -> nn.Module:
    """The decoder as `case.parallel` spreads it over the ranks."""
    if case.parallel == "single":
        return model
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor.parallel import parallelize_module
    from torch.nn.parallel import DistributedDataParallel

    if case.parallel in ("ddp", "zero1"):
        cards = [device.torch_device.index] if device.gpu else None
        return DistributedDataParallel(model, device_ids=cards)
    if case.parallel == "tensor":
        mesh = init_device_mesh(device.torch_device.type, (ranks,))
        parallelize_module(model, mesh, tensor_plan(case))
    elif case.parallel.startswith("fsdp"):
        low = None if precision == "fp32" else DTYPES[precision]
        options: dict[str, Any] = {
            "mesh": init_device_mesh(device.torch_device.type, (ranks,)),
            "reshard_after_forward": case.parallel == "fsdp",
            "mp_policy": MixedPrecisionPolicy(param_dtype=low),
        }
        for layer in model.layers:
            fully_shard(layer, **options)
        fully_shard(model, **options)
    return model


@contextlib.contextmanager
def _split_loss() -> Iterator[None]:
    """Ranks keep their columns of the logits, through the loss and its gradient."""
    from torch.distributed.tensor.parallel import loss_parallel

    with loss_parallel():
        yield


def _as_it_is(work: Callable[[], T]) -> Callable[[], T]:
    return work


def _whole(loss: torch.Tensor) -> torch.Tensor:
    """The loss as every rank has it."""
    from torch.distributed.tensor import DTensor

    return loss.to_local() if isinstance(loss, DTensor) else loss


def _sharded_adam(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=LEARNING_RATE, fused=True)


def prepare(case: Case, device: Device, precision: str, rank: int, ranks: int) -> Run:
    """Build the decoder as `case.parallel` says. All ranks call it together."""
    torch.manual_seed(0)
    if case.parallel == "pipeline":
        return _pipeline(case, device, rank, ranks)
    with torch.device(device.torch_device):
        model = Decoder(case, case.layers)
    runs = _split(model, case, device, precision, ranks)
    parameters: list[torch.Tensor] = list(model.parameters())
    optimizer = _sharded_adam(parameters) if case.parallel == "zero1" else adam(parameters)
    replica = 0 if case.parallel in ("single", "tensor") else rank
    torch.manual_seed(1 + replica)  # each replica reads its own words
    words = device.whole(case.micro_batch * case.microbatches, case.seq + 1, below=case.vocab)
    batches = words.split(case.micro_batch)
    losses: list[float] = []
    autocast = precision != "fp32" and not case.parallel.startswith("fsdp")
    within = _split_loss() if case.parallel == "tensor" else _as_it_is

    def forward(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.torch_device.type, DTYPES[precision], enabled=autocast):
            return _whole(loss_of(runs(batch[:, :-1]), batch[:, 1:]))

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def once() -> None:
        for batch in batches:
            loss = forward(batch) / len(batches)
            loss.backward()
        update()
        if len(losses) < _LOSSES:
            losses.append(float(loss.detach()))

    def backward() -> None:
        for batch in batches:
            forward(batch).backward()

    return Run(
        step=within(lambda: _wall(device, once)),
        parts=within(lambda: _parts(device, batches, forward, update)),
        states=within(lambda: _states(parameters, backward, optimizer)),
        loss=losses,
    )


def _parts(
    device: Device,
    batches: tuple[torch.Tensor, ...],
    forward: Callable[[torch.Tensor], torch.Tensor],
    update: Callable[[], None],
) -> dict[str, float]:
    out = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    for batch in batches:
        forward_s, loss = _timed(device, partial(forward, batch))
        out["forward"] += forward_s
        out["backward"] += _wall(device, loss.backward)
    out["optimizer"] = _wall(device, update)
    return out


def _wall(device: Device, work: Callable[[], object]) -> float:
    return _timed(device, work)[0]


def _timed(device: Device, work: Callable[[], T]) -> tuple[float, T]:
    """Seconds of work, with the device synchronised before and after, and its result."""
    device.wait()
    start_s = time.perf_counter()
    result = work()
    device.wait()
    return time.perf_counter() - start_s, result


def _pipeline(case: Case, device: Device, rank: int, ranks: int) -> Run:
    """1F1B of torch.distributed.pipelining, one stage per rank."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    with torch.device(device.torch_device):
        model = Decoder(case, case.layers // ranks, rank == 0, rank == ranks - 1)
    parameters: list[torch.Tensor] = list(model.parameters())
    optimizer = adam(parameters)
    stage = PipelineStage(model, rank, ranks, device.torch_device)
    schedule = Schedule1F1B(stage, case.microbatches, loss_fn=loss_of)
    words = device.whole(case.micro_batch * case.microbatches, case.seq + 1, below=case.vocab)
    source = [words[:, :-1].contiguous()] if rank == 0 else []
    target: dict[str, Any] = {"target": words[:, 1:].contiguous()} if rank == ranks - 1 else {}

    def pass_through() -> None:
        schedule.step(*source, **target)

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def once() -> None:
        pass_through()
        update()

    def parts() -> dict[str, float]:
        both = _wall(device, pass_through)
        return {"forward": 0.0, "backward": both, "optimizer": _wall(device, update)}

    def together() -> float:
        def all_of_it() -> None:
            once()
            dist.barrier()

        dist.barrier()
        return _wall(device, all_of_it)

    return Run(together, parts, lambda: _states(parameters, pass_through, optimizer))


def peak_bytes(device: Device, step: Callable[[], float]) -> int | None:
    """Largest allocation of the framework during a step; None on a CPU, where nothing counts it."""
    if not device.gpu:
        return None
    torch.cuda.reset_peak_memory_stats(device.torch_device)
    step()
    return int(torch.cuda.max_memory_allocated(device.torch_device))
