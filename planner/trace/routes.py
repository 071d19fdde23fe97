"""Where tokens go in a block: along which dimensions its operators act, and which tensors hold the
copies of tokens that a router sends to experts. Both follow from what operators read and write."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from planner.trace.regions import Storage

# operators whose argument `dim` or `dims` says along which tokens would meet; views among them
_ALONG = (
    *("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "flip", "roll"),
    *("_softmax", "_log_softmax", "logsumexp"),
    *("sum", "mean", "var", "var_mean", "std", "std_mean", "amax", "amin", "max", "min", "prod"),
    *("argmax", "argmin", "topk", "sort", "norm", "linalg_vector_norm", "any", "all"),
    *("cat", "slice_scatter", "select_scatter", "slice", "select", "unfold"),
    *("split", "split_with_sizes", "chunk", "unbind"),
    *("index_select", "gather", "scatter", "scatter_", "scatter_add", "scatter_add_"),
    *("index_add", "index_add_"),
)
SCANS = ("cumsum", "cumprod", "logcumsumexp", "cummax", "cummin", "flip", "convolution")
_WINDOWS = (  # of pixels
    "max_pool2d_with_indices",
    "avg_pool2d",
    "_adaptive_avg_pool2d",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "grid_sampler_2d",
    "im2col",
    "col2im",
)
_NORMS = ("native_layer_norm", "_fused_rms_norm", "rms_norm")
_CHOICES = ("topk", "argmax", "max", "sort")
_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_")
_BY_INDEX = (*_INDEXED, "index_select", "gather", "index_add", "index_add_", "scatter_add")


def arguments(func: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """Arguments of an operator by name, defaults among them."""
    named = dict(kwargs or {})
    for at, argument in enumerate(func._schema.arguments):
        value = args[at] if at < len(args) else argument.default_value
        named.setdefault(argument.name, value)
    return named


def along(name: str, given: dict[str, Any], x: torch.Tensor, out: torch.Tensor) -> int:
    """Elements of the dimensions along which an operator acts; 1 where it is element by element, or
    a product."""
    if name == "slice" and out.shape == x.shape:
        return 1
    if name == "convolution":
        taps = math.prod(given["weight"].shape[2:])
        return math.prod(x.shape[2:]) if taps > 1 else 1
    if name in _WINDOWS:
        return math.prod(x.shape[2:])
    if name in _NORMS:
        return math.prod(given["normalized_shape"])
    if name == "native_group_norm":
        return int(given["HxW"])
    if "batch_norm" in name:
        return x.numel() // x.shape[1]
    dims = [*_dims(name, given, out if name == "cat" else x)]
    shape = out.shape if name == "cat" else x.shape
    return math.prod(shape[dim] for dim in dims)


def pieces(name: str, given: dict[str, Any], x: torch.Tensor) -> tuple[int, ...]:
    """Lengths of the pieces that a tensor is joined of or cut into, in their order; empty for other
    operators. x: what is cut."""
    if name == "cat":
        return tuple(each.shape[given["dim"]] for each in given["tensors"] if each.dim() > 1)
    if name == "split_with_sizes":
        return tuple(given["split_sizes"])
    if name != "slice":
        return ()
    size = x.shape[given["dim"]]
    start, end = (_inside(given[key], size) for key in ("start", "end"))
    return (start, end - start, size - end) if given["step"] == 1 else ()


def _inside(at: int | None, size: int) -> int:
    """A place in a dimension; None is its end."""
    return min(size if at is None else at + size * (at < 0), size)


def _dims(name: str, given: dict[str, Any], x: torch.Tensor) -> Iterator[int]:
    if name == "constant_pad_nd":
        pads = given["pad"]
        yield from (-1 - i // 2 for i, size in enumerate(pads) if size)
    elif name in _INDEXED:
        yield from (i for i, each in enumerate(given["indices"]) if each is not None)
    elif name in _ALONG:
        dim = next((given[key] for key in ("dim", "dims", "dimension") if key in given), None)
        each: list[int] = [dim] if isinstance(dim, int) else [*(dim or range(x.dim()))]
        yield from each


def routed(
    name: str,
    given: dict[str, Any],
    read: list[tuple[torch.Tensor, Storage]],
    outputs: list[torch.Tensor],
) -> tuple[bool, int]:
    """Whether what an operator writes follows from a router's choice, and the rows that are copies
    of tokens. read: its inputs, and their memory."""
    choices = [x for x in outputs if name in _CHOICES and not x.is_floating_point()]
    if choices and any(storage.sources for _, storage in read):
        return True, choices[0].numel()
    chosen = any(storage.chosen for _, storage in read)
    if chosen and (indices := by_index(name, given)):
        of_choice = {id(x) for x, storage in read if storage.chosen}
        if rows := max((x.numel() for x in indices if id(x) in of_choice), default=0):
            return chosen, rows
    if name == "sum" and 0 in _dims(name, given, read[0][0]):
        return chosen, 0  # over the rows: gradients of biases
    copies = {storage.copies for _, storage in read if storage.copies}
    rows = next((n for n in copies if leads(outputs[0], n)), 0)
    # where every token has a single copy, its sum with the stream is the stream again
    others = any(storage.sources and not storage.copies and leads(x, rows) for x, storage in read)
    return chosen, 0 if others else rows


def chooses(name: str, read: list[tuple[torch.Tensor, Storage]]) -> int:
    """How many experts a router chooses among; 0 for other operators."""
    router = name in _CHOICES and read[0][1].sources and read[0][0].dim()
    return read[0][0].shape[-1] if router else 0


def by_index(name: str, given: dict[str, Any]) -> list[torch.Tensor]:
    """Tensors that say which rows an operator takes."""
    if name not in _BY_INDEX:
        return []
    index = given.get("indices", given.get("index"))
    several = index if isinstance(index, list | tuple) else [index]
    return [x for x in several if isinstance(x, torch.Tensor)]


def leads(x: torch.Tensor, rows: int) -> bool:
    """Whether the first dimensions of a tensor are this many rows, none repeated."""
    each = 1
    for size, step in zip(x.shape, x.stride(), strict=True):
        if not step and size > 1:
            return False
        each *= size
        if each == rows:
            return True
    return False
