"""Facts of fine-tuning: every one is a request that the command line would take."""

from pathlib import Path

import pytest

from benchmarks import facts
from planner.formats.plan import planned

TABLE = facts.read()
KINDS = {"", "allocated", "reserved", "reserved or nvidia-smi"}


def test_facts_say_where_they_are_from() -> None:
    assert len({fact.id for fact in TABLE}) == len(TABLE)
    for fact in TABLE:
        assert fact.source
        assert fact.verdict in ("fits", "oom")
        assert fact.memory_kind in KINDS
        assert fact.command or fact.assumed  # a reason
        assert (fact.memory_gib is None) == (not fact.memory_kind)


def test_commands_are_read(tmp_path: Path) -> None:
    for fact in TABLE:
        if fact.command:
            options = fact.options(tmp_path)
            assert options.stack
            assert options.gpus


def test_a_figure_between_two_statistics_is_met() -> None:
    fact = next(fact for fact in TABLE if fact.id == "ex03")  # its command takes a second
    (answer,) = facts.answers([fact])
    assert isinstance(answer, facts.Answered)
    assert answer.peak_gib is not None
    assert fact.memory_gib is not None
    assert answer.error == pytest.approx(answer.peak_gib / fact.memory_gib - 1)
    assert answer.right


def test_megatron_of_swift_trains_all_weights_in_bf16() -> None:
    text = "NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen2.5-14B --max_length 4096\n"
    options = planned({"a.sh": text}, {}).options
    assert options["precision"] == "bf16"
    assert "lora" not in options
    adapters = planned({"a.sh": text.replace("--max", "--tuner_type lora --max")}, {}).options
    assert adapters["lora"] == 8
