"""The count on fake tensors against the allocations of a real CPU, as torch's profiler has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from torch.profiler import ProfilerActivity, profile

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks import transformers_step as steps
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Setting, compact

_SHAPE = {"hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 4}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 4}
_TIED = {"llama": (True, False), "gpt_neox": (False,), "qwen2": (True,), "olmo2": (False,)}
_BATCHES = ((2, 256, 512), (1, 64, 16384))  # sequences, tokens, vocabulary


class _Uncounted(LiveBytes):
    """In the place of a count, where real tensors are not watched."""

    def __enter__(self) -> _Uncounted:
        return self

    def __exit__(self, *error: Any) -> None:
        return None

    def label(self, tensors: Any, origin: str) -> None:
        return None

    def label_model(self, model: Any, optimizer: Any = None) -> None:
        return None


def settings() -> Iterator[Setting]:
    """Small models that a CPU trains in no time."""
    for family, ties in _TIED.items():
        options = itertools.product(ties, ("bf16", "mixed"), ("none", "full"), _BATCHES)
        for tied, precision, recompute, (batch, length, words) in options:
            config = {"model_type": family, "vocab_size": words, "tie_word_embeddings": tied}
            config |= {**_SHAPE, **_HEADS}
            yield Setting(
                "transformers",
                compact(config),
                batch,
                length,
                precision=precision,
                recompute=recompute,
            )


def allocated(setting: Setting) -> int:
    """Peak bytes of the second step on real tensors."""
    with gpu_rules.autocast_lists(), steps.traced():
        live, model = _Uncounted(), steps.model_of(setting)
        steps.marked(model, live)
        optimizer = stepping.optimizer_of(setting, list(model.parameters()))
        steps.step(setting, live, model, optimizer, lambda: None)
        states = [v for state in optimizer.state.values() for v in state.values()]
        lasting = sum(t.nbytes for t in (*model.parameters(), *model.buffers(), *states))
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            steps.step(setting, live, model, optimizer, lambda: None)
    now = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    return lasting + peak


def counted(setting: Setting) -> int:
    """Peak bytes of the step on fake tensors, with the kernels of the CPU."""
    with gpu_rules.autocast_lists(), steps.traced(), fake() as live:
        return steps.train(setting, live).peak


def differences() -> list[tuple[Setting, int, int]]:
    """(setting, bytes on real tensors, bytes on fake ones)."""
    return [(each, allocated(each), counted(each)) for each in settings()]
