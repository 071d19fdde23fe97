"""The one place that knows 1e9 from 2**30 and bits from bytes.

Text with a unit enters through `parse` and leaves through `show`; between them everything is a
plain float in base units: bytes, seconds, FLOP, watts, US dollars, tokens, and ratios of them.
"""

from __future__ import annotations

import math
import re

# symbol -> (dimension, factor to the base unit of that dimension)
_ATOMS: dict[str, tuple[str, float]] = {
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "PB": ("B", 1e15),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "TiB": ("B", 2.0**40),
    "bit": ("B", 1 / 8),
    "kbit": ("B", 1e3 / 8),
    "Mbit": ("B", 1e6 / 8),
    "Gbit": ("B", 1e9 / 8),
    "Tbit": ("B", 1e12 / 8),
    "FLOP": ("FLOP", 1.0),
    "GFLOP": ("FLOP", 1e9),
    "TFLOP": ("FLOP", 1e12),
    "PFLOP": ("FLOP", 1e15),
    "EFLOP": ("FLOP", 1e18),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "day": ("s", 86400.0),
    "days": ("s", 86400.0),
    "years": ("s", 365.25 * 86400.0),
    "W": ("W", 1.0),
    "kW": ("W", 1e3),
    "MW": ("W", 1e6),
    "J": ("J", 1.0),
    "kWh": ("J", 3.6e6),
    "MWh": ("J", 3.6e9),
    "GWh": ("J", 3.6e12),
    "USD": ("USD", 1.0),
    "g": ("kg", 1e-3),
    "kg": ("kg", 1.0),
    "t": ("kg", 1e3),
    "token": ("token", 1.0),
    "tokens": ("token", 1.0),
    "GPU": ("GPU", 1.0),
    "param": ("param", 1.0),
    "1": ("1", 1.0),
    "%": ("1", 0.01),
}

_MULTIPLIERS = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}

# commas only between thousands: "1,5 GB" is no number rather than 15 GB
_NUMBER = re.compile(
    r"^\s*([-+]?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d[\d_]*)\.?\d*|\.\d+)(?:[eE][-+]?\d{1,3})?)\s*(.*?)\s*$"
)


class UnitError(ValueError):
    """Text that is no number with a known unit, or a unit of the wrong dimension."""


def unit_factor(unit: str) -> tuple[str, float]:
    """Return (base unit, factor) of a unit such as "GB/s": ("B/s", 1e9). Raises UnitError for an
    unknown word."""
    parts = unit.replace(" ", "").split("/")
    dimension: list[str] = []
    factor = 1.0
    for position, part in enumerate(parts):
        if part not in _ATOMS:
            known = ", ".join(k for k in _ATOMS if k != "1")
            raise UnitError(f"unknown unit {part!r} in {unit!r}; known units: {known}")
        base, scale = _ATOMS[part]
        dimension.append(base)
        factor = factor * scale if position == 0 else factor / scale
    return "/".join(dimension), factor


def parse(text: str | float | int, unit: str) -> float:
    """Read a number with its unit into base units of `unit`: parse("3.35 TB/s", "B/s") -> 3.35e12.

    A bare number is read as already being in `unit`. Raises UnitError when the text is malformed,
    not finite or of another dimension (for example GB where GB/s is meant).
    """
    wanted, wanted_factor = unit_factor(unit)
    if isinstance(text, bool) or not isinstance(text, str | float | int):
        raise UnitError(f"expected a number with a unit such as '1 {unit}', got {text!r}")
    if not isinstance(text, str):
        value = _to_float(text) * wanted_factor
    else:
        match = _NUMBER.match(text)
        if not match:
            raise UnitError(f"expected a number with a unit such as '1 {unit}', got {text!r}")
        number, word = match.groups()
        value = float(number.replace(",", "").replace("_", ""))
        if not word:
            value *= wanted_factor
        else:
            dimension, factor = unit_factor(word)
            if dimension != wanted:
                raise UnitError(f"{text!r} is in {dimension}, but {wanted} is needed")
            value *= factor
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is not a finite number")
    return value


def in_unit(value: float, unit: str) -> float:
    """A number of base units in another unit: in_unit(25e9, "Gbit/s") -> 200."""
    return value / unit_factor(unit)[1]


def is_bare(text: str | float | int) -> bool:
    """Whether a number comes without its unit."""
    match = _NUMBER.match(text) if isinstance(text, str) else None
    return match is None or not match.group(2)


def parse_count(text: str | float | int) -> float:
    """Read a count that people write short: "15T" -> 1.5e13, "4M", "300B", "2e12". B is billion
    here, never bytes."""
    if isinstance(text, bool):
        raise UnitError(f"expected a count such as 15T, got {text!r}")
    if isinstance(text, str):
        match = _NUMBER.match(text)
        if not match or (match.group(2) and match.group(2) not in _MULTIPLIERS):
            raise UnitError(f"expected a count such as 300B, 15T or 2e12, got {text!r}")
        value = float(match.group(1).replace(",", "").replace("_", "")) * _MULTIPLIERS.get(
            match.group(2), 1.0
        )
    else:
        value = _to_float(text)
    if not math.isfinite(value):
        raise UnitError(f"{text!r} is not a finite number")
    return value


def _to_float(number: float | int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise UnitError("an integer of this many digits is not a finite number") from None


_STEPS = {
    "B": [("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)],
    "traffic": [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
    "B/s": [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)],
    "FLOP": [("EFLOP", 1e18), ("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("FLOP", 1.0)],
    "FLOP/s": [
        ("EFLOP/s", 1e18),
        ("PFLOP/s", 1e15),
        ("TFLOP/s", 1e12),
        ("GFLOP/s", 1e9),
        ("FLOP/s", 1.0),
    ],
    "s": [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)],
    "kWh": [("GWh", 1e6), ("MWh", 1e3), ("kWh", 1.0)],
    "kg": [("t", 1e3), ("kg", 1.0)],
    "count": [("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)],
}


def show(value: float | None, unit: str, digits: int = 3) -> str:
    """Write a base-unit number for people: show(2**30, "B") -> "1.00 GiB", show(3.35e12, "B/s") ->
    "3.35 TB/s".

    Memory ("B") is shown in binary units as nvidia-smi and torch do, "traffic" and rates in decimal
    ones. "-" where there is no number.
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    steps = _STEPS.get(unit)
    if steps is None:
        return (
            f"{_significant(value, digits)} {unit}"
            if unit not in ("", "1")
            else _significant(value, digits)
        )
    for word, factor in steps:
        if abs(value) >= factor * 0.9995:
            return f"{_significant(value / factor, digits)} {word}".rstrip()
    word, factor = steps[-1]
    return f"{_significant(value / factor, digits)} {word}".rstrip()


def percent(share: float | None, digits: int = 1, sign: bool = False) -> str:
    """Write a share for people: percent(0.0413) -> "4.1 %"; "-" where there is none.

    sign: whether to write that of a gain, too.
    """
    return "-" if share is None else f"{100 * share:{'+' if sign else ''}.{digits}f} %"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    if before < -2:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - before)}f}"
