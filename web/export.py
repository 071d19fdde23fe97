"""Files of a state to take along: its scenario file, its command, its pasted texts, its tables."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from planner.specs.options import command_line
from web.render import rendered
from web.state import MARK, State, toml_of

CHARTS = {
    "memory-stages": "Memory of each pipeline stage",
    "memory-phases": "Memory through the step",
    "step-time": "Step time",
}


def exported(state: State) -> dict[str, Any]:
    """Texts of a state."""
    return {
        "query": state.query,
        "asked": urlencode([pair for pair in state.pairs if not pair[0].startswith(MARK)]),
        "command": command_line(state.options),
        "toml": toml_of(state),
        "config": state.config,
        "calibration": state.calibration,
        "model_file": state.options.model,
    }


def export_body(document: dict[str, Any], level: int) -> str:
    """They as a part of a page whose headings begin at this level."""
    return rendered("export_body.html", level=level, charts=CHARTS, **document)
