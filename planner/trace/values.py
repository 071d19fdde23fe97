"""Values of small tensors beside their shapes: positions, masks and placeholders, which decide
what a model runs, are known in a trace; what is computed from weights and data is not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.utils._pytree import tree_iter, tree_map

_MOST = 1 << 22  # elements of a tensor whose values are followed
_MOST_BYTES = 16 * _MOST  # of its memory
_MOST_SPREAD = 1 << 27  # elements, where many of them lie in the same memory
_RANDOM = ("rand", "normal", "uniform", "bernoulli", "dropout", "multinomial", "empty")
_EMPTY = ("empty", "new_empty", "empty_like")
_OF_SHAPES = ("new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like")
_OF_VALUES = (  # operators whose output has a shape that values decide
    "nonzero",
    "repeat_interleave",
    "index",
    "masked_select",
    "unique_consecutive",
    "_unique2",
    "unique_dim",
    "bincount",
)
_COMPARED = ("eq", "ne")
_UNUSUAL = ("isnan", "isinf")
_CHOICES = ("topk", "argmax")
_REAL = "_dpplan_real"
DEVICE = torch.ops.prim.device.default


@contextlib.contextmanager
def shapes() -> Iterator[FakeTensorMode]:
    """Tensors without data are made inside, with the values of small ones."""
    tensor, written = torch.tensor, FakeTensor.__format__

    def of_values(data: Any, **kwargs: Any) -> torch.Tensor:
        """torch.tensor of lists in which tensors with known values stand for numbers."""
        return tensor(_numbers(data), **kwargs)

    def as_number(x: FakeTensor, spec: str) -> str:
        """A number in a text, such as the name of a module, as torch writes those with data."""
        known = not x.dim() and getattr(x, _REAL, None) is not None
        return format(x.item(), spec) if known else written(x, spec)

    with _Values(allow_non_fake_inputs=True) as fake:
        setattr(torch, "tensor", of_values)  # noqa: B010
        setattr(FakeTensor, "__format__", as_number)  # noqa: B010
        try:
            yield fake
        finally:
            setattr(torch, "tensor", tensor)  # noqa: B010
            setattr(FakeTensor, "__format__", written)  # noqa: B010


def tensors_of(*trees: Any) -> list[torch.Tensor]:
    """Tensors in arguments or results of an operator: of tuples, lists and dicts, which is all that
    a schema has, faster than pytrees of any class."""
    out: list[torch.Tensor] = []
    for x in trees:
        if isinstance(x, torch.Tensor):
            out.append(x)
        elif isinstance(x, list | tuple):
            out += tensors_of(*x)
        elif isinstance(x, dict):
            out += tensors_of(*x.values())
    return out


def _numbers(x: Any) -> Any:
    """Data with the values of tensors that are known, as numbers in lists."""
    if isinstance(x, list | tuple):
        nested = any(isinstance(y, list | tuple | torch.Tensor) for y in x)
        return [_numbers(y) for y in x] if nested else x
    return x.tolist() if isinstance(x, FakeTensor) and getattr(x, _REAL, None) is not None else x


def device_of(x: torch.Tensor) -> Any:
    """The device of a tensor without data, which C++ asks of every argument."""
    return x.fake_device if isinstance(x, FakeTensor) else x.device


class _Values(FakeTensorMode):
    """Runs operators whose inputs are known on their values, too."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lost: dict[int, Any] = {}  # storages that unknown values were written to
        self.decomposed = False  # while operators that a shape's rule is made of run

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """No guard against torch.compile around every operator, which nothing here runs."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is DEVICE:
            return device_of(args[0])
        if self.decomposed:
            return self.dispatch(func, types, args, kwargs)
        name = func._schema.name.partition("::")[2]
        real = self._real(func, name, args, kwargs)
        if real is None:
            if name.startswith(("index", "_index")) and len(args) > 1:
                args = self._without_masks(args)
            result = self._shape(func, types, args, kwargs)
            if func._schema.is_mutable:
                self._forget(func, args, kwargs)
            self._assume(name, result, args)
            return result
        values = [*tree_iter(real[0])]
        if name in _OF_VALUES or not any(isinstance(x, torch.Tensor) for x in values):
            return tree_map(self._fake, real[0])
        result = self._shape(func, types, args, kwargs)
        for out, value in zip(tree_iter(result), values, strict=True):
            self._know(out, value)
        return result

    def _assume(self, name: str, result: Any, args: Any) -> None:
        """Values of results of unknown inputs that any values would give."""
        if name in _EMPTY:
            self._know(result, self._zeros(result))
        if name in _CHOICES:
            chosen = result if name == "argmax" else result[1]
            self._know(chosen, self._balanced(chosen, args[0]))
        if name in _UNUSUAL:
            self._know(result, self._compared(result, args[0], False))
        itself = name in _COMPARED and args[1] is args[0]  # isfinite asks so
        if itself or (name in _COMPARED and isinstance(args[1], int | float)):
            self._know(result, self._compared(result, args[0], (name == "ne") is not itself))

    def _shape(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """The result of an operator on shapes."""
        self.decomposed = True
        try:
            return self.dispatch(func, types, args, kwargs)
        finally:
            self.decomposed = False

    def _value(self, x: torch.Tensor) -> torch.Tensor | None:
        """Values of a tensor; None where they are not known, or more than are followed."""
        value = getattr(x, _REAL, None) if isinstance(x, FakeTensor) else x
        if value is None or value.device.type != "cpu" or value.requires_grad:
            return None
        storage = value.untyped_storage()  # of a mask that is the same for all channels: small
        if storage.nbytes() > _MOST_BYTES or value.numel() > _MOST_SPREAD:
            return None
        return None if storage._cdata in self.lost else value

    def _know(self, x: Any, value: Any) -> None:
        if isinstance(x, FakeTensor) and isinstance(value, torch.Tensor):
            setattr(x, _REAL, value)

    def _real(self, func: Any, name: str, args: Any, kwargs: Any) -> tuple[Any] | None:
        """Results of an operator on values; None where they are not known."""
        if any(word in name for word in _RANDOM):
            return None
        if name in _OF_SHAPES and args[0].numel() <= _MOST:
            with unset_fake_temporarily():
                args = (torch.empty(args[0].shape, dtype=args[0].dtype), *args[1:])
        tensors = tensors_of(args, kwargs)
        if any(x.requires_grad or self._value(x) is None for x in tensors):
            return None
        if not tensors and not _is_small(name, args, kwargs):
            return None

        def valued(tree: Any) -> Any:
            return tree_map(lambda x: self._value(x) if isinstance(x, torch.Tensor) else x, tree)

        try:
            with unset_fake_temporarily(), torch.no_grad():
                return (func(*valued(args), **valued(kwargs)),)
        except (RuntimeError, IndexError):  # the operator on shapes says what is wrong, if it is
            return None

    def _fake(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if x.is_meta:
            return torch.empty(x.shape, dtype=x.dtype)
        tensor = self.from_tensor(x.clone())
        self._know(tensor, x)
        return tensor

    def _without_masks(self, args: Any) -> Any:
        """A boolean index whose values are known, as positions."""
        if not isinstance(args[1], list | tuple):
            return args
        indices: list[Any] = []
        for x in args[1]:
            value = self._value(x) if isinstance(x, torch.Tensor) else None
            if value is None or value.dtype is not torch.bool:
                indices.append(x)
                continue
            with unset_fake_temporarily():
                if value.numel() <= _MOST:
                    places = [*value.nonzero().unbind(1)]
                else:  # how many there are is enough
                    place = torch.empty(int(value.sum()), dtype=torch.long, device="meta")
                    places = [place] * value.dim()
            indices += [self._fake(place) for place in places]
        return (args[0], indices, *args[2:])

    def _zeros(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Whole numbers without values, which are written to before they are read."""
        if tensor.is_floating_point() or tensor.numel() > _MOST:
            return None
        with unset_fake_temporarily():
            return torch.zeros(tensor.shape, dtype=tensor.dtype)

    def _compared(
        self, result: torch.Tensor, data: torch.Tensor, value: bool
    ) -> torch.Tensor | None:
        """Pixels and activations, which are not known, against a constant, to which none is equal,
        or against themselves: they are finite."""
        if not data.is_floating_point():
            return None
        with unset_fake_temporarily():
            return torch.tensor(value).expand(result.shape)

    def _balanced(self, chosen: torch.Tensor, scores: torch.Tensor) -> torch.Tensor | None:
        """Choices of a router, which are not known: every expert is taken equally often."""
        if not chosen.dim() or chosen.numel() > _MOST:
            return None
        with unset_fake_temporarily():
            return (torch.arange(chosen.numel()) % scores.shape[-1]).view(chosen.shape)

    def _forget(self, func: Any, args: Any, kwargs: Any) -> None:
        """Drops the values of tensors that an operator of unknown inputs writes to."""
        for at, argument in enumerate(func._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            for x in tree_iter(args[at] if at < len(args) else kwargs.get(argument.name)):
                value = getattr(x, _REAL, None)
                if value is not None:
                    storage = value.untyped_storage()
                    self.lost[storage._cdata] = storage


_FILLED = {"full": 1, "scalar_tensor": 0}  # arguments that are sizes, before a value


def _is_small(name: str, args: Any, kwargs: Any) -> bool:
    """Whether a constructor without inputs makes few elements on a CPU."""
    device = kwargs.get("device")
    if device is not None and torch.device(device).type != "cpu":
        return False
    numbers = [x for x in tree_iter(args[: _FILLED.get(name)]) if isinstance(x, int | float)]
    count = 1.0
    for number in numbers:
        count *= max(abs(float(number)), 1.0)
    return count <= _MOST
