"""Models of measured rows: of the catalogue by name, or of their cells."""

from __future__ import annotations

import pytest
from run_tables import left_open, row, row_plan

from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.studies.validate.predict import validate_rows
from planner.studies.validate.ranking import group_of
from planner.studies.validate.scored import predict

_BLANK = {"layers": "", "hidden": "", "heads": "", "vocab": ""}
_SMALL = {"layers": 24, "hidden": 2880, "vocab": 201088, "experts": 32}  # of gpt-oss-20b


def test_layers_that_no_columns_say_are_those_of_the_catalogue() -> None:
    """By id or id of the Hub, however spelled; cells that agree may be filled."""
    stack = catalog.load("models", ModelSpec, "gpt-oss-20b")
    for model in ("gpt-oss-20b", "GPT-OSS 20B", "openai/gpt-oss-20b"):
        for cells in ({}, _SMALL):
            assert predict(row(model=model, **(_BLANK | cells))).plan.model == stack


def test_a_plain_decoder_gives_its_shape_to_a_row_without_one() -> None:
    """And none to a row that has one: runs of a shape cut to fewer layers bear its name."""
    flat = catalog.load("models", ModelSpec, "llama-3-8b")
    assert predict(row(model="meta-llama/Meta-Llama-3-8B", **_BLANK)).plan.model == flat
    cut = predict(row(model="llama-3-8b", layers=12)).plan.model
    assert (cut.layers, cut.hidden, len(cut.stack)) == (12, 2048, 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (_BLANK | {"model": "nobody/nothing-1b"}, ["'nobody/nothing-1b'", "layers, hidden, heads"]),
        (_SMALL | {"layers": 12}, ["layers is 12", "gpt-oss-20b", "has 24"]),
        (_SMALL | {"hidden": 2048}, ["hidden is 2048", "has 2880"]),
        (_SMALL | {"vocab": 50304}, ["vocab is 50304", "has 201088"]),
        (_SMALL | {"experts": 128}, ["experts is 128", "has 32"]),
        (_BLANK | {"model": "llama-3-8b", "vocab": 32000}, ["vocab is 32000", "has 128256"]),
    ],
)
def test_what_contradicts_the_catalogue_is_named(
    changes: dict[str, object], words: list[str]
) -> None:
    (skipped,) = validate_rows([row(**({"model": "gpt-oss-20b"} | changes))]).skipped
    assert all(text in skipped.reason for text in words), skipped.reason


def test_runs_of_two_models_without_a_shape_are_no_layouts_of_one() -> None:
    names = ("gpt-oss-20b", "gpt-oss-120b")
    assert len({group_of(row(model=name, **_BLANK)) for name in names}) == len(names)


def test_recipes_of_a_family_say_what_a_row_does_not() -> None:
    """Modules that NeMo's recipes of DeepSeek-V3 repeat, by GPU and micro-batch; what a row prints
    is kept, and other stacks have their own defaults."""
    experts = {"experts": 8, "experts_per_token": 2, "moe_ffn_hidden": 1024, "dense_layers": 1}
    shape = {"model": "DeepSeekV3", "stack": "nemo", "recompute": "", "gpus_per_node": 8}
    shape |= {**experts, "head_dim": 128, "ep": 1}
    for gpu, micro_batch, recompute in (
        ("h100-sxm5-80gb", 1, "mla_up_proj+mlp"),
        ("b200-sxm-180gb", 1, "mla_up_proj"),
        ("gb300-279gb", 2, "mla_up_proj"),
    ):
        open_row = row(**shape, gpu=gpu, micro_batch=micro_batch)
        assert row_plan(open_row)[1].recompute == recompute
        assert row_plan(open_row | {"recompute": "full"})[1].recompute == "full"
    for other in ({"gpu": "gb300-279gb"}, {"gpu": "b200-sxm-180gb", "stack": "megatron-core"}):
        searched = row(**(shape | other), micro_batch=1)
        assert "recompute" in left_open(searched)
