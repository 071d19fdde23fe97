"""Curves of one device: GEMMs, attention, operators without GEMMs, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from planner.calibrate.fit import (
    Fit,
    Fits,
    Number,
    Parameter,
    Unsupported,
    attempted,
    curve,
    middle,
)
from planner.calibrate.record import Record
from planner.formulas import flops
from planner.formulas.kernels import attention_shape_frac, gemm_s
from planner.ledger import Array

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0}
# matmuls of attention's backward / matmuls of its forward: five to two, with the scores computed
# again (Dao 2023, FlashAttention-2, section 3.1)
BACKWARD_OVER_FORWARD = 2.5


def gemm_shape(r: Record) -> tuple[int, int, int]:
    """Rows, columns and inner width of a GEMM or of one of its gradients, as
    planner.estimate.layer.operators counts them."""
    m, n, k = r["m"], r["n"], r["k"]
    shapes: dict[str, tuple[int, int, int]] = {
        "forward": (m, n, k),
        "input": (m, k, n),
        "weight": (k, n, m),
    }
    return shapes[r["way"]]


# a CPU is one unit without waves, and cuts GEMMs into tiles far smaller than the curve's: the
# shape of a tile costs no rate, and its overhead is below a microsecond
_GEMM = (
    Parameter("gemm_efficiency", 0.2, 0.9, 1.2),
    Parameter("gemm_tile_overhead", 0.0, 2e-6, 4e-4),
    Parameter("gemm_launch", 0.0, 2e-6, 1e-4),
    Parameter("memory_frac", 0.1, 0.8, 1.5),
)
_ON_GPU = (
    Parameter("gemm_wave_softness", 0.0, 0.5, 1.0),
    Parameter("gemm_tile_exponent", 0.0, 0.02, 0.4),
)


def gemms(
    records: Sequence[Record], precision: str, *, rate: float, bandwidth: float, units: int
) -> Fit:
    """The curve of GEMMs in one precision. rate: FLOP/s that efficiency is a share of;
    bandwidth: B/s; units: multiprocessors."""

    def predict(v: Mapping[str, float], over: Sequence[Record]) -> Array:
        m, n, k = (np.array(x, float) for x in zip(*(gemm_shape(r) for r in over), strict=True))
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
        f"products {precision}",
        _GEMM + (_ON_GPU if units > 1 else ()),
        predict,
        _measured(records, "gemm", precision),
        lambda r: f"{r['way']} {r['m']} x {r['n']} x {r['k']}",
    )


def _measured(records: Sequence[Record], kind: str, precision: str) -> list[Record]:
    return [r for r in records if r["kind"] == kind and r["precision"] == precision]


def _flop_per_s(r: Record) -> float:
    return float(2.0 * r["m"] * r["n"] * r["k"] / r["seconds"])


def best_rate(records: Sequence[Record], precision: str) -> float:
    """FLOP/s of the fastest GEMM."""
    mine = _measured(records, "gemm", precision)
    if not mine:
        raise Unsupported(f"no GEMM in {precision} was measured")
    return max(_flop_per_s(r) for r in mine)


_ATTENTION = (
    Parameter("attention_forward", 0.01, 0.5, 1.5),
    Parameter("attention_backward", 0.01, 0.4, 1.5),
    Parameter("attention_half_sequence", 0.1, 100.0, 4000.0),
)
_WIDTH = Parameter("attention_width_exponent", 1e-3, 0.15, 1.5)


def attention(records: Sequence[Record], precision: str, *, rate: float) -> Fit:
    """Shares of the GEMM rate that causal attention reaches, and how they fall with short
    sequences and narrow heads."""
    mine = _measured(records, "attention", precision)
    if len({r["seq"] for r in mine}) < 2:
        raise Unsupported("attention of one sequence length only")

    def predict(v: Mapping[str, float], over: Sequence[Record]) -> Array:
        seq, width = (np.array([r[name] for r in over], float) for name in ("seq", "width"))
        back = np.array([r["way"] == "backward" for r in over])
        flop = np.array([causal_flop(r) for r in over])
        share = np.where(back, v["attention_backward"], v["attention_forward"])
        shape = attention_shape_frac(
            seq, width, v["attention_half_sequence"], v.get(_WIDTH.name, 0.0)
        )
        return flop / (rate * share * shape)

    return curve(
        f"attention {precision}",
        (*_ATTENTION, _WIDTH) if len({r["width"] for r in mine}) > 1 else _ATTENTION,
        predict,
        mine,
        lambda r: (
            f"{r['way']} batch {r['batch']} heads {r['heads']} x {r['width']} sequence {r['seq']}"
        ),
    )


def causal_flop(r: Record) -> float:
    """FLOP of a record of attention over causal pairs."""
    pairs = flops.causal_pairs(r["seq"], r["seq"]) * r["batch"]
    forward = float(flops.attention_forward_flop(pairs, r["heads"], r["width"], r["width"]))
    return forward * (BACKWARD_OVER_FORWARD if r["way"] == "backward" else 1.0)


# sums of gradients that autograd makes in a layer with a gated MLP: two residual branches, q, k and
# v, gate and up; the planner counts two
SUMS_PER_LAYER = 5.0
_COUNTED_SUMS = 2.0


def operators(records: Sequence[Record], precision: str) -> Fit:
    """Seconds per element of operators without GEMMs: the middle over sizes, half their range as
    the error."""
    mine = [r for r in records if r.get("precision") == precision and not r.get("compiled")]
    times: dict[str, list[float]] = {}
    for r in mine:
        if r["kind"] == "operator":
            times.setdefault(f"{r['operator']}_{r['way']}", []).append(r["seconds"])
    numbers = {name: middle(times[name]) for name in sorted(times)}
    worst = [abs(v / numbers[name].value - 1) for name in numbers for v in times[name]]
    if "residual_backward" in numbers:
        each, sums = numbers["residual_backward"], SUMS_PER_LAYER / _COUNTED_SUMS
        numbers["residual_backward"] = Number(sums * each.value, sums * each.error)
    losses = [r["seconds"] for r in mine if r["kind"] == "loss"]
    if losses:
        numbers["loss"] = middle(losses)
    numbers |= _embedding([r for r in mine if r["kind"] == "embedding"], numbers)
    updates = [r["seconds"] for r in records if r["kind"] == "optimizer" and r["how"] == "fused"]
    if updates:
        numbers["optimizer"] = middle(updates)
    if not numbers:
        raise Unsupported(f"no operator in {precision} was measured")
    error = float(np.median(worst)) if worst else 0.0
    return Fit(f"operators {precision}", numbers, len(mine), error, max(worst, default=0.0))


def _embedding(records: Sequence[Record], numbers: Mapping[str, Number]) -> dict[str, Number]:
    """Rows looked up and added, and the dense gradient of the table; the final norm is counted with
    the rows."""
    if len(records) < 2:
        return {}
    from scipy.optimize import nnls

    # seconds = a tokens width + b vocab width, each row over its seconds: errors are relative
    rows = np.array(
        [[size * r["width"] / r["seconds"] for size in (r["tokens"], r["vocab"])] for r in records]
    )
    scale = rows.max(axis=0)
    row_s, table_s = nnls(rows / scale, np.ones(len(records)))[0] / scale
    norm_s = sum(
        numbers[name].value for name in ("rmsnorm_forward", "rmsnorm_backward") if name in numbers
    )
    seconds = {"embedding": float(row_s) + norm_s, "table": float(table_s)}
    return {name: Number(value) for name, value in seconds.items() if value > 0}


def node(
    records: Sequence[Record],
    precisions: Sequence[str],
    units: int,
    rates: Mapping[str, float] | None = None,
    bandwidth: float | None = None,
) -> Fits:
    """Every curve of one device; a refused curve is named with its reason.

    rates (FLOP/s by precision) and bandwidth (B/s): the peaks that shares refer to, from a shipped
    profile; by default the best measured. units: multiprocessors.
    """
    memory = attempted({"memory": partial(copies, records)})
    moved = memory.value("memory", "bandwidth")
    if moved is None:
        return memory
    out = memory
    for precision in precisions:
        try:
            rate = (rates or {}).get(precision) or best_rate(records, precision)
        except Unsupported as why:
            out = out.joined(Fits({}, {f"products {precision}": str(why)}))
            continue
        name = f"rate {precision}"
        out = out.joined(Fits({name: Fit(name, {"rate": Number(rate)}, 1)}, {}))
        out = out.joined(_curves(records, precision, rate, bandwidth or moved, units))
    return out


def copies(records: Sequence[Record]) -> Fit:
    """Bytes per second of a copy in memory, and seconds between launches of small operators."""
    mine = [r for r in records if r["kind"] == "memory"]
    copied = [r["seconds"] for r in mine if r["what"] == "copy"]
    launches = [r["seconds"] for r in mine if r["what"] == "launch"]
    if not copied:
        raise Unsupported("no copy was measured")
    numbers = {"bandwidth": Number(1.0 / float(np.median(copied)))}
    if launches:
        numbers["launch"] = middle(launches)
    return Fit("memory", numbers, len(copied) + len(launches))


def _curves(
    records: Sequence[Record], precision: str, rate: float, bandwidth: float, units: int
) -> Fits:
    """Curves of one precision; where one is refused, the middle rate of its cases."""
    attempts = {
        f"products {precision}": partial(
            gemms, records, precision, rate=rate, bandwidth=bandwidth, units=units
        ),
        f"attention {precision}": partial(attention, records, precision, rate=rate),
        f"operators {precision}": partial(operators, records, precision),
    }
    means = {
        f"products {precision}": _mean_gemm(_measured(records, "gemm", precision), rate),
        f"attention {precision}": _mean_attention(_measured(records, "attention", precision), rate),
    }
    attempted_fits = attempted(attempts)
    fits = {
        name: attempted_fits.fits.get(name) or _mean(name, means.get(name, {})) for name in attempts
    }
    return Fits(
        {name: fit for name, fit in fits.items() if fit is not None},
        {
            name: why if fits[name] is None else f"{why}; only the middle rate is used"
            for name, why in attempted_fits.refused.items()
        },
    )


def _mean_gemm(records: Sequence[Record], rate: float) -> dict[Parameter, list[float]]:
    return {_GEMM[0]: [_flop_per_s(r) / rate for r in records]}


def _mean_attention(records: Sequence[Record], rate: float) -> dict[Parameter, list[float]]:
    return {
        share: [
            causal_flop(r) / attention_shape_frac(r["seq"], r["width"]) / r["seconds"] / rate
            for r in records
            if share.name == f"attention_{r['way']}"
        ]
        for share in _ATTENTION[:2]
    }


def _mean(name: str, shares: Mapping[Parameter, Sequence[float]]) -> Fit | None:
    """Middle rate of the cases where they support no curve: no shape, no overhead. A share beyond
    what a curve may have is noise of its rate."""
    if not shares or not all(shares.values()):
        return None
    numbers = {share.name: middle(values) for share, values in shares.items()}
    worst = [
        abs(v / numbers[share.name].value - 1) for share, values in shares.items() for v in values
    ]
    bounded = {
        share.name: replace(
            numbers[share.name], value=min(numbers[share.name].value, share.highest)
        )
        for share in shares
    }
    return Fit(name, bounded, len(worst), float(np.median(worst)), max(worst))
