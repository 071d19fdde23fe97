"""Options from names and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.inputs.cluster import node_size
from planner.specs.base import PlanError
from planner.specs.options import Given, Options, Origin, Reading, flag, refuse, rows, why_not
from planner.specs.options.checked import from_text, read
from planner.specs.options.words import reading
from planner.specs.where import constraint, stated


def read_options(given: Mapping[str, Any], origins: Mapping[str, Origin] | None = None) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag.

    origins: where values come from that were not typed, by default the origins in `Given`.
    """
    options = _of_conditions(read(Options, given))
    table = rows(Options)
    spelled = [
        Reading(name, text, name, value, says)
        for name, text in given.items()
        if isinstance(text, str)
        and (says := reading(table[name], text, value := getattr(options, name)))
    ]
    origins = Given(given, origins).origins
    if options.nodes is not None:
        options, nodes = _of_nodes(options, options.nodes, given.get("gpus") is not None)
        spelled.append(nodes)
        origins = {"gpus" if name == "nodes" else name: origin for name, origin in origins.items()}
    if not spelled and not origins:
        return options
    return options.changed(spelled=tuple(spelled), origins=origins)


def _of_conditions(options: Options) -> Options:
    """The same request with conditions on software as options: `--where 'dispatcher = deepep'` is
    `--dispatcher deepep`. Raises PlanError where the option has another value besides."""
    conditions = {text: stated(constraint(text)) for text in options.where}
    if not any(conditions.values()):
        return options
    table, layouts = rows(Options), [text for text, is_ in conditions.items() if is_ is None]
    values: dict[str, Any] = {}
    for text, name, value in ((text, *pair) for text, pair in conditions.items() if pair):
        try:
            new = from_text(table[name], value)
        except ValueError as error:
            raise PlanError("--where", text, str(error)) from None
        for other in (getattr(options, name), values.get(name, new)):
            if other not in (table[name].default, new):
                remedy = f"and {flag(name)} {other} contradict each other; leave one of them out"
                raise PlanError("--where", text, remedy)
        values[name] = new
    return options.changed(where=tuple(layouts), **values)


def _of_nodes(options: Options, nodes: int, has_gpus: bool) -> tuple[Options, Reading]:
    """The same request with the GPUs of so many nodes, and what is to be said of it."""
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
    """How words were read that an answer would else leave open ("--seq-len 128k is 131,072
    tokens"), and which values of files gave way to others ("--gpus 64 is typed: train.sh:3 says
    32")."""
    read = [
        reading.says for reading in options.spelled if getattr(options, reading.of) == reading.value
    ]
    return read + [
        f"{flag(name)} {getattr(options, name)} is"
        f" {'typed' if reading.kind == 'typed' else f'from {reading.where}'}: {reading.over}"
        for name, reading in options.origins.items()
        if reading.over
    ]


def read_without_model(given: Mapping[str, Any], verb: str) -> Options:
    """Options of a verb that looks at no model. Raises PlanError for those it does not take."""
    if "model" in given:
        raise PlanError("--model", given["model"], why_not(rows(Options)["model"], verb))
    whole = {**given, "model": "none"}
    refuse(read(Options, whole), verb, besides="model")
    return read_options(whole)
