"""Experiments of Primus whose framework is MaxText: overrides of its arguments in YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.formats import maxtext, primus
from planner.formats.record import Answer, Value


def _detect(name: str, text: str) -> bool:
    return primus.experiment_of("maxtext", name, text)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    maxtext.FORMAT.read_more(values, answer)
    primus.read_model(answer)


FORMAT = replace(
    maxtext.FORMAT,
    kind="primus-maxtext",
    title="Primus experiments on MaxText (YAML)",
    detect=_detect,
    parse=primus.overrides,
    read_more=_more,
    irrelevant=(*maxtext.FORMAT.irrelevant, *primus.IRRELEVANT),
    writable=lambda values: False,
    whole=True,
)
