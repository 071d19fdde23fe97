"""How a request runs the experts of its model."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag, rows
from planner.specs.options.experts import ExpertOptions


def expert_fields(options: Options, model: ModelSpec) -> dict[str, Any]:
    """Fields of the training spec that say it. Raises PlanError naming an option that does nothing
    for this model."""
    given = {name: getattr(options, name) for name in rows(ExpertOptions)}
    given = {name: value for name, value in given.items() if value is not None}
    if model.routed is None:
        for name, value in given.items():
            raise PlanError(
                flag(name),
                value,
                f"is of a mixture of experts, and {model.name} is none; leave it out",
            )
    elif given.get("shared_expert_overlap") and not model.routed.shared_ffn_hidden:
        raise PlanError(
            flag("shared_expert_overlap"), True, f"{model.name} has no shared experts; leave it out"
        )
    if "expert_load" in given:
        given["expert_load"] = float(given["expert_load"])
    return given
