"""Default batch and sequence length: the same for one model in every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.params import active_parameter_count
from planner.inputs import catalog
from planner.inputs.batch import (
    BATCH_SAMPLES,
    BATCH_TOKENS,
    ROUNDING,
    default_batch,
    default_batches,
    published,
)
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.inputs.training import LONGEST_DEFAULT, sequence_length
from planner.specs.documents.estimate import Estimate
from planner.specs.documents.recommend import SmallestCluster
from planner.specs.hardware import GpuSpec
from planner.specs.layers import of_samples
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.own import BatchOptions, CompareOptions
from planner.specs.options.recommend import Limits
from planner.specs.published import Published, PublishedBatch
from planner.verbs.batch.runs import read_question
from planner.verbs.compare.combinations import combinations, requests_of
from planner.verbs.estimate import estimate
from planner.verbs.recommend import ask

MODELS = catalog.load_all("models", ModelSpec)
CONFIGS = sorted(Path(__file__).parent.glob("configs/*.json"))
COUNTS = (3, 8, 24, 1000, 2048, 600_000)


def options_of(name: str, gpus: int = 8, **given: Any) -> Options:
    return read_options({"model": name, "gpus": gpus, **given})


def batch_of(model: ModelSpec, gpus: int, **given: Any) -> int:
    options = options_of(model.name, gpus, **given)
    return default_batch(options, model, sequence_length(options, model)).sequences


# ---------------------------------------------------------------------------------- what is known


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_published_records_agree_with_themselves(model: ModelSpec) -> None:
    published = model.published
    if published.sequence:
        learned = model.positions == "learned"
        assert not learned or published.sequence.tokens <= model.max_positions
    if published.batch and published.batch.sequences and published.sequence:
        tokens = published.batch.sequences * published.sequence.tokens
        assert published.batch_tokens == tokens
    # of text from GPT-2's batch to MiniMax-01's last one; else from DiT's 256 images of 256 tokens
    if published.batch_tokens and not model.convolutions:
        least = 0.06e6 if of_samples(model) else 0.4e6
        assert least < published.batch_tokens < 130e6
    run = published.run
    if run and run.gpu:
        assert run.gpu in catalog.ids("gpus")
    if run and run.gpu and run.gpu_hours and run.tokens:
        # no run has more than its GPU's peak rate, and none of those published less than a tenth
        rates = catalog.load("gpus", GpuSpec, run.gpu).dense
        precision = published.precision.name if published.precision else "bf16"
        peak = float(getattr(rates, precision))
        flop = 6 * active_parameter_count(model) * run.tokens
        assert 0.1 < flop / (run.gpu_hours * 3600 * peak) < 1


def test_batches_that_papers_print() -> None:
    tokens = {model.name: model.published.batch_tokens for model in MODELS}
    assert tokens["deepseek-v3"] == 15360 * 4096
    assert tokens["llama-2-70b"] == 4e6
    assert tokens["llama-3.1-405b"] == 16e6
    assert tokens["gpt3-175b"] == 3.2e6
    assert tokens["mt-nlg-530b"] == 1920 * 2048
    assert tokens["qwen3-8b"] is None


def test_a_batch_has_one_number() -> None:
    for fields in ({}, {"sequences": 8, "tokens": 8e3}):
        with pytest.raises(ValueError, match="one of the two"):
            PublishedBatch(source="here", **fields)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"published\.sequence"):
        Published(batch=PublishedBatch(sequences=8, source="here"))


# -------------------------------------------------------------------------------------- one batch


@pytest.mark.parametrize("name", ["llama-70b", "deepseek-v3", "qwen2.5-0.5b", "gpt2-xl"])
@pytest.mark.parametrize("gpus", COUNTS)
def test_every_verb_has_the_same_batch(name: str, gpus: int) -> None:
    """Estimate, search and batch use the default of their request; compare and recommend fix it."""
    given = {"model": name, "gpu": "rtx4090", "gpus": gpus}
    batch = resolve(read_options(given)).parts[2].global_batch
    model, _ = model_spec(name)
    assert batch == batch_of(model, gpus)
    ours = CompareOptions(vary=("zero=0,1",))
    requests, notes = requests_of(combinations(ours), ours, given)
    assert [options.global_batch for options in requests] == [batch, batch]
    assert f"global batch {batch:,} sequences" in notes[0]
    question = read_question(BatchOptions(), {**given, "tokens": "15T"})
    assert question.first_batch == batch


def test_the_flagship_is_one_question() -> None:
    document = ask("cluster", {"model": "llama-70b", "gpu": "rtx4090"}, Limits(max_gpus=16), jobs=1)
    assert isinstance(document, SmallestCluster)
    assert document.global_batch == batch_of(model_spec("llama-70b")[0], 2048) == 1024


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_the_number_of_gpus_only_rounds(model: ModelSpec) -> None:
    """Powers of two, and numbers with small odd parts, get the published tokens within the
    rounding; other numbers no more than their layouts need."""
    options = options_of(model.name)
    length = sequence_length(options, model)
    usual = BATCH_SAMPLES * length if model.sample else BATCH_TOKENS
    wanted = (model.published.batch_tokens or usual) / length
    for gpus in (8, 64, 24, 96):
        assert abs(batch_of(model, gpus) / wanted - 1) <= ROUNDING, gpus
    inside = model.layers * (model.attention.heads if model.attention else 1)
    assert batch_of(model, 600_000) * min(8, inside) <= 600_000


@given(st.integers(1, 4096), st.sampled_from([m for m in MODELS if m.layers < 200]))
def test_some_layout_divides_it(gpus: int, model: ModelSpec) -> None:
    """The default is never what no layout divides; where DDP is fixed, every GPU gets a
    sequence."""
    batch = batch_of(model, gpus)
    heads = model.attention.heads if model.attention else 0
    length = sequence_length(options_of(model.name), model)
    inside = [
        t * p * c
        for t in range(1, 17)
        for p in range(1, model.layers + 1)
        for c in range(1, max(2, 1 + length // 8192))  # long sequences may be shared out
        if heads % t == 0 and length % c == 0 and gpus % (t * p * c) == 0
    ]
    assert any(batch % (gpus // n) == 0 for n in inside)
    assert batch_of(model, gpus, stack="pytorch-ddp") % gpus == 0
    if gpus % 2 == 0:
        assert batch_of(model, gpus, dp=gpus // 2, micro_batch=2) % gpus == 0


def test_one_batch_over_counts_and_where_it_cannot_be() -> None:
    model = model_spec("llama-70b")[0]
    some = [options_of("llama-70b", n) for n in (8, 24, 40)]
    assert {b.sequences for b in default_batches(some, model, 4096)} == {960}  # 2^6 x 3 x 5
    far = [options_of("llama-70b", n) for n in (8, 8 * 5003)]
    first, last = default_batches(far, model, 4096)
    assert first.sequences == 1024
    assert last.sequences == 5003
    assert "no layout on 40,024 GPUs divides" in last.sentence


def test_a_published_number_of_sequences_is_kept() -> None:
    model = model_spec("deepseek-v3")[0]
    assert {batch_of(model, n) for n in (2048, 24, 40, 120)} == {15360}
    assert batch_of(model, 2048, seq_len=8192) == 7680
    assert "2412.19437" in default_batch(options_of("deepseek-v3"), model, 4096).sentence


# ----------------------------------------------------------------------------------- one sequence


def test_the_sequence_is_that_of_the_training() -> None:
    def length(name: str) -> int:
        return sequence_length(options_of(name), model_spec(name)[0])

    assert length("qwen2.5-0.5b") == 4096
    assert length("llama-3.1-405b") == 8192
    assert length("gpt2") == 1024
    assert length("mixtral-8x22b") == LONGEST_DEFAULT  # reads 65,536; training not published


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_is_the_same_question_as_its_name(path: Path) -> None:
    named, read = (model_spec(word)[0] for word in (path.stem, str(path)))
    options = options_of(path.stem, 64)
    length = sequence_length(options, named)
    assert sequence_length(options, read) == length
    assert (
        default_batch(options, read, length).sequences
        == default_batch(options, named, length).sequences
    )


def test_an_unknown_config_has_a_stated_default(tmp_path: Path) -> None:
    text = (Path(__file__).parent / "configs/qwen2.5-0.5b.json").read_text()
    path = tmp_path / "own.json"
    path.write_text(text.replace('"num_hidden_layers": 24', '"num_hidden_layers": 20'))
    sentence = "\n".join(resolve(options_of(str(path), gpu="a100")).assumptions)
    assert "sequence length 8,192, its training is not published" in sentence
    assert "it reads 32,768" in sentence
    assert "none is published" in sentence


def test_a_precision_that_was_published_is_named() -> None:
    assumptions = resolve(options_of("deepseek-v3", 2048, gpu="h800")).assumptions
    assert any("was trained in fp8 (arXiv 2412.19437" in sentence for sentence in assumptions)


# ------------------------------------------------------------------------- what a default decides


def estimate_of(**given: Any) -> Estimate:
    return estimate(read_options(given))


def test_what_would_fit_without_a_default_is_said() -> None:
    """0.5 B parameters with a vocabulary of 152,000 on 16 GB: the logits of 4,096 tokens, with the
    loss as a plain script has it."""
    script = {"stack": "pytorch-ddp", "stack_defaults": True}
    given = {"model": "qwen2.5-0.5b", "gpu": "rtx5060ti-16gb", "gpus": 1, **script}
    answer = estimate_of(**given)
    assert not answer.memory.fits
    text = "\n".join(answer.without)
    assert "does not fit at the default sequence of 4,096 tokens; fits at 2,048" in text
    assert "--loss-chunks 8" in text
    assert estimate_of(**given, loss_chunks=8).memory.fits
    assert estimate_of(
        **{**given, "stack_defaults": False}
    ).memory.fits  # another kernel of the loss
    asked_for = estimate_of(**given, seq_len=4096)
    assert "default sequence" not in "\n".join(asked_for.without)


def test_a_default_batch_that_starves_the_gpus_is_named() -> None:
    given = {"model": "gpt2-xl", "gpu": "h100", "gpus": 512}
    assert any("the default batch limits" in sentence for sentence in estimate_of(**given).without)
    stated = estimate_of(**given, global_batch=512)
    assert stated.layout.global_batch == estimate_of(**given).layout.global_batch
    assert stated.without == []


def test_a_chunked_loss_is_proposed_where_logits_dominate() -> None:
    script = {"stack": "pytorch-fsdp", "stack_defaults": True, "seq_len": 2048}
    answer = estimate_of(model="qwen2.5-0.5b", gpu="rtx5060ti-16gb", gpus=1, **script)
    assert answer.memory.fits
    chunked = [advice for advice in answer.advice if advice.changes == {"loss_chunks": 8}]
    assert chunked
    assert chunked[0].tokens_change_frac > 0.01


def test_no_chunked_loss_is_proposed_beside_a_kernel_that_keeps_no_logits() -> None:
    answer = estimate_of(
        model="gemma-2-2b", gpu="rtx4090", gpus=8, seq_len=8192, stack="pytorch-fsdp"
    )
    assert answer.search.software["loss_kernel"] in ("fused", "fused-linear")
    assert not [advice for advice in answer.advice if "loss_chunks" in advice.changes]


def test_what_is_published_is_that_of_the_whole_profiles() -> None:
    """Tables read without the rest of their profiles."""
    for name in catalog.ids("models"):
        whole = catalog.load("models", ModelSpec, name).published
        assert published().get(name, Published()) == whole, name
