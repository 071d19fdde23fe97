"""Requests over the option table: any options with any values are answered, or refused in one
sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from fuzz import values
from fuzz.case import Case, Took, ask
from fuzz.invariants import check
from fuzz.short import few
from planner.cli.group import COMMANDS, body_of
from planner.cli.made import options_of
from planner.specs.documents.estimate import Estimate
from planner.specs.options import Row, rows
from planner.specs.options.layout import LayoutOptions

ROOT = Path(__file__).parent.parent.parent
EXAMPLES, DATA = ROOT / "docs" / "examples", ROOT / "tests" / "data"
FILES = {
    **{path.name: path.read_bytes() for path in sorted(EXAMPLES.glob("*.toml"))},
    "node.toml": (DATA / "calibration.toml").read_bytes(),
    "runs.csv": (EXAMPLES / "runs.csv").read_bytes(),
    "train.sh": (DATA / "recipes" / "megatron.sh").read_bytes(),
    "train.log": (DATA / "train.log").read_bytes(),
    "nothing.toml": (DATA / "nothing.toml").read_bytes(),
}
# they measure and serve: asked as processes, in test_kills, test_http and test_agents
NOT_HERE = {"calibrate", "serve", "mcp"}
VERBS = [verb for verb in COMMANDS if verb not in NOT_HERE]

_ONE = {"model": "gpt2", "gpu": "a100", "gpus": "8"}
_LINKS = {"gpu": "a100", "gpus": "16"}
# a small request that is answered, which options change; empty for a verb that is
# missing here
BASE: dict[str, dict[str, str]] = {
    "estimate": _ONE,
    "search": _ONE,
    "compare": {**_ONE, "vary": "zero=0,1"},
    "batch": {**_ONE, "sweep": "gpus=1,2", "global_batch": "64"},
    "tune": {**_ONE, "seq_len": "512", "method": "full-sgd"},
    "read": {"files": "train.sh", "gpu": "a100", "gpus": "8"},
    "strategies": {**_ONE, "seq_len": "512"},
    "export": {**_ONE, "to": "megatron"},
    "recommend": {**_ONE, "question": "bandwidth", "max_gpus": "8"},
    "rl": {**_ONE, "prompts": "8", "response_length": "200"},
    "allreduce": _LINKS,
    "batchnorm": _LINKS,
    "input": {"samples_per_s": "1000"},
    "validate": {"runs": "runs.csv"},
    "check": {**_ONE, "logs": "train.log"},
}
ALWAYS = {"jobs": "1"}  # in this process
_LAYOUT = ("tp", "pp", "micro_batch", "recompute", "zero", "schedule")


def options(verb: str) -> dict[str, Row]:
    """Every option of a verb, from the table."""
    request, ours = options_of(verb, body_of(verb))
    return {**request, **ours}


def words_of(row: Row, value: str | None) -> list[str]:
    """An option as it is typed; None: a switch."""
    if row.says.argument:
        # an argument without a flag: `validate` without a file reads every shipped run
        return [] if value is None else [f"./{value}" if value.startswith("-") else value]
    if value is None:
        return [row.flag]
    return [row.flag, *value.split("|")] if row.name == "diff" else [f"{row.flag}={value}"]


@st.composite
def requests(draw: st.DrawFn, verbs: tuple[str, ...] = tuple(VERBS)) -> Case:
    """A request of any verb."""
    verb = draw(st.sampled_from(verbs))
    table = options(verb)
    chosen: dict[str, list[str | None]] = {
        name: [value] for name, value in BASE.get(verb, {}).items() if name in table
    }
    names = sorted(set(table) - {"json", "plain", *ALWAYS})
    for name in draw(st.lists(st.sampled_from(names), max_size=5)) if names else ():
        row = table[name]
        if row.is_switch:
            chosen[name] = [None]
        elif row.says.file in ("written", "folder"):
            chosen[name] = [draw(_results(row))]
        elif row.says.file == "read" or name == "market":
            chosen[name] = [draw(_sources(row))]
        elif row.is_several:
            chosen[name] = list(draw(st.lists(values.text_of(row), min_size=1, max_size=2)))
        else:
            chosen[name] = [draw(values.text_of(row))]
    chosen |= {name: [value] for name, value in ALWAYS.items() if name in table}
    if "json" in table and draw(st.sampled_from((True, True, False))):
        chosen["json"] = [None]
    if "tp" in table and draw(st.booleans()):  # a fixed layout is answered sooner, by other code
        fixed = draw(st.sets(st.sampled_from(_LAYOUT)))
        chosen |= {n: [draw(values.right(table[n]))] for n in sorted(fixed) if n not in chosen}
    words = [verb]
    for name, given_values in chosen.items():
        words += [word for value in given_values for word in words_of(table[name], value)]
    used = {name: text for name, text in FILES.items() if any(name in word for word in words)}
    return Case(tuple(words), used, draw(st.sampled_from((60, 80, 100))))


def _results(row: Row) -> st.SearchStrategy[str]:
    """Where a result goes: mostly where it can."""
    good = st.just(row.says.example)
    return good | good | st.sampled_from(("no/such/folder/x", ".", "x" * 400, "runs.csv", "a\0b"))


def _sources(row: Row) -> st.SearchStrategy[str]:
    """Files to read: mostly existing ones, perhaps of another kind."""
    target = st.sampled_from(sorted(FILES))
    example = row.says.example if row.says.example in FILES else "nothing.toml"
    return st.just(example) | target | st.just("missing.toml") | values.hostile()


CASES, CASE, TOOK = requests(), Case, Took()


def fuzz(case: Case) -> None:
    got = ask(case, TOOK)
    check(case, got)
    for document in got.documents:
        if isinstance(document, Estimate):
            for name, value in fixed(case):
                assert getattr(document.layout, name) == value, f"{name} is {value}, as asked"


def fixed(case: Case) -> Iterator[tuple[str, int]]:
    """Degrees of a layout that a request fixes, where it says each once and as a number."""
    words = {word: word.partition("=") for word in case.words[1:]}
    for name, row in rows(LayoutOptions).items():
        given = [value for flag, _, value in words.values() if flag == row.flag]
        if row.kind is int and len(given) == 1 and given[0].isdecimal() and given[0].isascii():
            yield name, int(given[0])


@few(20)
@given(case=CASES)
def test_any_request_is_answered_or_refused(case: Case) -> None:
    fuzz(case)
