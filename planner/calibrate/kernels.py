"""Time kernels of one device in quiet moments: GEMMs, attention, operators without GEMMs, the
optimizer, memory, copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F

from planner.calibrate import cases, decoder
from planner.calibrate.device import DTYPES, Device
from planner.calibrate.measure import Task, Timed
from planner.calibrate.record import Record

Tensors = list[torch.Tensor]
Run = Callable[[Tensors], torch.Tensor | tuple[torch.Tensor, ...]]

# sets of buffers at most: of GEMMs, of operators whose graphs are kept, of attention; choices
_MOST_BUFFERS, _MOST_GRAPHS, _MOST_ATTENTIONS = 48, 24, 8
_HEAD_WIDTH = 64  # of heads that are rotated or copied
_LAUNCHES = 200  # of small operators in a row
_LEAST_SAMPLE_S = 4e-3  # shorter samples see the clock's resolution and one interrupt each
_OPTIMIZED = 2**20  # parameters of one tensor that the optimizer updates
_COPY_BYTES = 64 * 2**20
LEARNING_RATE = 1e-4  # without effect on times


def tasks(device: Device, mode: cases.Mode, precisions: list[str]) -> Iterator[Task]:
    """All measurements on a single device."""
    for precision in precisions:
        yield from _gemms(device, mode, precision)
        yield from _attentions(device, mode, precision)
        for name, tokens, width in cases.operators(mode, device.gpu):
            for way in ("forward", "backward"):
                record: Record = {
                    "kind": "operator",
                    "operator": name,
                    "tokens": tokens,
                    "width": width,
                    "way": way,
                    "precision": precision,
                    "compiled": False,
                }
                yield record, partial(_operator, device, record)
        for tokens, vocab in cases.losses(mode):
            record = {"kind": "loss", "tokens": tokens, "vocab": vocab, "precision": precision}
            yield record, partial(_loss, device, record)
        for tokens, vocab, width in cases.embeddings(mode):
            record = {
                "kind": "embedding",
                "tokens": tokens,
                "vocab": vocab,
                "width": width,
                "precision": precision,
            }
            yield record, partial(_embedding, device, record)
    for how in cases.OPTIMIZERS if mode != "quick" else cases.OPTIMIZERS[:1]:
        record = {"kind": "optimizer", "how": how}
        yield record, partial(_optimizer, device, record)
    yield {"kind": "memory", "what": "copy"}, partial(_copy, device)
    yield {"kind": "memory", "what": "launch"}, partial(_launch, device)
    if device.gpu:
        for way in ("to host", "to device"):
            for pinned in (True, False):
                record = {"kind": "host copy", "way": way, "pinned": pinned}
                yield record, partial(_host_copy, device, record)
        if mode != "quick":
            for name, tokens, width in cases.operators(mode, True):
                record = {
                    "kind": "operator",
                    "operator": name,
                    "tokens": tokens,
                    "width": width,
                    "way": "forward",
                    "precision": precisions[-1],
                    "compiled": True,
                }
                yield record, partial(_operator, device, record)


def _rounds(per_round: Timed, items: int) -> Timed:
    """Repeat short work until a sample is long enough; seconds per item."""
    per_round()  # warm up
    once = max(per_round(), 1e-7)
    times = max(1, round(_LEAST_SAMPLE_S / once + 0.5))

    def timed() -> float:
        return sum(per_round() for _ in range(times)) / (times * items)

    return timed


def _ring(device: Device, bytes_each: float) -> int:
    """Sets of buffers to cycle through so that none is still cached when it is used again."""
    return int(min(_MOST_BUFFERS, max(2, device.cache_bytes() // max(bytes_each, 1) + 1)))


def _gemms(device: Device, mode: cases.Mode, precision: str) -> Iterator[Task]:
    for m, n, k, held_out in cases.gemms(mode, device.gpu):
        for way in ("forward", "input", "weight"):
            record: Record = {
                "kind": "gemm",
                "m": m,
                "n": n,
                "k": k,
                "way": way,
                "precision": precision,
                "held_out": held_out,
            }
            yield record, partial(_gemm, device, record)


def _gemm(device: Device, record: Record) -> Timed:
    """The forward GEMM of a weight, its dgrad or its wgrad, with operands that are in no cache, as
    in a training step."""
    m, n, k = record["m"], record["n"], record["k"]
    dtype = DTYPES[record["precision"]]
    count = _ring(device, dtype.itemsize * (m * k + n * k + m * n))
    sets = [
        (
            device.tensor(m, k, dtype=dtype),
            device.tensor(n, k, dtype=dtype),
            device.tensor(m, n, dtype=dtype),
        )
        for _ in range(count)
    ]
    way = record["way"]
    at = [0]

    def work() -> None:
        x, w, g = sets[at[0] % count]
        at[0] += 1
        if way == "forward":
            F.linear(x, w)
        elif way == "input":
            torch.mm(g, w)
        else:
            torch.mm(g.t(), x)

    return _rounds(lambda: device.time(work), 1)


def _attentions(device: Device, mode: cases.Mode, precision: str) -> Iterator[Task]:
    for batch, heads, seq, width in cases.attentions(mode, device.gpu):
        for way in ("forward", "backward"):
            record: Record = {
                "kind": "attention",
                "batch": batch,
                "heads": heads,
                "seq": seq,
                "width": width,
                "way": way,
                "precision": precision,
            }
            yield record, partial(_attention, device, record)


def _attention(device: Device, record: Record) -> Timed:
    dtype = DTYPES[record["precision"]]
    batch, seq, inner = record["batch"], record["seq"], record["heads"] * record["width"]
    count = min(_MOST_ATTENTIONS, _ring(device, 4 * dtype.itemsize * batch * seq * inner))

    def prepare() -> list[torch.Tensor]:
        return [device.tensor(batch, seq, inner, dtype=dtype).requires_grad_() for _ in range(3)]

    def run(parts: list[torch.Tensor]) -> torch.Tensor:
        return decoder.attention(*(decoder.split_heads(x, record["width"]) for x in parts))

    return _both_ways(device, record["way"], [prepare() for _ in range(count)], run)


def _both_ways(device: Device, way: str, inputs: list[Tensors], run: Run) -> Timed:
    """Forward over all inputs, or backward over all graphs in reverse, as a stack of layers
    does."""
    with torch.no_grad():
        example = run(inputs[0])
    outputs = example if isinstance(example, tuple) else (example,)
    gradients = [torch.ones_like(out) for out in outputs]

    def forward() -> list[torch.Tensor | tuple[torch.Tensor, ...]]:
        return [run(parts) for parts in inputs]

    def round_of() -> float:
        if way == "forward":
            return device.time(forward)
        graphs = forward()
        device.wait()

        def backward() -> None:
            for parts, out in zip(reversed(inputs), reversed(graphs), strict=True):
                torch.autograd.grad(out if isinstance(out, tuple) else (out,), parts, gradients)

        return device.time(backward)

    return _rounds(round_of, len(inputs))


def _operator_over(
    device: Device, name: str, tokens: int, width: int, dtype: torch.dtype
) -> tuple[int, Tensors, Run]:
    """Operands of an operator of the decoder, its weights, and the function of both."""
    if name == "residual":
        return 2, [], lambda x: x[0] + x[1]
    if name == "plain":
        return 1, [], lambda x: F.gelu(x[0])
    if name == "gated":
        return 2, [], lambda x: decoder.gated(x[0], x[1])
    if name in ("layernorm", "rmsnorm"):
        weight = torch.ones(width, device=device.torch_device, dtype=dtype, requires_grad=True)
        if name == "rmsnorm":
            return 1, [weight], lambda x: F.rms_norm(x[0], (width,), x[1])
        shift = torch.zeros_like(weight, requires_grad=True)
        return 1, [weight, shift], lambda x: F.layer_norm(x[0], (width,), x[1], x[2])
    where = decoder.rotations(tokens, _HEAD_WIDTH, device.torch_device, dtype)

    def split(x: Tensors) -> tuple[torch.Tensor, ...]:
        q, k, v = (decoder.split_heads(part, _HEAD_WIDTH) for part in x)
        if name == "copies":
            return q, k, v
        return decoder.rotated(q, where), decoder.rotated(k, where), v

    return 3, [], split


def _operator(device: Device, record: Record) -> Timed:
    """One operator of the decoder over (tokens, width) elements; per element as
    specs.hardware.OperatorTimes counts them."""
    dtype, name = DTYPES[record["precision"]], record["operator"]
    tokens, width = record["tokens"], record["width"]
    operand_bytes = dtype.itemsize * tokens * width
    if name == "residual" and record["way"] == "backward":
        # a sum of two branches' gradients: autograd adds them as a kernel of its own
        pairs = [
            (device.tensor(tokens, width, dtype=dtype), device.tensor(tokens, width, dtype=dtype))
            for _ in range(_ring(device, 3 * operand_bytes))
        ]
        each = _rounds(lambda: device.time(lambda: [a + b for a, b in pairs]), len(pairs))
        return lambda: each() / (tokens * width)
    operands, weights, run = _operator_over(device, name, tokens, width, dtype)
    if record["compiled"]:
        run = torch.compile(run)
    heads = operands == 3  # q, k and v come from one GEMM, with a batch of one
    shape = (1, tokens, width) if heads else (tokens, width)
    count = min(_MOST_GRAPHS, _ring(device, (operands + 2) * operand_bytes))
    inputs = [
        [device.tensor(*shape, dtype=dtype).requires_grad_() for _ in range(operands)] + weights
        for _ in range(count)
    ]
    each = _both_ways(device, record["way"], inputs, run)
    elements = tokens * width * (operands if heads else 1)
    return lambda: each() / elements


def _loss(device: Device, record: Record) -> Timed:
    """Forward and backward per logit."""
    dtype, tokens, vocab = DTYPES[record["precision"]], record["tokens"], record["vocab"]
    words = device.whole(1, tokens, below=vocab)
    inputs = [device.tensor(1, tokens, vocab, dtype=dtype).requires_grad_() for _ in range(4)]

    def work() -> None:
        for logits in inputs:
            torch.autograd.grad(decoder.loss_of(logits, words), [logits])

    each = _rounds(lambda: device.time(work), len(inputs))
    return lambda: each() / (tokens * vocab)


def _embedding(device: Device, record: Record) -> Timed:
    """Forward and backward of one lookup, seconds per call: rows gathered and accumulated, and the
    dense gradient of the table."""
    table = device.tensor(
        record["vocab"], record["width"], dtype=DTYPES[record["precision"]]
    ).requires_grad_()
    words = device.whole(1, record["tokens"], below=record["vocab"])
    gradient = device.tensor(1, record["tokens"], record["width"], dtype=table.dtype)
    return _rounds(
        lambda: device.time(
            lambda: torch.autograd.grad(F.embedding(words, table), [table], [gradient])
        ),
        1,
    )


def adam(parameters: list[torch.Tensor], how: str = "fused") -> torch.optim.Optimizer:
    """AdamW as verification runs it (fused), or another of torch's ways."""
    choice = {
        "fused": {"fused": True},
        "foreach": {"foreach": True},
        "for-loop": {"foreach": False},
    }[how]
    # one fused call takes distributed tensors or plain ones, not both
    kinds = {type(p.data) for p in parameters}
    groups = [
        {"params": [p for p in parameters if type(p.data) is kind]}
        for kind in sorted(kinds, key=str)
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, **choice)  # type: ignore[arg-type]


def _optimizer(device: Device, record: Record) -> Timed:
    """Seconds per parameter of one step."""
    weights = [device.tensor(1024, _OPTIMIZED // 1024).requires_grad_() for _ in range(8)]
    for p in weights:
        p.grad = device.tensor(*p.shape)
    optimizer = adam(weights, record["how"])
    each = _rounds(lambda: device.time(lambda: optimizer.step()), 8)
    return lambda: each() / _OPTIMIZED


def _copy(device: Device) -> Timed:
    """Seconds per byte moved (read and written) by a copy in memory."""
    source = torch.zeros(_COPY_BYTES // 4, device=device.torch_device)
    sink = torch.empty_like(source)
    each = _rounds(lambda: device.time(lambda: sink.copy_(source)), 1)
    return lambda: each() / (2 * _COPY_BYTES)


def _launch(device: Device) -> Timed:
    """Seconds between the launches of small operators in a row, as the host issues them."""
    small = device.tensor(8, 8)

    def work() -> None:
        for _ in range(_LAUNCHES):
            small.add_(1.0)

    return _rounds(lambda: device.time(work), _LAUNCHES)


def _host_copy(device: Device, record: Record) -> Timed:
    """Seconds per byte between host and device."""
    host = torch.zeros(_COPY_BYTES // 4, pin_memory=record["pinned"])
    card = torch.zeros(_COPY_BYTES // 4, device=device.torch_device)
    source, sink = (card, host) if record["way"] == "to host" else (host, card)
    each = _rounds(lambda: device.time(lambda: sink.copy_(source, non_blocking=True)), 1)
    return lambda: each() / _COPY_BYTES
