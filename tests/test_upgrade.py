"""Files of release 0.2.0 are read: scenarios, links, profiles, calibrations, runs; documents that
lost a key since then have another version of the schema."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from command import dpplan

from planner.specs.document import SCHEMA_VERSION, Document
from planner.specs.documents import by_answer, declared
from planner.specs.options import Options, rows
from planner.specs.options.checked import from_text
from planner.studies.validate.rows import read_rows
from planner.studies.validate.scored import scored
from web import state

OLD = Path(__file__).parent / "data" / "upgrade"  # of the tree of 0.2.0
OLD_SCHEMA_VERSION = 1
SMALL = ("--model", "gpt2", "--gpu", "a100", "--gpus", "8")


def test_every_option_of_it_and_every_word_for_a_value_is_read() -> None:
    table = rows(Options)
    for name, words in json.loads((OLD / "options.json").read_text("utf-8")).items():
        assert name in table
        for word in words:
            from_text(table[name], word)


@pytest.mark.parametrize("link", (OLD / "links.txt").read_text("utf-8").splitlines())
def test_its_links_open_the_same_request(link: str) -> None:
    pairs = parse_qsl(link)
    opened = state.of_pairs(pairs)
    assert {name for name, _ in opened.pairs} == {name for name, _ in pairs}
    assert dict(state.of_pairs(opened.pairs).pairs) == dict(opened.pairs)


@pytest.mark.parametrize(
    "words",
    [
        ("--scenario", "scenario.toml"),
        ("--model", "model.toml", "--gpu", "a100", "--gpus", "8"),
        ("--model", "gpt2", "--gpus", "8", "--gpu", "gpu.toml"),
        ("--model", "gpt2", "--cluster", "cluster.toml", "--gpus", "8"),
        (*SMALL, "--inter-node", "network.toml"),
        ("--model", "gpt2", "--gpu", "rtx4090", "--gpus", "1", "--calibration", "calibration.toml"),
    ],
)
def test_its_files_answer(words: tuple[str, ...]) -> None:
    named = [str(OLD / word) if word.endswith(".toml") else word for word in words]
    answer = dpplan("estimate", *named, "--json")
    assert answer.status == 0, answer.stderr


def test_a_key_of_its_stacks_that_is_gone_is_named() -> None:
    answer = dpplan("estimate", *SMALL, "--stack", str(OLD / "stack.toml"))
    assert answer.status == 2
    assert "'state.compute' - unknown key" in answer.stderr


def test_its_rows_of_runs_are_scored() -> None:
    for row in read_rows(OLD / "runs.csv"):
        assert float(scored(row).estimates.time.seconds[0]) > 0


def _documents(annotation: object) -> Iterator[type[Document]]:
    if isinstance(annotation, type) and issubclass(annotation, Document):
        yield annotation
    for inner in typing.get_args(annotation):
        yield from _documents(inner)


def _keys(document: type[Document], seen: frozenset[type[Document]]) -> Iterator[str]:
    if document in seen:
        return
    for name, annotation in typing.get_type_hints(document).items():
        yield name
        for inner in _documents(annotation):
            yield from (f"{name}.{key}" for key in _keys(inner, seen | {document}))


def test_documents_that_lost_a_key_have_another_version() -> None:
    """Keys that the last release had are there, or documents say that they are others."""
    gone = {
        answer: sorted({*keys} - {*_keys(declared(answer), frozenset())})
        for answer, keys in json.loads((OLD / "keys.json").read_text("utf-8")).items()
        if answer in by_answer()
    }
    lost = {answer: keys for answer, keys in gone.items() if keys}
    assert (SCHEMA_VERSION > OLD_SCHEMA_VERSION) == bool(lost), lost
