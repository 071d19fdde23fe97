"""Words of shell scripts: cases worked by hand, and the same scripts as bash itself reads them."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from recipes import RECIPES

from planner.cli.process import limited
from planner.error import PlanError
from planner.formats import recipe as formats
from planner.formats.megatron_bridge import recipes_in
from planner.formats.record import Value
from planner.formats.shell import script

WORDS = {  # of the command `run`, bars between them
    r"run $'a b\t\'c' $'\x41\101'": "a b\t'c|AA",
    'run $"a b"c': "a bc",
    "L=(x 'y z'); run a\"${L[@]}\"b a${L[@]}b": "ax|y zb|ax|y|zb",
    "L=(x 'y z'); run ${#L[@]} ${L[1]} \"${L[*]}\" ${#L}": "2|y|z|x y z|1",
    "A='a b'; B=$A; run \"$B\" ${A:+'c d'} ${UNSET:-e f}": "a b|c d|e|f",
    "A=/m/a-7b.json; run ${A##*/} ${A%.json} ${A#*/}": "a-7b.json|/m/a-7b|m/a-7b.json",
    ": ${A:=4}; run $A": "4",
    "A=x; [ $A = y ] && A=2; [[ $A == x ]] && B=3; run $A $B": "x|3",
    "true || A=1; A=${A:-2}; run $A": "2",
    "A=ab; A+=cd; run $A": "abcd",
    "A='x y'; case $A in x) B=1 ;; 'x y') B=2 ;; esac; run $B": "2",
    'run "${A:-don\'t}"': "don't",
    "cat <<-'END-1'\n\t' \"\n\tEND-1\nrun a": "a",
}


@pytest.mark.parametrize("text", WORDS)
def test_words_are_those_of_bash(text: str) -> None:
    result = next(command for command in script(text).commands if command.words[0].text == "run")
    assert [word.text for word in result.words[1:]] == WORDS[text].split("|")


def test_a_quote_of_escapes_that_is_never_closed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"never closed \(line 1, column 6\)"):
        script("run $'it\\'s")


@pytest.mark.parametrize(
    "text",
    [
        "A=1\nif [ -f x ]; then A=2; fi\nrun $A",
        "A=1\n[ -f x ] && A=2\nrun $A",
        "if [ -f x ]; then A=1; else A=2; fi\nrun $A",
        "A=1\nif [ $(nproc) -gt 4 ]; then export A=2; fi\nrun $A",
        "A=$(hostname)\nif [ -z $A ]; then B=2; else B=3; fi\nrun $B",
    ],
)
def test_what_an_undecided_branch_sets_is_unknown(text: str) -> None:
    command = next(command for command in script(text).commands if command.words[0].text == "run")
    assert [bool(word.unknown) for word in command.words[1:]] == [True]


def test_arguments_beside_those_of_an_undecided_branch_are_kept() -> None:
    parsed = script("A='--bf16'\nif [ -f x ]; then A=\"$A --fp8\"; fi\nrun $A")
    assert [word.text for word in parsed.commands[-1].words[1:]] == ["--bf16"]
    assert [entry.text for entry in parsed.skipped] == ["A"]


# ----- against bash -----

_NAMES = ("A", "B", "C")
_PLAIN = ("x", "ab", "8", "--k", "a=b", "/p/q.py", "1e-4", "a#b", "-")
_DEFAULTS = ("d", "a b", "$A", "", "'q r'", '"s t"')
_OPERATORS = (":-", "-", ":+", "+", ":=", "%b*", "%%b*", "#*/", "##*/")
_LISTS = ('"${L[@]}"', "${L[@]}", "${L[*]}", '"${L[*]}"', "${L[0]}", "${#L[@]}", "$L", '"${M[@]}"')


def _variable(draw: random.Random) -> str:
    name, operator = draw.choice((*_NAMES, "NONE")), draw.choice(_OPERATORS)
    rest = draw.choice(_DEFAULTS) if operator[-1] in "-+=" else ""
    return draw.choice((f"${name}", f"${{{name}{operator}{rest}}}", f"${{#{name}}}", "$((2*3+1))"))


def _part(draw: random.Random) -> str:
    inside = "".join(
        draw.choice((draw.choice(_PLAIN), _variable(draw), " ", r"\"", r"\$", "'", "#"))
        for _ in range(draw.randrange(4))
    )
    single = draw.choice(("'a b'", "''", "'$A'", "'\"'", "'#'", '$"a b"'))
    escaped = draw.choice((r"$'a\tb'", r"$'\''", r"$'\x41'", "\\ ", r"\$", "\\\n"))
    kinds = (draw.choice(_PLAIN), single, escaped, f'"{inside}"', draw.choice(_LISTS))
    return draw.choice((*kinds, _variable(draw)))


def _word(draw: random.Random) -> str:
    return "".join(_part(draw) for _ in range(draw.randrange(1, 4)))


def _statement(draw: random.Random) -> str:
    name, word, other = draw.choice(_NAMES), _word(draw), _word(draw)
    test = draw.choice((f'[ -z "${name}" ]', f"[[ ${name} == x ]]", f'[ "${name}" != ab ]'))
    here = draw.choice(("EOF", "-EOF", "'EOF'"))
    return draw.choice(
        (
            f"{name}={word}",
            f"export {name}={word}",
            f"{name}+={word}",
            f"L=({word} {other})",
            f"L+=({word})",
            f"if {test}; then {name}={word}; else {name}={other}; fi",
            f"{test} && {name}={word}",
            f"case ${name} in x|ab) {name}={word} ;; *) {name}={other} ;; esac",
            f"cat >/dev/null <<{here}\n$A ' \"\nEOF",
            f"run {word} {other}",
        )
    )


def _script(draw: random.Random) -> str:
    first = [f"{name}={draw.choice(('x', '8', 'ab', '/p/q.py'))}" for name in _NAMES]
    lines = [*first, "L=(x 'y z')", "M=()", *(_statement(draw) for _ in range(4))]
    return "\n".join([*lines, f"run {_word(draw)} {_word(draw)}", ""])


_RUN = "set -f\nrun() { printf '%s\\0' {begin} \"$@\" {end}; }\n"  # an end of zero after each word


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_scripts_are_read_as_bash_reads_them(tmp_path: Path) -> None:
    draw, compared = random.Random(1), 0
    for _ in range(60):
        text = _script(draw)
        ran = subprocess.run(
            ["bash", "--norc", "-c", _RUN + text],
            capture_output=True,
            env={"PATH": os.environ["PATH"]},
            cwd=tmp_path,
            check=False,
        )
        items = [
            command.words for command in script(text).commands if command.words[0].text == "run"
        ]
        if ran.stderr or any(word.unknown for words in items for word in words):
            continue
        printed = ran.stdout.decode().split("\0")[:-1]
        ours = [w for ws in items for w in ("{begin}", *(w.text for w in ws[1:]), "{end}")]
        assert ours == printed, text
        compared += 1
    assert compared > 20


# ----- values of another kind -----


@pytest.mark.parametrize("value", ["$DEGREE", "abc"])
def test_a_degree_that_is_no_number_is_not_understood(value: str) -> None:
    line = f"torchrun -m torchtitan.train --parallelism.data_parallel_shard_degree {value}"
    recipe = formats.read({"run.sh": line}).arguments
    assert recipe["parallelism.data_parallel_shard_degree"].use == "not understood"


@pytest.mark.parametrize("name", sorted(path.name for path in RECIPES.iterdir()))
def test_a_word_in_the_place_of_any_number_is_not_understood(name: str) -> None:
    text = (RECIPES / name).read_text()
    if name.endswith(".py"):  # of several recipes
        text = next(iter(recipes_in(text).values()))
    for key, values in formats.parts(name, text).items():
        for argument, value in values.items():
            if isinstance(value.value, int) and not isinstance(value.value, bool):
                by_name = {**values, argument: Value("many", value.line)}
                assert key.read(by_name).values[argument] is not None
                by_name[argument] = replace(value, value=0)
                key.read(by_name)


@pytest.mark.skipif(not hasattr(signal, "SIGPROF"), reason="there are no timers here")
def test_what_takes_too_long_ends_in_an_error() -> None:
    late = PlanError("FILE", "a", "too long")
    with pytest.raises(PlanError, match="too long"), limited(0.05, late):
        sum(1 for _ in range(10**10))
