"""The objective of a fine-tuning, from options."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Options
from planner.specs.task import TASKS


def task_fields(options: Options) -> dict[str, Any]:
    """Objective and reference of a request. Raises PlanError."""
    task = options.task or "sft"
    if not TASKS[task].reference:
        return {"task": task}
    shared = options.lora is not None
    if options.reference == "shared" and not shared:
        raise PlanError(
            "--reference",
            "shared",
            "is the frozen base without its adapters: give --lora, or take held or precomputed",
        )
    return {"task": task, "reference": options.reference or ("shared" if shared else "held")}
