"""`import dpplan`: the verbs as functions, their signatures, and answers in notebooks."""

from __future__ import annotations

import inspect
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, get_args

import pytest
from command import ROOT, dpplan, python

import dpplan as package
from dpplan import PlanError, stub
from planner.cli import call
from planner.specs.document import plain

SMALL: dict[str, Any] = {"model": "gpt2", "gpu": "a100", "gpus": 2, "stack": "pytorch-ddp"}
WORDS = ["--model", "gpt2", "--gpu", "a100", "--gpus", "2", "--stack", "pytorch-ddp"]


@pytest.fixture(scope="module")
def answer() -> package.Answer[Any]:
    return package.estimate(**SMALL)


def test_a_function_answers_as_its_command(answer: package.Answer[Any]) -> None:
    command = dpplan("estimate", *WORDS, "--json")
    assert json.loads(answer.to_json()) == command.json()
    assert answer.status == command.status == 0
    assert answer.fits
    assert answer.command.startswith("dpplan estimate --model gpt2")
    printed = dpplan("estimate", *WORDS, columns=100).stdout
    assert str(answer).rstrip() == printed.rstrip()


def test_words_without_a_flag_come_first() -> None:
    recipe = ROOT / "tests" / "data" / "recipes" / "megatron.sh"
    words = ["read", recipe, "--gpu", "a100", "--gpus", "8", "--json"]
    assert json.loads(package.read(recipe, gpu="a100", gpus=8).to_json()) == dpplan(*words).json()
    assert plain(package.list("gpus").document) == dpplan("list", "gpus", "--json").json()


@pytest.mark.parametrize(
    ("verb", "options", "words"),
    [
        ("estimate", {**SMALL, "gpu": "h1000"}, ["--gpu", "h1000"]),
        ("estimate", {**SMALL, "gpus": "many"}, ["--gpus", "many"]),
        ("estimate", {**SMALL, "precision": "fp7"}, ["--precision", "fp7"]),
    ],
)
def test_a_wrong_value_is_the_sentence_of_the_command(
    verb: str, options: dict[str, Any], words: list[str]
) -> None:
    kept = [f"--{name}={value}" for name, value in SMALL.items() if options[name] == value]
    command = dpplan(verb, *kept, *words)
    with pytest.raises(PlanError) as wrong:
        getattr(package, verb)(**options)
    assert command.stderr == f"error: {' '.join(str(wrong.value).split())}\n"


def test_an_unknown_option_names_what_is_near() -> None:
    with pytest.raises(PlanError, match="gpu_count: 3 - is not an option; it is --gpus here"):
        package.estimate(model="gpt2", gpu_count=3)  # type: ignore[call-arg]
    with pytest.raises(PlanError, match="leave it out of `dpplan allreduce`"):
        package.allreduce(gpu="a100", gpus=8, tokens="1T")  # type: ignore[call-arg]
    with pytest.raises(PlanError, match="is given twice"):
        package.list("gpus", kind="models")  # type: ignore[misc]
    with pytest.raises(PlanError, match="is a value without a name"):
        package.list("models", "gpt2", "gpt2")  # type: ignore[call-arg]
    with pytest.raises(AttributeError, match="no attribute 'estimat'"):
        package.estimat  # type: ignore[attr-defined]  # noqa: B018


def test_a_result_is_written_as_by_the_command(tmp_path: Path) -> None:
    package.compare(**{**SMALL, "gpus": None}, sweep="gpus=1,2", csv=tmp_path / "sweep.csv")
    assert (tmp_path / "sweep.csv").read_text().count("\n") == 3
    with pytest.raises(PlanError, match="--csv"):
        package.search(**SMALL, csv=tmp_path / "absent" / "layouts.csv")


class Tags(HTMLParser):
    """Stack of open elements, each of which must be closed, and the tags seen."""

    def __init__(self) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        if tag not in ("br", "img", "meta", "link"):
            self.opened.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.opened.pop() == tag


def test_a_notebook_shows_sentences_and_tables(answer: package.Answer[Any]) -> None:
    page = answer._repr_html_()
    tags = Tags()
    tags.feed(page)
    assert tags.opened == []
    assert {"table", "style"} <= tags.seen
    assert not tags.seen & {"script", "html", "body", "head"}
    assert "GPT-2" in page
    assert len(page) < 60_000


def test_answers_become_data_frames(answer: package.Answer[Any]) -> None:
    row = answer.to_pandas()
    assert len(row) == 1
    assert row["step.seconds"][0] == answer.document.step.seconds
    shown = answer.to_pandas(answer.tables[0])
    assert len(shown) > 1
    sweep = package.compare(**{**SMALL, "gpus": None}, sweep="gpus=1,2,4").to_pandas()
    assert list(sweep["varied_gpus"]) == [1, 2, 4]
    assert sweep["step_low_s"].le(sweep["step_seconds"]).all()
    with pytest.raises(PlanError, match="is not shown; "):
        answer.to_pandas("no such table")
    assert answer.figures.keys() >= {"Step time"}


def test_the_stub_is_current() -> None:
    assert stub.FILE.read_text("utf-8") == stub.text(), "run `python -m dpplan.stub`"


@pytest.mark.parametrize("verb", dir(package))
def test_a_signature_has_the_options_of_the_command(verb: str) -> None:
    if verb in ("Answer", "PlanError", "__version__"):
        return
    table = call.options(verb)
    parameters = inspect.signature(getattr(package, verb)).parameters
    assert list(parameters) == list(table)
    assert not {"json", "plain"} & set(parameters)
    for name, row in table.items():
        if not row.is_several and row.choices:
            assert set(row.choices) <= {*get_args(row.kind)}, name


def test_importing_it_loads_nothing_of_the_planner() -> None:
    code = (
        "import sys, dpplan; print([n for n in ('numpy', 'typer', 'pandas') if n in sys.modules])"
    )
    assert python(code).stdout.strip() == "[]"


def test_the_tutorial_runs() -> None:
    notebook = json.loads((ROOT / "docs" / "examples" / "tutorial.ipynb").read_text("utf-8"))
    names: dict[str, Any] = {}
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(cells) > 5
    for cell in cells:
        exec(compile(cell, "tutorial.ipynb", "exec"), names)
    assert names["answer"].fits
    assert len(names["sweep"]) == 3
    assert len(names["layouts"]) > 100
    assert {"h100-sxm5-80gb"} <= {*names["gpus"]["id"]}
