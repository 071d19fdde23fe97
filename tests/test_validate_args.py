"""Rows whose model stands in the flags of their launch, and what became of their memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from not_none import not_none
from run_tables import row, row_plan

from planner.specs.layers import parts_of
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.rows import read_rows

GOLDEN = Path(__file__).parent / "data" / "megatron_golden.csv"
BLANK = {"layers": "", "hidden": "", "heads": "", "model": "x"}
HYBRID = {
    "hybrid-layer-pattern": "M-M*E|M-M*E/*E",
    "hidden-size": 1024,
    "num-attention-heads": 16,
    "num-query-groups": 8,
    "group-query-attention": True,
    "num-experts": 8,
    "moe-ffn-hidden-size": 512,
    "position-embedding-type": "none",
    "make-vocab-size-divisible-by": 64,
}


def test_a_row_without_a_shape_has_that_of_its_flags() -> None:
    """Letters of a pattern are layers, `|` ends a stage, and what follows `/` is a module of
    predictions; widths that are not given are Megatron's."""
    given = row(**BLANK) | {"args": json.dumps(HYBRID)}
    model = row_plan(given)[0].model
    assert (model.name, model.layers, model.vocab, model.padded_vocab) == ("x", 10, 50304, 50304)
    parts: dict[str, tuple[Any, float]] = {p.type: (p, count) for p, count in parts_of(model)}
    assert {name: count for name, (_, count) in parts.items()} == {
        "mamba2": 4,
        "mlp": 2,
        "attention": 2,
        "moe": 2,
    }
    mamba, experts = parts["mamba2"][0], parts["moe"][0]
    assert (mamba.heads, mamba.head_dim, mamba.state, mamba.groups) == (32, 64, 128, 8)
    assert (experts.experts, experts.ffn_hidden, experts.gated) == (8, 512, False)
    assert parts["attention"][0].kv_heads == 8
    assert model.mtp_layers == ("attention", "moe")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ("{", "args is not JSON of flags"),
        ("[1]", "list where flags"),
        ('{"hidden-size": 64}', "do not say layers and heads"),
        ('{"hidden-size": 64, "hybrid-layer-pattern": "MX"}', "do not say layers and heads"),
        ("", "layers, hidden, heads are empty"),
    ],
)
def test_flags_that_state_no_model_are_named(args: str, text: str) -> None:
    (skipped,) = validate_rows([row(**BLANK) | {"args": args}]).skipped
    assert text in skipped.reason


def test_peaks_of_megatrons_own_tests_of_hybrids_and_latent_attention() -> None:
    """Golden values of its functional tests at d98e8a64, models given only by flags: within 6 %."""
    document = validate_rows([*read_rows(GOLDEN)])
    assert not document.skipped
    assert not document.apart.rows
    errors = {run.run_id: run.memory_error for run in document.rows}
    assert len(errors) == 9
    assert max(abs(not_none(error)) for error in errors.values()) < 0.06, errors
