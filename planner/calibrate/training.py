"""Train a decoder for a few steps, alone or with torch.distributed, and say how long its parts take
and what each rank holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from planner.calibrate.cases import Case
from planner.calibrate.decoder import Decoder, loss_of
from planner.calibrate.device import DTYPES, Device
from planner.calibrate.kernels import adam


@dataclass
class Run:
    """A decoder ready to train: one step, its parts, and bytes of its states."""

    step: Callable[[], float]  # seconds of one optimizer step
    parts: Callable[[], dict[str, float]]  # seconds of forward, backward and optimizer of one step
    states: Callable[
        [], dict[str, int]
    ]  # bytes of parameters, gradients and optimizer on this rank
    loss: list[float] = field(default_factory=list)


def tensor_plan(case: Case) -> dict[str, Any]:
    """Which products a tensor-parallel rank holds a part of: columns of what comes in, rows of what
    goes out."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel

    plan: dict[str, Any] = {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    for i in range(case.layers):
        for name in ("attention.q", "attention.k", "attention.v", "mlp.gate", "mlp.up"):
            plan[f"layers.{i}.{name}"] = ColwiseParallel()
        for name in ("attention.o", "mlp.down"):
            plan[f"layers.{i}.{name}"] = RowwiseParallel()
    return plan


def _local(tensor: torch.Tensor) -> torch.Tensor:
    from torch.distributed.tensor import DTensor

    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _held(tensors: Iterable[torch.Tensor | None]) -> int:
    return sum(_local(t).nbytes for t in tensors if t is not None)


def _as_shard(parameter: torch.Tensor) -> torch.Tensor | None:
    from torch.distributed.tensor import DTensor

    gradient = parameter.grad
    if isinstance(gradient, DTensor) and isinstance(parameter, DTensor):
        return gradient.redistribute(placements=parameter.placements)
    return gradient


def prepare(case: Case, device: Device, precision: str, rank: int, ranks: int) -> Run:
    """Build the decoder as `case.parallel` says. All ranks call it together."""
    torch.manual_seed(0)
    parallel = case.parallel
    if parallel == "pipeline":
        return _pipeline(case, device, rank, ranks)
    with torch.device(device.torch_device):
        model: nn.Module = Decoder(case, case.layers)
    mixed = precision != "fp32"
    if parallel == "tensor":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor.parallel import parallelize_module

        parallelize_module(
            model, init_device_mesh(device.torch_device.type, (ranks,)), tensor_plan(case)
        )
    elif parallel.startswith("fsdp"):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(device.torch_device.type, (ranks,))
        policy = (
            MixedPrecisionPolicy(param_dtype=DTYPES[precision]) if mixed else MixedPrecisionPolicy()
        )
        again = parallel == "fsdp"
        for layer in model.layers:  # type: ignore[union-attr]
            fully_shard(layer, mesh=mesh, reshard_after_forward=again, mp_policy=policy)
        fully_shard(model, mesh=mesh, reshard_after_forward=again, mp_policy=policy)
    runs: nn.Module = model
    if parallel in ("ddp", "zero1"):
        from torch.nn.parallel import DistributedDataParallel

        runs = DistributedDataParallel(
            model, device_ids=[device.torch_device.index] if device.gpu else None
        )
    own: list[torch.Tensor] = list(model.parameters())
    optimizer: Any
    if parallel == "zero1":
        from torch.distributed.optim import ZeroRedundancyOptimizer

        optimizer = ZeroRedundancyOptimizer(own, torch.optim.AdamW, lr=1e-4, fused=True)
    else:
        optimizer = adam(own)
    alone = rank if parallel in ("ddp", "zero1", "fsdp", "fsdp-noreshard") else 0
    torch.manual_seed(1 + alone)
    words = device.whole(case.micro_batch * case.microbatches, case.seq + 1, below=case.vocab)
    batches = words.split(case.micro_batch)
    lossy: list[float] = []

    def forward(batch: torch.Tensor) -> torch.Tensor:
        with torch.autocast(
            device.torch_device.type,
            DTYPES[precision],
            enabled=mixed and not parallel.startswith("fsdp"),
        ):
            return loss_of(runs(batch[:, :-1]), batch[:, 1:])

    def update() -> None:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def once() -> None:
        for batch in batches:
            loss = forward(batch) / len(batches)
            loss.backward()
        update()
        if len(lossy) < 2:
            lossy.append(float(loss.detach()))

    def parts() -> dict[str, float]:
        return _parts(device, batches, forward, update)

    def states() -> dict[str, int]:
        for batch in batches:
            forward(batch).backward()
        # the embedding's gradient of a tensor-parallel rank is a partial sum until something reads
        # it as its shard
        placed = [_as_shard(p) for p in own]
        gradients = _held(placed)
        optimizer.step()
        inner = optimizer.optim if parallel == "zero1" else optimizer
        moments = [v for state in inner.state.values() for k, v in state.items() if k != "step"]
        found = {"parameters": _held(own), "gradients": gradients, "optimizer": _held(moments)}
        optimizer.zero_grad(set_to_none=True)
        return found

    return Run(lambda: _wall(device, once), parts, states, lossy)


def _parts(
    device: Device,
    batches: tuple[torch.Tensor, ...],
    forward: Callable[[torch.Tensor], torch.Tensor],
    update: Callable[[], None],
) -> dict[str, float]:
    out = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
    losses: list[torch.Tensor] = []
    for batch in batches:
        out["forward"] += _wall(device, lambda b=batch: losses.append(forward(b)))  # type: ignore[misc]
        out["backward"] += _wall(device, lambda: losses.pop().backward())
    out["optimizer"] = _wall(device, update)
    return out


def _wall(device: Device, work: Callable[[], object]) -> float:
    """Seconds of work, waited for on both sides."""
    device.wait()
    start = time.perf_counter()
    work()
    device.wait()
    return time.perf_counter() - start


def _pipeline(case: Case, device: Device, rank: int, ranks: int) -> Run:
    """1F1B of torch.distributed.pipelining, one stage per rank."""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    with torch.device(device.torch_device):
        model = Decoder(case, case.layers // ranks, rank == 0, rank == ranks - 1)
    own: list[torch.Tensor] = list(model.parameters())
    optimizer = adam(own)
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

    def states() -> dict[str, int]:
        pass_through()
        gradients = _held(p.grad for p in own)
        optimizer.step()
        moments = [v for state in optimizer.state.values() for k, v in state.items() if k != "step"]
        found = {"parameters": _held(own), "gradients": gradients, "optimizer": _held(moments)}
        optimizer.zero_grad(set_to_none=True)
        return found

    def together() -> float:
        def all_of_it() -> None:
            once()
            dist.barrier()

        dist.barrier()
        return _wall(device, all_of_it)

    return Run(together, parts, states)


def peak_bytes(device: Device, step: Callable[[], float]) -> int | None:
    """Largest allocation of the framework during a step; None on a CPU, where nothing counts it."""
    if not device.gpu:
        return None
    torch.cuda.reset_peak_memory_stats(device.torch_device)
    step()
    return int(torch.cuda.max_memory_allocated(device.torch_device))
