"""The prediction of a run, in a process of its own: options as JSON on stdin, the answer as JSON on
stdout.

    python -m dpplan.predicted FOLDER    # with config.json and, of transformers, arguments.json
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import dpplan
from planner.units import show, span

_ROW = "runs.csv"
_ARGUMENTS = "arguments.json"


def predicted(folder: Path, options: dict[str, Any]) -> dict[str, Any]:
    """The figures of the run in a folder, and a sentence; or the error."""
    table, arguments = folder / _ROW, folder / _ARGUMENTS
    request = {"model": str(folder / "config.json"), "advice": 0, **options}
    table.unlink(missing_ok=True)
    try:
        if not arguments.exists():
            return _figures(dpplan.estimate(**request).document)
        answer = dpplan.read(arguments, append=table, **request)
    except dpplan.PlanError as error:
        return {"error": " ".join(str(error).split())}
    report = answer.document.estimate
    if report is None:
        missing = " and ".join(answer.document.missing)
        return {"error": answer.document.refused or f"the arguments do not say {missing}"}
    return _figures(report) | {"row": str(table)}


def _figures(report: Any) -> dict[str, Any]:
    memory, step = report.memory, report.step
    chance = "" if memory.fit_chance is None else f" ({memory.fit_chance:.0%})"
    return {
        "verdict": memory.verdict,
        "fit_chance": memory.fit_chance,
        "seconds": step.seconds,
        "low": step.low,
        "high": step.high,
        "device_bytes": memory.device_bytes,
        "capacity_bytes": memory.capacity_bytes,
        "command": report.command,
        "sentence": (
            f"{memory.verdict}{chance}: {show(memory.device_bytes, 'B')} of"
            f" {show(memory.capacity_bytes, 'B')} per GPU, {show(step.seconds, 's')} per step (80 %"
            f" band {span(step.low, step.high, 's')}); {report.command}"
        ),
    }


if __name__ == "__main__":
    os.nice(10)
    print(json.dumps(predicted(Path(sys.argv[1]), json.load(sys.stdin))))
