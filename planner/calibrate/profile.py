"""The calibration file: fitted numbers with their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from planner.calibrate import detect
from planner.calibrate.detect import Hardware
from planner.calibrate.fit import Fit, Fits
from planner.error import PlanError
from planner.inputs import catalog, files
from planner.inputs.calibration import FILE_VERSION, read_calibration
from planner.specs.base import NOTHING
from planner.specs.hardware import GpuSpec, LinkSpec

Document = dict[str, Any]  # a TOML table
STACKS = ("pytorch-ddp", "pytorch-fsdp", "torchtitan")  # what verification trains with
_NEEDED = ("gemm_efficiency", "attention_forward", "attention_backward")  # of a whole device
_ZERO_ALLOWED = ("gemm_tile_exponent", "gemm_tile_overhead", "gemm_wave_softness", "gemm_launch")
_KERNELS = (
    *_NEEDED,
    *_ZERO_ALLOWED,
    "memory_frac",
    "attention_half_sequence",
    "attention_width_exponent",
)
# a profile takes no share of zero, and none of a link's bandwidth above this
_LEAST_SHARE, _MOST_LINK_SHARE = 1e-3, 1.5
_COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "send_recv")
_MOST_ID = 80  # characters of a profile's id
_STEADY = "dpplan calibrate: rates are those of a steady stream"
_AS_ISSUED = (
    "dpplan calibrate: operators run as they are issued, their fixed time is in [launch] of the"
    " stacks"
)
# of a host without a shipped profile near it, said to be assumed: choices
_USUAL_POWER_W, _USUAL_NIC_BYTES_PER_S = 100.0, 1.25e9
_USUAL_LINKS = {"intra_node": "pcie4-no-p2p", "inter_node": "tcp-10"}


@dataclass(frozen=True)
class Session:
    """Where and how a node was measured."""

    found: Hardware
    ranks: int
    ranks_per_node: int
    precisions: Sequence[str]
    context_bytes: float  # of a process before its first tensor
    conditions: Mapping[str, Any]  # kept in [node]

    @property
    def on_cpu(self) -> bool:
        return self.found.kind == "cpu"

    @property
    def main(self) -> str:
        """The precision of the single curve for GEMMs and attention."""
        return "bf16" if not self.on_cpu and "bf16" in self.precisions else self.precisions[0]


def number(value: float, source: str, date: str, kind: str = "measured") -> Document:
    """A value of six digits, as much as any measurement holds, with where it comes from."""
    value = 0.0 if abs(value) < NOTHING else float(f"{value:.6g}")
    return {"value": value, "kind": kind, "source": source, "date": date}


def _fitted(fit: Fit, name: str, date: str, value: float | None = None) -> Document:
    """A number of a curve (or a value made of it), with its cases, errors and confidence."""
    unseen = (
        ""
        if fit.held_out_median is None
        else f", {100 * fit.held_out_median:.1f} % on {fit.held_out} held-out"
    )
    fitted = fit.numbers[name]
    bar = f"; +- {fitted.error:.2g}" if fitted.error else ""
    source = (
        f"dpplan calibrate: {fit.name}, {fit.cases} cases, median error"
        f" {100 * fit.median_error:.1f} %{unseen}{bar}"
    )
    return number(fitted.value if value is None else value, source, date)


def build(
    fits: Fits, session: Session, date: str, overhead: Mapping[str, Document] | None = None
) -> Document:
    """A calibration: an overlay of the shipped profile of exactly this device, or a whole device if
    none is shipped.

    overhead: per stack, the keys of `[launch]` and `[fusion]` that small decoders determine. Raises
    PlanError if curves are missing that a whole device needs.
    """
    hardware = session.found
    known = detect.profile_of(hardware)
    identity = detect.device_id(hardware)
    source = f"{hardware.name}, {session.ranks} ranks, {hardware.threads} threads each"
    document: Document = {
        "schema_version": FILE_VERSION,
        "gpu": identity,
        "date": date,
        "source": f"dpplan calibrate on {hardware.host}: {source}",
    }
    kernels = _kernels(fits, session.main, date)
    operators = {
        p: _operators(fits.fits[f"operators {p}"], date)
        for p in session.precisions
        if f"operators {p}" in fits.fits
    }
    link = fits.fits.get("link pairs" if session.ranks == 2 else "link all")
    if known:
        curve = {"kernels": {**kernels, "sustained_clock": number(1.0, _STEADY, date)}}
        document["overlay"] = {**(curve if kernels else {}), "operators": operators}
        if link:
            document["links"] = _overlaid_link(link, known, date)
    else:
        link_id = f"{identity}-link"[:_MOST_ID] if link else None
        document["device"] = {
            **_device(fits, session, date, kernels, link_id),
            "operators": operators,
        }
        if link and link_id:
            document["links"] = {link_id: _own_link(link, link_id, source, date)}
    if "storage" in fits.fits:
        document["storage"] = storage_table(fits.fits["storage"], hardware.host, date)
    if "host" in fits.fits:
        document["host"] = host_table(fits, hardware, date)
    if overhead:
        document["stacks"] = dict(overhead)
    document["node"] = {
        key: value
        for key, value in {**hardware.as_dict(), **session.conditions}.items()
        if value is not None and value != ""
    }
    return document


def _kernels(fits: Fits, precision: str, date: str) -> Document:
    out: Document = {}
    for curve in ("products", "attention"):
        fit = fits.fits.get(f"{curve} {precision}")
        for name, n in fit.numbers.items() if fit else ():
            if fit and name in _KERNELS:
                least = 0.0 if name in _ZERO_ALLOWED else _LEAST_SHARE
                out[name] = _fitted(fit, name, date, max(n.value, least))
    return out


def _operators(fit: Fit, date: str) -> Document:
    return {name: _fitted(fit, name, date) for name, n in fit.numbers.items() if n.value > 0}


def _device(
    fits: Fits, session: Session, date: str, kernels: Document, link: str | None
) -> Document:
    """A whole profile: measured numbers, and for what no measurement gives the nearest shipped
    card's, said to be assumed. link: its own, where it was measured."""
    hardware = session.found
    identity = detect.device_id(hardware)
    missing = [name for name in _NEEDED if name not in kernels]
    if missing:
        why = "; ".join(f"{name}: {reason}" for name, reason in fits.refused.items())
        raise PlanError(
            "--out",
            identity,
            f"no shipped profile and no fit for {', '.join(missing)} ({why}); measure again on a "
            "quieter machine or with --thorough",
        )
    near = None if session.on_cpu else detect.nearest(hardware)
    assumed = (
        "no measurement: a usual value"
        if near is None
        else f"no measurement: as {near.title}, the nearest shipped profile"
    )
    watts = hardware.power_limit_w or (float(near.power) if near else _USUAL_POWER_W)
    nic = float(near.node.nic_bandwidth) if near else _USUAL_NIC_BYTES_PER_S
    usable = hardware.memory_bytes / (session.ranks_per_node if session.on_cpu else 1)
    system = "dpplan calibrate: as the system tells"
    context = "dpplan calibrate: memory of a process before its first tensor"
    links = near.node if near else None
    return {
        "id": identity,
        "title": f"{hardware.name}, {hardware.threads} threads"
        if session.on_cpu
        else hardware.name,
        "vendor": near.vendor if near else "other",
        "architecture": near.architecture if near else "cpu",
        "compute_units": hardware.compute_units,
        "memory": number(hardware.memory_bytes, system, date),
        "usable_memory": number(usable, f"{system}, shared by the ranks of a host", date),
        "memory_bandwidth": _fitted(fits.fits["memory"], "bandwidth", date),
        "power": number(watts, assumed, date, "assumed"),
        "context_memory": number(session.context_bytes, context, date),
        "dense": _dense(fits, session, date),
        "kernels": {**_plain_kernels(date), **kernels},
        "node": {
            "gpus_per_node": max(session.ranks_per_node, 1),
            "intra_node": link or (links.intra_node if links else _USUAL_LINKS["intra_node"]),
            "inter_node": links.inter_node if links else _USUAL_LINKS["inter_node"],
            "nics_per_node": links.nics_per_node if links else 1,
            "nic_bandwidth": number(nic, assumed, date, "assumed"),
        },
    }


def _dense(fits: Fits, session: Session, date: str) -> Document:
    """FLOP/s of the fastest GEMM, by precision."""
    source = "dpplan calibrate: fastest GEMM, cold operands"
    rates = {p: fits.value(f"rate {p}", "rate") for p in session.precisions}
    dense = {p: number(rate, source, date) for p, rate in rates.items() if rate is not None}
    return dense if "fp32" in dense else {**dense, "fp32": dense[session.main]}


def _plain_kernels(date: str) -> Document:
    """A curve without shape, which what was fitted replaces."""
    zero, unit = number(0.0, _AS_ISSUED, date), number(1.0, _STEADY, date)
    return {
        "gemm_tile_exponent": zero,
        "gemm_tile_overhead": zero,
        "gemm_wave_softness": unit,
        "gemm_launch": zero,
        "memory_frac": unit,
        "sustained_clock": unit,
        "kernel_gap": zero,
    }


def storage_table(fit: Fit, host: str, date: str) -> Document:
    """The folder that was written, as a place for checkpoints."""
    return {
        "id": "measured",
        "title": f"measured on {host}",
        "per_node": _fitted(fit, "write_bandwidth", date),
        "read_per_node": _fitted(fit, "read_bandwidth", date),
    }


def host_table(fits: Fits, hardware: Hardware, date: str) -> Document:
    """The memory and the cores of this host, as an offloaded optimizer finds them."""
    memory, copies = fits.fits["host"], fits.fits.get("host copies")
    streamed = "dpplan calibrate: what all cores stream"
    return {
        "id": "measured",
        "title": f"measured on {hardware.host}",
        "source": f"dpplan calibrate on {hardware.host}",
        "sockets": detect.sockets(),
        "cores": detect.usable_cores(),
        "memory_bandwidth": _fitted(memory, "stream_bandwidth", date),
        "stream_frac": number(1.0, streamed, date),
        "core_bandwidth": _fitted(memory, "core_bandwidth", date),
        "update_frac": _fitted(
            memory, "update_frac", date, min(memory.numbers["update_frac"].value, _MOST_LINK_SHARE)
        ),
        **({name: _fitted(copies, name, date) for name in copies.numbers} if copies else {}),
    }


def _rates(fit: Fit) -> dict[str, float]:
    """B/s by operation of a link's curve."""
    names = (name for name in fit.numbers if name.endswith("_bandwidth"))
    return {name.removesuffix("_bandwidth"): fit.numbers[name].value for name in names}


def _overlaid_link(fit: Fit, known: str, date: str) -> Document:
    """Measured numbers of the usual link of a shipped device's node."""
    gpu = catalog.load("gpus", GpuSpec, known)
    link = catalog.load("networks", LinkSpec, gpu.node.intra_node)
    return {link.id: _link_fields(fit, float(gpu.links.get(link.id, link.bandwidth)), date)}


def _own_link(fit: Fit, name: str, between: str, date: str) -> Document:
    """A whole link of a device without a shipped profile."""
    whole = max(_rates(fit).values())
    return {
        "id": name,
        "title": f"between ranks of {between}",
        "scope": "intra_node",
        "bandwidth": number(whole, "dpplan calibrate: fastest of the collectives below", date),
        **_link_fields(fit, whole, date),
    }


def _link_fields(fit: Fit, bandwidth: float, date: str) -> Document:
    """Shares of a bandwidth (B/s) by operation, and the fixed cost of a message."""

    def share(operation: str, rate: float) -> Document:
        most = min(rate / bandwidth, _MOST_LINK_SHARE)
        return _fitted(fit, f"{operation}_bandwidth", date, most)

    rates = _rates(fit)
    unmeasured = "no measurement: as the fastest collective of this link"
    times = {"base_latency": "base", "latency": "latency", "ramp": "ramp"}
    times |= {name: name for name in fit.numbers if name.endswith("_start")}
    return {
        **{f"{name}_frac": share(name, rate) for name, rate in rates.items()},
        **{
            f"{name}_frac": number(1.0, unmeasured, date, "assumed")
            for name in _COLLECTIVES
            if name not in rates
        },
        **{field: _fitted(fit, name, date) for field, name in times.items()},
    }


def write(document: Document, path: Path) -> None:
    """Write the file whole or not at all, after reading it as an estimate would."""
    text = tomli_w.dumps(document)
    with catalog.only_given({str(path): text}):
        read_calibration(str(path))
    files.write_text(path, "--out", text)
