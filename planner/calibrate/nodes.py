"""Calibrations of several nodes: which node is slow and in what, and one file for all of a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median, median_low
from typing import Any

from planner.calibrate.documents import Difference, Far
from planner.calibrate.fit_device import BACKWARD_OVER_FORWARD, BYTES
from planner.calibrate.profile import Document
from planner.error import PlanError
from planner.formulas import flops, kernels
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration, stack_spec
from planner.specs.hardware import PRECISIONS, GpuSpec, LinkSpec
from planner.units import in_base

FAR = 0.1  # a node this much worse than the middle in a number is named
# widths of square GEMMs that stand for the curve of [kernels]; a choice
_GEMM_WIDTHS = (512.0, 1024.0, 4096.0)
_SEQUENCES = (512.0, 4096.0)
_HEADS, _WIDTH = 8.0, 64.0
# of these numbers more is better; all others are seconds, bytes or shares that are lost
_MORE_IS_BETTER = ("bandwidth", "_frac", "dense.")


def read(path: Path, field: str) -> Document:
    """A calibration file, checked as `--calibration` checks it, and the profile that it
    corrects."""
    measured = read_calibration(str(path))
    document = catalog.read_toml(path, field)
    if measured.device is None:
        _card(document)
    for link in measured.links.keys() - measured.own_links.keys():
        catalog.load_overlaid("networks", LinkSpec, link, measured.links[link], f"links.{link}")
    for stack in measured.stacks:
        stack_spec(stack, measured)
    return document


def _card(document: Document) -> GpuSpec:
    """The device profile with the measurements of the calibration file applied."""
    if "device" in document:
        return catalog.build(GpuSpec, document["device"], "--calibration", "[device]")
    return catalog.load_overlaid(
        "gpus", GpuSpec, document["gpu"], document.get("overlay", {}), "[overlay]"
    )


def speeds(document: Document) -> dict[str, float]:
    """Seconds of GEMMs and of attention from the curves, whose own parameters trade against each
    other."""
    card = _card(document)
    curve = card.kernels
    out: dict[str, float] = {}
    for precision in PRECISIONS:
        rate = card.rate(precision)
        if rate is None or precision not in card.operators:
            continue
        for n in _GEMM_WIDTHS:
            out[f"seconds of a {n:.0f}-wide product in {precision}"] = float(
                kernels.gemm_s(
                    n,
                    n,
                    n,
                    input_bytes=BYTES[precision],
                    rate_flop_per_s=rate * curve.sustained_clock,
                    compute_units=float(card.compute_units),
                    efficiency=curve.gemm_efficiency,
                    tile_exponent=curve.gemm_tile_exponent,
                    tile_overhead_s=curve.gemm_tile_overhead,
                    wave_softness=curve.gemm_wave_softness,
                    launch_s=curve.gemm_launch,
                    memory_bytes_per_s=card.memory_bandwidth,
                    memory_frac=curve.memory_frac,
                )
            )
        for s in _SEQUENCES:
            shape = kernels.attention_shape_frac(
                s,
                _WIDTH,
                curve.attention_half_sequence or 0.0,
                curve.attention_width_exponent or 0.0,
            )
            flop = flops.attention_forward_flop(flops.causal_pairs(s, s), _HEADS, _WIDTH, _WIDTH)
            for way, share, more in (
                ("forward", curve.attention_forward, 1.0),
                ("backward", curve.attention_backward, BACKWARD_OVER_FORWARD),
            ):
                name = f"seconds of attention {way} over {s:.0f} tokens in {precision}"
                out[name] = float(more * flop / (rate * curve.sustained_clock * share * shape))
    return out


_NO_NUMBERS = ("node", "kernels", "verified")  # tables whose numbers no node is compared by


def measured(document: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Every measured number of a file by its path, the parameters of curves left out."""
    out: dict[str, float] = {}
    for key, value in document.items():
        name = f"{path}.{key}" if path else key
        if key in _NO_NUMBERS or not isinstance(value, dict):
            continue
        if "value" not in value:
            out |= measured(value, name)
        elif value.get("kind") == "measured":
            out[name] = in_base(value["value"])
    return out


def numbers(document: Document) -> dict[str, float]:
    """Numbers by which nodes are compared."""
    return measured(document) | speeds(document)


def _worse(name: str, value: float, against: float) -> float:
    return (
        against / value - 1
        if any(word in name for word in _MORE_IS_BETTER)
        else value / against - 1
    )


def _is_speed(name: str) -> bool:
    """Whether a measured value is reported as a speed; memory sizes are not."""
    return not name.endswith(("memory", "usable_memory"))


def compare(base: Document, other: Document) -> list[Difference]:
    """Each number of both files, the largest loss of the second first: how much worse (positive) it
    is than the first."""
    if base["gpu"] != other["gpu"]:
        raise PlanError(
            "--diff",
            other["gpu"],
            f"was measured on another device than {base['gpu']}; compare nodes of one kind",
        )
    first, second = numbers(base), numbers(other)
    rows = [
        Difference(
            name=name,
            first=first[name],
            second=second[name],
            change=second[name] / first[name] - 1,
            worse=_worse(name, second[name], first[name]),
        )
        for name in first.keys() & second.keys()
        if _is_speed(name) and first[name] > 0 and second[name] > 0
    ]
    return sorted(rows, key=lambda row: (-row.worse, row.name))


def merge(documents: Sequence[Document], names: Sequence[str]) -> tuple[Document, list[Far]]:
    """One calibration for several nodes of a kind, and in what a node is far behind the middle,
    worst first.

    Every number is the middle of the nodes; the parameters of a curve belong together and are those
    of the node in the middle.
    """
    for name, other in zip(names, documents, strict=True):
        if other["gpu"] != documents[0]["gpu"]:
            raise PlanError(
                "--merge",
                name,
                f"was measured on {other['gpu']}, the first file on {documents[0]['gpu']}; "
                "merge nodes of one kind",
            )
    each = [numbers(document) for document in documents]
    middles = {
        name: median([numbers[name] for numbers in each if name in numbers])
        for name in sorted(set().union(*each))
    }
    pace = [sum(speeds(document).values()) for document in documents]
    typical = documents[pace.index(median_low(pace))]

    def replaced(table: Mapping[str, Any], path: str) -> Document:
        out: Document = {}
        for key, value in table.items():
            name = f"{path}.{key}" if path else key
            values = sorted(numbers[name] for numbers in each if name in numbers)
            if values and isinstance(value, dict):
                source = (
                    f"{value['source']}; middle of {len(values)} nodes, {values[0]:.4g} to"
                    f" {values[-1]:.4g}"
                )
                out[key] = {**value, "value": middles[name], "source": source}
            elif isinstance(value, dict) and "value" not in value and key not in _NO_NUMBERS:
                out[key] = replaced(value, name)
            else:
                out[key] = value
        return out

    far = [
        Far(
            node=name,
            name=key,
            value=value,
            middle=middles[key],
            worse=_worse(key, value, middles[key]),
        )
        for name, numbers in zip(names, each, strict=True)
        for key, value in numbers.items()
        if _is_speed(key)
        and value > 0
        and middles[key] > 0
        and _worse(key, value, middles[key]) > FAR
    ]
    merged = replaced(typical, "")
    merged.pop("verified", None)  # it was fitted on the numbers of one node
    source = f"middle of {len(documents)} nodes"
    merged["source"] = f"{typical['source']}; {source}" if "source" in typical else source
    return merged, sorted(far, key=lambda row: -row.worse)
