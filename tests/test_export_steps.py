"""Training steps on CPUs from exported files, by the frameworks' own trainers, of a small model of
the plan's family: `pip install -e '.[export-tests]'`; skipped where they are missing.

step_of_*.py say what each takes in the place of GPUs, data and a large model.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_export import exported
from test_export_parsers import HERE, NEEDS, checkout, text_of

FOLDER = Path(__file__).parent
ONE: dict[str, Any] = {
    **{"model": "qwen2.5-7b", "gpu": "h100", "gpus": 1, "global_batch": 4, "seq_len": 64},
    **{"recompute": "full", "micro_batch": 2, "stack": "hf-trainer"},
}
ADAPTED = {**ONE, "lora": 4, "lora_targets": "q_proj+v_proj"}
TWO: dict[str, Any] = {
    **{"model": "qwen2.5-7b", "gpu": "h100", "gpus": 2, "global_batch": 4, "seq_len": 64},
    **{"recompute": "full", "micro_batch": 1},
}
# a small model of its own, whose widths a target writes
SMALL = {
    **{"model_type": "llama", "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128},
    **{"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"max_position_embeddings": 128, "hidden_act": "silu", "tie_word_embeddings": False},
}
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
ACCELERATE = ["-m", "accelerate.commands.launch", "--config_file=accelerate.yaml"]


def written(given: dict[str, Any], to: str, folder: Path) -> None:
    for file in exported(given, to=to).files:
        (folder / file.name).write_text(file.text, encoding="utf-8")


def answer_of(launcher: list[str], script: str, folder: Path, *words: str) -> dict[str, Any]:
    """The line of JSON that rank 0 of a script prints, started in a folder on two processes."""
    command = [sys.executable, *launcher, str(FOLDER / f"step_of_{script}.py"), *words]
    environment = os.environ | {
        **{"OMP_NUM_THREADS": "1", "CUDA_DEVICE_MAX_CONNECTIONS": "1", "DS_ACCELERATOR": "cpu"},
        **{"MASTER_ADDR": "127.0.0.1", "PYTHONWARNINGS": "ignore"},
    }
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"steps"')]
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(lines) == 1
    return dict(json.loads(lines[0]))


@pytest.mark.parametrize("plan", [ONE, ADAPTED], ids=["whole", "adapters"])
def test_trl_takes_a_step(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("trl", "datasets", "accelerate"):
        pytest.importorskip(package, reason=NEEDS)
    import step_of_trl

    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(text_of(exported(plan, to="trl"), "train.yaml"))
    here = HERE | {"dataset_name": "some/data", "max_steps": 1, "report_to": "none"}
    Path("train.yaml").write_text(yaml.safe_dump(document | here), encoding="utf-8")
    trainer = step_of_trl.trainer_of("train.yaml")
    assert trainer.train().global_step == 1
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in trainer.model.parameters())
    assert (trained < whole) == (plan is ADAPTED)
    assert trainer.args.train_batch_size == plan["micro_batch"]


def test_transformers_trainer_takes_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("trl", "datasets", "accelerate"):
        pytest.importorskip(package, reason=NEEDS)
    import step_of_trl

    transformers = pytest.importorskip("transformers", reason=NEEDS)
    monkeypatch.chdir(tmp_path)
    document = json.loads(text_of(exported(ONE, to="hf-trainer"), "train.json"))
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    here = HERE | {"max_steps": 1, "report_to": "none"}
    (arguments,) = parser.parse_dict(document | here, allow_extra_keys=True)
    trainer = transformers.Trainer(
        model=step_of_trl.small_model(), args=arguments, train_dataset=step_of_trl.examples()
    )
    assert trainer.train().global_step == 1
    assert arguments.gradient_checkpointing or getattr(arguments, "activation_checkpointing", False)


def test_accelerate_takes_steps(tmp_path: Path) -> None:
    """FSDP 2 of two processes, as accelerate.yaml says."""
    pytest.importorskip("trl", reason=NEEDS)
    written(TWO, "accelerate", tmp_path)
    answer = answer_of([*ACCELERATE, "--main_process_port=0"], "trl", tmp_path, "train.yaml")
    assert (answer["kind"], answer["model"]) == ("FSDP", "FSDPQwen2ForCausalLM")
    assert answer["steps"] == 2


@pytest.mark.parametrize("zero", [2, 3])
def test_deepspeed_takes_steps(zero: int, tmp_path: Path) -> None:
    """ZeRO as ds_config.json says, with batches that TRL's file and it agree on."""
    pytest.importorskip("trl", reason=NEEDS)
    pytest.importorskip("deepspeed", reason=NEEDS)
    written(TWO | {"zero": zero}, "deepspeed", tmp_path)
    answer = answer_of(TORCHRUN, "trl", tmp_path, "train.yaml")
    assert (answer["model"], answer["zero"], answer["steps"]) == ("DeepSpeedEngine", zero, 2)


@pytest.mark.parametrize(
    "layout",
    [{"zero": 3, "recompute": "full"}, {"tp": 2, "recompute": "selective"}, {"pp": 2}],
    ids=["shards", "tensor", "pipeline"],
)
def test_torchtitan_takes_steps(layout: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torchtitan", reason=NEEDS)
    written(TWO | {"model": "llama-3.1-8b", "recompute": "none"} | layout, "torchtitan", tmp_path)
    answer = answer_of(TORCHRUN, "torchtitan", tmp_path, "train.toml")
    assert answer["steps"] == 2
    assert answer["changed"] == answer["weights"]


@pytest.mark.parametrize("layout", [{"tp": 2, "pp": 1}, {"tp": 1, "pp": 1, "zero": 0}], ids=repr)
def test_nanotron_takes_steps(layout: dict[str, Any], tmp_path: Path) -> None:
    """Its main branch, which raises for ZeRO 1 and for pipelines: the target says from when on."""
    pytest.importorskip("torch", reason=NEEDS)
    model = tmp_path / "config.json"
    model.write_text(json.dumps(SMALL), encoding="utf-8")
    written(TWO | {"model": str(model)} | layout, "nanotron", tmp_path)
    words = (checkout("nanotron"), "config.yaml")
    answer = answer_of(TORCHRUN, "nanotron", tmp_path, *words)
    assert (answer["steps"], answer["tp"]) == (2, layout["tp"])
    assert answer["changed"] > answer["weights"] // 2  # norms are too near one for a step in bf16
    assert 0 < answer["loss"] < 10
