"""Steps of TRL's SFTTrainer on CPUs: `torchrun step_of_trl.py train.yaml`, or by accelerate.

The file is taken as it is, with other data, a small model of the same family that has random
weights, and another number of steps. DeepSpeed has an
accelerator for CPUs (DS_ACCELERATOR=cpu). accelerate and transformers take DeepSpeed, FSDP and bf16
only for GPUs: here their checks for GPUs answer yes, and collectives are Gloo's.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import accelerate.state
import torch
import transformers
import trl
import yaml
from accelerate.utils import DistributedType
from datasets import Dataset
from tokenizers import Tokenizer, models

STEPS = 2
WORDS, LENGTH = 128, 64


def small_model() -> Any:
    """Two layers of Qwen2.5, in float32."""
    config = transformers.Qwen2Config(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    return transformers.AutoModelForCausalLM.from_config(config)


def tokenizer() -> Any:
    level = models.WordLevel({f"w{i}": i for i in range(WORDS)}, unk_token="w0")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(level), pad_token="w1", eos_token="w2"
    )


def examples() -> Dataset:
    ids = [i % WORDS for i in range(LENGTH)]
    row = {"input_ids": ids, "labels": ids, "attention_mask": [1] * LENGTH}
    return Dataset.from_list([row] * 16)


def trainer_of(path: str) -> Any:
    """TRL's trainer of a file, by its parser."""
    parser = trl.TrlParser((trl.ScriptArguments, trl.SFTConfig, trl.ModelConfig))
    _, arguments, model = parser.parse_args_and_config(["--config", path])
    return trl.SFTTrainer(
        model=small_model(),
        args=arguments,
        train_dataset=examples(),
        processing_class=tokenizer(),
        peft_config=trl.get_peft_config(model),
    )


def main() -> None:
    transformers.training_args.is_torch_bf16_gpu_available = lambda: True
    state = accelerate.state.PartialState
    state._prepare_backend = lambda *_, **__: ("gloo", DistributedType.MULTI_GPU)
    state.set_device = lambda self: setattr(self, "device", torch.device("cpu"))
    path = Path(sys.argv[1])
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    here = {"output_dir": "out", "dataset_name": "some/data", "max_steps": STEPS}
    here |= {"report_to": "none", "save_strategy": "no"}
    path = path.with_name("here.yaml")
    path.write_text(yaml.safe_dump(document | here), encoding="utf-8")
    trainer = trainer_of(str(path))
    result = trainer.train()
    if trainer.accelerator.is_main_process:
        stage = getattr(trainer.model_wrapped, "zero_optimization_stage", None)
        answer = {
            "steps": result.global_step,
            "loss": result.training_loss,
            "kind": trainer.accelerator.distributed_type.value,
            "zero": stage() if stage else None,
            "model": type(trainer.model_wrapped).__name__,
        }
        print(json.dumps(answer))


if __name__ == "__main__":
    main()
