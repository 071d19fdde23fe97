"""Experts and sequences of traced models, shared by ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest
from test_trace import traced_by_hand
from traced_model import TWO_BLOCKS

from planner import api
from planner.error import PlanError
from planner.estimate import evaluate
from planner.estimate.states import rank_parameters
from planner.formulas.flops import core_pairs
from planner.inputs import catalog
from planner.specs.model import ModelSpec
from planner.specs.parts import Attended, Stream, Traced
from planner.trace.options import TraceOptions

_STREAM = Stream(32)
EXPERTS = (
    """
WAY = HOW
class One(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(32, 64, bias=False), nn.Linear(64, 32, bias=False)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(32, 4, bias=False)
        if WAY == "modules":
            self.experts = nn.ModuleList(One() for _ in range(4))
        else:
            self.up = nn.Parameter(torch.empty(4, 32, 64))
            self.down = nn.Parameter(torch.empty(4, 64, 32))
    def forward(self, x):
        shape, x = x.shape, x.flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        if WAY == "every token":
            y = torch.bmm(torch.relu(torch.bmm(x.expand(4, *x.shape), self.up)), self.down)
            return y.sum(0).view(shape)
        if WAY == "grouped":
            order = chosen.flatten().argsort()
            sent = x[order // 2]
            ends = torch.histc(chosen.flatten().float(), 4, 0, 3).cumsum(0, dtype=torch.int32)
            y = torch.relu(torch._grouped_mm(sent, self.up, ends))
            y = torch._grouped_mm(y, self.down, ends)
            y = y * weights.flatten()[order].unsqueeze(1)
            return torch.zeros_like(x).index_add_(0, order // 2, y).view(shape)
        out = torch.zeros_like(x)
        for i in range(4):
            token, at = torch.where(chosen == i)
            if WAY == "modules":
                y = self.experts[i](x[token])
            else:
                y = torch.relu(x[token] @ self.up[i]) @ self.down[i]
            out = out.index_add(0, token, y * weights[token, at].unsqueeze(1))
        return out.view(shape)
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.experts = nn.LayerNorm(32), Experts()
    def forward(self, x):
        return x + self.experts(self.norm(x))
"""
    + TWO_BLOCKS
)


def _block(tmp_path: Path, body: str) -> tuple[ModelSpec, Traced]:
    from planner.trace.verb import _keys

    answer = traced_by_hand(tmp_path, body)
    keys = _keys(TraceOptions(target="model.py:build"), answer)
    model = catalog.build(ModelSpec, keys, "TARGET", "test")
    return model, [part for part in model.traced if part.module][-1]


@pytest.mark.oracle
@pytest.mark.parametrize("how", ["grouped", "modules", "stacked", "every token"])
def test_experts_follow_from_what_is_routed(tmp_path: Path, how: str) -> None:
    """Two of four experts of width 64 for every token, in a grouped GEMM or in a loop; or all of
    them, side by side."""
    model, block = _block(tmp_path, EXPERTS.replace("HOW", repr(how)))
    moe = model.routed
    each = 4 if how == "every token" else 2
    assert moe is not None
    assert (moe.experts, moe.experts_per_token, moe.ffn_hidden) == (4, each, 64)
    assert (moe.gated, moe.latent, model.moe_layers) == (False, None, 2)
    routed = {(gemm.k, gemm.n, gemm.groups, str(gemm.rows)) for gemm in block.gemms if gemm.routed}
    assert routed == {(32, 64, 4, f"{each}*b*s"), (64, 32, 4, f"{each}*b*s")}
    weights = sum(x.count for x in block.tensors(_STREAM) if x.shard == "expert")
    assert weights == 4 * 2 * 32 * 64
    assert not block.meets()


TOKENS = (
    """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64), nn.Linear(64, 32)
        self.mix = nn.Conv1d(32, 32, 3, padding=1, groups=32)
    def forward(self, x):
        y = self.norm(x)
        y = HOW
        return x + self.down(torch.relu(self.up(y)))
"""
    + TWO_BLOCKS
)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("y", ""),
        ("nn.functional.scaled_dot_product_attention(*(y.unsqueeze(1),) * 3).squeeze(1)", ""),
        ("y.softmax(-1)", ""),
        ("self.mix(y.transpose(1, 2)).transpose(1, 2)", "convolution of mix acts along"),
        ("y.cumsum(1)", "cumsum of the block acts along the tokens"),
        ("y.softmax(1)", "_softmax of the block acts along"),
        ("y - y.mean(1, keepdim=True)", "mean of the block acts along"),
        ("nn.functional.pad(y[:, :-1], (0, 0, 1, 0))", "constant_pad_nd of the block acts"),
        # tokens of a text before the sequence, or behind it, and cut off again
        ("torch.cat([y.new_zeros(len(y), 4, 32), y], 1)[:, 4:]", ""),
        ("torch.cat([y, y.new_zeros(len(y), 4, 32)], 1)[:, :-4]", ""),
        ("torch.cat([y.new_zeros(len(y), 4, 32), y], 1).split([4, y.shape[1]], 1)[1]", ""),
        # shifts by a token, a turn, a copy
        ("torch.cat([y.new_zeros(len(y), 1, 32), y[:, :-1]], 1)", "of the block acts along"),
        ("torch.cat([y[:, 1:], y.new_zeros(len(y), 1, 32)], 1)", "of the block acts along"),
        ("torch.cat([y[:, 1:], y[:, :1]], 1)", "of the block acts along"),
        ("torch.cat([y, y], 1)[:, : y.shape[1]]", "cat of the block acts along"),
        ("y.flip(1)", "flip of the block acts along"),
        ("(y @ y.transpose(1, 2)) @ y", "multiplies tokens with tokens"),
        ("y @ (y.transpose(1, 2) @ y)", "multiplies tokens with tokens"),
        (
            "nn.functional.scaled_dot_product_attention(*(y.view(-1, 8, 32),) * 3).view_as(y)",
            "of 1/8*s groups",
        ),
    ],
)
def test_tokens_meet_in_attention_alone_or_it_says_where(
    tmp_path: Path, how: str, says: str
) -> None:
    _, block = _block(tmp_path, TOKENS.replace("HOW", how))
    assert (says in block.meets()) if says else not block.meets()


DECODER = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "hidden_size": 2048,
    "intermediate_size": 7168,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "num_experts_per_tok": 2,
    "tie_word_embeddings": False,
}
MIXTRAL = {**DECODER, "num_local_experts": 8}
QWEN = {
    **DECODER,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "moe_intermediate_size": 768,
    "num_experts": 32,
    "num_experts_per_tok": 4,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
SHARED = [(1, 1, 1), (1, 1, 8), (1, 2, 4), (1, 4, 8), (2, 1, 2), (2, 2, 4)]


@pytest.mark.oracle
@pytest.mark.parametrize("given", [MIXTRAL, QWEN], ids=["mixtral", "qwen3"])
def test_ranks_share_traced_experts_as_their_family_says(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    """At equal degrees (tp, cp, ep): step, peak, and what is sent. Families count operators that
    the CPU issues for every local expert, which a grouped GEMM of torch does not have."""
    pytest.importorskip("transformers")
    from planner.trace.verb import traced

    config, file = tmp_path / "config.json", tmp_path / "moe.toml"
    config.write_text(json.dumps(given), encoding="utf-8")
    file.write_text(traced(TraceOptions(target=str(config))).text, encoding="utf-8")
    options: dict[str, Any] = {"gpu": "h100", "gpus": 8, "stack": "torchtitan", "seq_len": 4096}
    options |= {"micro_batch": 1, "global_batch": 64, "zero": 3, "recompute": "none", "advice": 0}
    options |= {"compile": True, "loss_kernel": "fused", "tp_overlap": "none", "pp": 1}
    for tp, cp, ep in SHARED:
        ways: dict[str, Any] = {"tp": tp, "cp": cp, "ep": ep}
        if tp == 1:
            ways["tp_overlap"] = None
        ruled, ours = (
            api.estimate(api.Options(model=str(path), **{**options, **ways}))
            for path in (config, file)
        )
        launch = [x.step.components["launch"] for x in (ours, ruled)]
        step = [x.step.seconds - idle for x, idle in zip((ours, ruled), launch, strict=True)]
        assert step[0] == pytest.approx(step[1], rel=0.03)
        assert launch[0] <= launch[1] + 0.001
        assert ours.memory.peak_bytes == pytest.approx(ruled.memory.peak_bytes, rel=0.05)
        for component in ("expert_parallel", "context_parallel", "tensor_parallel"):
            sent = [x.step.components.get(component, 0.0) for x in (ours, ruled)]
            assert sent[0] == pytest.approx(sent[1], rel=0.02)


def _experts(groups: int = 8, per_token: int = 2) -> ModelSpec:
    """A block of attention and experts, and what lies between them."""
    rows = {"rows": f"{per_token}*b*s", "groups": groups, "routed": True}
    part = {
        "type": "traced",
        "name": "block",
        "module": "Block",
        "parameters": 4 * 256 * 256 + groups * 2 * 256 * 1024,
        "issued": 20.0,
        "enters": "256*b*s",
        "saved": "9000*b*s",
        "mixing": "",
        "gemms": [
            {"name": "qkv", "k": 256, "n": 768, "split": "columns"},
            {"name": "o", "k": 256, "n": 256, "split": "rows"},
            {"name": "up", "k": 256, "n": 1024, "split": "columns", **rows},
            {"name": "down", "k": 1024, "n": 256, "split": "rows", **rows},
        ],
        "attention": [{"heads": 16, "kv_heads": 16, "head_dim": 16, "split": True}],
        "moves": [{"operators": "elementwise", "ranks": "experts", "forward": "8000*b*s"}],
        "shares": [{"ranks": "experts", "saved": f"{per_token * 1024}*b*s"}],
    }
    data = {
        "name": "experts",
        "layers": 4,
        "hidden": 256,
        "vocab": 1024,
        "max_positions": 4096,
        "norms_per_block": 0,
        "final_norm": False,
        "positions": "none",
        "tied_embeddings": True,
        "parts": [part],
        "stack": [{"layers": ["block"], "times": 4}],
    }
    return catalog.build(ModelSpec, data, "--model", "test")


def _layouts(model: ModelSpec, ways: list[dict[str, Any]], **change: Any) -> tuple[Any, Any]:
    plan = plans.plan(model, software="torchtitan", seq_len=4096, global_batch=64, gpus=8, **change)
    same = {"micro_batch": 2, "zero": 3, "recompute": "none"}
    return plan, plans.rows(8, *({**same, **way} for way in ways))


def test_weights_of_experts_are_a_whole_over_their_ranks() -> None:
    model = _experts()
    plan, c = _layouts(model, [{"ep": ep} for ep in (1, 2, 4, 8)])
    local = rank_parameters(plan, c).experts
    assert local * c.ep == pytest.approx(np.full(4, 8 * 2 * 256 * 1024))
    components = evaluate(plan, c).time.components
    assert components["expert_parallel"][0] == 0
    assert np.all(np.diff(components["expert_parallel"]) > 0)
    assert np.all(np.diff(components["data_parallel"]) < 0)
    peaks = evaluate(plan, c).memory.peak
    assert np.all(np.diff(peaks) < 0)


def test_tokens_are_a_whole_over_the_ranks_of_a_sequence() -> None:
    """Activations fall by the degree; fewer rows at a time are multiplied no faster."""
    plan, c = _layouts(_experts(), [{"cp": cp} for cp in (1, 2, 4)])
    result = evaluate(plan, c)
    kept = np.array(result.memory.timeline[0][1]["activations"])
    assert kept * c.cp == pytest.approx(np.full(3, kept[0]), rel=0.01)
    components = result.time.components
    assert components["context_parallel"][0] == 0
    assert np.all(np.diff(components["context_parallel"]) > 0)
    assert np.all(np.diff(components["matmul"]) >= 0)


def test_the_fullest_rank_of_experts_has_more_to_do() -> None:
    plan, c = _layouts(_experts(), [{"ep": 4}])
    fuller, _ = _layouts(_experts(), [{"ep": 4}], expert_load=1.5)
    usual, full = (evaluate(each, c).time.components for each in (plan, fuller))
    for name in ("matmul", "memory_bound", "expert_parallel"):
        assert usual[name][0] < full[name][0]


TEXT = {"heads": 16, "kv_heads": 16, "head_dim": 16, "split": True, "mask": "full"}


def _beside(**spans: str) -> ModelSpec:
    """The model whose blocks have one more attention."""
    data = _experts().model_dump(mode="json")
    data["parts"][0]["attention"].append({**TEXT, **spans})
    return catalog.build(ModelSpec, data, "--model", "test")


@pytest.mark.parametrize(
    ("spans", "of_a_rank"),
    [
        ({"keys": "512"}, 1024 * 512),  # an image's tokens attend to a text
        ({"queries": "s + 512", "keys": "s + 512"}, (1024 + 512) * (4096 + 512)),  # or join it
        ({"queries": "512", "keys": "512", "groups": "3"}, 3 * 512 * 512),  # a tower of images
    ],
)
def test_a_text_of_fixed_length_is_on_every_rank(spans: dict[str, str], of_a_rank: int) -> None:
    """Ranks share the queries of the sequence, and send no keys of a text."""
    model = _beside(**spans)
    assert not model.traced[0].meets()
    core = [x for x in model.traced[0].core() if isinstance(x, Attended)][-1]
    assert core_pairs(core, 4096.0, 4.0) == of_a_rank
    (plan, c), (usual, _) = (_layouts(x, [{"cp": 4}]) for x in (model, _experts()))
    more, less = (evaluate(x, c).time.components for x in (plan, usual))
    sent = [x["context_parallel"][0] for x in (more, less)]
    assert sent[0] > 1.3 * sent[1] if "s" in spans["keys"] else sent[0] == sent[1]
    assert more["attention"][0] > less["attention"][0]


@pytest.mark.parametrize(
    "spans", [{"groups": "s", "queries": "8", "keys": "8"}, {"keys": "2*s"}, {"queries": "512"}]
)
def test_other_attention_is_refused_with_its_block(spans: dict[str, str]) -> None:
    assert "not over the s tokens of a sequence" in _beside(**spans).traced[0].meets()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": "2*b*s + b"}, "a whole number of copies of every token"),
        ({"rows": "1/2*b*s"}, "a whole number of copies"),
        ({"groups": 1}, "groups of 2 and more"),
    ],
)
def test_routed_products_are_of_several_experts(change: dict[str, Any], says: str) -> None:
    gemm = {"name": "up", "k": 8, "n": 8, "rows": "2*b*s", "groups": 4, "routed": True}
    with pytest.raises(ValueError, match=says):
        catalog.build(Traced, {"gemms": [{**gemm, **change}]}, "parts", "test")


def test_a_block_that_was_traced_before_says_so() -> None:
    part = _experts().traced[0]
    assert not part.meets()
    assert "trace it again" in part.model_copy(update={"mixing": None}).meets()


def test_experts_of_one_kind_per_model() -> None:
    block = _experts().traced[0].model_dump(mode="json")
    other = _experts(4).traced[0].model_dump(mode="json") | {"name": "other"}
    data = _experts().model_dump(mode="json")
    data |= {"parts": [block, other], "stack": [{"layers": ["block", "other"], "times": 2}]}
    with pytest.raises(PlanError, match="experts of one kind per model"):
        catalog.build(ModelSpec, data, "--model", "test")


def test_experts_of_two_kinds_stay_whole() -> None:
    pytest.importorskip("torch")
    from planner.trace.worker import _of_one_kind

    gemm = {"k": 8, "n": 8, "groups": 4, "rows": "2*b*s", "routed": True}
    for other, routed in ((4, True), (8, False)):
        parts = [{"gemms": [{**gemm, "groups": groups}]} for groups in (4, other)]
        _of_one_kind(parts)
        assert [part["gemms"][0].get("routed", False) for part in parts] == [routed] * 2
