"""Workspaces of GEMM libraries in the framework's allocator, held from the first call on."""

from __future__ import annotations

from planner.estimate import mechanisms
from planner.estimate.machine.kernels import loops_experts
from planner.formulas import memory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.plan import Plan

_MIB = float(2**20)
# of a cuBLAS or hipBLAS handle, by architecture: parseChosenWorkspaceSize in
# aten/src/ATen/cuda/CublasHandlePool.cpp of PyTorch (:4096:2:16:8 before Hopper); none where it is
# not known
_HANDLE = {
    "volta": 8.125 * _MIB,
    "ampere": 8.125 * _MIB,
    "ada": 8.125 * _MIB,
    "hopper": 32 * _MIB,
    "blackwell": 32 * _MIB,
    "blackwell-geforce": 32 * _MIB,
    "cdna2": 32 * _MIB,
    "cdna3": 128 * _MIB,
    "cdna4": 128 * _MIB,
}
# the main thread and the autograd thread have a cuBLAS handle each
_THREADS = 2.0
# one of Transformer Engine itself: get_cublas_workspace_size_bytes in
# transformer_engine/pytorch/module/base.py
_MODULE = {
    "volta": 4 * _MIB,
    "ampere": 4 * _MIB,
    "ada": 4 * _MIB,
    "hopper": 32 * _MIB,
    "blackwell": 32 * _MIB,
    "blackwell-geforce": 32 * _MIB,
}
_GROUPED_STREAMS = 4.0  # each with its own: get_multi_stream_cublas_workspace, _num_cublas_streams


def workspace_bytes(plan: Plan, c: Columns) -> Array:
    """Bytes per GPU; 0 for stacks whose libraries do not allocate through torch."""
    if plan.stack.workspaces == "none":
        return 0.0
    architecture = plan.cluster.gpu.architecture
    buffers: Array = 0.0
    if plan.stack.workspaces == "transformer-engine":
        buffers = mechanisms.gemm_streams(plan, c)
        if plan.model.routed is not None and not loops_experts(plan):
            buffers = buffers + _GROUPED_STREAMS
    return memory.workspace_bytes(
        _THREADS, _HANDLE.get(architecture, 0.0), buffers, _MODULE.get(architecture, 0.0)
    )
