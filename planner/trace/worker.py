"""The process of a trace: limits, fake tensors, several sizes; its answer is a line of JSON."""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_map

from planner.specs.polynomial import NONE
from planner.trace import aggregate, fit, head, kernels
from planner.trace.aggregate import Block, Differs, TraceError, Uneven
from planner.trace.autocast import as_on_cuda
from planner.trace.blocks import blocks_of
from planner.trace.divide import TOKENS
from planner.trace.record import Recorder
from planner.trace.regions import Recorded
from planner.trace.step import frozen, step
from planner.trace.target import Target
from planner.trace.targets import _line, shortened, target

MARK = "dpplan-trace: "
_BATCHES = (2, 3, 5)
_MORE_BATCHES = (*_BATCHES, 7)  # of counts that are quadratic in samples
_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.bind")


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


def _with_dtype(inputs: Any, dtype: torch.dtype) -> Any:
    def change(x: Any) -> Any:
        real = isinstance(x, torch.Tensor) and x.is_floating_point()
        return x.to(dtype) if real else x

    return tree_map(change, inputs)


def _sizes(
    traced: Target, batches: tuple[int, ...] = _BATCHES
) -> tuple[list[tuple[int, int]], list[fit.Powers]]:
    """Sizes of the steps, the last one beyond those that are fitted, and the powers."""
    *fitted, last = batches
    if traced.length is None:
        return [(b, 1) for b in batches], fit.powers_of(1, len(fitted))
    *shorter, longest = lengths(traced)
    sizes = [(b, s) for b in fitted for s in shorter]
    return [*sizes, (last, longest)], fit.powers_of(3, len(fitted))


_CHUNK = 64  # tokens of a chunk of most scans, which pad what is left over


def lengths(traced: Target) -> list[int]:
    """Four lengths of a sequence in equal steps, of whole chunks where there is room; short ones
    where the code runs operators for each of them. Raises TraceError where a sample's images and
    sounds leave no room for a text."""
    assert traced.length is not None
    if traced.least >= traced.length:
        raise TraceError(
            f"images and sounds of a sample have {traced.least:,} tokens, and the model"
            f" {traced.length:,} positions"
        )
    if traced.stride is not None:
        start = -(-traced.least // traced.stride) * traced.stride + traced.stride
        return [start + i * traced.stride for i in range(1, 5)]
    for chunk in (traced.chunk, _CHUNK):
        start = -(-traced.least // chunk) * chunk
        if step := (traced.length - start) // 4 // chunk * chunk:
            break
    else:
        start, step = traced.least, max((traced.length - traced.least) // 4, 2)
    return [start + i * step for i in range(1, 5)]


def trace(traced: Target, autocast: bool = False, frozen: bool = True) -> dict[str, Any]:
    """The model of a target as the keys of a model file, and what was counted besides. Runs inside
    of `kernels.without_data`, as what makes the target does. autocast: weights in 32 bit, operators
    in the types of torch.autocast; else all in 16 bit. frozen: also what frozen weights keep."""
    try:
        return _traced(traced, autocast, frozen)
    except TraceError as error:
        if traced.otherwise is not None:
            return trace(traced.otherwise, autocast, frozen)
        shorter = _shorter(traced)
        if isinstance(error, Differs) and shorter is not None:
            return _traced(shorter, autocast, frozen)
        if not isinstance(error, Uneven):
            raise
    return _traced(traced, autocast, frozen, _MORE_BATCHES)


_STEP = 128  # tokens, of which kernels count multiples


def _shorter(traced: Target) -> Target | None:
    """The target at other lengths: where keys are as many as channels, a softmax over keys looks
    like one over channels."""
    if traced.length is None or traced.stride is not None:
        return None
    room = (traced.length - traced.least) * 7 // 8 // _STEP * _STEP
    return replace(traced, length=traced.least + room, chunk=_CHUNK) if room else None


def _traced(
    traced: Target, autocast: bool, with_frozen: bool, batches: tuple[int, ...] = _BATCHES
) -> dict[str, Any]:
    sizes, powers = _sizes(traced, batches)
    dtype = kernels.dtype_of(autocast)
    started, steps, recorders = time.monotonic(), list[Recorded](), list[Recorder]()
    runs: list[tuple[nn.Module, Any]] = []
    module, blocks, output = None, set[str](), None
    for batch, tokens in sizes:
        if module is None or traced.rebuilds:
            module, inputs = traced.build(batch, tokens)
            module = _cast(module, dtype).train()
            blocks = blocks_of(module)
        else:
            _, inputs = traced.build(batch, tokens)
        for weight in module.parameters():
            weight.grad = None
        run = _call(module, _with_dtype(inputs, dtype))
        if autocast:
            run = as_on_cuda()(run)
        recorded, recorder, output = step(module, run, blocks, torch.bfloat16, kernels.attach)
        steps.append(recorded)
        runs.append((module, inputs))
        recorders.append(recorder)
    again = recorders[-1].fused()  # of the largest size
    for recorder in recorders[:-1]:
        recorder.fused(again)
    assert module is not None
    known = head.recognised(module, output, steps, sizes)
    for recorded, size, (module, inputs) in zip(
        steps, sizes, runs if with_frozen and _has_time() else [], strict=False
    ):
        given = module, _with_dtype(inputs, dtype)
        _frozen(recorded, size, given, blocks, known, autocast)
    parts = aggregate.blocks(steps, tuple(sizes), tuple(powers))
    return _model(traced, steps[0], parts, known) | {"seconds": time.monotonic() - started}


_FROZEN_FRAC = 0.6  # of the time of the steps that forward passes with frozen weights take, at most


def _has_time() -> bool:
    """Whether the limit of this process leaves room for passes that a model is known without."""
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    unlimited = seconds == resource.RLIM_INFINITY
    return unlimited or (1 + _FROZEN_FRAC) * time.process_time() < seconds


def _frozen(
    recorded: Recorded,
    size: tuple[int, int],
    given: tuple[nn.Module, Any],
    blocks: set[str],
    known: head.Head | None,
    autocast: bool,
) -> None:
    """Saved bytes of the regions of a step if their weights were frozen; gradients pass through to
    the words and to what the model is given. Nothing where the code does not run so."""
    module, inputs = given
    trained = {
        f"{path}.weight" if path else "weight"
        for path, child in module.named_modules()
        if isinstance(child, nn.Embedding)
    } | set(known.weights if known is not None else ())
    inputs = tree_map(_with_gradient, inputs)
    run = _call(module, inputs)
    if autocast:
        run = as_on_cuda()(run)
    try:
        regions = frozen(module, run, blocks, torch.bfloat16, kernels.attach, trained)
    except Exception:  # it writes to its inputs, or asks whether weights have gradients
        return
    if [x.name for x in regions] != [x.name for x in recorded.regions]:
        return
    for i, (region, other) in enumerate(zip(recorded.regions, regions, strict=True)):
        of_head = size[0] * size[1] * known.hidden if known and known.region == i else 0
        region.frozen_saved = max(other.saved - of_head, 0)
        region.frozen_saved_bytes = other.saved_bytes
        for ranks, shares in other.shares.items():
            taken = of_head if ranks == TOKENS else 0
            region.add(ranks, "frozen_saved", max(shares["saved"] - taken, 0))
            region.add(ranks, "frozen_saved_bytes", shares["saved_bytes"])


def _with_gradient(x: Any) -> Any:
    real = isinstance(x, torch.Tensor) and x.is_floating_point()
    return x.detach().requires_grad_() if real else x


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
    _of_one_kind(rows)
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
    if traced.pixels is not None:
        out["pixels"] = traced.pixels
    if traced.images is not None:
        out["image_tokens"] = traced.images
    if traced.frames is not None:
        out["frames"] = traced.frames
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
        "length": traced.native or traced.length,
        "native": traced.native is not None,
    }


def _of_one_kind(parts: Sequence[dict[str, Any]]) -> None:
    """Every rank computes all experts where a model has several kinds: ranks share experts of
    one kind."""
    experts = [[x for x in part.get("gemms", ()) if x.get("routed")] for part in parts]
    if len({repr(each) for each in experts if each}) > 1:
        for gemm in (x for each in experts for x in each):
            del gemm["routed"]
            gemm.pop("looped", None)


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
    os.dup2(2, 1)  # output of the module is not part of the answer
    limit(request["memory_bytes"], request["seconds"])
    text = request["target"]
    try:
        with kernels.without_data(request["autocast"]):
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
