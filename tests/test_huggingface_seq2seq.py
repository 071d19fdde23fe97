"""Configurations of encoder-decoders: T5's and BART's kinds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.formulas.params import parameter_count
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec

T5 = {
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 6,
    "num_heads": 8,
    "vocab_size": 32128,
    "is_encoder_decoder": True,
}
MT5 = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "vocab_size": 250112}
BART = {
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "max_position_embeddings": 1024,
    "vocab_size": 50265,
    "is_encoder_decoder": True,
}
# ...ForConditionalGeneration of transformers 5.23 on the meta device, its defaults
COUNTS: dict[str, tuple[dict[str, Any], int]] = {
    "t5": (T5, 60_506_624),
    "mt5": ({**T5, **MT5, "feed_forward_proj": "gated-gelu"}, 172_119_424),
    "umt5": ({**T5, **MT5, "feed_forward_proj": "gated-gelu"}, 172_122_112),
    "bart": (BART, 406_291_456),
    "mbart": (BART, 406_295_552),
}


def read(folder: Path, kind: str, **change: Any) -> tuple[ModelSpec, list[str]]:
    path = folder / "config.json"
    path.write_text(json.dumps({"model_type": kind, **COUNTS[kind][0], **change}), "utf-8")
    return model_spec(str(path))


@pytest.mark.parametrize("kind", COUNTS)
def test_encoder_decoders_count_as_transformers(kind: str, tmp_path: Path) -> None:
    spec, _ = read(tmp_path, kind)
    assert parameter_count(spec) == COUNTS[kind][1]
    assert [tower.name for tower in spec.towers] == ["decoder"]


def test_stacks_have_layers_of_their_own(tmp_path: Path) -> None:
    assert read(tmp_path, "t5", num_layers=3, num_decoder_layers=6)[0].layers == 9
    assert read(tmp_path, "bart", encoder_layers=1, decoder_layers=6)[0].layers == 7


# BartForCausalLM and MBartForCausalLM of transformers 5.23: the weights that read an encoder, too
@pytest.mark.parametrize(("kind", "count"), [("bart", 254_084_096), ("mbart", 254_086_144)])
def test_a_decoder_by_itself_counts_as_transformers(kind: str, count: int, tmp_path: Path) -> None:
    spec, _ = read(tmp_path, kind, is_encoder_decoder=False)
    assert (parameter_count(spec), spec.layers, spec.towers) == (count, 12, ())


def test_a_file_of_the_catalogues_shape_is_trained_as_that_was(tmp_path: Path) -> None:
    spec, text = read(tmp_path, "t5")
    known = catalog.load("models", ModelSpec, "t5-small")
    assert spec.published == known.published
    assert any("the shape of t5-small" in entry for entry in text)


def test_a_head_of_its_own_is_counted(tmp_path: Path) -> None:
    spec, text = read(tmp_path, "t5", tie_word_embeddings=False)
    assert parameter_count(spec) == 60_506_624 + 32_128 * 512
    assert any("a head of its own" in entry for entry in text)


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("t5", {"is_gated_act": True}, "contradicts feed_forward_proj"),
        ("t5", {"feed_forward_proj": "tanh"}, "not understood; known: relu, gated-gelu"),
        ("t5", {"no_such_key": 3}, "unknown key for t5"),
        ("bart", {"tie_word_embeddings": False}, "a table of words for each stack"),
        ("bart", {"decoder_attention_heads": 7}, "must divide d_model 1024"),
    ],
)
def test_what_is_not_expressed_is_named(
    kind: str, change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=words):
        read(tmp_path, kind, **change)
