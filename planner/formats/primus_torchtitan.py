"""Experiments of Primus whose framework is torchtitan: overrides of its arguments in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.formats import primus, torchtitan
from planner.formats.record import Answer, Value


def _detect(name: str, text: str) -> bool:
    return primus.experiment_of("torchtitan", name, text)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    torchtitan.FORMAT.read_more(values, answer)
    primus.read_model(answer)


FORMAT = replace(
    torchtitan.FORMAT,
    kind="primus-torchtitan",
    title="Primus experiments on torchtitan (YAML)",
    detect=_detect,
    parse=primus.overrides,
    read_more=_more,
    irrelevant=(*torchtitan.FORMAT.irrelevant, *primus.IRRELEVANT),
    writable=lambda values: False,
    whole=True,
)
