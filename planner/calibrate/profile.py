"""The calibration file: fitted numbers with their source, merged over nodes, compared between
nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from planner.calibrate import detect
from planner.calibrate.detect import Hardware
from planner.calibrate.fit import Fit, Fits
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration
from planner.specs.error import PlanError
from planner.specs.hardware import GpuSpec, LinkSpec

Document = dict[str, Any]
STACKS = ("pytorch-ddp", "pytorch-fsdp", "torchtitan")  # what verification trains with
_KERNELS = (
    "gemm_efficiency",
    "gemm_tile_exponent",
    "gemm_tile_overhead",
    "gemm_wave_softness",
    "gemm_launch",
    "memory_frac",
    "attention_forward",
    "attention_backward",
    "attention_half_sequence",
    "attention_width_exponent",
)
_ZERO_ALLOWED = ("gemm_tile_exponent", "gemm_tile_overhead", "gemm_wave_softness", "gemm_launch")
_LEAST_SHARE = 1e-3  # a share that a profile takes must be positive


def number(value: float, source: str, date: str, kind: str = "measured") -> Document:
    return {"value": float(f"{value:.6g}"), "kind": kind, "source": source, "date": date}


def _said(fit: Fit, name: str) -> str:
    """Where a number comes from: cases, error, confidence."""
    held = (
        ""
        if fit.held_out_median is None
        else f", {100 * fit.held_out_median:.1f} % on {fit.held_out} held-out"
    )
    error = fit.numbers[name].error
    bar = f"; +- {error:.2g}" if error else ""
    return (
        f"dpplan calibrate: {fit.name}, {fit.cases} cases, median error"
        f" {100 * fit.median_error:.1f} %{held}{bar}"
    )


def build(
    fits: Fits,
    found: Hardware,
    *,
    date: str,
    ranks: int,
    ranks_per_node: int,
    precisions: Sequence[str],
    context_bytes: float,
    conditions: Mapping[str, Any],
    overhead: Mapping[str, Document] | None = None,
) -> Document:
    """A calibration: an overlay of the shipped profile of exactly this device, or a whole device
    where none is shipped.

    overhead: per stack, what of `[launch]` and `[fusion]` small models show. Raises PlanError where
    curves are missing that a whole device needs.
    """
    known = detect.profile_of(found)
    identity = detect.device_id(found)
    document: Document = {
        "schema_version": 1,
        "gpu": identity,
        "date": date,
        "source": (
            f"dpplan calibrate on {found.host}: {found.name}, {ranks} ranks, {found.threads}"
            " threads each"
        ),
    }
    main = "bf16" if found.kind == "gpu" and "bf16" in precisions else precisions[0]
    kernels = _kernels(fits, main, date)
    operators = {p: _operators(fits, p, date) for p in precisions if "operators " + p in fits.fits}
    if known:
        steady = number(1.0, "dpplan calibrate: rates are those of a steady stream", date)
        curve = {**kernels, "sustained_clock": steady} if kernels else {}
        document["overlay"] = (
            {"kernels": curve, "operators": operators} if curve else {"operators": operators}
        )
    else:
        document["device"] = _device(
            fits,
            found,
            identity,
            main,
            precisions,
            kernels,
            operators,
            date,
            ranks_per_node,
            context_bytes,
        )
    link = "pairs" if ranks == 2 else "all"
    if "link " + link in fits.fits:
        _links(document, fits, link, known, identity, date)
    if "storage" in fits.fits:
        document["storage"] = storage_table(fits.fits["storage"], found.host, date)
    if overhead:
        document["stacks"] = {name: dict(tables) for name, tables in overhead.items()}
    document["node"] = {
        key: value
        for key, value in {**found.as_dict(), **conditions}.items()
        if value is not None and value != ""
    }
    return document


def _kernels(fits: Fits, precision: str, date: str) -> Document:
    out: Document = {}
    for curve in ("products ", "attention "):
        fit = fits.fits.get(curve + precision)
        if fit is None:
            continue
        for name in fit.numbers:
            value = fit.numbers[name].value
            if name in _KERNELS:
                out[name] = number(
                    value if name in _ZERO_ALLOWED else max(value, _LEAST_SHARE),
                    _said(fit, name),
                    date,
                )
    return out


def _operators(fits: Fits, precision: str, date: str) -> Document:
    fit = fits.fits["operators " + precision]
    return {
        name: number(n.value, _said(fit, name), date)
        for name, n in fit.numbers.items()
        if n.value > 0
    }


def _device(
    fits: Fits,
    found: Hardware,
    identity: str,
    main: str,
    precisions: Sequence[str],
    kernels: Document,
    operators: Document,
    date: str,
    ranks_per_node: int,
    context_bytes: float,
) -> Document:
    """A whole profile: measured numbers, and for what no measurement gives the nearest shipped
    card's, said to be assumed."""
    missing = [name for name in _KERNELS[:1] + _KERNELS[6:8] if name not in kernels]
    if missing:
        why = "; ".join(f"{name}: {reason}" for name, reason in fits.refused.items())
        raise PlanError(
            "--out",
            identity,
            f"no shipped profile and no fit for {', '.join(missing)} ({why}); measure again on a "
            "quieter machine or with --thorough",
        )
    rates = {p: fits.fits["rate " + p] for p in precisions if "rate " + p in fits.fits}
    dense = {
        p: number(f.numbers["rate"].value, "dpplan calibrate: fastest product, cold operands", date)
        for p, f in rates.items()
    }
    if "fp32" not in dense:
        dense["fp32"] = dense[main]
    zero = number(
        0.0,
        "dpplan calibrate: operators run as they are issued, their fixed time is in [launch] of the"
        " stacks",
        date,
    )
    one = number(1.0, "dpplan calibrate: rates are those of a steady stream", date)
    base = {
        "gemm_tile_exponent": zero,
        "gemm_tile_overhead": zero,
        "gemm_wave_softness": one,
        "gemm_launch": zero,
        "memory_frac": one,
        "sustained_clock": one,
        "kernel_gap": zero,
    }
    memory = fits.fits["memory"]
    near = None if found.kind == "cpu" else detect.nearest(found)
    assumed = (
        "no measurement: a usual value"
        if near is None
        else f"no measurement: as {near.title}, the nearest shipped profile"
    )
    watts = found.power_limit_w or (float(near.power) if near else 100.0)
    out: Document = {
        "id": identity,
        "title": f"{found.name}, {found.threads} threads" if found.kind == "cpu" else found.name,
        "vendor": near.vendor if near else "other",
        "architecture": near.architecture if near else "cpu",
        "compute_units": found.compute_units,
        "memory": number(found.memory_bytes, "dpplan calibrate: as the system tells", date),
        "usable_memory": number(
            found.memory_bytes / (ranks_per_node if found.kind == "cpu" else 1),
            "dpplan calibrate: as the system tells, shared by the ranks of a host",
            date,
        ),
        "memory_bandwidth": number(
            memory.numbers["bandwidth"].value, _said(memory, "bandwidth"), date
        ),
        "power": number(watts, assumed, date, "assumed"),
        "context_memory": number(
            context_bytes, "dpplan calibrate: memory of a process before its first tensor", date
        ),
        "dense": dense,
        "kernels": {**base, **kernels},
        "operators": operators,
        "node": {
            "gpus_per_node": max(ranks_per_node, 1),
            "intra_node": near.node.intra_node if near else "pcie4-no-p2p",
            "inter_node": near.node.inter_node if near else "tcp-10",
            "nics_per_node": near.node.nics_per_node if near else 1,
            "nic_bandwidth": number(
                float(near.node.nic_bandwidth) if near else 1.25e9, assumed, date, "assumed"
            ),
        },
    }
    return out


def storage_table(fit: Fit, host: str, date: str) -> Document:
    """The folder that was written, as a place for checkpoints."""
    return {
        "id": "measured",
        "title": f"measured on {host}",
        "per_node": number(
            fit.numbers["write_bandwidth"].value, _said(fit, "write_bandwidth"), date
        ),
        "read_per_node": number(
            fit.numbers["read_bandwidth"].value, _said(fit, "read_bandwidth"), date
        ),
    }


def _links(
    document: Document, fits: Fits, group: str, known: str | None, identity: str, date: str
) -> None:
    """The link of a group as a whole profile (own device), or as an overlay of the node's usual
    link."""
    fit = fits.fits["link " + group]
    rates = {
        name.removesuffix("_bandwidth"): n.value
        for name, n in fit.numbers.items()
        if name.endswith("_bandwidth")
    }

    def timed(name: str) -> Document:
        return number(fit.numbers[name].value, _said(fit, name), date)

    whole = max(rates.values())
    base = whole
    if known:
        gpu = catalog.load("gpus", GpuSpec, known)
        link = catalog.load("networks", LinkSpec, gpu.node.intra_node)
        base = float(gpu.links.get(link.id, link.bandwidth))
    fields: Document = {
        f"{name}_frac": number(min(rate / base, 1.5), _said(fit, f"{name}_bandwidth"), date)
        for name, rate in rates.items()
    }
    for name in ("all_reduce", "all_gather", "reduce_scatter", "send_recv"):
        if name not in rates:
            fields[f"{name}_frac"] = number(
                1.0, "no measurement: as the fastest collective of this link", date, "assumed"
            )
    fields |= {"base_latency": timed("base"), "latency": timed("latency"), "ramp": timed("ramp")}
    fields |= {name: timed(name) for name in fit.numbers if name.endswith("_start")}
    if known:
        document["links"] = {link.id: fields}
        return
    name = f"{identity}-link"[:80]
    document["links"] = {
        name: {
            "id": name,
            "title": f"between ranks of {document['source'].partition(': ')[2]}",
            "scope": "intra_node",
            "bandwidth": number(whole, "dpplan calibrate: fastest of the collectives below", date),
            **fields,
        }
    }
    document["device"]["node"]["intra_node"] = name


def write(document: Document, path: Path) -> None:
    """Write the file whole or not at all, after reading it back as an estimate would."""
    text = tomli_w.dumps(document)
    trial = path.with_name(path.name + ".trial.toml")
    catalog.write_text(trial, "--out", text)
    try:
        read_calibration(str(trial))
    finally:
        trial.unlink(missing_ok=True)
    catalog.write_text(path, "--out", text)
