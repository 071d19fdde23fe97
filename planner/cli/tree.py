"""The recorded formulas of one estimate as nested dicts (JSON) and as indented text."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.ledger import Call, Sourced
from planner.units import show

_MOST = 6  # values of an array that are worth printing


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _value(v) for k, v in value.items()}
    array = np.asarray(value)
    if array.dtype == object:
        return str(value)
    flat = array.reshape(-1)
    return flat[0].item() if flat.size == 1 else [x.item() for x in flat[:_MOST]]


def _input(value: Any) -> dict[str, Any]:
    out = {"value": _value(value)}
    if isinstance(value, Sourced):
        out.update(kind=value.kind, source=value.source, date=value.date, unit=value.unit)
    return out


def nested(call: Call) -> dict[str, Any]:
    """A call with its inputs, output and inner calls as plain data."""
    out: dict[str, Any] = {"name": call.formula.name}
    if call.formula.equation:
        out.update(
            equation=call.formula.equation, unit=call.formula.unit, source=call.formula.source, output=_value(call.output),
            inputs={name: _input(value) for name, value in call.inputs.items()},
        )  # fmt: skip
    if call.calls:
        out["calls"] = [nested(inner) for inner in call.calls]
    return out


def _text(value: Any, unit: str) -> str:
    plain = _value(value)
    if isinstance(plain, list):
        return "[" + ", ".join(_text(x, unit) for x in plain) + "]"
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        return str(plain)
    return show(float(plain), unit) if unit else f"{plain:.6g}"


def lines(call: Call, depth: int = 0) -> list[str]:
    """Indented text, ASCII: name = output, equation and source, then inputs with their provenance."""
    pad = "  " * depth
    if not call.formula.equation:
        out = [f"{pad}{call.formula.name}"]
    else:
        out = [f"{pad}{call.formula.name} = {_text(call.output, call.formula.unit)}"]
        out.append(f"{pad}    = {call.formula.equation}   [{call.formula.source}]")
        for name, value in call.inputs.items():
            text = f"{pad}    {name}: {_text(value, '')}"
            if isinstance(value, Sourced):
                text += (
                    f" {value.unit} ({value.kind}: {value.source})" if value.unit != "1" else f" ({value.kind}: {value.source})"
                )
            out.append(text)
    for inner in call.calls:
        out += lines(inner, depth + 1)
    return out
