"""Traces of what samples of a batch share: masks of all of them, queries of none, values asked
for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from test_trace import MLP, WORDS, traced_by_hand
from traced_model import TWO_BLOCKS

from planner.specs.parts import Mamba2
from planner.specs.polynomial import parse

# all samples are one row of tokens under a mask, as images of several sizes are
JOINT = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)

    def forward(self, x):
        rows = x.reshape(1, -1, 32)
        q, k, v = (y.view(1, -1, 2, 16).transpose(1, 2) for y in self.qkv(rows).chunk(3, -1))
        mask = torch.zeros(1, 1, rows.shape[1], rows.shape[1], dtype=x.dtype)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return x + mixed.transpose(1, 2).reshape(x.shape)
""" + TWO_BLOCKS.replace("length=64", "length=256")


def traced_block(folder: Path, body: str) -> dict[str, Any]:
    """The first block of a traced body: counts as polynomials, and its one attention."""
    block = next(x for x in traced_by_hand(folder, body)["parts"] if x.get("attention"))
    (attention,) = block["attention"]
    counts = {"queries": "s", "keys": "s", "groups": "1"} | attention
    return {x: parse(str(counts[x])) for x in counts if x in _COUNTS} | {
        "saved": parse(block["saved"])
    }


_COUNTS = ("queries", "keys", "groups")
B, S = 3.0, 64.0  # samples and tokens


@pytest.mark.oracle
def test_a_mask_of_all_samples_is_quadratic_in_them(tmp_path: Path) -> None:
    block = traced_block(tmp_path, JOINT)
    met = [block[x].at(B, S) for x in _COUNTS]
    assert B * met[0] * met[1] * met[2] == (B * S) ** 2
    plain = traced_block(tmp_path, JOINT.replace("attn_mask=mask", "attn_mask=None"))
    for given, powers in ((block, 2), (plain, 1)):  # only a mask is kept of all pairs
        assert max(power for power, _, _ in given["saved"].terms) == powers
    assert block["saved"].at(B, S) - plain["saved"].at(B, S) >= (B * S) ** 2


QUERIES = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys = nn.Linear(32, 64)
        self.query = nn.Parameter(torch.zeros(1, 2, 8, 16))

    def forward(self, x):
        k, v = (y.view(len(x), -1, 2, 16).transpose(1, 2) for y in self.keys(x).chunk(2, -1))
        assert torch.isfinite(k).all()
        assert not torch.isnan(v).any()
        mixed = nn.functional.scaled_dot_product_attention(self.query, k, v)
        return mixed.transpose(1, 2).reshape(len(x), 8, 32)
"""


@pytest.mark.oracle
def test_queries_of_no_sample_meet_the_keys_of_each(tmp_path: Path) -> None:
    """And activations are finite where code asks."""
    rest = JOINT[JOINT.index("class Model") :]
    block = traced_block(tmp_path, QUERIES + rest.replace("range(2)", "range(1)"))
    assert (block["queries"], block["groups"]) == (parse("8"), parse("1"))


@pytest.mark.parametrize("codes", [1, 4])
def test_token_ids_may_have_a_row_per_codebook(codes: int) -> None:
    pytest.importorskip("torch")
    from types import SimpleNamespace

    from planner.trace.inputs import _ids

    config = SimpleNamespace(num_codebooks=codes)
    shapes = [tuple(make(2, 5).shape) for make in _ids(config)]
    assert shapes == [(2, 5), (2 * codes, 5), (2, 5, codes + 1)]
    assert len([*_ids(SimpleNamespace())]) == 1


EAGER = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(256, 256) for _ in range(4))

    def forward(self, x):
        q, k, v = (f(x).view(*x.shape[:2], 4, 64).transpose(1, 2) for f in (self.q, self.k, self.v))
        mixed = torch.softmax(q @ k.transpose(2, 3), -1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(x.shape))
"""


@pytest.mark.oracle
def test_a_length_may_be_the_width(tmp_path: Path) -> None:
    """A softmax over 256 keys is not taken for one over the 256 channels of queries."""
    rest = JOINT[JOINT.index("class Model") :].replace("length, 32", "length, 256")
    blocks = traced_by_hand(tmp_path, EAGER + rest)["parts"]
    assert not any("undivided" in block for block in blocks)
    for block in blocks:
        splits = [gemm["split"] for gemm in block["gemms"]]
        assert sorted(splits) == ["columns", "columns", "columns", "rows"]


@pytest.mark.oracle
def test_tokens_may_be_as_many_as_the_model_is_wide(tmp_path: Path) -> None:
    """The gradient of the logits of two samples of 16 tokens has the size of the table's."""
    body = (MLP + WORDS).replace("self.head(x)", "self.head(x).float()")
    answer = traced_by_hand(tmp_path, body, "words")
    assert answer["model"]["vocab"] == 1024
    # both ways: logits in 16 bit and in 32
    rows = [row for row in answer["parts"][-1]["moves"] if row["operators"] == "copy"]
    moved = [row.get(way) for way in ("forward", "backward") for row in rows if way in row]
    assert moved == [f"{6 * 1024}*b*s"] * 2


MAMBA = {"vocab_size": 512, "hidden_size": 64, "num_heads": 8, "head_dim": 16}


def _mamba(state: int, groups: int, chunk: int) -> dict[str, Any]:
    import transformers

    from planner.trace import kernels, targets, worker

    sizes = {"state_size": state, "n_groups": groups, "chunk_size": chunk, "num_hidden_layers": 2}
    with kernels.without_data():
        config = transformers.AutoConfig.for_model("mamba2", **MAMBA, **sizes)
        answer = worker.trace(targets.of_config(config), frozen=False)
    return next(part for part in answer["parts"] if part["name"] == "Mamba2Block")


@pytest.mark.oracle
def test_a_scan_of_mamba_2_computes_and_keeps_as_its_kernels_do() -> None:
    """Products are as the part counts them, by mamba_ssm's kernels. These keep neither
    states nor decays of pairs: no bytes in 32 bit grow with states and chunks."""
    pytest.importorskip("transformers")
    kept = []
    for state, groups, chunk in ((32, 2, 64), (64, 2, 128)):
        block = _mamba(state, groups, chunk)
        flop = 0.0
        for row in block["multiplied"]:
            sizes = (parse(str(row[name])).at(1.0, 256.0) for name in ("batch", "m", "k", "n"))
            flop += 2.0 * math.prod(map(float, sizes))
        part = Mamba2(heads=8, head_dim=16, state=state, groups=groups, conv=4, chunk=chunk)
        assert flop == pytest.approx(256 * part.core()[0].flop)
        kept.append(block["saved_bytes"])
    assert kept[0] == kept[1]
