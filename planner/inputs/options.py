"""Options from names and values, and numbers from options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.specs.base import PlanError
from planner.specs.options import Options, Reading, Record, refuse, rows, why_not
from planner.specs.options.checked import read
from planner.specs.options.words import reading
from planner.units import UnitError, is_bare, parse, parse_count


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
    row, given = rows(type(options))[name], getattr(options, name)
    if given is None:
        return None
    says, such = row.says, f"write for example '{row.says.example}'"
    try:
        value = parse_count(given) if says.unit == "tokens" else parse(given, says.unit)
    except UnitError as error:
        raise PlanError(row.flag, given, f"{error}; {such}") from None
    if says.needs_unit and is_bare(given):
        raise PlanError(row.flag, given, f"needs its unit: {such}")
    low, high = (says.least if says.above is None else says.above), says.most
    if (
        (says.above is not None and value <= says.above)
        or (says.least is not None and value < says.least)
        or (high is not None and value > high)
    ):
        if high == 1:
            remedy = f"is a share between 0 and 1: {such}"
        elif high is not None:
            remedy = f"must be between {low:g} and {high:g}"
        else:
            remedy = "must be positive" if says.above == 0 else "must not be negative"
        raise PlanError(row.flag, given, remedy)
    return value
