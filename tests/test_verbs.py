"""Options that one verb alone answers are refused by the others, which would ignore them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import argv, dpplan, refused

VERBS = {
    "estimate": [],
    "search": [],
    "compare": ["--vary", "gpus=8,16"],
    "recommend": ["bandwidth"],
    "strategies": [],
    "batch": ["--tokens", "1B"],
    "schedule": ["--schedule", "1f1b", "--pp", "2"],
}
OWN = {
    "require": ("estimate", '["memory < 99%"]'),
    "advice": ("estimate", "3"),
    "objective": ("search", '"memory"'),
}


WHOLE = {
    "jitter": "0.5%",
    "slow_hosts": "1%",
    "other_gpu": "h100",
    "data_storage": "nfs",
    "workers": 4,
}


@pytest.mark.parametrize("option", WHOLE)
@pytest.mark.parametrize("verb", [["schedule", "--pp", 4], ["recommend", "offload"]])
def test_what_a_part_of_a_step_does_not_show_is_refused(verb: list[object], option: str) -> None:
    answer = dpplan(
        *verb,
        *argv("--model gpt2 --gpu a100 --gpus 8"),
        "--" + option.replace("_", "-"),
        WHOLE[option],
    )
    refused(answer, "--" + option.replace("_", "-"), "leave it out of `dpplan")


@pytest.mark.parametrize("option", OWN)
@pytest.mark.parametrize("verb", VERBS)
def test_an_option_of_another_verb_is_refused(verb: str, option: str, tmp_path: Path) -> None:
    owner, value = OWN[option]
    file = tmp_path / "scenario.toml"
    file.write_text(f'model = "gpt2"\ngpu = "a100"\ngpus = 8\n{option} = {value}\n')
    answer = dpplan(verb, *VERBS[verb], "--scenario", file)
    if verb == owner:
        assert answer.status == 0, answer.stderr
    else:
        refused(answer, f"--{option}", f"dpplan {owner}")
