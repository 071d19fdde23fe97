"""`dpplan tune`: methods of fine-tuning on given cards, each an estimate like any other."""

from __future__ import annotations

import json
import math
from functools import cache
from statistics import NormalDist
from typing import Any

import pytest
from not_none import not_none
from plans import flat_of

from planner import api
from planner.formulas import stragglers
from planner.formulas.params import parameter_count
from planner.inputs.model import language_models, model_spec
from planner.specs.base import PlanError
from planner.specs.documents.tune import TuneAnswers, TuneMethod, Tuning
from planner.specs.options import Options, pairs_of_command, rows
from planner.specs.options.checked import from_text
from planner.specs.options.recommend import Limits
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import answered as answered_within
from planner.verbs.tune import cards, csv_text, tune
from planner.verbs.tune.methods import BY_NAME, METHODS
from planner.views.tune import view
from planner.views.view import Block

FREE: dict[str, Any] = {"model": "qwen2.5-0.5b", "gpu": "rtx4090", "seq_len": 1024}
SMALL = {**FREE, "stack_defaults": True}  # kernels are not searched, which takes most of the time


@cache
def _tuned(words: str) -> Tuning:
    given, value = json.loads(words)
    return tune(TuneOptions(jobs=1, **value), given)


def answered(given: dict[str, Any] = SMALL, **value: Any) -> Tuning:
    """The answer to a request, once for all tests that ask it."""
    return _tuned(json.dumps([given, value]))


def row_of(document: Tuning, name: str) -> TuneMethod:
    return next(row for row in document.methods if row.name == name)


def estimate(command: str) -> Any:
    pairs = pairs_of_command(command, Options, "estimate")
    known = rows(Options)
    plain = (bool, int, float)
    given = {n: from_text(known[n], v) if known[n].kind in plain else v for n, v in pairs}
    return api.estimate(api.read_options(given), brief=True)


def test_models_of_images_are_refused_in_their_words() -> None:
    for model in ("flux-1-dev", "resnet-50"):
        with pytest.raises(PlanError, match="learns from images, which have no lengths"):
            answered({"model": model, "gpu": "h100"})


def test_what_methods_set_cannot_be_given_beside_them() -> None:
    for name in {name for method in METHODS for name in method.pairs}:
        assert "tune" not in rows(Options)[name].verbs, name
    with pytest.raises(PlanError, match="is set by each method"):
        answered({**SMALL, "optimizer": "sgd"})


def test_methods_have_names_of_their_own_and_are_all_asked() -> None:
    assert len(BY_NAME) == len(METHODS)
    assert len({str(sorted(method.pairs.items(), key=str)) for method in METHODS}) == len(METHODS)
    with pytest.raises(PlanError, match="did you mean full-8bit"):
        answered(method="full8bit")


def test_each_answer_is_that_of_its_command() -> None:
    document = answered(FREE, method="full-bf16", examples=1000, epochs=2)
    paged = answered(method="full-paged", examples=1000, epochs=2)
    for row in (*document.methods, *paged.methods):
        alone = estimate(row.command)
        assert row.memory is not None
        assert alone.memory.device_bytes == pytest.approx(row.memory.device_bytes)
        assert alone.step.seconds == pytest.approx(row.step_seconds)
        assert alone.run.days * 86400 == pytest.approx(row.run_s)
        assert not_none(row.run_low_s) < not_none(row.run_s) < not_none(row.run_high_s)
        assert alone.run.cost_usd == pytest.approx(row.cost_usd)
        # 2 x 1,000 examples of 1,024 tokens, each step as long as the command says
        steps = 2 * 1000 / alone.layout.global_batch
        assert row.run_s * alone.run.goodput == pytest.approx(steps * row.step_seconds, rel=1e-6)


def test_the_longest_context_and_micro_batch_fit_and_the_next_do_not() -> None:
    document = answered({**SMALL, "model": "llama-2-7b", "gpu": "h100"}, method="full-paged")
    row = row_of(document, "full-paged")
    for command, size, option in (
        (row.context_command, row.longest_context, "seq-len"),
        (row.micro_batch_command, row.largest_micro_batch, "micro-batch"),
    ):
        assert command is not None
        assert size is not None
        assert f"--{option} {size}" in command
        assert estimate(command).memory.verdict == "fits"
        more = command.replace(f"--{option} {size}", f"--{option} {2 * size}")
        more = more.replace(f"--global-batch {size}", f"--global-batch {2 * size}")
        assert estimate(more).memory.verdict != "fits"


@pytest.mark.parametrize(
    "names",
    [
        ("full", "full-paged"),
        pytest.param(("full", "full-8bit", "full-paged"), marks=pytest.mark.slow),
    ],
)
def test_less_state_holds_a_longer_context_and_a_larger_model(
    names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    few = [model for model in language_models() if model.name.startswith(("qwen2.5", "llama-2"))]
    monkeypatch.setattr("planner.verbs.tune.language_models", lambda: few)
    text = answered(method="+".join(names), largest=True)
    rows_ = [row_of(text, name) for name in names]
    models = [row.largest_model.parameters for row in rows_ if row.largest_model]
    contexts = [row.longest_context or 0 for row in rows_]
    assert len(models) == len(names)
    assert models == sorted(models)
    assert contexts == sorted(contexts)
    assert models[0] < models[-1]
    assert contexts[0] < contexts[-1]
    for row in rows_:
        assert row.largest_model is not None
        assert estimate(row.largest_model.command).memory.verdict == "fits"
    row = rows_[-1]
    assert row.largest_model is not None
    assert row.even_model is not None
    assert row.most_model is not None
    sizes_ = [entry.parameters for entry in (row.largest_model, row.even_model, row.most_model)]
    assert sizes_ == sorted(sizes_)
    assert sizes_[0] < sizes_[-1]
    assert 0.05 <= estimate(row.most_model.command).memory.fit_chance < 0.95


def test_a_method_that_frees_gradients_has_one_micro_batch_a_step() -> None:
    document = answered({**SMALL, "global_batch": 64}, method="full-8bit+full-in-backward")
    several, first = document.methods
    assert several.layout is not None
    assert first.layout is not None
    assert several.layout.global_batch == 64
    assert first.layout.grad_accum == 1
    assert first.layout.global_batch == first.layout.micro_batch <= (first.largest_micro_batch or 0)


def test_where_nothing_fits_each_says_why() -> None:
    document = answered({**SMALL, "model": "llama-2-70b"}, method="full+full-paged")
    assert document.fastest is None
    assert all(row.why and not row.fits for row in document.methods)


def test_lengths_by_their_mean_and_longest() -> None:
    """1,000 examples, mean 300, longest 3,000: z = 3.09, ln 10 = 2.303, sigma = 3.09 - sqrt(9.55 -
    4.605) = 0.867; exp(mu + z sigma) is the longest again."""
    z = NormalDist().inv_cdf(1 - 1 / 1001)
    sigma = float(stragglers.sigma_of_longest(10.0, z))
    assert sigma == pytest.approx(0.867, abs=1e-3)
    assert 300 * math.exp(-sigma * sigma / 2 + z * sigma) == pytest.approx(3000)
    given = {**SMALL, "seq_len": None, "length_mean": 300.0}
    document = answered(given, method="full-bf16", examples=1000, length_max=1024)
    data = document.data
    assert data.seq_len == 1024
    # packed: as many rows as the tokens fill, except for the little that is cut
    assert data.sequences == math.ceil(data.useful_tokens / 1024)
    assert data.useful_tokens == pytest.approx(300_000, rel=2e-3)
    padded = answered({**given, "packing": "padded"}, method="full-bf16", examples=1000).data
    assert padded.sequences == 1000
    for more, named in (
        ({"length_mean": None}, "--length-mean"),
        ({"length_sigma": 1.0}, "--length-sigma"),
        ({"length_mean": 2000.0}, "below the mean"),
        ({"length_mean": 1.0}, "beyond"),
    ):
        with pytest.raises(PlanError, match=named):
            answered({**given, **more}, method="full", length_max=1024, examples=1000)


def test_rows_as_long_as_the_longest_take_the_tokens_that_are_computed() -> None:
    """Micro-batches of 4 whose longest is 2.2 times their mean compute this many times the tokens;
    sorted ones few more than there are. Either step equals the step of sequences of that length
    with the same kernels."""
    alike: dict[str, Any] = {"micro_batch": 4, "stack": "megatron-core"}
    given = {**SMALL, "length_mean": 200.0, "length_sigma": 1.0, **alike}
    values = {
        packing: answered({**given, "packing": packing}, method="full-bf16", examples=1000)
        for packing in ("padded", "longest", "bucketed")
    }
    rows_ = {packing: value.methods[0] for packing, value in values.items()}
    mean = values["longest"].data.useful_tokens / 1000
    longest = float(stragglers.longest_moment(200 / 1024, 1.0, 4.0, 1.0)) * 1024
    assert rows_["longest"].useful_frac == pytest.approx(mean / longest, rel=1e-3)
    assert rows_["padded"].useful_frac == pytest.approx(mean / 1024, rel=1e-3)
    assert 0.9 < (rows_["bucketed"].useful_frac or 0) < 1
    seconds = {packing: row.step_seconds or 0 for packing, row in rows_.items()}
    assert seconds["bucketed"] < seconds["longest"] < seconds["padded"]
    alone = estimate(rows_["longest"].command)
    short = {**given, "length_mean": None, "length_sigma": None, "seq_len": round(longest)}
    as_long = answered(short, method="full-bf16").methods[0]
    assert seconds["longest"] == pytest.approx(as_long.step_seconds, rel=0.02)
    # the longest possible row sets the memory
    assert alone.memory.peak_bytes == pytest.approx(
        estimate(rows_["padded"].command).memory.peak_bytes, rel=0.01
    )
    assert alone.throughput.tokens_per_s == pytest.approx(
        16 * longest / alone.step.seconds, rel=1e-3
    )


def test_the_peak_is_that_of_the_longest_row_that_comes() -> None:
    """The longest of 1,000 examples of 200 tokens with sigma 0.5 is about exp(mu + 3.24 sigma) =
    890: a micro-batch of such rows is the peak where rows are as long as their longest, not one of
    rows of 4,096; a stated longest is met exactly. Packed rows are full."""
    given = {**SMALL, "seq_len": 4096, "length_mean": 200.0, "length_sigma": 0.5, "micro_batch": 2}
    expected = float(stragglers.longest_moment(200 / 4096, 0.5, 1000.0, 1.0)) * 4096
    assert expected == pytest.approx(200 * math.exp(-0.125 + 0.5 * 3.24), rel=0.05)
    stated = {**given, "length_sigma": None}
    for packing, more, option in (
        ("longest", given, {}),
        ("bucketed", stated, {"length_max": 890}),
    ):
        document = answered(
            {**more, "packing": packing}, method="full-bf16", examples=1000, **option
        )
        tokens = option.get("length_max", math.ceil(expected))
        assert any(f"rows of {tokens:,}" in note for note in document.notes) or any(
            f"micro-batches of {tokens:,}" in note for note in document.notes
        )
        # rows of one length that are masked as padded ones are
        row, short = document.methods[0], {**stated, "seq_len": tokens, "packing": "padded"}
        short["length_sigma"] = 0.5
        plain = answered(short, method="full-bf16").methods[0]
        assert row.memory is not None
        assert plain.memory is not None
        peaks = [estimate(each.command).memory.peak_bytes for each in (row, plain)]
        assert peaks[0] == pytest.approx(peaks[1], rel=1e-3)
        # blocks freed at one length do not serve another: more is reserved, as in the oracle
        slack = [estimate(each.command).memory.outside.fragmentation for each in (row, plain)]
        assert slack[0] == pytest.approx(6 * slack[1], rel=0.05)
        assert estimate(row.command).memory.device_bytes == row.memory.device_bytes
        # the longest context fills a row; a micro-batch of one needs no mask
        alone = answered({**SMALL, "seq_len": tokens}, method="full-bf16").methods[0]
        assert row.longest_context == alone.longest_context
    packed = answered(given, method="full-bf16", examples=1000).methods[0]
    whole = {**SMALL, "seq_len": 4096, "micro_batch": 2}
    full = answered(whole, method="full-bf16").methods[0]
    assert packed.memory is not None
    assert full.memory is not None
    assert packed.memory.device_bytes == pytest.approx(full.memory.device_bytes)


def test_larger_micro_batches_may_fit_with_less_of_a_chance() -> None:
    row = answered({**SMALL, "model": "llama-2-7b", "gpu": "h100"}, method="full-paged").methods[0]
    assert row.micro_batch_command is not None
    sure, even, most = row.largest_micro_batch, row.even_micro_batch, row.most_micro_batch
    assert sure is not None
    assert even is not None
    assert most is not None
    assert sure <= even <= most
    for size, least in ((even, 0.5), (most, 0.05)):
        more = row.micro_batch_command.replace(f"-batch {sure}", f"-batch {size}")
        assert estimate(more).memory.fit_chance >= least
    more = row.micro_batch_command.replace(f"-batch {sure}", f"-batch {2 * most}")
    assert estimate(more).memory.fit_chance < 0.05


def test_longer_contexts_may_fit_with_less_of_a_chance() -> None:
    row = answered(method="full-bf16").methods[0]
    assert row.longest_context is not None
    assert row.context_command is not None
    assert row.longest_context <= (row.even_context or 0) <= (row.most_context or 0)
    assert row.most_context != row.longest_context
    for tokens, chance in ((row.even_context, 0.5), (row.most_context, 0.05)):
        longer = row.context_command.replace(f"-len {row.longest_context}", f"-len {tokens}")
        assert estimate(longer).memory.fit_chance >= chance
    longer = row.context_command.replace(
        f"-len {row.longest_context}", f"-len {2 * (row.most_context or 0)}"
    )
    assert estimate(longer).memory.fit_chance < 0.05


def test_adapters_are_merged_and_what_is_left_has_no_trace_of_them() -> None:
    """B A of every matrix in fp32 (16 bytes an element, moved), added to a weight of 2 (4): the
    file is as large as the model, and memory holds its weights and two matrices."""
    given = {**SMALL, "stack": "hf-trainer", "lora_precision": "fp32"}
    full, lora = answered(given, method="full-bf16+lora").methods
    assert full.merge is None
    shape, _ = model_spec("qwen2.5-0.5b")
    every, h = parameter_count(shape), shape.hidden
    inner = shape.layers * (2 * h * h + 2 * h * 128 + 3 * h * flat_of(shape).ffn_hidden)
    merge = lora.merge
    assert merge is not None
    assert merge.merged_bytes == 2 * every
    assert merge.device_bytes == 2 * every + 8 * h * flat_of(shape).ffn_hidden
    assert 20 * inner / 1.008e12 < merge.seconds < 2.5 * 20 * inner / 1.008e12
    assert merge.adapter_bytes / 4 == 16 * shape.layers * (
        2 * 2 * h + 2 * (h + 128) + 3 * (h + flat_of(shape).ffn_hidden)
    )


def test_replicas_wait_for_the_longest_rows_of_all() -> None:
    """Two replicas that gather weights in every micro-batch of one document wait for the longer of
    two."""
    given = {"model": "qwen2.5-0.5b", "gpu": "a100", "gpus": 2, "seq_len": 1024, "zero": 3}
    given |= {"global_batch": 8, "micro_batch": 1, "length_mean": 200.0, "packing": "longest"}
    report = api.estimate(api.read_options(given), brief=True)
    two, first = (float(stragglers.longest_moment(200 / 1024, 1.0, n, 1.0)) for n in (2.0, 1.0))
    assert report.stragglers is not None
    assert report.stragglers.lengths is not None
    assert report.stragglers.lengths.imbalance_frac == pytest.approx(two / first - 1, rel=1e-6)
    assert report.stragglers.seconds["lengths"] > 0


def test_pages_that_can_leave_do_not_lower_the_chance_to_fit() -> None:
    """All weights of 8B on 24 GB: states fill what is left of the card, and leave where more is
    needed. What has to stay decides."""
    document = answered({**SMALL, "model": "llama-3.1-8b"}, method="full-paged")
    row = document.methods[0]
    assert row.memory is not None
    assert row.memory.headroom_bytes == pytest.approx(0, abs=1)
    assert row.memory.verdict == "fits"
    assert row.memory.fit_chance > 0.95


def test_several_cards_are_a_matrix_of_the_answers_of_each() -> None:
    kinds = ["rtx4090", "a100"]
    document = tune(TuneOptions(jobs=1, method="full+lora", examples=1000), {**SMALL, "gpu": kinds})
    alone = answered({**SMALL, "gpu": kinds[1]}, method="full+lora", examples=1000)
    assert document.cards[1].gpu_title == alone.gpu_title
    assert document.cards[1].methods == alone.methods
    shown = view(document)
    cells = dict(zip(kinds, shown.blocks[0].rows, strict=True))
    assert shown.blocks[0].header == ["card", "full", "lora"]
    best = min(
        (row.cost_usd, card.gpu_title, f"{row.name} with {row.stack}")
        for card in document.cards
        for row in card.methods
        if row.cost_usd is not None
    )
    assert shown.verdict.startswith(f"cheapest and smallest: {best[2]} on 1 x {best[1]}")
    marked = [cell for row in cells.values() for cell in row[1:] if "cheapest" in cell]
    assert len(marked) == 1
    matrix = shown.parts[0]
    assert isinstance(matrix, Block)
    assert len(not_none(matrix.chart).figure["data"]) == 4
    assert csv_text(document).count("\n") == 5


def chosen(document: Tuning) -> TuneAnswers:
    assert isinstance(document.answers, TuneAnswers)
    return document.answers


_BRIEF = TuneOptions(jobs=1, method="lora", examples=1000)


def test_numbers_of_gpus_double_up_to_the_most_in_whole_nodes() -> None:
    given = {**SMALL, "gpu": ["h100", "gb200"]}
    tried, _ = cards.every(given, Limits(max_gpus=20))
    counts = {
        kind: [each["gpus"] for each in tried if each["gpu"] == kind] for kind in given["gpu"]
    }
    assert counts == {"h100": [1, 2, 4, 8, 16], "gb200": [1, 2, 4, 8, 16]}
    tried, _ = cards.every({**SMALL, "gpu": "h100", "gpus": 4}, Limits(max_gpus=10))
    assert [each["gpus"] for each in tried] == [4, 8]
    with pytest.raises(PlanError, match=r"--max-gpus: 2 - is below --gpus 4"):
        cards.every({**SMALL, "gpu": "h100", "gpus": 4}, Limits(max_gpus=2))
    with pytest.raises(PlanError, match=r"names any beside a kind"):
        cards.every({**SMALL, "gpu": ["any", "h100"]}, Limits())


def test_the_choices_are_the_best_of_all_cards_that_fit_within_the_limits() -> None:
    """Days and dollars are checked as a band: a choice is likely within both."""
    given = {**SMALL, "gpu": ["rtx4090", "a100"]}
    limits = Limits(max_gpus=2, days=300 / 86400)
    document = tune(TuneOptions(jobs=1, method="lora"), given, limits)
    rows = [(card, row) for card in document.cards for row in card.methods]
    assert len(rows) == 4
    within = [(card, row) for card, row in rows if (not_none(row.chance)) >= 0.5]
    assert 0 < len(within) < 4
    choices = chosen(document)
    cheapest, fastest, smallest = (
        not_none(choice) for choice in (choices.cheapest, choices.fastest, choices.smallest)
    )
    costs = {not_none(row.cost_usd): card for card, row in within}
    assert document.cards[cheapest.place] == costs[min(costs)]
    times = {not_none(row.run_s): card for card, row in within}
    assert document.cards[fastest.place] == times[min(times)]
    assert smallest.gpus == min(card.gpus for card, _ in within)
    assert answered_within(document)
    longer = {**given, "seq_len": 8192, "global_batch": 64}
    nothing = tune(_BRIEF, longer, Limits(max_gpus=2, days=0.001, budget=0.01))
    assert not answered_within(nothing)
    assert view(nothing).verdict.startswith("nothing is likely within")


def test_with_sure_each_cell_is_likely_at_the_slow_end() -> None:
    """A cell has the cheapest number of GPUs that is within the limits at the slow end (--sure)."""
    given = {**SMALL, "gpu": ["rtx4090", "a100"]}
    counts = {}
    for sure in (False, True):
        limits = Limits(max_gpus=4, days=250 / 86400, sure=sure)
        document = tune(TuneOptions(jobs=1, method="lora"), given, limits)
        cells = [str(row[1]) for row in view(document).blocks[0].rows]
        counts[sure] = [int(cell.split(" x ")[0]) for cell in cells]
        for card in document.cards:
            chance = not_none(card.methods[0].chance)
            least = 0.9 if sure else 0.5
            title = [c.gpu_title for c in document.cards if c.gpus == 1].index(card.gpu_title)
            if card.gpus == counts[sure][title]:
                assert chance >= least
    assert counts[True] != counts[False]


def test_any_card_is_every_kind_with_a_price() -> None:
    """For many cards only the run is planned, unless they are named; a note says how many kinds
    have no price."""
    document = tune(_BRIEF, {**SMALL, "gpu": "any", "stack": "hf-trainer"}, Limits(budget=50.0))
    assert len(document.cards) > 10
    assert all(row.cost_usd is not None for card in document.cards for row in card.methods)
    named = {not_none(chosen(document).cheapest).place, not_none(chosen(document).fastest).place}
    for place, card in enumerate(document.cards):
        assert (card.methods[0].longest_context is not None) == (place in named)
    assert any("without a price there are not tried" in note for note in view(document).notes)
    alone = tune(_BRIEF, {**SMALL, "gpu": "h100", "stack": "hf-trainer"}, Limits(budget=50.0))
    same = next(card for card in document.cards if card.gpu_title == alone.gpu_title)
    assert same.methods[0].run_s == alone.methods[0].run_s
