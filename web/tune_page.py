"""The page of fine-tuning: a few fields, and a line per method that leads to its estimate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from planner.show.tune import tune_blocks
from planner.specs.documents.tune import Tuning
from planner.specs.options import Options, command_line, pairs_of_command
from planner.specs.options.tune import TuneOptions
from web.forms import fields
from web.state import Pairs, State

START: Pairs = [("model", "llama-3.1-8b"), ("gpu", "rtx4090-24gb"), ("gpus", "1")]
_FOLDED = ("seq_len", "global_batch", "packing", "loss_kernel", "market")
_WORDS = 3  # columns of the table that are words: method, what it trains, verdict


def inputs(state: State, own: TuneOptions) -> dict[str, Any]:
    """The fields of a request, those shown at once and those folded."""
    mine = SimpleNamespace(options=own, config=None)
    shown = [
        *fields(state, ("model", "gpu", "gpus")),
        *fields(mine, ("examples",)),
        *fields(state, ("length_mean",)),
        *fields(mine, ("length_max", "epochs")),
    ]
    folded = [*fields(mine, ("method", "rank")), *fields(state, _FOLDED)]
    return {
        "shown": shown,
        "folded": folded,
        "open": any(field["value"] not in ("", field["start"]) for field in folded),
    }


def answer(found: Tuning, state: State, own: TuneOptions) -> dict[str, Any]:
    """The answer as the page shows it: the table of the command line, each method with the address
    of its estimate."""
    table = tune_blocks(found)[0]
    own_words = command_line(own, "tune").removeprefix("dpplan tune")
    verdict, *data = table.text
    return {
        "title": table.title,
        "verdict": verdict,
        "data": data,
        "header": ["method", "verdict", *(name.lstrip(">") for name in table.header[_WORDS:])],
        # what fits comes first
        "rows": [
            {
                "name": row.name,
                "title": row.title,
                "fits": row.fits,
                "why": row.why,
                "verdict": cells[_WORDS - 1],
                "cells": cells[_WORDS:],
                "query": None if row.memory is None or state.config else _query(row.command),
            }
            for row, cells in sorted(
                zip(found.methods, table.rows, strict=True), key=lambda pair: not pair[0].fits
            )
        ],
        "legend": " ".join(table.below),
        "command": command_line(state.options, "tune") + own_words,
        "notes": found.notes,
    }


def _query(command: str) -> str:
    """The address of the estimate that a command asks for."""
    return urlencode(pairs_of_command(command, Options, "estimate"))
