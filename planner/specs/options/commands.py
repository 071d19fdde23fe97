"""Options of the commands that plan nothing: validate, check, calibrate, serve, schema."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from planner.specs.options.named import OUTPUT
from planner.specs.options.own import Shared
from planner.specs.options.record import Record
from planner.specs.options.row import Group


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(Shared):
    GROUP: ClassVar = Group("validate", "Validation")

    runs: tuple[str, ...] = ()
    suite: tuple[str, ...] = ()
    calibration: str | None = None
    coverage: bool = False
    ablations: bool = False
    cross_validate: bool = False
    csv: str | None = None
    plot: str | None = None
    residuals: str | None = None
    memory_residuals: str | None = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Record):
    GROUP: ClassVar = OUTPUT

    logs: tuple[str, ...] = ()
    save: str | None = None
    append: str | None = None


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


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Record):
    GROUP: ClassVar = Group("serve", "Server")

    host: str = "127.0.0.1"
    port: int = 8321
    allow_host: tuple[str, ...] = ()
    token_file: str | None = None
