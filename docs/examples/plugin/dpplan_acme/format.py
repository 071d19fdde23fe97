"""YAML of pre-training of Acme, a trainer of one's own on Fabric's FSDP."""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.formats.record import Answer, Argument, Format, Value
from planner.inputs.readers import yaml_places

_DETECT = re.compile(r"(?m)^trainer\s*:\s*acme\s*$")
_MODELS = {"tiny-llama-1.1b": "tinyllama-1.1b"}  # others have their name on the Hugging Face Hub


def _parse(text: str) -> Mapping[str, Value]:
    return {name: Value(value, line) for name, (value, line) in yaml_places(text).items()}


def _read_more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "lightning-fsdp", "Acme trains with Fabric's FSDP")
    if answer.get("devices") != 1:
        answer.imply("zero", 3, "FSDPStrategy with HYBRID_SHARD", "devices")
    if answer.get("devices") == "auto":
        answer.mark("devices", "implied", "every GPU of the node")


_TABLE = (
    Argument("arch", "model", meaning=lambda name: _MODELS.get(name, name)),
    Argument("precision", "precision", words={"bf16-mixed": "bf16", "32-true": "fp32"}),
    Argument("devices", "gpus", meaning=lambda count: None if count == "auto" else count),
    Argument("run.global_batch_size", "global_batch", default=512),
    Argument("run.micro_batch_size", "micro_batch", default=4),
    Argument("run.max_seq_length", "seq_len"),
    Argument("run.max_tokens", "tokens"),
    Argument("optimizer.class_path", "optimizer", words={"torch.optim.AdamW": "adam"}),
)

FORMAT = Format(
    kind="acme",
    title="Acme YAML",
    detect=lambda name, text: name.endswith((".yaml", ".yml")) and _DETECT.search(text) is not None,
    parse=_parse,
    table=_TABLE,
    whole=True,
    irrelevant=(
        *(
            "trainer",
            "out_dir",
            "data*",
            "tokenizer_dir",
            "logger_name",
            "seed",
            "resume",
            "eval.*",
        ),
        *("initial_checkpoint_dir", "optimizer.init_args.*", "run.save_interval"),
        *("run.log_interval", "run.lr_warmup_steps", "run.min_lr", "run.max_norm"),
    ),
    read_more=_read_more,
)
