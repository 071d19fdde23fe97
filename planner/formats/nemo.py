"""NeMo 1 and NeMo-Aligner: YAML of a trainer of Lightning beside a model of Megatron-LM.

Names and defaults: examples/nlp/gpt/conf of NVIDIA/NeMo-Aligner@af2b3bd9 and
megatron_gpt_config.yaml of NVIDIA/NeMo 1.23.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.formats import megatron_table as names
from planner.formats import trainer
from planner.formats.megatron import plain
from planner.formats.megatron_around import read_with
from planner.formats.record import Answer, Format, Value, unread

_DETECT = (
    re.compile(r"(?m)^trainer[ \t]*:"),
    re.compile(r"(?m)^model[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:num_nodes|devices)[ \t]*:"),
    re.compile(r"(?m)^[ \t]+(?:megatron_amp_O2|mcore_gpt|tensor_model_parallel_size)[ \t]*:"),
)
_MODEL = re.compile(r"model\.(\w+)")
_SIZES = re.compile(r"model\.data\.train_ds\.((?:micro|global)_batch_size)")
_PRECISIONS = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16"}
_SHARDED = ("distributed_fused_adam", "mcore_distributed_optim")
_PAIRED = ("dpo",)
_OBJECTIVES = ("dpo", "kto", "spin", "ppo", "reinforce", "rs")
# theirs: the switch of Megatron-LM with the meaning of these values
_PARTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "activation": ("swiglu", ("swiglu", "fast-swiglu")),
    "bias": ("disable-bias-linear", (False,)),
    "share-embeddings-and-output-weights": ("untie-embeddings-and-output-weights", (False,)),
}
_DEFAULTS = {"attention-dropout": 0.0, "hidden-dropout": 0.0}
# names that differ from the command line's
_SAME = {"encoder-seq-length": "seq-length", "num-query-groups": "num-query-groups"}


def _parse(text: str) -> Mapping[str, Value]:
    """The model's arguments by Megatron-LM's names, the others by their path."""
    out: dict[str, Value] = {}
    for path, value in trainer.resolved(trainer.parse(text)).items():
        inside, size = _MODEL.fullmatch(path), _SIZES.fullmatch(path)
        if inside:
            name = plain(inside[1])
            out[_SAME.get(name, name)] = value
        elif size and not isinstance(value.value, str):
            out[plain(size[1])] = value
        else:
            out[path] = value
    for name in ("micro-batch-size", "global-batch-size"):
        if name in out and out[name].unknown:
            del out[name]
    return out


def _same(values: Mapping[str, Value]) -> dict[str, Value]:
    """Parts of the model in the words of Megatron-LM's command line."""
    out = {}
    for theirs, (name, words) in _PARTS.items():
        given = values.get(theirs)
        if given is not None and given.value in words:
            out[name] = replace(given, value=True, alias=theirs)
    return out


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.is_part = "num-layers" not in values  # the checkpoint says what the file leaves out
    read_with(answer, _DEFAULTS if not answer.is_part else {}, "of NeMo")
    for name in ("stack", "zero", "precision", "recompute"):
        if name in answer.options and answer.options[name].implied:
            answer.drop(name)
    answer.imply("stack", "nemo", "NeMo")
    word = _PRECISIONS.get(str(answer.get("trainer.precision")))
    if trainer.is_on(answer, "fp8"):
        answer.state("precision", "fp8", "fp8")
    elif word:
        answer.state("precision", word, "trainer.precision")
    optimizer = str(answer.get("model.optim.name", ""))
    if optimizer:
        sharded = int(optimizer in _SHARDED)
        answer.imply("zero", sharded, "whether it shards states", "model.optim.name")
        if "adam" in optimizer or optimizer == "mcore_distributed_optim":
            answer.state("optimizer", "adam", "model.optim.name")
    nodes, each = answer.get("trainer.num_nodes", 1), answer.get("trainer.devices")
    if isinstance(nodes, int) and isinstance(each, int) and nodes > 0 and each > 0:
        answer.imply("gpus", nodes * each, "nodes x GPUs", "trainer.devices", "trainer.num_nodes")
    granularity = "activations-checkpoint-granularity"
    if granularity in values and answer.get(granularity) is None and not answer.option("recompute"):
        answer.state("recompute", "none", granularity)
    _objective(answer)
    _adapters(values, answer)


def _adapters(values: Mapping[str, Value], answer: Answer) -> None:
    """Adapters of the table peft."""
    scheme = "model.peft.peft_scheme"
    if answer.get(scheme) == "lora":
        rank = "model.peft.lora_tuning.adapter_dim"
        answer.state("lora", answer.get(rank, 32), rank if rank in values else scheme)
        answer.mark(scheme, "read")
        answer.mark(
            "model.peft.lora_tuning.target_modules",
            "not understood",
            "matrices by Megatron's names: --lora-targets",
        )
    else:
        for name in values:
            if name.startswith("model.peft."):
                answer.mark(name, "irrelevant", "adapters are off")


def _objective(answer: Answer) -> None:
    """DPO and KTO by their tables; a micro-batch of DPO counts pairs."""
    kinds = {n.split(".")[1] for n in answer.values if n.startswith(("model.", "trainer."))}
    kind = next((kind for kind in _OBJECTIVES if kind in kinds), "")
    named = next((n for n in answer.values if n.startswith(f"model.{kind}.")), "")
    if kind in ("dpo", "kto") and named:
        answer.imply("task", kind, "the table of its loss", named)
        if kind in _PAIRED and answer.option("micro_batch"):
            answer.imply("micro_batch", answer.option("micro_batch"), "pairs")
            trainer.read_pairs(answer, 1)
    elif kind and named:
        answer.mark(named, "not understood", "generation is not part of the estimate of a step")


FORMAT = Format(
    kind="nemo",
    title="NeMo 1 and NeMo-Aligner YAML",
    detect=trainer.detector(*_DETECT),
    parse=_parse,
    table=names.TABLE,
    whole=True,
    read_more=_more,
    added=_same,
    **unread("nemo"),
)
