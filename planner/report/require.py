"""Requirements on an estimate: "memory < 90%", "days.high < 30", "fits". Each is read before the
work and judged after it.

A requirement is a quantity, a comparison and a limit with its unit. Quantities are declared in
QUANTITIES; those that follow from the step time also exist at the ends of its 80 % band, as
NAME.low and NAME.high.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.specs.base import PlanError
from planner.specs.documents.estimate import Report
from planner.specs.documents.estimate import Requirement as Judged
from planner.units import UnitError, parse, parse_count

FIELD = "--require"
_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_FORM = re.compile(r"([A-Za-z][\w-]*+(?:\.\w++)?)\s*+(?:(<=|>=|<|>|=++|!=)(.*))?", re.DOTALL)
_ENDS = ("low", "high")
_COUNTED = ("USD", "tokens/s", "GPU-hours")  # people write 1.5M or 2e6 of these
_SCALED = {
    "days": 86400.0,
    "kWh": 3.6e6,
    "GPU-hours": 3600.0,
}  # units of the report that are not base units, in those


@dataclass(frozen=True)
class Quantity:
    """Something of a report that can be required.

    unit: of the value, as the report has it; value: of a report with step time `scale` times the
    expected, None where unknown.
    """

    unit: str
    meaning: str
    value: Callable[[Report, float], float | None]
    has_band: bool = False  # follows from the step time
    whole: Callable[[Report], float] | None = None  # what 100 % of it is, for limits in percent
    of_run: bool = False  # takes the time of the whole run, failures and stops included
    missing: str = ""  # the option without which it is not known


def _times(known: float | None, scale: float) -> float | None:
    return None if known is None else known * scale


def _capacity(report: Report) -> float:
    return report.memory.capacity_bytes


def _gaps(report: Report, scale: float) -> float:
    """Device memory with the fragmentation that was measured `scale` times: not at all, once, or
    twice."""
    m = report.memory
    reserved = {0.0: m.peak_bytes, 1.0: m.reserved_bytes, 2.0: m.reserved_high_bytes}[scale]
    return m.device_bytes - m.reserved_bytes + reserved


_TOKENS, _PRICE = "--tokens", "--price (and --tokens)"

QUANTITIES: dict[str, Quantity] = {
    "memory": Quantity(
        "B",
        "device memory of the fullest GPU; % of what a framework can allocate",
        _gaps,
        True,
        _capacity,
    ),
    "headroom": Quantity(
        "B",
        "free device memory, negative when short; % likewise",
        lambda r, k: _capacity(r) - _gaps(r, k),
        True,
        _capacity,
    ),
    "fit-chance": Quantity(
        "1", "chance that the device memory suffices", lambda r, k: r.memory.fit_chance
    ),
    "host-memory": Quantity(
        "B", "host memory per GPU that offloading takes", lambda r, k: r.memory.host_bytes
    ),
    "step": Quantity("s", "step time", lambda r, k: r.step.seconds * k, True),
    "tokens-per-s": Quantity(
        "tokens/s", "throughput of the cluster", lambda r, k: r.throughput.tokens_per_s / k, True
    ),
    "tokens-per-s-per-gpu": Quantity(
        "tokens/s", "throughput of a GPU", lambda r, k: r.throughput.tokens_per_s_per_gpu / k, True
    ),
    "mfu": Quantity(
        "1", "model FLOP utilisation, attention causal", lambda r, k: r.throughput.mfu / k, True
    ),
    "hfu": Quantity(
        "1", "hardware FLOP utilisation, likewise", lambda r, k: r.throughput.hfu / k, True
    ),
    "bubble": Quantity(
        "1",
        "share of the step that the pipeline idles",
        lambda r, k: r.step.components["bubble"] / r.step.seconds,
    ),
    "goodput": Quantity(
        "1", "share of wall time that advances training", lambda r, k: r.run.goodput
    ),
    "days": Quantity(
        "days",
        "wall time of the run",
        lambda r, k: _times(r.run.days, k),
        True,
        of_run=True,
        missing=_TOKENS,
    ),
    "gpu-hours": Quantity(
        "GPU-hours",
        "GPU-hours of the run",
        lambda r, k: _times(r.run.gpu_hours, k),
        True,
        of_run=True,
        missing=_TOKENS,
    ),
    "cost": Quantity(
        "USD",
        "cost of the run",
        lambda r, k: _times(r.run.cost_usd, k),
        True,
        of_run=True,
        missing=_PRICE,
    ),
    "co2": Quantity(
        "kg",
        "CO2 equivalent of the energy",
        lambda r, k: _times(r.run.co2_kg, k),
        True,
        of_run=True,
        missing=_TOKENS,
    ),
    "energy": Quantity(
        "kWh",
        "energy of the run at the wall plug",
        lambda r, k: _times(r.run.energy_kwh, k),
        True,
        of_run=True,
        missing=_TOKENS,
    ),
}
_OF_FRAGMENTATION = ("memory", "headroom")  # their bounds differ from the step time's


@dataclass(frozen=True)
class Requirement:
    """One requirement as read; `limit` is in `unit`, or a share of the quantity's whole where
    `share` is set."""

    text: str
    name: str
    end: str | None = None
    compare: str | None = None
    limit: float = 0.0
    share: bool = False


def read(texts: Sequence[str]) -> tuple[Requirement, ...]:
    """Requirements from their texts. Raises PlanError for one that cannot be read."""
    return tuple(_read(text) for text in texts)


def _read(text: str) -> Requirement:
    match = _FORM.fullmatch(text.strip())
    if not match:
        raise PlanError(FIELD, text, "must read like 'memory < 90%', 'days.high < 30' or 'fits'")
    word, compare, limit = match.groups()
    name, _, end = word.lower().replace("_", "-").partition(".")
    if name == "fits":
        if compare or end:
            raise PlanError(FIELD, text, "'fits' takes no comparison")
        return Requirement(text, name)
    quantity = QUANTITIES.get(name)
    if quantity is None:
        raise PlanError(
            FIELD, text, f"unknown quantity {name!r}; known are fits, {', '.join(QUANTITIES)}"
        )
    if end and (not quantity.has_band or end not in _ENDS):
        ends = (
            f"{name}.low and {name}.high"
            if quantity.has_band
            else "no band: it does not depend on the step time"
        )
        raise PlanError(FIELD, text, f"{name} has {ends}")
    if compare not in _COMPARE:
        raise PlanError(
            FIELD,
            text,
            f"needs one of {' '.join(_COMPARE)} and a limit, as in '{name} < {_example(quantity)}'",
        )
    value, share = _limit(text, quantity, (limit or "").strip())
    return Requirement(text, name, end or None, compare, value, share)


def _example(quantity: Quantity) -> str:
    plain = {"B": "70 GiB", "1": "40%", "tokens/s": "1M", "USD": "1e6", "GPU-hours": "1M"}
    return plain.get(quantity.unit, f"10 {quantity.unit}")


def _limit(text: str, quantity: Quantity, limit: str) -> tuple[float, bool]:
    """The limit in the quantity's unit, or as a share of its whole."""
    if quantity.unit == "B" and not any(letter.isalpha() or letter == "%" for letter in limit):
        raise PlanError(
            FIELD, text, "the limit needs its unit: write for example '70 GiB' or '90%'"
        )
    try:
        if limit.endswith("%") and quantity.unit != "1":
            if quantity.whole is None:
                raise PlanError(
                    FIELD, text, f"is not a share of anything; give the limit in {quantity.unit}"
                )
            return parse(limit, "1"), True
        if quantity.unit in _COUNTED and _is_count(limit):
            return parse_count(limit), False
        value = parse(limit, quantity.unit) / _SCALED.get(quantity.unit, 1.0)
    except UnitError as error:
        raise PlanError(FIELD, text, str(error)) from None
    if quantity.unit == "1" and not 0 <= value <= 1:
        raise PlanError(FIELD, text, "is a share between 0 and 1: write '40%' or '0.4'")
    return value, False


def _is_count(limit: str) -> bool:
    try:
        parse_count(limit)
    except UnitError:
        return False
    return True


def judge(requirements: Sequence[Requirement], report: Report) -> list[Judged]:
    """Every requirement with the value it got and whether it holds. Raises PlanError where the
    request leaves a value unknown."""
    return [_judge(requirement, report) for requirement in requirements]


def _judge(requirement: Requirement, report: Report) -> Judged:
    name = requirement.name + (f".{requirement.end}" if requirement.end else "")
    if requirement.name == "fits":
        return Judged(requirement.text, name, None, None, None, None, report.memory.fits)
    quantity = QUANTITIES[requirement.name]
    ends = [
        quantity.value(report, scale)
        for scale in (_scales(requirement, report) if requirement.end else (1.0,))
    ]
    known = [value for value in ends if value is not None]
    if len(known) < len(ends):
        raise PlanError(FIELD, requirement.text, f"is not known here: give {quantity.missing}")
    value = min(known) if requirement.end == "low" else max(known)
    limit = requirement.limit
    if requirement.share and quantity.whole is not None:
        limit *= quantity.whole(report)
    holds = _COMPARE[requirement.compare or "<"](value, limit)
    return Judged(requirement.text, name, requirement.compare, limit, value, quantity.unit, holds)


def _scales(requirement: Requirement, report: Report) -> tuple[float, float]:
    """Scales of the ends of the quantity's band: multiples of the memory gap, or of the expected
    step time."""
    if requirement.name in _OF_FRAGMENTATION:
        return 0.0, 2.0
    step, run = report.step, report.run
    if QUANTITIES[requirement.name].of_run:
        return run.low, run.high
    return step.low / step.seconds, step.high / step.seconds
