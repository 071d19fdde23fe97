"""Sliders in a notebook beside the answer to a request (extra `widgets`).

from dpplan.whatif import what_if

what_if(model="llama-3.1-8b", gpu=["h100", "b200"], gpus=(8, 512))
"""

from __future__ import annotations

import html
from typing import Any

import ipywidgets

import dpplan

_LABEL = {"description_width": "initial"}


def what_if(**options: Any) -> Any:
    """An estimate whose inputs move. options: of `dpplan.estimate`; a list becomes a choice of its
    values, a pair of whole numbers a slider that doubles from one to the other, True or False a
    box; any other value stays as it is. Raises ValueError for a pair that does not rise."""
    controls = {name: control for name in options if (control := _control(name, options[name]))}
    shown = ipywidgets.HTML()

    def answer(_: Any = None) -> None:
        moved = {name: control.value for name, control in controls.items()}
        try:
            shown.value = dpplan.estimate(**{**options, **moved})._repr_html_()
        except dpplan.PlanError as error:
            shown.value = f"<p>{html.escape(str(error))}</p>"

    for control in controls.values():
        control.observe(answer, "value")
    answer()
    return ipywidgets.VBox([*controls.values(), shown])


def _control(name: str, value: Any) -> Any:
    """The control of an option; None for one that stays."""
    says = {"description": name.replace("_", " "), "style": _LABEL}
    if isinstance(value, bool):
        return ipywidgets.Checkbox(value=value, **says)
    if isinstance(value, list):
        return ipywidgets.Dropdown(options=value, **says)
    if isinstance(value, tuple):
        steps = _doubled(name, *value)
        return ipywidgets.SelectionSlider(options=steps, continuous_update=False, **says)
    return None


def _doubled(name: str, low: int, high: int) -> list[int]:
    if not 0 < low < high:
        raise ValueError(f"{name}: ({low}, {high}) - must be two whole numbers, the first smaller")
    steps = [low]
    while steps[-1] * 2 <= high:
        steps.append(steps[-1] * 2)
    return steps
