"""Action lists against torch.distributed.pipelining's (dev extra); no process group, no model, only
the order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from planner import schedules
from planner.schedules import base
from planner.schedules.base import Actions

pytestmark = pytest.mark.oracle

theirs = pytest.importorskip(
    "torch.distributed.pipelining.schedules", reason="needs torch (dev extra)", exc_type=ImportError
)


def order(name: str, p: int, m: int, v: int, rank: int) -> Any:
    """One rank's list as torch builds it, from an object with only what the builder reads."""
    stages = p * v
    items = [SimpleNamespace(group_size=p, group_rank=rank, num_stages=stages) for _ in range(v)]
    blank = SimpleNamespace(
        _stages=items,
        pp_group_size=p,
        _n_microbatches=m,
        _num_stages=stages,
        num_stages=stages,
        n_local_stages=v,
        rank=rank,
        number_of_rounds=max(1, m // p),
        microbatches_per_round=m // max(1, m // p),
    )
    kind = {
        "gpipe": theirs.ScheduleGPipe,
        "1f1b": theirs.Schedule1F1B,
        "interleaved": theirs.ScheduleInterleaved1F1B,
        "zb-v": theirs.ScheduleZBVZeroBubble,
        "dualpipev": theirs.ScheduleDualPipeV,
        "breadth-first": theirs.ScheduleLoopedBFS,
    }[name]
    if name in ("gpipe", "1f1b"):
        return kind._get_pipeline_order(blank)[rank]
    return kind._calculate_single_rank_operations(blank, rank)


def lists(name: str, p: int, m: int, v: int) -> Actions:
    """All ranks, read back from torch's own text: gaps and FSDP's actions fall away."""
    text = "".join(
        ",".join("" if a is None else str(a) for a in order(name, p, m, v, rank)) + "\n"
        for rank in range(p)
    )
    out = base.parse_actions(text, "--file", "torch")
    if (
        name == "1f1b" and out[-1][0].microbatch == 1
    ):  # torch 2.13 numbers the last rank's forwards from 1 here
        out[-1] = [base.forward(a.stage, a.microbatch - 1) if a.kind == "F" else a for a in out[-1]]
    return out


SHAPES = [
    *[(name, p, m, 1) for name in ("gpipe", "1f1b") for p in (1, 2, 4, 7) for m in (7, 8, 20)],
    *[
        (name, p, p * k, v)
        for name in ("interleaved", "breadth-first")
        for p in (2, 3, 4, 8)
        for k in (1, 2, 5)
        for v in (2, 3, 4)
    ],
    *[("zb-v", p, m, 2) for p in (1, 2, 3, 4, 8) for m in (1, 3, 8, 15, 16, 33)],
    *[("dualpipev", p, m, 2) for p in (1, 2, 3, 4, 8) for m in (16, 17, 32)],
]


@pytest.mark.parametrize(("name", "p", "m", "v"), SHAPES)
def test_lists_are_those_of_torch(name: str, p: int, m: int, v: int) -> None:
    assert schedules.actions(name, p, m, v) == lists(name, p, m, v)


def test_torch_reads_our_text() -> None:
    for name in ("1f1b", "zb-v", "dualpipev"):
        mine = schedules.actions(name, 4, 8)
        for row, line in zip(mine, base.format_actions(mine).splitlines(), strict=True):
            assert [str(theirs._Action.from_str(cell)) for cell in line.split(",")] == [
                str(action) for action in row
            ]
