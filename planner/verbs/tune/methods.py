"""Methods of fine-tuning: each a name and the options that it stands for. A method is one line here
and nothing anywhere else; what the options mean is what an estimate makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from planner.specs.base import PlanError
from planner.specs.options.tune import ANY, RANK
from planner.specs.options.words import near

BF16: dict[str, Any] = {"state_precision": "bf16"}  # weights, gradients and moments, none in fp32
IN_BACKWARD: dict[str, Any] = {"optimizer_in_backward": True}
SUBSPACE = 512  # of GaLore and APOLLO: a choice, what their papers give a model of 1B and 3B


@dataclass(frozen=True)
class Method:
    """One way to train a model further.

    name: as `--method` takes it; title: in words; pairs: options of a request and their values.
    """

    name: str
    title: str
    pairs: dict[str, Any]

    @property
    def has_adapters(self) -> bool:
        return "lora" in self.pairs

    def of_rank(self, rank: int) -> Method:
        """The method with adapters of another rank, if it has adapters."""
        pairs = {**self.pairs, "lora": rank} if self.has_adapters else self.pairs
        return replace(self, pairs=pairs)

    @property
    def accumulates(self) -> bool:
        """Whether a step may have more than one micro-batch: a gradient that is gone after its
        micro-batch does not add up."""
        return not self.pairs.get("optimizer_in_backward", False)


METHODS = (
    Method("full", "all weights, AdamW, fp32 masters", {"optimizer": "adam"}),
    Method(
        "full-bf16",
        "all weights, AdamW, all in bf16 with stochastic rounding",
        {"optimizer": "adam", **BF16},
    ),
    Method("full-8bit", "all weights, 8-bit AdamW, bf16", {"optimizer": "adam8bit", **BF16}),
    Method(
        "full-in-backward",
        "all weights, 8-bit AdamW in backward, bf16",
        {"optimizer": "adam8bit", **BF16, **IN_BACKWARD},
    ),
    Method(
        "full-paged",
        "all weights, paged 8-bit AdamW in backward, bf16",
        {"optimizer": "paged-adam8bit", **BF16, **IN_BACKWARD},
    ),
    Method(
        "full-offload",
        "all weights, AdamW on the host (DeepSpeed)",
        {"optimizer": "adam", "offload": "optimizer"},
    ),
    Method(
        "galore",
        "all weights, 8-bit GaLore, bf16",
        {"optimizer": "galore8bit", "optimizer_rank": SUBSPACE, **BF16},
    ),
    Method(
        "apollo",
        "all weights, APOLLO, bf16",
        {"optimizer": "apollo", "optimizer_rank": SUBSPACE, **BF16},
    ),
    Method(
        "apollo-mini", "all weights, APOLLO of rank 1, bf16", {"optimizer": "apollo-mini", **BF16}
    ),
    Method("lisa", "embedding, head and 2 random layers in turn, AdamW, bf16", {"lisa": 2, **BF16}),
    Method("full-sgd", "all weights, SGD without momentum, bf16", {"optimizer": "sgd", **BF16}),
    Method("lora", "adapters of every matrix", {"lora": RANK}),
    Method("lora-attention", "adapters of attention", {"lora": RANK, "lora_targets": "attention"}),
    Method(
        "qlora",
        "adapters of every matrix, NF4 base",
        {"lora": RANK, "base_precision": "nf4-double"},
    ),
    Method(
        "qlora-offloaded",
        "adapters of every matrix, NF4 base, checkpoints on the host",
        {"lora": RANK, "base_precision": "nf4-double", "offload": "activations"},
    ),
    Method(
        "qlora-cpu",
        "adapters of every matrix, NF4 base, parameters on the host (FSDP)",
        {"lora": RANK, "base_precision": "nf4-double", "offload": "parameters"},
    ),
    Method(
        "lora-int8",
        "adapters of every matrix, 8-bit base",
        {"lora": RANK, "base_precision": "int8"},
    ),
    Method("last-layers", "the last 4 layers and the head, AdamW", {"trainable_layers": 4}),
)
BY_NAME = {method.name: method for method in METHODS}


def methods_named(text: str, rank: int) -> list[Method]:
    """The methods that `--method` names, in the order of the table; with adapters of this rank.
    Raises PlanError."""
    return [method.of_rank(rank) for method in _named(text)]


def _named(text: str) -> list[Method]:
    names = [name.strip().lower().replace("_", "-") for name in text.split("+")]
    if ANY in names:
        return list(METHODS)
    for name in names:
        if name not in BY_NAME:
            hint = near(name, list(BY_NAME)) or f"they are {', '.join(BY_NAME)}; "
            raise PlanError("--method", text, f"{name!r} is not a method; {hint}or {ANY}")
    return [method for method in METHODS if method.name in names]
