"""Records of a node that never was, and the calibration made of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.calibrate import cases, detect, fit_device, fit_links, profile
from planner.calibrate.cases import Case
from planner.calibrate.fit import attempted
from planner.formulas import kernels

pytest.importorskip("scipy", reason="fits need scipy, of the calibrate extra")

RATE, BANDWIDTH = 60e9, 20e9
HARDWARE = detect.Hardware("cpu", "Test CPU 9000", 1, 8 * 2**30, 1, 2, "testing")
SESSION = profile.Session(HARDWARE, 1, 1, ["fp32"], 2e8, {"torch": "0"})
CASE = Case(4, 256, 4, 704, 2048, 128, 2)


def node_records(
    speed: float = 1.0, ranks: int = 1, noise: float = 0.0, mode: cases.Mode = "default"
) -> list[dict[str, Any]]:
    """Merged records of a node that follows the curves; speed slows everything; noise is relative,
    of a fixed seed."""
    random = np.random.default_rng(7)

    def value(seconds: float) -> dict[str, Any]:
        return {
            "seconds": seconds / speed * float(np.exp(noise * random.standard_normal())),
            "quiet": True,
        }

    out: list[dict[str, Any]] = []
    for m, n, k, content in cases.gemms(mode):
        for way in ("forward", "input", "weight"):
            values = {
                "kind": "gemm",
                "m": m,
                "n": n,
                "k": k,
                "way": way,
                "precision": "fp32",
                "held_out": content,
            }
            rows, columns, inner = fit_device.gemm_shape(values)
            seconds = kernels.gemm_s(
                rows,
                columns,
                inner,
                input_bytes=4.0,
                rate_flop_per_s=RATE,
                compute_units=1.0,
                efficiency=0.9,
                tile_exponent=0.0,
                tile_overhead_s=5e-6,
                wave_softness=1.0,
                launch_s=4e-6,
                memory_bytes_per_s=BANDWIDTH,
                memory_frac=0.7,
            )
            out.append({**values, **value(float(seconds))})
    for batch, heads, seq, width in cases.attentions(mode):
        for way, share in (("forward", 0.5), ("backward", 0.4)):
            values = {
                "kind": "attention",
                "batch": batch,
                "heads": heads,
                "seq": seq,
                "width": width,
                "way": way,
            }
            shape = float(kernels.attention_shape_frac(seq, width, 120.0, 0.3))
            out.append(
                {
                    **values,
                    "precision": "fp32",
                    **value(fit_device.causal_flop(values) / (RATE * share * shape)),
                }
            )
    for name, tokens, width in cases.operators(mode):
        for way in ("forward", "backward"):
            values = {
                "kind": "operator",
                "operator": name,
                "tokens": tokens,
                "width": width,
                "way": way,
                "precision": "fp32",
            }
            out.append({**values, "compiled": False, **value(2e-9)})
    out += [
        {"kind": "loss", "tokens": t, "vocab": v, "precision": "fp32", **value(4e-9)}
        for t, v in cases.losses(mode)
    ]
    out += [
        {
            "kind": "embedding",
            "tokens": t,
            "vocab": v,
            "width": w,
            "precision": "fp32",
            **value(1e-9 * t * w + 3e-10 * v * w),
        }
        for t, v, w in cases.embeddings(mode)
    ]
    out += [
        {"kind": "optimizer", "how": "fused", **value(9e-10)},
        {"kind": "memory", "what": "copy", **value(1 / BANDWIDTH)},
        {"kind": "memory", "what": "launch", **value(3e-6)},
    ]
    if ranks > 1:
        for operation in cases.COLLECTIVES:
            for i, whole in enumerate(cases.sizes(mode)):
                volume, steps = (
                    ((ranks - 1) / ranks, (ranks - 1) / 2)
                    if operation != "send_recv"
                    else (1.0, 0.0)
                )
                volume, steps = (
                    (2 * volume, 2 * steps) if operation == "all_reduce" else (volume, steps)
                )
                out.append(
                    {
                        "kind": "collective",
                        "operation": operation,
                        "group": "pairs",
                        "ranks": ranks,
                        "bytes": whole,
                        "held_out": i % 3 == 1,
                        **value(1e-4 + steps * 8e-5 + volume * whole / 2e9),
                    }
                )
        out += [
            {"kind": "overlap", "part": p, "bytes": 8, "ranks": ranks, **value(s)}
            for p, s in (("product", 2.0), ("collective", 1.0), ("both", 2.5))
        ]
    return out


def raw(records: list[dict[str, Any]], probe_s: float = 0.01) -> list[dict[str, Any]]:
    """The records as lines of a record file: four samples each, between probes of one speed."""
    out = []
    for r in records:
        values = {k: v for k, v in r.items() if k not in ("seconds", "quiet")}
        samples = [[x * r["seconds"], probe_s, probe_s] for x in (0.99, 1.0, 1.0, 1.01)]
        out.append({**values, "samples": samples, "when": 1.7e9})
    return out


def document(
    speed: float = 1.0, session: profile.Session = SESSION, **given: Any
) -> dict[str, Any]:
    """The calibration of that node; one of several ranks has their link."""
    records = node_records(speed, **given)
    fits = fit_device.node(records, ["fp32"], 1)
    if session.ranks > 1:
        link = partial(fit_links.link, records, "pairs")
        fits = fits.joined(attempted({"link pairs": link}))
    return profile.build(fits, session, "2026-11-21")


def written(folder: Path, name: str = "node.toml", speed: float = 1.0) -> Path:
    path = folder / name
    profile.write(document(speed), path)
    return path
