"""Documents that go on in further rows, and short ones that are left out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from planner import api
from planner.formats.plan import planned
from planner.formulas.split_documents import (
    bucketed_row_moment,
    further_rows,
    longest_row_moment,
    rows_per_document,
)
from planner.formulas.stragglers import bucketed_moment, cut_moment, longer_frac, longest_moment
from planner.specs.base import PlanError
from planner.specs.options.tune import TuneOptions
from planner.verbs.tune import tune


def test_documents_of_one_length_by_hand() -> None:
    """Two and a half sequences: three rows, two of them full, the rest a half."""
    assert float(rows_per_document(2.5, 0.0)) == pytest.approx(3.0)
    for order in (1.0, 2.0):
        moment = float(longest_row_moment(2.5, 0.0, 1.0, order))
        assert moment == pytest.approx((2 + 0.5**order) / 3, rel=1e-2)
    assert float(further_rows(0.6, 2.5, 0.0)) == 1.0  # the second row, not the half one
    tokens = rows_per_document(40.0, 1.0) * longest_row_moment(40.0, 1.0, 1.0, 1.0)
    assert float(tokens) == pytest.approx(40.0, rel=1e-3)  # none is lost


@pytest.mark.parametrize("documents", [1.0, 8.0])
def test_without_long_documents_nothing_is_split(documents: float) -> None:
    """Mean of a hundredth of the sequence: as documents that would be cut."""
    assert float(rows_per_document(0.01, 0.5)) == pytest.approx(1.0)
    split = float(longest_row_moment(0.01, 0.5, documents, 2.0))
    assert split == pytest.approx(float(longest_moment(0.01, 0.5, documents, 2.0)), rel=1e-4)


@pytest.mark.parametrize(
    ("mean", "sigma", "least"), [(0.2, 1.0, 0.05), (1.0, 0.7, 0.3), (3.0, 0.6, 0.0)]
)
def test_rows_of_split_and_short_documents_as_drawn(
    mean: float, sigma: float, least: float
) -> None:
    random = np.random.default_rng(7)
    drawn = random.lognormal(math.log(mean) - sigma**2 / 2, sigma, 1_000_000)
    lengths = drawn[drawn >= least]
    short = 1 - float(longer_frac(mean / least, sigma)) if least else 0.0
    assert short == pytest.approx(1 - len(lengths) / len(drawn), abs=2e-3)
    whole = np.floor(lengths)
    rows = np.concatenate([np.ones(int(whole.sum())), lengths - whole])
    random.shuffle(rows)
    many = float(rows_per_document(mean, sigma, short))
    assert many == pytest.approx(len(rows) / len(drawn), rel=1e-2)
    kept = lengths[lengths <= 1]
    long = float(longer_frac(mean, sigma))
    for count in (1, 4, 32):
        for sample, formula in (
            (rows, lambda b, k: longest_row_moment(mean, sigma, b, k, short)),
            (kept, lambda b, k: longest_moment(mean, sigma, b, k, long, short)),
        ):
            longest = sample[: len(sample) // count * count].reshape(-1, count).max(axis=1)
            for order in (1.0, 2.0):
                moment = float(formula(count, order))
                assert moment == pytest.approx((longest**order).mean(), rel=1e-2)
    cut = float(longest_row_moment(mean, sigma, 1.0, 2.0, short, 0.3))
    assert cut == pytest.approx((np.minimum(rows / 0.3, 1) ** 2).mean(), rel=1e-2)
    for sample, number in (
        (rows, bucketed_row_moment(mean, sigma, 8.0, 1.0, short)),
        (kept, bucketed_moment(mean, sigma, 8.0, 1.0, long, short)),
    ):
        count = min(len(sample), 400_000) // 400
        lists = np.sort(sample[: count * 400].reshape(count, 400), axis=1).reshape(count, 50, 8)
        assert float(number) == pytest.approx(lists.max(axis=2).mean(), rel=2e-2)


SMALL = {"model": "qwen2.5-0.5b", "gpu": "a100", "gpus": 1, "seq_len": 1024, "micro_batch": 2}
SMALL |= {"global_batch": 8, "length_mean": 900.0, "stack": "trl", "stack_defaults": True}


def useful(**more: object) -> float:
    report = api.estimate(api.read_options({**SMALL, "packing": "padded", **more}), brief=True)
    assert report.stragglers is not None
    assert report.stragglers.lengths is not None
    return report.stragglers.lengths.useful_frac


def test_an_estimate_has_the_rows_of_split_and_short_documents() -> None:
    """Padded rows hold a document's mean: E L / E ceil(L), and without the short ones more."""
    share = 900 / 1024
    split = share / float(rows_per_document(share, 1.0))
    assert useful(excess_length="split") == pytest.approx(split, rel=1e-3)
    assert useful() == pytest.approx(float(cut_moment(share, 1.0, 1.0)), rel=1e-6)
    assert useful(short_length=200) > useful()
    assert useful(short_length=1) == pytest.approx(useful(), rel=1e-6)


def test_an_epoch_of_split_documents_loses_no_token() -> None:
    def of(**more: object) -> tuple[int, float]:
        given = {**SMALL, "packing": "padded", **more}
        data = tune(TuneOptions(method="lora", examples=1000, jobs=1), given).data
        return data.sequences, data.useful_tokens

    rows, tokens = of(excess_length="split")
    assert tokens == pytest.approx(900_000, rel=1e-3)
    assert rows == math.ceil(1000 * float(rows_per_document(900 / 1024, 1.0)))
    assert of()[1] < tokens
    assert of(short_length=200)[0] < 1000


def test_lengths_that_leave_nothing_name_what_leaves_it_out() -> None:
    with pytest.raises(PlanError, match=r"--short-length 100000 of a sequence"):
        api.estimate(api.read_options({**SMALL, "short_length": 100_000, "length_sigma": 0.5}))


def test_recipes_say_split_and_the_shortest() -> None:
    swift = "swift pt --model Qwen/Qwen2.5-0.5B --max_length 1024 --truncation_strategy split\n"
    options = planned({"a.sh": swift}, {"gpu": "a100", "length_mean": 900.0}).options
    assert options["excess_length"] == "split"
    axolotl = "base_model: Qwen/Qwen2.5-0.5B\nadapter: lora\nsequence_len: 1024\n"
    axolotl += "min_sample_len: 32\n"
    options = planned({"a.yaml": axolotl}, {"gpu": "a100", "length_mean": 900.0}).options
    assert (options["excess_length"], options["short_length"]) == ("drop", 32)
    alone = planned({"a.yaml": axolotl}, {"gpu": "a100"}).options
    assert alone.get("short_length") is None  # every sequence is full
