"""One training step on a CPU from exported files, by the frameworks' own trainers, of a small model
of the plan's family: `pip install -e '.[export-tests]'`; skipped where they are missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_export import exported
from test_export_parsers import HERE, NEEDS, text_of

ONE: dict[str, Any] = {
    **{"model": "qwen2.5-7b", "gpu": "h100", "gpus": 1, "global_batch": 4, "seq_len": 64},
    **{"recompute": "full", "micro_batch": 2, "stack": "hf-trainer"},
}
ADAPTED = {**ONE, "lora": 4, "lora_targets": "q_proj+v_proj"}
_WORDS = 128


def small_model() -> Any:
    """Two layers of the family of the plan's model, in float32."""
    transformers = pytest.importorskip("transformers", reason=NEEDS)
    config = transformers.Qwen2Config(
        vocab_size=_WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def examples() -> list[dict[str, list[int]]]:
    ids = [i % _WORDS for i in range(ONE["seq_len"])]
    return [{"input_ids": ids, "labels": ids, "attention_mask": [1] * len(ids)}] * 8


@pytest.mark.parametrize("plan", [ONE, ADAPTED], ids=["whole", "adapters"])
def test_trl_takes_a_step(
    plan: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl", reason=NEEDS)
    datasets = pytest.importorskip("datasets", reason=NEEDS)
    tokenizers = pytest.importorskip("tokenizers", reason=NEEDS)
    transformers = pytest.importorskip("transformers", reason=NEEDS)
    monkeypatch.chdir(tmp_path)
    document = yaml.safe_load(text_of(exported(plan, to="trl"), "train.yaml"))
    here = HERE | {"dataset_name": "some/data", "max_steps": 1, "report_to": "none"}
    Path("train.yaml").write_text(yaml.safe_dump(document | here), encoding="utf-8")
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    _, arguments, model = parser.parse_args_and_config(["--config", "train.yaml"])
    words = {f"w{i}": i for i in range(_WORDS)}
    level = tokenizers.models.WordLevel(words, unk_token="w0")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(level), pad_token="w1", eos_token="w2"
    )
    trainer = trl.SFTTrainer(
        model=small_model(),
        args=arguments,
        train_dataset=datasets.Dataset.from_list(examples()),
        processing_class=tokenizer,
        peft_config=trl.get_peft_config(model),
    )
    result = trainer.train()
    assert result.global_step == 1
    trained = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
    whole = sum(p.numel() for p in trainer.model.parameters())
    assert (trained < whole) == (plan is ADAPTED)
    assert trainer.args.train_batch_size == plan["micro_batch"]


def test_transformers_trainer_takes_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate", reason=NEEDS)
    transformers = pytest.importorskip("transformers", reason=NEEDS)
    monkeypatch.chdir(tmp_path)
    document = json.loads(text_of(exported(ONE, to="hf-trainer"), "train.json"))
    parser = transformers.HfArgumentParser(transformers.TrainingArguments)
    here = HERE | {"max_steps": 1, "report_to": "none"}
    (arguments,) = parser.parse_dict(document | here, allow_extra_keys=True)
    trainer = transformers.Trainer(model=small_model(), args=arguments, train_dataset=examples())
    assert trainer.train().global_step == 1
    assert arguments.gradient_checkpointing or getattr(arguments, "activation_checkpointing", False)
