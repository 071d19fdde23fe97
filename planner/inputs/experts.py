"""How a request runs the experts of its model."""

from __future__ import annotations

from typing import Any

from planner.specs.base import PlanError
from planner.specs.hardware import GpuSpec
from planner.specs.model import ModelSpec
from planner.specs.options import Options, flag, rows
from planner.specs.options.experts import ExpertOptions

_FUSED_ON = "blackwell"  # CuTeDSL's kernels of Transformer Engine


def expert_fields(options: Options, model: ModelSpec, gpu: GpuSpec) -> dict[str, Any]:
    """Fields of the training spec that say it. Raises PlanError naming an option that does nothing
    for this model."""
    table = rows(Options)
    of_experts = [name for name in options.given() if table[name].group == ExpertOptions.GROUP]
    if model.routed is None:
        for name in of_experts:
            value = getattr(options, name)
            raise PlanError(
                flag(name),
                value,
                f"applies to a mixture of experts, and {model.name} is dense; leave it out",
            )
    known = rows(ExpertOptions)
    given = {name: getattr(options, name) for name in of_experts if name in known}
    if given.get("expert_kernels") == "fused" and gpu.architecture != _FUSED_ON:
        raise PlanError(
            flag("expert_kernels"),
            "fused",
            f"is written for Blackwell, and {gpu.title} is another architecture; take grouped",
        )
    if {"expert_load", "expert_spread"} <= given.keys():
        raise PlanError(
            flag("expert_spread"),
            given["expert_spread"],
            f"says what {flag('expert_load')} says: how full the fullest rank is; give one",
        )
    if "expert_load" in given:
        given["expert_load"] = float(given["expert_load"])
    return given
