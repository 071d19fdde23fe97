"""Advice of `dpplan read`: why a plan runs out of memory, and what to edit."""

from __future__ import annotations

import re

from command import dpplan
from fastapi.testclient import TestClient
from not_none import not_none
from recipes import RECIPES

from planner.formats.documents.read import Edit, Read
from planner.formats.verbs.read import read

GIVEN = {"gpu": "h100", "gpus": 16}


def edited(text: str, edits: list[Edit]) -> str:
    """A YAML text with these edits, by hand: what is new stands beside what changes."""
    lines: list[str | None] = list(text.splitlines())
    placed = [(int(edit.place.rpartition(" ")[2]) - 1, edit) for edit in edits if edit.place]
    for at, item in placed:
        stored = lines[at]
        assert stored is not None
        name = stored.partition(":")[0]
        assert name.strip().lstrip("-").replace("-", "_").endswith(item.argument.lstrip("-"))
        lines[at] = None if item.after is None else f"{name}: {item.after}"
    indent = not_none(re.match(" *", text.splitlines()[placed[0][0]]))[0]
    new = [f"{indent}{edit.argument}: {edit.after}" for edit in edits if not edit.place]
    kept = [line for line in lines[: placed[0][0] + 1] if line is not None]
    return "\n".join(
        [*kept, *new, *(line for line in lines[placed[0][0] + 1 :] if line is not None)]
    )


def test_the_edited_files_say_the_better_recipe() -> None:
    """The edits are made in the text, and what is read then is the plan that was promised."""
    new = 0
    for name in ("bridge.yaml", "primus.yaml", "maxtext.yml"):
        text = (RECIPES / name).read_text()
        recipe = read({name: text}, GIVEN)
        assert recipe.better is not None
        assert recipe.estimate is not None
        assert recipe.better.unsaid == {}
        new += sum(not edit.place for edit in recipe.better.edits)
        again = read({name: edited(text, recipe.better.edits)}, {**GIVEN, "advice": 0})
        assert again.estimate is not None, (name, again.refused)
        assert again.estimate.layout == recipe.better.layout, name
        assert again.estimate.step.seconds == recipe.better.step_seconds
        assert again.estimate.memory.fits
        assert (recipe.out_of_memory is None) == recipe.estimate.memory.fits
    assert new > 0  # arguments that the file had not are among them


def test_why_it_runs_out_of_memory_and_what_makes_it_fit() -> None:
    recipe = read({"a.yml": (RECIPES / "maxtext.yml").read_text()}, GIVEN)
    why, memory = recipe.out_of_memory, not_none(recipe.estimate).memory
    assert why is not None
    assert recipe.remedy is not None
    assert why.missing_bytes == -memory.headroom_bytes > 0
    sizes = [term.bytes for term in why.terms]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == max(memory.components.values())
    assert abs(why.terms[0].share - sizes[0] / memory.device_bytes) < 1e-12
    assert recipe.remedy.fits
    assert recipe.remedy.device_bytes < memory.capacity_bytes
    answer = dpplan("read", RECIPES / "maxtext.yml", "--gpu", "h100", "--gpus", 16)
    assert answer.status == 3
    for name in ("Why it runs out of memory", "The cheapest change", "ici_fsdp_parallelism"):
        assert name in answer.stdout, name


def test_what_stands_on_a_command_line_is_edited_as_flags() -> None:
    recipe = read({"run.sh": (RECIPES / "megatron.sh").read_text()}, {**GIVEN, "tp": 2})
    assert recipe.better is not None
    edits = {edit.argument: edit for edit in recipe.better.edits}
    assert edits["--micro-batch-size"].before == 1
    assert edits["--micro-batch-size"].place == "run.sh, line 45"
    assert edits["--num-layers-per-virtual-pipeline-stage"].after is None
    assert edits["--tp"].kind == ""  # typed beside the files: it would win over them


def test_a_trainer_that_replicates_what_does_not_fit_is_told_how_to_shard() -> None:
    given = {**GIVEN, "gpu": "a100-sxm4-40gb"}
    recipe = read({"trl.yaml": (RECIPES / "trl.yaml").read_text()}, given)
    assert recipe.out_of_memory is not None
    assert recipe.remedy is not None
    assert recipe.remedy.fits
    assert recipe.remedy.stack in ("hf-deepspeed", "hf-fsdp")
    assert recipe.remedy.unsaid == {}
    assert {edit.kind for edit in recipe.remedy.edits} <= {"trl", "deepspeed"}


def test_what_no_target_writes_is_told_in_our_words() -> None:
    """Scripts of reinforcement learning are read, and nothing writes them."""
    recipe = read({"rl.sh": (RECIPES / "verl.sh").read_text()}, GIVEN)
    assert recipe.better is not None
    assert {edit.argument.partition(".")[0] for edit in recipe.better.edits} == {
        "actor_rollout_ref"
    }
    assert recipe.better.unsaid


def test_without_advice_nothing_is_searched(client: TestClient) -> None:
    values = {"files": {"a.yml": (RECIPES / "maxtext.yml").read_text()}, **GIVEN}
    quick = client.post("/api/read", json={**values, "advice": 0}).json()
    assert quick["remedy"] is quick["better"] is None
    assert quick["out_of_memory"]["missing_bytes"] > 0
    assert set(quick) == set(Read.__struct_fields__)


def test_what_files_leave_out_is_as_their_program_has_it() -> None:
    given = {"model": "llama-3-8b", "advice": 0, **GIVEN}
    recipe = read({"run.sh": "torchrun pretrain_gpt.py --num-layers 24 --bf16"}, given)
    assert recipe.command is not None
    assert "--stack-defaults" in recipe.command
    assert not_none(recipe.estimate).search.software == {}
