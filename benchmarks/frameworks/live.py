"""Bytes of live storages through the phases of a training step, by origin, on fake or real tensors.

A storage is counted once, however many tensors view it, from the operator that returns it until it
is freed; `resize_` (FSDP2 frees and refills gathered parameters by it) is followed. Sizes are those
of tensors: the allocator's rounding to 512 B is not in them.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch._guards import active_fake_mode
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

# references to a gradient of which autograd holds the last one, while it is being dispatched
_HELD, _HELD_STORAGE, _SUMMANDS = 4, 2, 2
_WRAPPERS = ("_fn", "inner")  # of torch around what a mode dispatches


class LiveBytes(TorchDispatchMode):
    """Counts live bytes. `now` is the total, `by_origin` its parts, `peaks` the fullest moment of
    every phase, `parts` the origins at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.by_origin: Counter[str] = Counter()
        self.peaks: dict[str, int] = {}
        self.parts: dict[str, dict[str, int]] = {}
        self.at_loss: dict[str, int] = {}  # origins where the loss begins
        self.operators: dict[str, str] = {}  # the operator at the fullest moment of a phase
        self._phase = "load"
        self._storages: dict[int, tuple[int, str]] = {}  # size and origin
        self._made_by: dict[int, str] = {}  # operator and shape
        self._operator = ""
        self._mode: Any = None
        self._resize: Any = None
        self._shapes: Any = None
        self._of_shapes = False

    def phase(self, name: str) -> None:
        """A phase begins; one that comes again goes on."""
        self._phase = name
        self._note()

    def restart(self) -> None:
        """Forget the phases so far."""
        self.peaks.clear()
        self.parts.clear()
        self.operators.clear()

    @property
    def peak(self) -> int:
        """The fullest moment of all phases."""
        return max(self.peaks.values())

    def label(self, tensors: Iterable[Any], origin: str) -> None:
        """Tensors of an origin, counted from now on where no operator has returned them."""
        for tensor in tensors:
            for storage in self._storages_of(tensor):
                self._count(storage)
                size, before = self._storages[storage._cdata]
                self.by_origin[before] -= size
                self.by_origin[origin] += size
                self._storages[storage._cdata] = size, origin

    def label_model(self, model: torch.nn.Module, optimizer: Any = None) -> None:
        """Parameters, gradients, buffers and states of an optimizer."""
        self.label(model.buffers(), "buffers")
        self.label(model.parameters(), "parameters")
        self.label((p.grad for p in model.parameters() if p.grad is not None), "gradients")
        if optimizer is not None:
            self.label_states(
                getattr(optimizer, "optim", optimizer)
            )  # ZeroRedundancyOptimizer's own

    def label_states(self, optimizer: Any) -> None:
        """States of an optimizer of torch."""
        self.label(tree_iter([*optimizer.state.values()]), "states")

    def hold(self, size: int) -> None:
        """Bytes that are freed in the order of calls, but not on a GPU yet; negative: now."""
        self._change(size, "freed")

    def contents(self, origin: str) -> Counter[tuple[str, int]]:
        """How many storages of an origin are alive, by the operator that made them and by size."""
        return Counter(
            (self._made_by[key], size)
            for key, (size, which) in self._storages.items()
            if which == origin
        )

    def _storages_of(self, tensor: Any) -> Iterator[torch.UntypedStorage]:
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        if hasattr(tensor, "__tensor_flatten__") and not hasattr(tensor, "fake_mode"):
            for name in tensor.__tensor_flatten__()[0]:  # quantised tensors hold others
                yield from self._storages_of(getattr(tensor, name))
        elif isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
            yield tensor.untyped_storage()

    def _count(self, storage: torch.UntypedStorage) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._storages:
            before, origin = self._storages[key]
            if before != size:
                self._storages[key] = size, origin
                self._change(size - before, origin)
            return
        self._storages[key] = size, "activations"
        self._made_by[key] = self._operator
        weakref.finalize(storage, self._free, key)
        self._change(size, "activations")

    def _change(self, size: int, origin: str) -> None:
        self.now += size
        self.by_origin[origin] += size
        self._note()

    def _note(self) -> None:
        if self.now > self.peaks.get(self._phase, -1):
            self.peaks[self._phase] = self.now
            self.parts[self._phase] = dict(self.by_origin)
            self.operators[self._phase] = self._operator

    def _free(self, key: int) -> None:
        size, origin = self._storages.pop(key)
        del self._made_by[key]
        self.now -= size
        self.by_origin[origin] -= size

    def __enter__(self) -> LiveBytes:
        self._mode, self._resize = active_fake_mode(), torch.UntypedStorage.resize_

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            result = self._resize(storage, size)
            if storage._cdata in self._storages:
                self._count(storage)
            return result

        torch.UntypedStorage.resize_ = resize
        propagators: Any = ShardingPropagator
        self._shapes = propagators._propagate_tensor_meta_non_cached

        def shapes(propagator: ShardingPropagator, operator: Any) -> Any:
            before, self._of_shapes = self._of_shapes, True
            try:
                return self._shapes(propagator, operator)
            finally:
                self._of_shapes = before

        propagators._propagate_tensor_meta_non_cached = shapes
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize
        propagators: Any = ShardingPropagator
        propagators._propagate_tensor_meta_non_cached = self._shapes
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is DTensor for kind in types):
            return NotImplemented  # its local operators come by themselves
        self._operator = str(func)
        if func is torch.ops.aten.add.Tensor and _accumulates(args):
            return args[0].add_(args[1])
        # an asynchronous collective's result is the tensor that it was started with
        waited = func is torch.ops._c10d_functional.wait_tensor.default and self._mode is not None
        result = args[0] if waited else func(*args, **(kwargs or {}))
        # DTensor propagates shapes of all ranks on fake tensors: no memory of one
        if active_fake_mode() is self._mode and not self._of_shapes:
            for tensor in tree_iter((result, args) if "resize" in self._operator else result):
                for storage in (
                    self._storages_of(tensor) if isinstance(tensor, torch.Tensor) else ()
                ):
                    self._count(storage)
        return result


def _accumulates(args: tuple[Any, ...]) -> bool:
    """Whether autograd adds a gradient to another that nothing else holds, which it does in place
    (InputBuffer::accumulate), but not where a dispatch mode is on."""
    caller: Any = sys._getframe(2)
    while caller is not None and caller.f_code.co_name in _WRAPPERS:
        caller = caller.f_back
    called = caller is not None and caller.f_code.co_name == "_engine_run_backward"
    if not called or len(args) != _SUMMANDS or args[0]._use_count() != _HELD:
        return False
    # of a view, such as the gradient of a transposed weight, others hold the storage
    return torch._C._storage_Use_Count(args[0].untyped_storage()._cdata) == _HELD_STORAGE


@contextlib.contextmanager
def fake(counting: LiveBytes | None = None) -> Iterator[LiveBytes]:
    """Fake tensors, whose bytes are counted."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True), counting or LiveBytes() as live:
        yield live
