"""Options from names and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.inputs.cluster import node_size
from planner.inputs.dataset import lengths_of
from planner.specs.base import PlanError
from planner.specs.options import (
    LAYOUT,
    Given,
    Options,
    Origin,
    Reading,
    flag,
    refuse,
    rows,
    why_not,
)
from planner.specs.options.checked import from_text, read
from planner.specs.options.words import reading
from planner.specs.where import terms

_DIGITS = 4  # of a sigma, so that commands can be read


def read_options(given: Mapping[str, Any], origins: Mapping[str, Origin] | None = None) -> Options:
    """Options from a mapping of names to values; a wrong one is a PlanError naming its flag.

    origins: where values come from that were not typed, by default the origins in `Given`.
    """
    values = _stated_by_conditions(given)
    options, table = read(Options, values), rows(Options)
    spelled = [
        Reading(name, text, name, value, says)
        for name, text in values.items()
        if isinstance(text, str)
        and (says := reading(table[name], text, value := getattr(options, name)))
    ]
    origins = Given(given, origins).origins
    if options.nodes is not None:
        options, nodes = _of_nodes(options, options.nodes, given.get("gpus") is not None)
        spelled.append(nodes)
        origins = {"gpus" if name == "nodes" else name: origin for name, origin in origins.items()}
    if options.lengths is not None:
        options, lengths = _of_dataset(options, options.lengths)
        spelled += lengths
        named = origins.pop("lengths", None)
        origins |= {} if named is None else {"length_mean": named, "length_sigma": named}
    undecided = Given(given).undecided
    if not spelled and not origins and not undecided:
        return options
    return options.changed(spelled=tuple(spelled), origins=origins, undecided=undecided)


def _stated_by_conditions(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with conditions on software as options: `--where 'dispatcher = deepep'` is
    `--dispatcher deepep`. Raises PlanError where the option has another value besides."""
    texts = given.get("where") or ()
    texts = [texts] if isinstance(texts, str) else texts
    table, layouts = rows(Options), []
    stated: dict[str, Any] = {}
    for text in texts:
        name, operator, value = (isinstance(text, str) and terms(text)) or ("", "", "")
        if name != "stack" and (name in LAYOUT or name not in table or not table[name].says.free):
            layouts.append(text)
            continue
        if operator != "=":
            remedy = f"{name} is stated with = and one value, as by {flag(name)}"
            raise PlanError("--where", text, remedy)
        try:
            stated_value = from_text(table[name], value)
        except ValueError as error:
            raise PlanError("--where", text, str(error)) from None
        for other in (given.get(name), stated.get(name)):
            spelled = from_text(table[name], other) if isinstance(other, str) else other
            if spelled not in (None, stated_value):
                remedy = f"and {flag(name)} {other} contradict each other; leave one of them out"
                raise PlanError("--where", text, remedy)
        stated[name] = stated_value
    return {**given, **stated, "where": layouts} if stated else given


def _of_nodes(options: Options, nodes: int, has_gpus: bool) -> tuple[Options, Reading]:
    """The request on this number of nodes, and a sentence about the change."""
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


def _of_dataset(options: Options, name: str) -> tuple[Options, list[Reading]]:
    """The request with the lengths of a dataset, and a sentence about them."""
    for other in ("length_mean", "length_sigma"):
        if (stated := getattr(options, other)) is not None:
            remedy = f"and {flag(other)} {stated:g} both say how long documents are; leave one out"
            raise PlanError("--lengths", name, remedy)
    known = lengths_of(name)
    mean, sigma = round(known.mean, 1), max(round(known.sigma, _DIGITS), 10.0**-_DIGITS)
    says = (
        f"--lengths {name} is a mean of {mean:,} tokens and a sigma of {sigma:g}:"
        f" {known.examples:,} examples {known.says}"
    )
    reading = Reading("lengths", name, "length_mean", mean, says)
    return options.changed(lengths=None, length_mean=mean, length_sigma=sigma), [reading]


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
