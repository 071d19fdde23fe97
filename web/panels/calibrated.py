"""Effect of a calibration file: each field before and after, and the step time without and with
it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner import api
from planner.api import Options
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration
from planner.specs.base import Spec
from planner.specs.documents.estimate import Report
from planner.specs.hardware import GpuSpec, LinkSpec
from planner.units import show


@dataclass(frozen=True)
class Change:
    """One number of a profile that a calibration replaces; before: None where there was none."""

    profile: str
    field: str
    before: str | None
    after: str
    kind: str
    source: str


@dataclass(frozen=True)
class Changes:
    """Fields that a calibration changes, and the answers without and with it."""

    rows: list[Change]
    before: Report
    after: Report


def changes(options: Options, report: Report) -> Changes:
    """Fields that differ, and the answer without the calibration. `report` is the full answer with
    it."""
    if options.calibration is None:
        raise api.PlanError("--calibration", None, "is needed")
    calibration = read_calibration(options.calibration)
    before = api.estimate(options.changed(calibration=None))
    old = catalog.load("gpus", GpuSpec, calibration.gpu)
    new = catalog.load_overlaid(
        "gpus", GpuSpec, calibration.gpu, calibration.overlay, calibration.path
    )
    rows = _differences(calibration.gpu, old, new)
    for link, fields in calibration.links.items():
        was = catalog.load("networks", LinkSpec, link)
        now = catalog.load_overlaid("networks", LinkSpec, link, fields, f"links.{link}")
        rows += _differences(link, was, now)
    return Changes(rows, before, report)


def _differences(profile: str, old: Any, new: Any, path: str = "") -> list[Change]:
    """Numbers that differ between two profiles, field by field."""
    out: list[Change] = []
    for key, value in _fields(new).items():
        was, where = _fields(old).get(key), f"{path}.{key}".lstrip(".")
        if _fields(value):
            out += _differences(profile, was, value, where)
        elif value != was and isinstance(value, int | float):
            unit = getattr(value, "unit", "1")
            out.append(
                Change(
                    profile,
                    where,
                    None if was is None else _shown(was, unit),
                    _shown(value, unit),
                    getattr(value, "kind", "assumed"),
                    getattr(value, "source", ""),
                )
            )
    return out


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, Spec):
        return {name: getattr(value, name) for name in type(value).model_fields}
    return value if isinstance(value, dict) else {}


def _shown(value: float, unit: str) -> str:
    return f"{float(value):.6g}" if unit == "1" else show(float(value), unit)
