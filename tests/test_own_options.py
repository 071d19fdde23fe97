"""Every option of a single verb changes its output or its files; request options are in
test_every_option."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from command import ROOT, Answer, dpplan

from planner.cli.group import COMMANDS, body_of
from planner.cli.made import options_of


def _cases() -> dict[str, tuple[str, str]]:
    """By option: a command, and the same with the option. {file} is a file to be written, {rows}
    one to be read; other names in braces stand for words that commands share."""
    table = json.loads((ROOT / "tests/data/own_options.json").read_text(encoding="utf-8"))
    known: dict[str, str] = {"file": "{file}", "rows": "{rows}"}
    for name, line in table["words"].items():
        known[name] = line.format(**known)
    return {
        option: (without.format(**known), given.format(**known))
        for option, (without, given) in table["options"].items()
    }


CASES = _cases()
# they change how an answer is made or printed on a terminal, not what it is
SAME = {
    "plain": "what is piped is plain",
    **dict.fromkeys(("jobs", "dask"), "who does the work changes the time alone"),
}
PRINTED = (
    "estimate inference",
    "estimate full",
    "search full",
    "read full",
)  # more text, the same document
MEASURED, TRACED = (
    set(options_of(verb, body_of(verb))[1]) - {"json", "plain"} for verb in ("calibrate", "trace")
)
# minutes of fits, measuring and serving: tests of their own
ELSEWHERE = {
    **dict.fromkeys(("export answer", "export rank"), "test_export"),
    **dict.fromkeys((f"calibrate {name}" for name in MEASURED), "test_calibrate"),
    **dict.fromkeys((f"trace {name}" for name in TRACED), "test_trace"),
    "mcp port": "test_agents",
    **dict.fromkeys(("prices update", "prices feed"), "test_prices_fetched"),
    "preflight folder": "test_preflight",
    "recommend examples": "test_recommend",
    **{
        f"serve {name}": "test_web_connections"
        for name in ("host", "port", "allow_host", "token_file")
    },
}


def options() -> list[str]:
    """ "VERB OPTION" of every option that belongs to only one verb."""
    return [
        f"{verb} {name}"
        for verb in COMMANDS
        for name in options_of(verb, body_of(verb))[1]
        if name not in SAME and name != "json"
    ]


def test_every_own_option_has_a_case() -> None:
    assert set(options()) == set(CASES) | set(ELSEWHERE)
    for file in ELSEWHERE.values():
        assert (ROOT / "tests" / f"{file}.py").exists()


@cache
def before(words: tuple[str, ...]) -> Answer:
    """Output of a base command, shared by several options."""
    return dpplan(*words)


@pytest.mark.parametrize("option", CASES)
def test_an_own_option_counts(option: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", encoding="utf-8")
    without, given = (words.format(file=tmp_path / "out", rows=rows) for words in CASES[option])
    output = [] if option in PRINTED else ["--json"]
    first, second = before((*without.split(), *output)), dpplan(*given.split(), *output)
    for answer in (first, second):
        assert answer.status in (0, 3), answer.stderr
    files = [path for path in tmp_path.iterdir() if path.stem == "out"]
    if "{file}" in CASES[option][1]:
        assert [path.stat().st_size > 0 for path in files] == [True]
    else:
        assert second.stdout != first.stdout


@pytest.mark.parametrize("verb", COMMANDS)
def test_json_is_one_document(verb: str) -> None:
    """--json and --plain belong to every verb that answers; what is piped is plain already."""
    ours = options_of(verb, body_of(verb))[1]
    if "json" not in ours or verb in ("calibrate", "preflight", "trace"):
        return
    line = next(given for option, (given, _) in CASES.items() if option.startswith(f"{verb} "))
    words = line.split()
    text, document = before(tuple(words)), before((*words, "--json"))
    plain = dpplan(*words, "--plain")
    assert json.loads(document.stdout) is not None
    assert document.stdout != text.stdout
    if "evaluated" not in document.stdout:  # prints how long a search took
        assert plain.stdout == text.stdout
