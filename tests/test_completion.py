"""Completion scripts, in the shells that are installed: verbs, options, and words of values."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from command import dpplan

from planner.cli import completion
from planner.cli.group import COMMANDS

# how each shell is made to print its offers; $1 is the script, the rest the words so far
ASK = {
    "bash": 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _dpplan;'
    ' printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'compdef() { }; source "$1"; shift; words=("$@"); CURRENT=$#; PREFIX=$words[-1];'
    " compadd() { shift; print -l -- ${(M)@:#$PREFIX*} }; _files() { };"
    " _describe() { for one in ${(P)3}; do print -r -- ${one%%:*}; done };"
    " _dpplan",
    "fish": 'source $argv[1]; complete -C "$argv[2..-1]" | string replace -r "\\t.*" ""; true',
}


@cache
def verbs() -> dict[str, completion.Verb]:
    return completion.verbs()


@pytest.fixture(scope="module", params=get_args(completion.Shell))
def offered(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    shell = request.param
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    path: Path = tmp_path_factory.mktemp(shell) / "script"
    path.write_text(completion.script(shell), "utf-8")
    plain = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]

    def ask(*words: str) -> set[str]:
        before = ["-c", ASK[shell], *([] if shell == "fish" else [shell]), str(path)]
        done = subprocess.run(
            [shell, *plain, *before, "dpplan", *words],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        assert not done.stderr
        return {line for line in done.stdout.split() if line.startswith(words[-1])}

    return ask


def test_shells_complete_verbs_options_and_values(offered) -> None:  # type: ignore[no-untyped-def]
    assert set(COMMANDS) <= offered("")
    assert offered("est") == {"estimate"}
    assert {"--precision", "--gpus", "--json"} <= offered("estimate", "--")
    assert "--csv" not in offered("estimate", "--c")
    assert "--csv" in offered("search", "--c")
    assert offered("help", "exper") == {"experts"}
    assert "--help-all" in offered("estimate", "--help")
    assert offered("estimate", "--precision", "mx") == {"mxfp8"}
    assert {"h100-sxm5-80gb", "h200-sxm-141gb"} <= offered("search", "--gpu", "h")
    assert offered("tune", "--model", "llama-3.1-8") == {"llama-3.1-8b"}
    assert "models" in offered("list", "mo")


def test_every_option_and_choice_is_known() -> None:
    result = verbs()
    assert list(result) == [*COMMANDS, "help"]
    assert {*COMMANDS, "layout", "generation"} <= {*result.pop("help").first}
    for name, verb in result.items():
        assert verb.says, name
        assert "all" in (verb.values["--help"] or ())
        assert verb.flags.keys() == verb.values.keys()
    negated = [flag for flag in result["estimate"].flags if flag.startswith("--no-")]
    assert negated
    assert all(result["estimate"].values[flag] is None for flag in negated)
    assert result["estimate"].values["--gpus"] == ()
    assert "memory" in result["learn"].first


def test_the_script_is_printed_and_other_shells_are_refused() -> None:
    assert dpplan("--completion", "fish").stdout == completion.script("fish")
    answer = dpplan("--completion", "tcsh")
    assert answer.status == 2
    assert "bash, zsh, fish" in answer.stderr
