"""The device that is measured, as torch sees it: how to time on it, how to wait for it, what probes
it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_BLOCK = 2**18  # random numbers that repeat in longer tensors
# width of the GEMM that probes: two milliseconds or so on either
_PROBE_CPU, _PROBE_GPU = 384, 4096
# a GEMM of a quarter of the width takes 1/64 of the time; one that is twice as slow as in fp32 does
# not catch up with its size; choices
_SMALLER, _HOPELESS = 4, 2.0


@dataclass(frozen=True)
class Device:
    """A CUDA (or HIP) device, or the CPU with some threads."""

    torch_device: torch.device
    threads: int

    @property
    def gpu(self) -> bool:
        return self.torch_device.type == "cuda"

    def wait(self) -> None:
        if self.gpu:
            torch.cuda.synchronize(self.torch_device)

    def time(self, work: Callable[[], object]) -> float:
        """Seconds of `work` on the device: CUDA events on a GPU, the wall clock on a CPU."""
        if not self.gpu:
            start = time.perf_counter()
            work()
            return time.perf_counter() - start
        before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        before.record()
        work()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) * 1e-3

    def tensor(self, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Random numbers: constant operands draw less power and run faster on GPUs. Long ones
        repeat a block."""
        count = prod(shape)
        block = torch.randn(min(count, _BLOCK), device=self.torch_device).to(dtype)
        if count > _BLOCK:
            block = block.repeat(-(-count // _BLOCK))[:count]
        return block.view(shape)

    def whole(self, *shape: int, below: int) -> torch.Tensor:
        return torch.randint(0, below, shape, device=self.torch_device)

    def probe(self) -> Callable[[], None]:
        """Work of known size, to see whether the device runs undisturbed."""
        width = _PROBE_GPU if self.gpu else _PROBE_CPU
        a, b = self.tensor(width, width), self.tensor(width, width)

        def work() -> None:
            torch.mm(a, b)
            self.wait()

        return work

    def cache_bytes(self) -> int:
        """Bytes to touch between two uses of a buffer so that the second reads from memory, not
        from a cache."""
        return 256 * 2**20 if self.gpu else 96 * 2**20

    def context_bytes(self) -> float:
        """Device memory of a process outside the allocator: context, workspaces, NCCL buffers. 0 on
        a CPU.

        Assumes a GPU without other processes, whose memory would be counted too.
        """
        if not self.gpu:
            return 0.0
        free, whole = torch.cuda.mem_get_info(self.torch_device)
        return float(whole - free - torch.cuda.memory_reserved(self.torch_device))

    def precisions(self) -> list[str]:
        """Precisions whose GEMMs are at least as fast as fp32 GEMMs on this device.

        A CPU that only emulates a precision takes seconds for a GEMM, so a small one is timed
        first.
        """
        width = _PROBE_GPU if self.gpu else 2 * _PROBE_CPU
        small = width // _SMALLER
        return ["fp32"] + [
            name
            for name, dtype in DTYPES.items()
            if name != "fp32"
            and self._square_s(small, dtype) < _HOPELESS * self._square_s(small, torch.float32)
            and self._square_s(width, dtype) < self._square_s(width, torch.float32)
        ]

    def _square_s(self, width: int, dtype: torch.dtype) -> float:
        """The fastest of a few GEMMs of square matrices, s."""
        a = self.tensor(width, width, dtype=dtype)
        return min(self.time(lambda: torch.mm(a, a)) for _ in range(4))


def current(local_rank: int, threads: int) -> Device:
    """The device of this process: its own card where torch sees one, else the CPU."""
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(local_rank % torch.cuda.device_count())
        return Device(torch.device("cuda", local_rank % torch.cuda.device_count()), threads)
    return Device(torch.device("cpu"), threads)
