"""Every option can be varied, and swept where it is a number: answered or refused, never a crash.

Requests of a comparison are searched as one table; options that decide which layouts there are give
each its own patterns of recompute, schedules and degrees, which must still be joined. Options of
layouts are tried with a model of every kind, the others with one in turn, and with all of them
among the slow tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

import pytest

from planner.specs.base import PlanError
from planner.specs.documents.compare import Comparison
from planner.specs.options import LAYOUT, Options, Row, rows
from planner.specs.options.own import CompareOptions
from planner.specs.options.schema import from_example
from planner.verbs import compare

# of one layer of 64, from a file
TINY = """
name = "tiny"
layers = 1
hidden = 64
heads = 2
kv_heads = 1
ffn_hidden = 128
vocab = 256
max_positions = 512
source = "made up"
"""
# dense, experts, Mamba-2 beside attention, encoder, convolutions, a file of the user's
MODELS = ("gpt2", "moonlight-16b-a3b", "falcon-h1-0.5b", "bert-large", "resnet-50", "tiny.toml")
_OF_THE_REQUEST = ("model", "gpu", "gpus", "top")
_NUMBERS = {int: "1,2", float: "0.5,1"}
_SWEPT = {int: "1..4", float: "0.5,1"}


def _values(row: Row) -> str:
    """Two values of an option as they are typed, or the example of its row."""
    words = [str(word) for word in get_args(row.kind)][:2]
    if row.kind is bool:
        words = ["true", "false"]
    if not words and row.kind in _NUMBERS:
        return _NUMBERS[row.kind]
    return ",".join(words) or str(from_example(row))


EVERY = [row for name, row in rows(Options).items() if name not in _OF_THE_REQUEST]


@pytest.fixture(scope="module", autouse=True)
def _tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("models")
    (folder / "tiny.toml").write_text(TINY)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def _compared(model: str, row: Row, values: str, *, swept: bool) -> Comparison | str:
    """The comparison, or the sentence that refuses it."""
    given = {"model": model, "gpu": "h100", "gpus": 8, "global_batch": 32, "stack_defaults": True}
    given["stack"] = "pytorch-fsdp" if model == "resnet-50" else "megatron-core"
    if model != "resnet-50":
        given["seq_len"] = 512
    text = (f"{row.name}={values}",)
    request = CompareOptions(sweep=text) if swept else CompareOptions(vary=text)
    try:
        return compare.compare(request, {k: v for k, v in given.items() if k != row.name})
    except PlanError as error:
        return str(error)


def _check(row: Row, model: str) -> None:
    varied = _compared(model, row, _values(row), swept=False)
    if not isinstance(varied, str):
        assert all(point.layout is not None for point in varied.points)
    if row.kind in _SWEPT:
        _compared(model, row, _SWEPT[row.kind], swept=True)


def _quick(row: Row) -> Sequence[str]:
    """Models of the quick tests of an option."""
    turn = EVERY.index(row) % len(MODELS)
    return MODELS if row.name in LAYOUT else MODELS[turn : turn + 1]


@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_every_option_is_varied_or_refused(row: Row) -> None:
    for model in _quick(row):
        _check(row, model)


@pytest.mark.slow
@pytest.mark.parametrize("row", EVERY, ids=lambda row: row.name)
def test_every_option_is_varied_or_refused_for_every_model(row: Row) -> None:
    for model in (name for name in MODELS if name not in _quick(row)):
        _check(row, model)


def test_options_of_layouts_are_varied_for_most_models() -> None:
    """The law above could hold by refusing all."""
    table = rows(Options)
    answered = [
        not isinstance(_compared(model, table[name], values, swept=False), str)
        for name, values in (("tp", "1,2"), ("pp", "1,2"), ("zero", "0,1"), ("micro_batch", "1,2"))
        for model in MODELS[:4]
    ]
    assert sum(answered) >= len(answered) - 2
