"""Configurations of models of the Hub that ship with the planner."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import api
from planner.formats.trainer import model_name
from planner.formulas.params import parameter_count
from planner.inputs import catalog, hub, hub_configs
from planner.inputs.model import model_spec
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options import Options

EVERY = sorted(hub_configs.shipped())
LISTED = {name for model in catalog.load_all("models", ModelSpec) for name in model.hub}
# the 300 most downloaded models of text by the list that the file names, and the elements that
# their files of weights hold
DOWNLOADED = json.loads((Path(__file__).parent / "data/hub_downloads.json").read_text("utf-8"))
# parameters as published beside the sources of their rows
STATED = {
    "bigscience/bloom-3b": 3_002_557_440,
    "facebook/opt-125m": 125_239_296,
    "EleutherAI/gpt-j-6b": 6_050_882_784,
    "EleutherAI/pythia-6.9b": 6_857_302_016,
    "Qwen/Qwen3-Coder-480B-A35B-Instruct": 480_154_875_392,
    "google-bert/bert-base-cased": 108_340_804,
    "FacebookAI/xlm-roberta-large": 560_142_482,
    "bigcode/starcoder2-3b": 3_030_371_328,
    "state-spaces/mamba-2.8b-hf": 2_768_345_600,
    "ai21labs/Jamba-v0.1": 51_570_323_328,
    "microsoft/Phi-3.5-MoE-instruct": 41_873_153_344,
    "allenai/OLMoE-1B-7B-0924": 6_919_161_856,
    "swiss-ai/Apertus-8B-2509": 8_053_338_176,
    "LiquidAI/LFM2-1.2B": 1_170_340_608,
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": 8_888_227_328,
    "baichuan-inc/baichuan-7b": 7_000_559_616,
    "baichuan-inc/Baichuan-13B-Chat": 13_264_901_120,
    "EleutherAI/polyglot-ko-1.3b": 1_331_810_304,
    "speakleash/Bielik-11B-v3.0-Instruct": 11_168_796_672,
    "LGAI-EXAONE/EXAONE-3.5-2.4B-Instruct": 2_405_327_360,
    "microsoft/Phi-mini-MoE-instruct": 7_647_632_704,
    "openbmb/MiniCPM-2B-sft-bf16": 2_724_880_896,
}


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: object) -> None:
        raise AssertionError("asks the Hub")

    monkeypatch.setattr(hub, "config_of", refused)


def test_rows_are_models_that_the_catalogue_has_not() -> None:
    lines = hub_configs._FILE.read_text("utf-8").splitlines()
    names = [json.loads(line)["id"] for line in lines]
    assert len({name.lower() for name in names}) == len(names)
    assert not LISTED & set(names)
    assert all(hub.is_name(name) for name in names)
    assert all(len(config.source) > 10 for config in hub_configs.shipped().values())


def test_every_configuration_is_read_and_says_where_it_is_from() -> None:
    for name in EVERY:
        model, inferred = model_spec(name)
        assert parameter_count(model) > 1e6, name
        assert model.source == hub_configs.shipped()[name].source
        alike = hub_configs.shipped()[name].alike
        sentence = f"{name} has the shape of {alike}" if alike else f"shipped keys of {name}"
        assert any(sentence in text for text in inferred)


def test_a_row_that_has_the_shape_of_another_model_names_one_with_keys_of_its_own() -> None:
    rows = hub_configs.shipped()
    for name in EVERY:
        alike = rows[name].alike
        assert bool(alike) != bool(rows[name].config), name
        assert not alike or alike in LISTED or rows[alike].config, name


def test_most_downloaded_models_are_planned_with_the_parameters_of_their_weights() -> None:
    known = {name.lower() for name in (*EVERY, *LISTED)}
    counts = DOWNLOADED["parameters"]
    planned = {name: model_spec(name)[0] for name in counts if name.lower() in known}
    assert len(counts) == 300
    assert len(planned) >= 267
    ours = {name: parameter_count(planned[name]) for name in planned if counts[name]}
    # files may hold more: frequencies, masks, a copy of tied words, layers for further tokens
    assert not {name for name, count in ours.items() if count > counts[name]}
    same = [name for name, count in ours.items() if counts[name] < count * 1.001]
    assert len(same) > 0.75 * len(ours)


def test_names_without_an_organisation_are_read() -> None:
    for bare, whole in {
        "bert-base-cased": "google-bert/bert-base-cased",
        "xlm-roberta-large": "FacebookAI/xlm-roberta-large",
        "distilgpt2": "distilbert/distilgpt2",
        "camembert-base": "almanach/camembert-base",
        "GPT-Neo-1.3B": "EleutherAI/gpt-neo-1.3B",
    }.items():
        assert model_spec(bare)[0] == model_spec(whole)[0]


@pytest.mark.parametrize(("name", "count"), STATED.items())
def test_counts_are_those_of_the_published_weights(name: str, count: int) -> None:
    assert parameter_count(model_spec(name)[0]) == count


@pytest.mark.parametrize("name", EVERY[::48])
def test_they_are_planned_without_a_network(name: str) -> None:
    layout: dict[str, Any] = {"stack": "hf-fsdp", "stack_defaults": True, "micro_batch": 1}
    options = Options(model=name, gpu="h100", gpus=64, zero=3, advice=0, **layout)
    assert api.estimate(options, brief=True).step.seconds > 0


def test_names_are_read_in_any_case_and_with_the_prefix_of_the_hub_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(*args: object) -> None:
        raise PlanError("--model", "", "the Hub is not reached")

    monkeypatch.setattr(hub, "config_of", gone)
    models = [model_spec(name)[0] for name in ("MICROSOFT/PHI-2", "hf:microsoft/phi-2")]
    assert models[0] == models[1] == model_spec("microsoft/phi-2")[0]


def test_a_file_that_names_a_shipped_model_keeps_its_name() -> None:
    """Not the model of the catalogue whose name it extends, which reads longer positions."""
    name = "Qwen/Qwen2.5-Math-1.5B"
    assert model_name(name) == name
    ours, alike = (model_spec(each)[0] for each in (name, "qwen2.5-1.5b"))
    assert parameter_count(ours) == parameter_count(alike)
    assert ours.max_positions < alike.max_positions


def test_a_misspelled_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(PlanError, match=r"did you mean distilbert/distilbert-base-uncased or"):
        model_spec("distilbert/distilbert-base-uncassed")
    with pytest.raises(PlanError, match="- is a speech model"):
        model_spec("openai/whisper-tiny.en")
