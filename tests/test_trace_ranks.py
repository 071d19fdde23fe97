"""Tensor parallelism of a traced model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_trace import traced_by_hand

from planner import api
from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.trace.options import TraceOptions

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 3,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}


@pytest.mark.oracle
def test_ranks_share_a_traced_llama_as_its_family_says(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from planner.trace.verb import traced

    config, file = tmp_path / "config.json", tmp_path / "llama.toml"
    config.write_text(json.dumps(LLAMA), encoding="utf-8")
    file.write_text(traced(TraceOptions(target=str(config))).text, encoding="utf-8")
    given: dict[str, Any] = {"gpu": "h100", "gpus": 8, "stack": "torchtitan", "seq_len": 2048}
    given |= {"micro_batch": 2, "global_batch": 64, "zero": 3, "recompute": "none", "advice": 0}
    given |= {"compile": True, "loss_kernel": "fused"}
    for tp in (1, 2, 4):
        overlap: dict[str, Any] = {} if tp == 1 else {"tp_overlap": "none"}
        ruled, traced_model = (
            api.estimate(api.Options(model=str(path), tp=tp, **given, **overlap))
            for path in (config, file)
        )
        assert traced_model.step.seconds == pytest.approx(ruled.step.seconds, rel=0.02)
        assert traced_model.memory.peak_bytes == pytest.approx(ruled.memory.peak_bytes, rel=0.02)
        component = "tensor_parallel"
        sent = [x.step.components[component] for x in (traced_model, ruled)]
        assert sent[0] == pytest.approx(sent[1], rel=0.02)


BLOCK = """
class Block(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))
        self.low, self.high, self.last = nn.Linear(32, 8), nn.Linear(8, 64), nn.Linear(64, 32)
        self.norm, self.how = nn.LayerNorm(32), last
    def forward(self, x):
        q, k, v = (f(x) for f in (self.q, self.k, self.v))
        if self.how == "norm":
            q = self.norm(q)
        if self.how == "beside":
            x = x + q
        q, k, v = (y.view(*y.shape[:2], 4, 8).transpose(1, 2) for y in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + (self.o(y) if self.how != "alone" else y)
        return x + self.last(self.high(self.low(x)))
class Model(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.blocks = nn.ModuleList(Block(last) for _ in range(2))
    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
def build(batch=2, length=64):
    return Model(HOW), torch.randn(batch, length, 32)
"""


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("pair", ""),
        ("norm", "native_layer_norm of norm is over all 32 columns"),
        ("beside", "reads what GEMMs would divide beside what every rank has whole"),
        ("alone", "not all of its attention is between GEMMs"),
    ],
)
def test_pairs_of_a_block_or_why_there_are_none(tmp_path: Path, how: str, says: str) -> None:
    """A chain of three GEMMs has the last two as its pair."""
    from planner.trace.verb import _keys

    answer = traced_by_hand(tmp_path, BLOCK.replace("HOW", repr(how)))
    keys = _keys(TraceOptions(target="model.py:build"), answer)
    model = catalog.build(ModelSpec, keys, "TARGET", "test")
    block = [part for part in model.traced if part.module][-1]
    assert (says in block.whole()) if says else not block.whole()
    if not says:
        split = {gemm.name: gemm.split for gemm in block.gemms}
        assert split == {
            **dict.fromkeys(("q", "k", "v", "high"), "columns"),
            **dict.fromkeys(("o", "last"), "rows"),
            "low": "none",
        }
