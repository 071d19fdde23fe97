"""Bytes that compiled models of transformers save for backward: a choice of AOTAutograd.

    python -m benchmarks.frameworks compiled     # writes tests/data/compiled.csv, two minutes

Graphs are traced with inductor's decompositions and run by torch's operators, so that nothing is
compiled. A layer is the difference of two depths, and the share of its tokens the difference of two
micro-batches: copies of weights that autocast makes are the rest.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor.decomposition import select_decomp_table

from benchmarks.frameworks import gpu_rules
from benchmarks.frameworks import transformers_step as steps
from benchmarks.frameworks.draw import FAMILIES as CLASSES
from benchmarks.frameworks.draw import NO_DROPOUT
from benchmarks.frameworks.setting import COMPILED, Setting, compact

DEPTHS = (1, 2)
SEQUENCES = (1, 2)
FAMILIES = ("llama", "qwen3", "olmo2", "gpt_neox", "gpt2")
_SHAPE = {"hidden_size": 512, "intermediate_size": 1408, "num_attention_heads": 8}
_KV = 4
_NAMES = {"hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"}


def setting_of(family: str, precision: str, layers: int, sequences: int) -> Setting:
    """A small model of a family."""
    name, more = CLASSES[family]
    shape: dict[str, Any] = {**_SHAPE, "num_hidden_layers": layers}
    if family == "gpt2":
        shape = {_NAMES[key]: value for key, value in shape.items() if key in _NAMES}
    elif family != "gpt_neox":
        shape["num_key_value_heads"] = _KV
    words = {"vocab_size": 2048, "tie_word_embeddings": False}
    config = {"model_type": family, "architectures": [name], **words, **shape, **more}
    config |= dict.fromkeys(NO_DROPOUT.get(family, ()), 0.0)
    return Setting("transformers", compact(config), sequences, 256, precision=precision)


def saved(setting: Setting) -> int:
    """Bytes of storages that the partitioner keeps for backward beside parameters and inputs."""
    kept: list[int] = []

    def forward(graph: fx.GraphModule, inputs: Any) -> Any:
        def run(*given: Any) -> Any:
            outputs = graph(*given)
            here, known = (
                {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
                for tensors in map(_tensors, (outputs, given))
            )
            kept.append(sum(size for where, size in here.items() if where not in known))
            return outputs

        return run

    backend = aot_autograd(
        fw_compiler=forward,
        bw_compiler=lambda graph, inputs: graph,
        partition_fn=partial(min_cut_rematerialization_partition, compiler="inductor"),
        decompositions=select_decomp_table(),
    )
    torch._dynamo.reset()
    with gpu_rules.autocast_lists(), steps.traced():
        model = torch.compile(steps.model_of(setting), backend=backend)
        words = torch.zeros((setting.micro_batch, setting.seq_len), dtype=torch.long)
        enabled = setting.precision == "mixed"
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            model(input_ids=words, labels=words)["loss"].backward()
    return sum(kept)


def _tensors(values: Any) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


def record() -> None:
    """Write the table."""
    with COMPILED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("model", "micro_batch", "seq_len", "precision", "saved"))
        for setting, size in counted():
            shape = setting.model, setting.micro_batch, setting.seq_len, setting.precision
            writer.writerow((*shape, size))


def counted() -> Iterator[tuple[Setting, int]]:
    """Every family at both depths and micro-batches."""
    for chosen in itertools.product(FAMILIES, ("bf16", "mixed"), DEPTHS, SEQUENCES):
        setting = setting_of(*chosen)
        yield setting, saved(setting)
