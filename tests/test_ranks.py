"""A real training of two ranks on a CPU: bytes of parameters, gradients and optimizer of each rank
equal the formulas, and buckets of DDP those that are assigned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plans
import pytest

for needed in ("torch", "transformers"):
    pytest.importorskip(needed, reason=f"the oracle is {needed}, of the dev extra")

import ddp_ranks  # noqa: E402
import ranks  # noqa: E402
from rank_processes import printed  # noqa: E402
from ranks import FFN, HEADS, HIDDEN, LAYERS, TOKENS, VOCAB  # noqa: E402

from planner.estimate import evaluate  # noqa: E402
from planner.estimate.gradients import BUCKET_CAP_BYTES, assign, first_bytes, tensors  # noqa: E402
from planner.estimate.memory import PHASES  # noqa: E402
from planner.ledger import Ledger  # noqa: E402

pytestmark = pytest.mark.oracle

RANKS = 2
SHAPE = plans.model(
    layers=LAYERS,
    hidden=HIDDEN,
    heads=HEADS,
    kv_heads=HEADS,
    head_dim=HIDDEN // HEADS,
    ffn_hidden=FFN,
    vocab=VOCAB,
)
LAYOUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("pytorch-ddp", {}),
    "zero-1": ("pytorch-ddp", {"zero": 1}),
    "fsdp": ("pytorch-fsdp", {"zero": 3}),
    "fsdp, gathered once": ("pytorch-fsdp", {"zero": 2}),
    "tensor": ("pytorch-ddp", {"tp": RANKS}),
    "pipeline": ("pytorch-ddp", {"pp": RANKS}),
}


@pytest.fixture(scope="module")
def ran() -> list[dict[str, Any]]:
    """Output of every rank."""
    return printed(Path(ranks.__file__), RANKS)


@pytest.fixture
def seen(ran: list[dict[str, Any]]) -> list[dict[str, dict[str, int]]]:
    """Bytes of every rank."""
    return [entry["bytes"] for entry in ran]


def predicted(mode: str) -> list[list[Ledger]]:
    """Ledgers of every stage and phase."""
    software, chosen = LAYOUTS[mode]
    plan = plans.plan(
        SHAPE,
        gpus=RANKS,
        software=software,
        seq_len=TOKENS,
        global_batch=4 * RANKS,
        precision="fp32",
    )
    stages = np.arange(float(chosen.get("pp", 1)))[:, None]
    return evaluate(
        plan, plans.rows(RANKS, {**chosen, "micro_batch": 2}), stages=stages
    ).memory.timeline


@pytest.mark.parametrize("mode", LAYOUTS)
@pytest.mark.parametrize("state", ["parameters", "gradients", "optimizer"])
def test_bytes_of_every_rank(seen: list[dict[str, dict[str, int]]], mode: str, state: str) -> None:
    stages = predicted(mode)
    items = [float(stage[PHASES.index("optimizer step")][state][0]) for stage in stages]
    saw = [rank[mode][state] for rank in seen]
    if (mode, state) == (
        "zero-1",
        "optimizer",
    ):  # ZeroRedundancyOptimizer deals out whole tensors: even to one of them
        assert max(saw) == items[0]  # the fullest rank
        assert saw == pytest.approx(RANKS * items, rel=0.02)
    else:
        assert saw == (items if mode == "pipeline" else RANKS * items)


def test_gathered_parameters(seen: list[dict[str, dict[str, int]]]) -> None:
    """Resharding after forward leaves nothing gathered; without it, all layers are."""
    after = predicted("fsdp, gathered once")[0][PHASES.index("loss")]
    for rank in seen:
        assert rank["fsdp, gathered once"]["gathered"] == float(after["gathered_layers"][0])
        assert (
            rank["fsdp"]["gathered"]
            < predicted("fsdp")[0][PHASES.index("forward")]["gathered_layers"][0]
        )


@pytest.mark.parametrize(("tied", "cap_mib"), [(False, None), (True, None), (False, 4)])
def test_buckets_equal_those_of_a_real_ddp_run(
    ran: list[dict[str, Any]], tied: bool, cap_mib: int | None
) -> None:
    """Number, order and sizes of buckets of the second backward pass, and which gradients are in
    each in the order in which they came, as DDP reduces them over gloo."""
    model = plans.model(
        layers=ddp_ranks.LAYERS,
        hidden=ddp_ranks.HIDDEN,
        heads=ddp_ranks.HEADS,
        kv_heads=ddp_ranks.KV_HEADS,
        head_dim=ddp_ranks.HIDDEN // ddp_ranks.HEADS,
        ffn_hidden=ddp_ranks.FFN,
        vocab=ddp_ranks.VOCAB,
        tied_embeddings=tied,
    )
    real, second = (entry["buckets"][f"{tied} {cap_mib}"] for entry in ran)
    assert real == second
    ours = [tensor.elements for tensor in reversed(tensors(model))]
    assert ours == real["arrived"]
    cap = BUCKET_CAP_BYTES if cap_mib is None else cap_mib * 2**20
    assigned = assign([4 * n for n in ours], first_bytes(cap), cap)
    assert len(assigned) > 3
    assert [[ours[i] for i in bucket] for bucket in assigned] == real["buckets"]
