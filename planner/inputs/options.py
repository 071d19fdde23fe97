"""Options from names and values, and numbers from options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Options, Reading, Record, refuse, rows, why_not
from planner.specs.options.checked import read
from planner.specs.options.numbers import amount_in
from planner.specs.options.words import reading


def read_options(given: Mapping[str, Any]) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag."""
    options = read(Options, given)
    table = rows(Options)
    spelled = [
        Reading(name, text, name, value, says)
        for name, text in given.items()
        if isinstance(text, str)
        and (says := reading(table[name], text, value := getattr(options, name)))
    ]
    if options.nodes is not None:
        options, nodes = _of_nodes(options, options.nodes, given.get("gpus") is not None)
        spelled.append(nodes)
    return options.changed(spelled=tuple(spelled)) if spelled else options


def _of_nodes(options: Options, nodes: int, has_gpus: bool) -> tuple[Options, Reading]:
    """The same request with the GPUs of so many nodes, and what is to be said of it."""
    from planner.inputs.cluster import node_size

    each = node_size(options)
    gpus = nodes * each
    if has_gpus and options.gpus != gpus:
        raise PlanError(
            "--nodes",
            nodes,
            f"of {each} GPUs each are {gpus:,} GPUs, but --gpus is {options.gpus:,}; leave one of"
            " them out, or set --gpus-per-node",
        )
    says = f"--nodes {nodes:,} are {gpus:,} GPUs, {each} per node"
    return options.changed(gpus=gpus, nodes=None), Reading("nodes", nodes, "gpus", gpus, says)


def readings(options: Options) -> list[str]:
    """How words were read that an answer would else leave open: "--seq-len 128k is 131,072
    tokens"."""
    return [one.says for one in options.spelled if getattr(options, one.of) == one.value]


def read_without_model(given: Mapping[str, Any], verb: str) -> Options:
    """Options of a verb that looks at no model. Raises PlanError for those it does not take."""
    if "model" in given:
        raise PlanError("--model", given["model"], why_not(rows(Options)["model"], verb))
    whole = {**given, "model": "none"}
    refuse(read(Options, whole), verb, besides="model")
    return read_options(whole)


def number(options: Record, name: str) -> float | None:
    """An option with a unit, in base units; None where it is not given. Raises PlanError."""
    return None if getattr(options, name) is None else number_in(options, name)[0]


def number_in(options: Record, name: str) -> tuple[float, str]:
    """An option with a unit that is given, in base units, and which of its units that was in.
    Raises PlanError."""
    row, given = rows(type(options))[name], getattr(options, name)
    try:
        return amount_in(row, given)
    except ValueError as error:
        raise PlanError(row.flag, given, str(error)) from None
