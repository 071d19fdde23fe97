"""Files of other programs as requests: every argument is accounted for, and nothing is run."""

from pathlib import Path

import pytest

from planner import formats
from planner.formats.shell import script
from planner.specs.base import PlanError

RECIPES = Path(__file__).parent / "data" / "recipes"


def read(*names: str) -> formats.Recipe:
    return formats.read({name: (RECIPES / name).read_text() for name in names})


def test_a_script_of_megatron_is_read():
    found = read("megatron.sh")
    assert "megatron" in found.kinds
    expected = {
        "model": "qwen3-30b-a3b",
        "stack": "megatron-core",
        "tp": 2,
        "pp": 2,
        "vpp": 4,
        "cp": 1,
        "ep": 8,
        "zero": 1,
        "sequence_parallel": True,
        "schedule": "interleaved",
        "micro_batch": 1,
        "global_batch": 512,
        "seq_len": 4096,
        "precision": "fp8-blockwise",
        "recompute": "core_attn+moe_act",
        "dispatcher": "deepep",
        "expert_kernels": "grouped",
        "expandable_segments": True,
        "tokens": 1000 * 512 * 4096,
    }
    assert {name: found.options[name] for name in expected} == expected


def test_every_argument_is_accounted_for():
    used = read("megatron.sh").arguments
    assert used["tensor-model-parallel-size"].use == "read"
    assert used["overlap-grad-reduce"].use == "implied"
    assert used["context-parallel-size"].use == "implied"  # not in the file: the default
    assert used["lr"].use == used["eval-iters"].use == "irrelevant"
    assert used["frobnicate"].use == "not understood"
    assert {one.use for one in used.values()} <= {"read", "implied", "irrelevant", "not understood"}


def test_neither_secrets_nor_paths_are_repeated():
    said = repr(read("megatron.sh"))
    assert "lustre" not in said
    assert "someone" not in said
    assert "0123456789abcdef" not in said


def test_a_yaml_of_megatron_arguments():
    found = read("megatron.yaml").options
    assert found["pp"] == 4
    assert found["zero"] == 0
    assert found["recompute"] == "block:1"
    assert found["precision"] == "bf16"
    assert '"layers": 12' in found["model"]


def test_two_files_that_contradict_each_other_are_refused():
    one, two = "A=1; train.py --micro-batch-size 1 --bf16", "train.py --micro-batch-size 2"
    with pytest.raises(PlanError, match=r"b\.sh, line 1.*a\.sh, line 1"):
        formats.read({"a.sh": one, "b.sh": two})


WORDS = {  # of the command `run`, bars between them
    "A=(1 '2 3')\nrun ${A[@]}": "1|2|3",
    "A=(1 '2 3')\nrun \"${A[@]}\"": "1|2 3",
    "A=${B:-4}; A=$((A * (2 + 1) % 7)); run $A": "5",
    "run a \\\n  b # c\n": "a|b",
    "if [ $X -gt 3 ]; then A=1; fi\nX=4\nif [[ $X -gt 3 && a == a ]]; then A=2; fi\nrun $A": "2",
    "f() {\n local A=7\n run --x=$A >log 2>&1\n}": "--x=7",
    "cat <<EOF\n'never closed\nEOF\nrun here": "here",
    'Z=3; bash -c "run $Z"': "3",
    "A='-1'; A+=' -2'; run $A": "-1|-2",
    "for N in 8 16; do run $N; done": "8",
    "case 7 in 6) A=1 ;; 7|8) A=2 ;; *) A=3 ;; esac; run $A": "2",
}


def test_words_of_a_shell_script():
    for text, words in WORDS.items():
        found = next(one for one in script(text).commands if one.words[0].text == "run")
        assert [one.text for one in found.words[1:]] == words.split("|"), text


def test_what_only_running_a_script_tells_is_unknown():
    found = script("A=$(rm -rf x); B=`date`; run $A $B $C ${D:-$E}").commands[-1]
    assert [one.unknown for one in found.words[1:]] == [
        ("$(rm -rf x)",),
        ("`date`",),
        ("C",),
        ("E",),
    ]


def test_broken_and_hostile_scripts_end_in_one_sentence():
    with pytest.raises(PlanError, match=r"line 2, column 5"):
        formats.read({"a.sh": "x --bf16\nrun 'never closed --micro-batch-size 1"})
    doubling = "A=aaaaaaaaaa\n" + "A=$A$A$A$A\n" * 40
    with pytest.raises(PlanError, match="grows beyond"):
        formats.read({"a.sh": doubling + "run --micro-batch-size $A"})
    with pytest.raises(PlanError, match="is of no kind"):
        formats.read({"a.txt": "hello"})
