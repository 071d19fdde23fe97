"""Tasks of SkyPilot, and of oumi, which launches by it: what runs on the nodes as a script of bash
that has the task's variables, and the nodes and GPUs that it is given.

Names: https://docs.skypilot.co/en/latest/reference/yaml-spec.html and the variables of its
"Environment variables" page.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from planner.formats.record import Value
from planner.inputs.readers import yaml_places

_TASK = re.compile(r"(?m)^(?:run[ \t]*:|num_nodes[ \t]*:[ \t]*\d)")
_RESOURCES = re.compile(
    r"(?m)^[ \t]*accelerators[ \t]*:|^resources[ \t]*:[ \t]*\{|^num_nodes[ \t]*:"
)
_ACCELERATOR = re.compile(r"[\w.-]+?(?::(\d{1,4}))?")
_LISTED = re.compile(r"resources\.accelerators(?:\.[\w-]+)?(?:\[\d+\])?")
_NAME = re.compile(r"envs\.([A-Za-z_]\w*)")


@dataclass(frozen=True)
class Task:
    """script: of bash, whose lines have the numbers that they have in the file. given: nodes and
    GPUs, as arguments of launchers."""

    script: str
    given: Mapping[str, Value]


def task_of(name: str, text: str) -> Task | None:
    """The task of a file; None for any other file. Raises ValueError where its YAML is broken."""
    if not name.endswith((".yaml", ".yml")):
        return None
    if not (_TASK.search(text) and _RESOURCES.search(text)):
        return None
    places = yaml_places(text)
    run, at = places.get("run", ("", 1))
    resources = any(path.startswith("resources.") for path in places)
    if not isinstance(run, str) or not (resources or (run and "num_nodes" in places)):
        return None
    nodes, line = places.get("num_nodes", (1, 0))
    each = _gpus_of(places)
    given = {"manifest.nodes": Value(nodes, line)} if isinstance(nodes, int) else {}
    variables = {"SKYPILOT_NUM_NODES": nodes, "SKYPILOT_NODE_RANK": 0}
    if each:
        given["manifest.gpus-per-node"] = Value(each)
        variables["SKYPILOT_NUM_GPUS_PER_NODE"] = each
    for path, (value, _) in places.items():
        if (match := _NAME.fullmatch(path)) and value is not None:
            variables[match[1]] = value
    stated = "; ".join(f"{name}={shlex.quote(str(value))}" for name, value in variables.items())
    return Task("\n" * (at - 1) + f"{stated}\n{run}", given)


def _gpus_of(places: Mapping[str, tuple[object, int]]) -> int | None:
    """GPUs of a node, where all that the task may get have as many: `H100:8`, a list of such, or a
    table."""
    counts = set()
    for path, (value, _) in places.items():
        if not _LISTED.fullmatch(path):
            continue
        if path.count(".") > 1:  # of a table
            counts.add(value)
            continue
        for word in value if isinstance(value, list) else [value]:
            match = _ACCELERATOR.fullmatch(str(word))
            counts.add(int(match[1] or 1) if match else None)
    [only] = counts if len(counts) == 1 else [None]
    return only if isinstance(only, int) and only > 0 else None
