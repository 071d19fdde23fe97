"""The process of a trace: limits, fake tensors, several sizes; its answer is a line of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._pytree import tree_map

from planner.specs.polynomial import NONE
from planner.trace import aggregate, fit, head
from planner.trace.aggregate import Block, TraceError
from planner.trace.autocast import as_on_cuda
from planner.trace.blocks import blocks_of
from planner.trace.record import Recorded, Recorder, step
from planner.trace.targets import WORDS, Target, _line, shortened, target

MARK = "dpplan-trace: "
_BATCHES = (2, 3, 5)
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.bind")
_NARROW = (torch.bfloat16, torch.float16)


class _Current:
    """The recorder of the step that runs."""

    recorder: Recorder | None = None


def _no_network(event: str, args: Any) -> None:
    if event in _NETWORK:
        raise TraceError("it asks for the network, which a trace has not; load nothing in it")


def _mapped_bytes() -> int:
    """Address space of this process; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def limit(memory_bytes: int, seconds: int) -> None:
    """Limits of this process: time of a core, and address space beyond what is mapped now: the
    libraries of torch for CUDA alone map gigabytes."""
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    most = memory_bytes + _mapped_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.addaudithook(_no_network)


_WORDS = ("attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def _attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> torch.Tensor:
    """scaled_dot_product_attention as CUDA has it: FlashAttention in 16 bit without a mask, else
    the memory-efficient kernel, which has no grouped queries."""
    words = dict(zip(_WORDS, args, strict=False)) | kwargs
    attn_mask, dropout_p = words.get("attn_mask"), words.get("dropout_p", 0.0)
    is_causal, scale = words.get("is_causal", False), words.get("scale")
    aten = torch.ops.aten
    shape = query.shape
    if query.dim() != _DIMENSIONS:
        query, key, value = (_four(x) for x in (query, key, value))
    if attn_mask is None and query.dtype in _NARROW:
        out = aten._scaled_dot_product_flash_attention(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
        return out.reshape(*shape[:-1], value.shape[-1])
    if query.shape[1] != key.shape[1]:
        times = query.shape[1] // key.shape[1]
        key, value = (x.repeat_interleave(times, 1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        zeros = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = zeros.masked_fill_(attn_mask.logical_not(), float("-inf"))
    if attn_mask is not None:
        attn_mask = attn_mask.to(query.dtype).expand(*query.shape[:3], key.shape[2])
    out = aten._scaled_dot_product_efficient_attention(
        query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
    )[0]
    return out.reshape(*shape[:-1], value.shape[-1])


_DIMENSIONS = 4  # batch, heads, tokens, width


def _four(x: torch.Tensor) -> torch.Tensor:
    """(batch, heads, tokens, width) of (tokens, width), (batch, tokens, width), or more."""
    while x.dim() < _DIMENSIONS:
        x = x.unsqueeze(max(x.dim() - 2, 0))
    return x.reshape(-1, *x.shape[-3:])


def _dropout(
    input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """The fused kernel of CUDA, whose mask is a byte per element."""
    return torch.native_dropout(input, p, True)[0] if p and training else input


@contextlib.contextmanager
def as_cuda() -> Iterator[None]:
    """Kernels that CUDA has, where torch's on a CPU keep other tensors."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention, functional.dropout
    functional.scaled_dot_product_attention, functional.dropout = _attention, _dropout
    try:
        yield
    finally:
        functional.scaled_dot_product_attention, functional.dropout = before


def register() -> None:
    """An attention of transformers that builds no mask and hands its words to the recorder."""
    if "transformers" not in sys.modules:
        return
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    def attend(
        module: nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: Any,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        causal = kwargs.get("is_causal")
        causal = getattr(module, "is_causal", True) if causal is None else causal
        causal = bool(causal) and query.shape[2] > 1 and query.shape[2] == key.shape[2]
        if _Current.recorder is not None:
            _Current.recorder.mask = {"window": kwargs.get("sliding_window")}
        dropout, scaling = kwargs.get("dropout", 0.0), kwargs.get("scaling")
        out = _attention(query, key, value, None, dropout, causal, scaling)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register(WORDS, attend)
    AttentionMaskInterface.register(WORDS, lambda *args, **kwargs: None)


def _cast(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Floating-point parameters in one type; nn.Module.to cannot swap fake tensors."""
    seen: dict[int, nn.Parameter] = {}
    for child in module.modules():
        for name, weight in child._parameters.items():
            if weight is not None and weight.is_floating_point():
                data = torch.empty(weight.shape, dtype=dtype)
                swapped = nn.Parameter(data, weight.requires_grad)
                child._parameters[name] = seen.setdefault(id(weight), swapped)
        for name, buffer in child._buffers.items():
            if buffer is not None and buffer.is_meta:
                child._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
    return module


def _built(traced: Target, batch: int, tokens: int) -> tuple[nn.Module, Any]:
    """The module and inputs; where its constructor reads values, on the meta device, on which
    what it makes on a CPU of its own will has values."""
    try:
        return traced.build(batch, tokens)
    except DataDependentOutputException:
        with unset_fake_temporarily(), torch.device("meta"):
            module, inputs = traced.build(batch, tokens)
        return module, tree_map(_faked, inputs)


def _faked(x: Any) -> Any:
    if not isinstance(x, torch.Tensor):
        return x
    return torch.empty(x.shape, dtype=x.dtype)


def _with_dtype(inputs: Any, dtype: torch.dtype) -> Any:
    def change(x: Any) -> Any:
        real = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(dtype) if real else x

    return tree_map(change, inputs)


def _sizes(traced: Target) -> tuple[list[tuple[int, int]], list[fit.Powers]]:
    """Sizes of the steps, the last one beyond those that are fitted, and the powers."""
    if traced.length is None:
        return [(b, 1) for b in _BATCHES], fit.powers_of(1, 2)
    quarter = max(traced.length // 4, 2)
    lengths = (quarter, 2 * quarter, 3 * quarter)
    sizes = [(b, s) for b in _BATCHES[:2] for s in lengths]
    return [*sizes, (_BATCHES[2], 4 * quarter)], fit.powers_of(3, 2)


def trace(traced: Target, autocast: bool = False) -> dict[str, Any]:
    """The model of a target as the keys of a model file, and what was counted besides. autocast:
    weights in 32 bit, operators in the types of torch.autocast; else all in 16 bit."""
    register()
    sizes, powers = _sizes(traced)
    started, steps, recorders = time.monotonic(), list[Recorded](), list[Recorder]()
    default = torch.get_default_dtype()
    dtype = torch.float32 if autocast else torch.bfloat16
    torch.set_default_dtype(dtype)
    try:
        with FakeTensorMode(allow_non_fake_inputs=True), as_cuda():
            module, blocks, output = None, set[str](), None
            for batch, tokens in sizes:
                if module is None or traced.rebuilds:
                    module, inputs = _built(traced, batch, tokens)
                    module = _cast(module, dtype).train()
                    blocks = blocks_of(module)
                else:
                    _, inputs = traced.build(batch, tokens)
                for weight in module.parameters():
                    weight.grad = None
                run = _call(module, _with_dtype(inputs, dtype))
                if autocast:
                    run = as_on_cuda()(run)
                recorded, recorder, output = step(module, run, blocks, torch.bfloat16, _attach)
                steps.append(recorded)
                recorders.append(recorder)
            again = recorders[-1].fused()  # of the largest size
            for recorder in recorders[:-1]:
                recorder.fused(again)
            assert module is not None
            known = head.recognised(module, output, steps, sizes)
    finally:
        torch.set_default_dtype(default)
    parts = aggregate.blocks(steps, tuple(sizes), tuple(powers))
    return _model(traced, steps[0], parts, known) | {"seconds": time.monotonic() - started}


def _attach(recorder: Recorder) -> None:
    _Current.recorder = recorder


def _call(module: nn.Module, inputs: Any) -> Callable[[], Any]:
    if isinstance(inputs, dict):
        return lambda: module(**inputs)
    if isinstance(inputs, tuple | list):
        return lambda: module(*inputs)
    return lambda: module(inputs)


def _model(
    traced: Target, first: Recorded, parts: Sequence[Block], known: head.Head | None
) -> dict[str, Any]:
    """Keys of a model file."""
    named: dict[tuple[str, str], str] = {}
    rows: list[dict[str, Any]] = []
    words: list[str] = []
    waiting: list[str] = []
    for block in parts:
        if aggregate.is_empty(block):
            continue
        if (name := named.get(block.key())) is None:
            base = _name(block, not words and not waiting)
            name = base if base not in named.values() else f"{base}_{len(rows)}"
            named[block.key()] = name
            module = {"module": block.module} if block.module else {}
            rows.append({"type": "traced", "name": name} | module | block.part)
        if block.path:
            words.append(" & ".join([*waiting, name]))
            waiting = []
        else:
            waiting.append(name)
    if words:
        words[-1] = " & ".join([words[-1], *waiting])
    else:
        words = [" & ".join(waiting)]
    out: dict[str, Any] = {
        "layers": len(words),
        "hidden": _hidden(first, traced),
        "vocab": 0,
        "max_positions": traced.positions,
        "norms_per_block": 0,
        "final_norm": False,
        "positions": "none",
        "tied_embeddings": True,
    }
    if known is not None:
        out |= known.keys()
    forward = fit.total([block.forward_flop for block in parts]) if parts else NONE
    backward = fit.total([block.backward_flop for block in parts]) if parts else NONE
    return {
        "model": out,
        "parts": rows,
        "words": words,
        "parameters": first.parameters,
        "forward_flop": str(forward),
        "backward_flop": str(backward),
        "operators": sum(len(region.calls) for region in first.regions),
        "title": traced.title,
        "source": f"{traced.source}, torch {torch.__version__}",
        "sample": traced.sample,
        "length": traced.length,
    }


def _name(block: Block, first: bool) -> str:
    """How a block is called: its class, or where it stands."""
    if not block.path:
        return "before" if first else "after"
    return block.module


def _hidden(first: Recorded, traced: Target) -> int:
    """Elements per token that most blocks pass on; per sample without tokens."""
    batch, tokens = _sizes(traced)[0][0]
    widths = [region.enters for region in first.regions if region.name and region.enters]
    width = max(set(widths), key=widths.count) if widths else batch * tokens
    return max(width // (batch * tokens), 1)


def main() -> None:
    """Trace what the first argument says: JSON with target, limits, length and trust."""
    request = json.loads(sys.argv[1])
    answer: dict[str, Any]
    out = os.dup(1)
    os.dup2(2, 1)  # what the module prints is no answer
    limit(request["memory_bytes"], request["seconds"])
    text = request["target"]
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            traced = shortened(target(text, request["trust"]), request["length"])
        answer = trace(traced, request["autocast"])
    except TraceError as error:
        answer = {"error": str(error)}
    except DataDependentOutputException as error:
        answer = {"error": f"it reads the value of a tensor ({error.func}), and a trace has shapes"}
    except DynamicOutputShapeException as error:
        answer = {"error": f"the shape of {error.func} depends on values, and a trace has shapes"}
    except UnsupportedOperatorException as error:
        answer = {"error": f"{error.func} has no rule for shapes"}
    except MemoryError:
        answer = {"error": f"it takes more than {request['memory_bytes'] / 1e9:.0f} GB of memory"}
    except Exception as error:
        answer = {"error": _plain(error, request["memory_bytes"])}
    os.write(out, (MARK + json.dumps(answer) + "\n").encode())


def _plain(error: Exception, memory_bytes: int) -> str:
    """An error of the code that is traced, as a sentence."""
    line = _line(error)
    if "allocate memory" in line or "can't allocate" in line:
        return f"it takes more than {memory_bytes / 1e9:.0f} GB of memory"
    if "cuda" in line.lower() or "NVIDIA" in line:
        return f"it asks for a GPU, which a trace has not; leave devices out ({line})"
    if isinstance(error, FileNotFoundError):
        return f"it reads a file that is not there ({line})"
    return f"it raises {type(error).__name__}: {line}"


if __name__ == "__main__":
    main()
