"""Effect of a calibration file: each field before and after, and the step time without and with
it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from planner import api
from planner.api import Options
from planner.inputs import catalog
from planner.inputs.calibration import read_calibration
from planner.specs.base import Spec
from planner.specs.documents.estimate import Report
from planner.specs.hardware import GpuSpec, LinkSpec
from planner.units import show
from planner.views.cells import Cell
from planner.views.view import Block


def blocks(options: Options, report: Report) -> list[Block]:
    """Fields that differ, and the step without the calibration. `report` is the full answer with
    it."""
    if options.calibration is None:
        raise api.PlanError("--calibration", None, "is needed")
    calibration = read_calibration(options.calibration)
    before = api.estimate(options.changed(calibration=None), brief=True)
    old = catalog.load("gpus", GpuSpec, calibration.gpu)
    new = catalog.load_overlaid(
        "gpus", GpuSpec, calibration.gpu, calibration.overlay, calibration.path
    )
    rows = [*_differences(calibration.gpu, old, new)]
    for link, fields in calibration.links.items():
        was = catalog.load("networks", LinkSpec, link)
        now = catalog.load_overlaid("networks", LinkSpec, link, fields, f"links.{link}")
        rows += _differences(link, was, now)
    steps = (show(each.step.seconds, "s") for each in (before, report))
    return [
        Block(
            "What the calibration changes",
            ["Step time without it {}, with it {}.".format(*steps)],
            ["profile", "field", ">before", ">after", "kind", "source"],
            rows,
        )
    ]


def _differences(profile: str, old: Any, new: Any, path: str = "") -> Iterator[list[Cell]]:
    """Numbers that differ between two profiles, field by field."""
    for key, value in _fields(new).items():
        was, where = _fields(old).get(key), f"{path}.{key}".lstrip(".")
        if _fields(value):
            yield from _differences(profile, was, value, where)
        elif value != was and isinstance(value, int | float):
            unit = getattr(value, "unit", "1")
            before = None if was is None else _shown(was, unit)
            source = getattr(value, "kind", "assumed"), getattr(value, "source", "")
            yield [profile, where, before, _shown(value, unit), *source]


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, Spec):
        return {name: getattr(value, name) for name in type(value).model_fields}
    return value if isinstance(value, dict) else {}


def _shown(value: float, unit: str) -> str:
    return f"{float(value):.6g}" if unit == "1" else show(float(value), unit)
