"""Scripts that start a plan: by hand, with Slurm, as a JobSet of Kubernetes, with SkyPilot.

The texts are templates in `launchers/`. All of them run the same run.sh on every node.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.formats.launcher import ALLOCATOR
from planner.formats.target import PlanToWrite, Target
from planner.specs.hardware import GpuSpec

if TYPE_CHECKING:
    from jinja2 import Environment

RUN = "run.sh"
IMAGE = "CHANGE-ME/image-with-the-framework"
LAUNCHERS = {
    "job.sbatch": "Slurm: sbatch job.sbatch",
    "jobset.yaml": "Kubernetes: kubectl apply -f jobset.yaml",
    "skypilot.yaml": "SkyPilot: sky launch skypilot.yaml",
}
_RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
_LONGEST = 40  # of a name: Kubernetes adds to it, up to 63 characters of a label


def scripts(
    target: Target, request: PlanToWrite, gpu: GpuSpec, comments: tuple[str, ...], check: str
) -> dict[str, str]:
    """run.sh and the scripts that start it on all nodes, by file name. check: the command that
    compares a node with the plan."""
    known = {
        "name": name_of(f"{request.model.name}-{request.options['gpus']}"),
        "nodes": request.nodes,
        "gpus_per_node": request.gpus_per_node,
        "program": target.starts(request) if target.starts else target.program,
        "per_node": target.per_node,
        "arguments": target.arguments(request),
        "environment": {**target.environment, **_allocator(request)},
        "checkout": target.checkout,
        "comments": comments,
        "check": check,
        "image": IMAGE,
        "resource": _RESOURCES.get(gpu.vendor, "CHANGE-ME/gpu"),
        "accelerator": gpu.skypilot or f"CHANGE-ME-{gpu.id}",
    }
    return {name: _environment().get_template(name).render(known) for name in (RUN, *LAUNCHERS)}


def _allocator(request: PlanToWrite) -> dict[str, str]:
    on = request.get("expandable_segments")
    return {ALLOCATOR[0]: "expandable_segments:True"} if on else {}


def to_fill(gpu: GpuSpec) -> Mapping[str, str]:
    """Placeholders of a launcher that its user fills in, by name."""
    out = {
        "job.sbatch": "partition, account and time limit of the cluster",
        "jobset.yaml": "the image, which has the framework",
    }
    if gpu.skypilot is None:
        out["skypilot.yaml"] = f"SkyPilot's name of {gpu.title or gpu.id}"
    return out


def name_of(text: str) -> str:
    """A name that Slurm, Kubernetes and SkyPilot take."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return f"train-{plain}"[:_LONGEST].strip("-")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "launchers"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
    )
