"""Options of `dpplan calibrate`."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Record):
    GROUP: ClassVar = Group("measure", "Measure")

    out: str | None = None
    quick: bool = False
    thorough: bool = False
    processes: int = 1
    threads: int | None = None
    timeout: float = 120.0
    storage: str | None = None
    verify: bool = False
    calibration: str | None = None
    tolerance: float = 0.1
    case: tuple[str, ...] = ()
    precision: Literal["fp32", "bf16", "fp16"] | None = None
    report: str | None = None
    diff: tuple[str, str] | None = None
    merge: tuple[str, ...] = ()
