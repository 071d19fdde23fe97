"""The trained model on the same GPU when it generates text."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key


class Held(Document):
    """A batch of sequences of one length."""

    context: Annotated[int, key("tokens per sequence", "tokens")]
    batch: Annotated[int, key("sequences")]
    device_bytes: Annotated[
        float, key("per GPU: weights, cache, working memory, context of the driver", "B")
    ]
    fits: Annotated[bool, key("within the budget")]


class LargestBatch(Document):
    """Most sequences of one length."""

    context: Annotated[int, key("tokens per sequence", "tokens")]
    batch: Annotated[int, key("most sequences that fit; 0: none")]


class Inference(Document):
    """Which batches of which contexts fit the GPU."""

    gpus: Annotated[
        int | None,
        key(
            "fewest GPUs (tensor parallel, a power of two) that hold the trained model in bf16 and"
            " one sequence of its context; null: none up to 128"
        ),
    ]
    weights_bytes: Annotated[float, key("weights of the whole model", "B")]
    cache_bytes_per_token: Annotated[
        float, key("keys and values, whole model, one token of one sequence", "B")
    ]
    budget_bytes: Annotated[
        float, key("per GPU: 0.9 of the memory that a framework can allocate", "B")
    ]
    table: Annotated[list[Held], key("contexts by batches")]
    max_batch: Annotated[list[LargestBatch], key("by context")]
