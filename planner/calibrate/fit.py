"""From merged records to the numbers of a profile: the curves of planner.formulas with their
residuals, confidence and outliers.

A fit that its data do not support is refused: too few cases, or errors so large that the curve says
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from planner.calibrate.record import Record
from planner.formulas import flops
from planner.formulas.kernels import attention_shape_frac, gemm_s
from planner.ledger import Array

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
# median error above which a curve is refused, and distance from it (log) above which a case is
# named as an outlier
REFUSED_ABOVE, OUTLIER_ABOVE = 0.25, 0.20
DISTURBED_WEIGHT = 0.2  # of a case without quiet samples, against one that has them
_SPARE = 2  # cases beyond one per parameter that a fit needs
_FULL_STEP = 1.0  # soft-L1 scale is OUTLIER_ABOVE: an outlier pulls, it does not decide


@dataclass(frozen=True)
class Number:
    """A fitted number with its standard error, and whether the data determine it."""

    value: float
    error: float = 0.0


@dataclass(frozen=True)
class Fit:
    """One curve: its numbers, errors over fitted and held-out cases, and cases that lie far from
    it."""

    name: str
    numbers: dict[str, Number]
    cases: int
    median_error: float
    worst_error: float
    held_out: int = 0
    held_out_median: float | None = None
    outliers: tuple[str, ...] = ()


@dataclass
class Fits:
    """All curves of a node; refused holds the reason of each curve that its data do not support."""

    fits: dict[str, Fit] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def value(self, curve: str, number: str) -> float | None:
        fit = self.fits.get(curve)
        return None if fit is None or number not in fit.numbers else fit.numbers[number].value


class Unsupported(ValueError):
    """The data do not support the fit."""


def curve(
    name: str,
    parameters: Sequence[tuple[str, float, float, float]],
    predict: Callable[[Array, Sequence[Record]], Array],
    records: Sequence[Record],
    label: Callable[[Record], str],
    seconds: Callable[[Record], float] = lambda r: r["seconds"],
) -> Fit:
    """Least squares of the log error with soft-L1 loss. parameters: (name, lowest, start, highest);
    raises Unsupported."""
    from scipy.optimize import least_squares

    fitted = [r for r in records if not r.get("held_out")]
    held = [r for r in records if r.get("held_out")]
    if len(fitted) < len(parameters) + _SPARE:
        raise Unsupported(
            f"{len(fitted)} cases for {len(parameters)} numbers; needs {len(parameters) + _SPARE}"
        )
    low, start, high = (np.array([p[i] for p in parameters], float) for i in (1, 2, 3))

    def residual(values: Array, over: Sequence[Record] = fitted) -> Array:
        measured = np.array([seconds(r) for r in over])
        return np.log(predict(values, over) / measured)

    # moments that were not quiet say little
    weight = np.array([1.0 if r.get("quiet", True) else DISTURBED_WEIGHT for r in fitted])
    found = least_squares(
        lambda v: residual(v) * weight,
        start,
        bounds=(low, high),
        loss="soft_l1",
        f_scale=OUTLIER_ABOVE,
        x_scale=np.maximum(high - low, 1e-30),
    )
    left = np.abs(residual(found.x))
    median_error = float(np.median(np.expm1(left)))
    if median_error > REFUSED_ABOVE:
        raise Unsupported(
            f"the curve misses half of the {len(fitted)} cases by more than"
            f" {100 * median_error:.0f} %"
        )
    information = found.jac.T @ found.jac
    spread = float(np.sum(residual(found.x) ** 2)) / max(len(fitted) - len(parameters), 1)
    errors = np.sqrt(np.maximum(np.diag(np.linalg.pinv(information)) * spread, 0.0))
    far = [label(r) for r, distance in zip(fitted, left, strict=True) if distance > OUTLIER_ABOVE]
    unseen = np.expm1(np.abs(residual(found.x, held))) if held else np.zeros(0)
    return Fit(
        name,
        {
            p[0]: Number(float(v), float(e))
            for p, v, e in zip(parameters, found.x, errors, strict=True)
        },
        len(fitted),
        median_error,
        float(np.max(np.expm1(left))),
        len(held),
        float(np.median(unseen)) if held else None,
        tuple(far),
    )


# -------------------------------------------------------------------------------------------------


def product_shape(r: Record) -> tuple[int, int, int]:
    """Rows, columns and inner width of a product or of one of its gradients, as
    planner.estimate.layer counts them."""
    m, n, k = r["m"], r["n"], r["k"]
    shapes: dict[str, tuple[int, int, int]] = {
        "forward": (m, n, k),
        "input": (m, k, n),
        "weight": (k, n, m),
    }
    return shapes[r["way"]]


# name, lowest, start, highest. A CPU is one unit without waves, and cuts products into tiles far
# smaller than the curve's: no shape of tile loses rate; its overhead per tile is no microsecond
_PRODUCT = (
    ("gemm_efficiency", 0.2, 0.9, 1.2),
    ("gemm_tile_overhead", 0.0, 2e-6, 4e-4),
    ("gemm_launch", 0.0, 2e-6, 1e-4),
    ("memory_frac", 0.1, 0.8, 1.5),
)
_ON_GPU = (("gemm_wave_softness", 0.0, 0.5, 1.0), ("gemm_tile_exponent", 0.0, 0.02, 0.4))


def products(
    records: Sequence[Record], precision: str, *, rate: float, bandwidth: float, units: int
) -> Fit:
    """The curve of matrix products in one precision. rate: FLOP/s that efficiency is a share of;
    bandwidth: B/s."""
    mine = [r for r in records if r["kind"] == "gemm" and r["precision"] == precision]
    parameters = _PRODUCT + (_ON_GPU if units > 1 else ())

    def predict(values: Array, over: Sequence[Record]) -> Array:
        v = dict(zip((p[0] for p in parameters), values, strict=True))
        m, n, k = (np.array(x, float) for x in zip(*(product_shape(r) for r in over), strict=True))
        return gemm_s(
            m,
            n,
            k,
            input_bytes=BYTES[precision],
            rate_flop_per_s=rate,
            compute_units=float(units),
            efficiency=v["gemm_efficiency"],
            tile_exponent=v.get("gemm_tile_exponent", 0.0),
            tile_overhead_s=v["gemm_tile_overhead"],
            wave_softness=v.get("gemm_wave_softness", 1.0),
            launch_s=v["gemm_launch"],
            memory_bytes_per_s=bandwidth,
            memory_frac=v["memory_frac"],
        )

    return curve(
        "products " + precision,
        parameters,
        predict,
        mine,
        lambda r: f"{r['way']} {r['m']} x {r['n']} x {r['k']}",
    )


def best_rate(records: Sequence[Record], precision: str) -> float:
    """FLOP/s of the fastest product that was measured in a quiet moment (of any, where none was
    quiet)."""
    mine = [r for r in records if r["kind"] == "gemm" and r["precision"] == precision]
    quiet = [r for r in mine if r["quiet"]] or mine
    if not quiet:
        raise Unsupported(f"no product in {precision} was measured")
    return max(2.0 * r["m"] * r["n"] * r["k"] / r["seconds"] for r in quiet)


_ATTENTION = (
    ("attention_forward", 0.01, 0.5, 1.5),
    ("attention_backward", 0.01, 0.4, 1.5),
    ("attention_half_sequence", 0.1, 100.0, 4000.0),
    ("attention_width_exponent", 1e-3, 0.15, 1.5),
)


def attention(records: Sequence[Record], precision: str, *, rate: float) -> Fit:
    """Shares of the product rate that causal attention reaches, and how they fall with short
    sequences and narrow heads."""
    mine = [r for r in records if r["kind"] == "attention" and r["precision"] == precision]
    lengths = {r["seq"] for r in mine}
    widths = {r["width"] for r in mine}
    parameters = [p for p in _ATTENTION if p[0] != "attention_width_exponent" or len(widths) > 1]
    if len(lengths) < 2:
        raise Unsupported("attention of one sequence length only")

    def predict(values: Array, over: Sequence[Record]) -> Array:
        v = dict(zip((p[0] for p in parameters), values, strict=True))
        seq, width = (np.array([r[name] for r in over], float) for name in ("seq", "width"))
        back = np.array([r["way"] == "backward" for r in over])
        flop = np.array([causal_flop(r) for r in over])
        share = np.where(back, v["attention_backward"], v["attention_forward"])
        shape = attention_shape_frac(
            seq, width, v["attention_half_sequence"], v.get("attention_width_exponent", 0.0)
        )
        return flop / (rate * share * shape)

    return curve(
        "attention " + precision,
        parameters,
        predict,
        mine,
        lambda r: (
            f"{r['way']} batch {r['batch']} heads {r['heads']} x {r['width']} sequence {r['seq']}"
        ),
    )


# sums of gradients that autograd makes in a layer: two residual branches, q, k and v, gate and up;
# the planner counts two
SUMS_PER_LAYER = {"gated": 5.0, "plain": 4.0}
_COUNTED_SUMS = 2.0
_FAMILY_NORM = "rmsnorm"


def operators(records: Sequence[Record], precision: str) -> Fit:
    """Seconds per element of operators without products: the middle over sizes, half their range as
    the error."""
    mine = [r for r in records if r.get("precision") == precision and not r.get("compiled")]
    numbers: dict[str, Number] = {}
    worst: list[float] = []
    for name in sorted({f"{r['operator']}_{r['way']}" for r in mine if r["kind"] == "operator"}):
        values = [
            r["seconds"]
            for r in mine
            if r["kind"] == "operator" and f"{r['operator']}_{r['way']}" == name
        ]
        numbers[name] = _middle(values)
        worst += [abs(v / numbers[name].value - 1) for v in values]
    if "residual_backward" in numbers:
        each, times = numbers["residual_backward"], SUMS_PER_LAYER["gated"] / _COUNTED_SUMS
        numbers["residual_backward"] = Number(times * each.value, times * each.error)
    values = [r["seconds"] for r in mine if r["kind"] == "loss"]
    if values:
        numbers["loss"] = _middle(values)
    numbers.update(_embedding([r for r in mine if r["kind"] == "embedding"], numbers))
    values = [r["seconds"] for r in records if r["kind"] == "optimizer" and r["how"] == "fused"]
    if values:
        numbers["optimizer"] = _middle(values)
    if not numbers:
        raise Unsupported(f"no operator in {precision} was measured")
    error = float(np.median(worst)) if worst else 0.0
    return Fit("operators " + precision, numbers, len(mine), error, max(worst, default=0.0))


def _middle(values: Sequence[float]) -> Number:
    return Number(float(np.median(values)), (max(values) - min(values)) / 2)


def _embedding(records: Sequence[Record], numbers: dict[str, Number]) -> dict[str, Number]:
    """Rows looked up and added, and the dense gradient of the table; the final norm is counted with
    the rows."""
    if len(records) < 2:
        return {}
    from scipy.optimize import nnls

    rows = np.array(
        [
            [r["tokens"] * r["width"] / r["seconds"], r["vocab"] * r["width"] / r["seconds"]]
            for r in records
        ]
    )
    scale = rows.max(axis=0)
    found = nnls(rows / scale, np.ones(len(records)))[0] / scale
    last = sum(
        numbers[f"{_FAMILY_NORM}_{way}"].value
        for way in ("forward", "backward")
        if f"{_FAMILY_NORM}_{way}" in numbers
    )
    out = {"embedding": Number(float(found[0]) + last)} if found[0] + last > 0 else {}
    return {**out, "table": Number(float(found[1]))} if found[1] > 0 else out


def node(
    records: Sequence[Record],
    precisions: Sequence[str],
    units: int,
    rates: Mapping[str, float] | None = None,
    bandwidth: float | None = None,
) -> Fits:
    """Every curve of one device; what is refused is named with its reason.

    rates (FLOP/s by precision) and bandwidth (B/s): what shares are of, those of a shipped profile;
    by default the best measured.
    """
    out = Fits()
    copies = [r["seconds"] for r in records if r["kind"] == "memory" and r["what"] == "copy"]
    if not copies:
        out.refused["memory"] = "no copy was measured"
        return out
    moved = 1.0 / float(np.median(copies))
    bandwidth = moved if bandwidth is None else bandwidth
    launches = [r["seconds"] for r in records if r["kind"] == "memory" and r["what"] == "launch"]
    memory = {"bandwidth": Number(moved), **({"launch": _middle(launches)} if launches else {})}
    out.fits["memory"] = Fit("memory", memory, len(copies) + len(launches), 0.0, 0.0)
    for precision in precisions:
        attempts: list[tuple[str, Callable[[], Fit]]] = []
        try:
            rate = (rates or {}).get(precision) or best_rate(records, precision)
        except Unsupported as why:
            out.refused["products " + precision] = str(why)
            continue
        out.fits["rate " + precision] = Fit(
            "rate " + precision, {"rate": Number(rate)}, 1, 0.0, 0.0
        )
        attempts.append(
            (
                "products ",
                lambda p=precision, r=rate: products(  # type: ignore[misc]
                    records, p, rate=r, bandwidth=bandwidth, units=units
                ),
            )
        )
        attempts.append(("attention ", lambda p=precision, r=rate: attention(records, p, rate=r)))  # type: ignore[misc]
        attempts.append(("operators ", lambda p=precision: operators(records, p)))  # type: ignore[misc]
        for name, attempt in attempts:
            try:
                out.fits[name + precision] = attempt()
            except Unsupported as why:
                out.refused[name + precision] = str(why)
                mean = _mean_rate(records, name, precision, rate)
                if mean is not None:
                    out.fits[name + precision] = mean
                    out.refused[name + precision] += "; only the middle rate is used"
    return out


def _mean_rate(records: Sequence[Record], name: str, precision: str, rate: float) -> Fit | None:
    """Middle rate of the cases where they support no curve: no shape, no overhead."""
    mine = [r for r in records if r.get("precision") == precision]
    if name == "products ":
        shares = {
            "gemm_efficiency": [
                2.0 * r["m"] * r["n"] * r["k"] / r["seconds"] / rate
                for r in mine
                if r["kind"] == "gemm"
            ]
        }
    elif name == "attention ":
        shares = {
            f"attention_{way}": [
                causal_flop(r) / attention_shape_frac(r["seq"], r["width"]) / r["seconds"] / rate
                for r in mine
                if r["kind"] == "attention" and r["way"] == way
            ]
            for way in ("forward", "backward")
        }
    else:
        return None
    if not all(shares.values()):
        return None
    numbers = {key: _middle(values) for key, values in shares.items()}
    worst = [abs(v / numbers[key].value - 1) for key, values in shares.items() for v in values]
    return Fit(name + precision, numbers, len(worst), float(np.median(worst)), max(worst))


def causal_flop(r: Record) -> float:
    """FLOP of a record of attention: causal pairs, backward two and a half times forward."""
    flop = flops.attention_forward_flop(
        flops.causal_pairs(r["seq"], r["seq"]) * r["batch"], r["heads"], r["width"], r["width"]
    )
    return float(flop) * (2.5 if r["way"] == "backward" else 1.0)


# ---------------------------------------------------------------------------------------------- col

Operation = Literal[
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"
]


def _volume(operation: str, ranks: Array) -> Array:
    """Bytes per rank and tensor byte that planner.formulas.collectives counts."""
    passes = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}.get(
        operation
    )
    return np.ones_like(ranks) if passes is None else passes * (ranks - 1) / ranks


def _steps(operation: str, ranks: Array) -> Array:
    """Steps of a ring, each half of the link's latency; a message takes the base alone."""
    passes = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}.get(operation)
    return np.zeros_like(ranks) if passes is None else passes * (ranks - 1) / 2


_STARTED = ("all_reduce", "reduce_scatter")
_LINKED = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")


def link(records: Sequence[Record], group: str) -> Fit:
    """One link: base, latency, ramp and a bandwidth per operation, the form of
    formulas.collectives.ring_intra_s.

    Operations that reduce may have a start of their own: gloo's set up buffers before the first
    message.
    """
    mine = [
        r
        for r in records
        if r["kind"] == "collective"
        and r["group"] == group
        and r["operation"] in _LINKED
        and not r.get("beside")
    ]
    if not mine:
        raise Unsupported(f"no collective over {group} was measured")
    names = sorted({r["operation"] for r in mine})
    fastest = max(
        float(_volume(r["operation"], np.array(float(r["ranks"])))) * r["bytes"] / r["seconds"]
        for r in mine
    )
    least = min(r["seconds"] for r in mine)
    # in logarithms: bandwidths, base, latency and ramp span decades
    parameters = [
        (f"{name}_bandwidth", np.log(fastest / 300), np.log(fastest / 1.5), np.log(fastest * 3))
        for name in names
    ]
    parameters += [
        ("base", np.log(least / 50), np.log(least / 2), np.log(least * 5)),
        ("latency", np.log(least / 50), np.log(least / 2), np.log(least * 10)),
        ("ramp", np.log(1e-12), np.log(least / 1e3), np.log(1e-4)),
    ]
    started = [f"{name}_start" for name in names if name in _STARTED]
    parameters += [
        (name, np.log(least / 1e3), np.log(least / 10), np.log(least * 30)) for name in started
    ]

    def predict(values: Array, over: Sequence[Record]) -> Array:
        v = {p[0]: np.exp(x) for p, x in zip(parameters, values, strict=True)}
        ranks, size = (
            np.array([r["ranks"] for r in over], float),
            np.array([r["bytes"] for r in over], float),
        )
        out = []
        for i, r in enumerate(over):
            n, name = ranks[i], r["operation"]
            started_s = (
                v["base"] + v.get(f"{name}_start", 0.0) + float(_steps(name, n)) * v["latency"]
            )
            ring = started_s + float(_volume(name, n)) * size[i] / v[f"{name}_bandwidth"]
            out.append(ring + (v["ramp"] * np.sqrt(size[i]) if name != "send_recv" else 0.0))
        return np.array(out)

    found = curve(
        "link " + group,
        parameters,
        predict,
        mine,
        lambda r: f"{r['operation']} of {r['bytes']:,} B",
    )
    numbers = {
        name: Number(float(np.exp(n.value)), float(np.exp(n.value) * min(n.error, _FULL_STEP)))
        for name, n in found.numbers.items()
    }
    return Fit(
        found.name,
        numbers,
        found.cases,
        found.median_error,
        found.worst_error,
        found.held_out,
        found.held_out_median,
        found.outliers,
    )


def storage(records: Sequence[Record]) -> Fit:
    """Bytes per second that a node writes and reads: the middle of the samples, whose spread is the
    error."""
    numbers: dict[str, Number] = {}
    spreads = []
    for r in records:
        if r["kind"] == "storage" and r["seconds"] > 0:
            rate = 1.0 / r["seconds"]
            numbers[f"{r['way']}_bandwidth"] = Number(rate, rate * r.get("spread", 0.0) / 2)
            spreads.append(r.get("spread", 0.0) / 2)
    if numbers.keys() != {"write_bandwidth", "read_bandwidth"}:
        raise Unsupported("no file was written and read")
    return Fit("storage", numbers, len(spreads), float(np.median(spreads)), max(spreads))


def overlap(records: Sequence[Record]) -> Fit:
    """How much a product and an all-reduce slow each other down: extra time of both together over
    the shorter of the two."""
    seconds = {r["part"]: r["seconds"] for r in records if r["kind"] == "overlap"}
    if seconds.keys() != {"product", "collective", "both"}:
        raise Unsupported("a product beside a collective was not measured")
    alone = (seconds["product"], seconds["collective"])
    share = float(np.clip((seconds["both"] - max(alone)) / min(alone), 0.0, 1.0))
    return Fit("overlap", {"slowdown": Number(share)}, len(seconds), 0.0, 0.0)
