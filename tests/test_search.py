"""The search against an enumeration written independently of it, and the choices made from what it
finds."""

from __future__ import annotations

import itertools
import random
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import plans
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import evaluate
from planner.estimate.ties import TIE
from planner.formulas.divisors import divisors
from planner.formulas.rules import check
from planner.formulas.stages import largest_chunk
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.search import best, family_rows, layouts, pareto, ranked, search, smallest
from planner.search.answer import answer_of
from planner.search.why_none import why_none
from planner.specs.columns import Columns
from planner.specs.layout import (
    OFFLOADED_PARAMS,
    OFFLOADS,
    PLACEMENTS,
    SCHEDULES,
    Layout,
    LayoutRequest,
    recompute_in,
)
from planner.specs.plan import Plan

# ------------------------------------------------------------------------------------------ every l


Row = namedtuple("Row", Layout.model_fields)  # type: ignore[misc]  # as a layout, but cheap enough to make a million of


def allowed(p: Plan, x: Row) -> bool:
    """Whether the layout is possible, from the definitions: everything that is shared out comes out
    even."""
    model, can, batch, seq = p.model, p.stack.supports, p.training.global_batch, p.training.seq_len
    used = {"tensor": x.tp, "pipeline": x.pp, "context": x.cp, "expert": x.ep}
    if any(degree > 1 and not getattr(can, what) for what, degree in used.items()):
        return False
    if x.sequence_parallel and (x.tp == 1 or not can.sequence_parallel or seq % x.tp):
        return False
    if (
        model.heads % x.tp
        or model.hidden % x.tp
        or (model.kv_heads % x.tp and x.tp % model.kv_heads)
    ):
        return False
    if any(
        width % x.tp
        for width in [model.ffn_hidden] * bool(model.dense_layers)
        + ([model.moe.ffn_hidden] if model.moe else [])
    ):
        return False
    if x.cp > 1 and seq % (2 * x.cp * (x.tp if x.sequence_parallel else 1)):
        return False
    if x.ep > 1 and (model.moe is None or model.moe.experts % x.ep or (x.dp * x.cp) % x.ep):
        return False
    if not filled(p, x.pp, x.vpp) or batch % (x.dp * x.micro_batch):
        return False
    chunks = {
        "interleaved": x.vpp > 1,
        "breadth-first": x.vpp > 1,
        "zb-v": x.vpp == 2,
        "dualpipev": x.vpp == 2,
    }
    if not chunks.get(x.schedule, x.vpp == 1) or (x.vpp > 1 and x.pp == 1):
        return False
    m = batch // (x.dp * x.micro_batch)
    suits = {
        "interleaved": m % x.pp == 0,
        "breadth-first": m >= x.pp,
        "zb-h2": m >= 2 * x.pp - 1,
        "dualpipev": m >= 2 * x.pp,
        "dualpipe": x.pp % 2 == 0 and m % 2 == 0 and m >= 2 * x.pp,
    }
    if x.pp > 1 and not suits.get(x.schedule, True):
        return False
    if x.pp > 1 and (x.schedule not in can.schedules or x.zero not in can.zero_with_pipeline):
        return False
    whole = x.shard_group == x.dp * x.cp
    hybrid = x.zero == 3 and can.hybrid_shard and x.shard_group > 1
    if x.zero not in can.zero or not (whole or hybrid):
        return False
    if x.offload.endswith("nvme") and p.cluster.nvme is None:
        return False
    if (
        x.offload in OFFLOADED_PARAMS and x.zero < 3
    ):  # only sharded parameters can live in host memory
        return False
    if x.offload == "activations" and (
        (x.pp > 1 and not can.offload_with_pipeline)
        or (x.recompute != "none" and not can.offload_with_recompute)
    ):
        return False
    if x.placement not in can.placements or (x.placement != "tp-cp-dp-pp" and x.ep > 1):
        return False
    kind = x.recompute.partition(":")[0]
    return kind in can.recompute and x.offload in can.offload


def even(p: Plan, pp: int, vpp: int) -> bool:
    """Stages and chunks of equal size; Megatron's may count embedding and head as a layer each if
    both ends keep one."""
    layers, each = p.model.layers, pp * vpp
    ends = (
        p.stack.id in ("megatron-core", "megatron-deepspeed", "torchtitan")
        and 1 < pp <= (layers + 2) // 2
    )
    return layers % each == 0 or (ends and (layers + 2) % each == 0)


def filled(p: Plan, pp: int, vpp: int) -> bool:
    """Equal chunks, or unequal ones of a layer or more where the stack can have them."""
    uneven = {"torchtitan": "any", "megatron-core": "any", "hai-llm": "any"}.get(
        p.stack.id, "one chunk" if p.stack.id == "megatron-deepspeed" else "no"
    )
    dealt = uneven == "any" or (uneven == "one chunk" and vpp == 1)
    return even(p, pp, vpp) or (dealt and pp * vpp <= p.model.layers)


def counts_tried(p: Plan, pp: int) -> list[int]:
    """Equal chunks; where a pipeline has no equal stages, one count per size of the largest."""
    layers = p.model.layers
    out = [v for v in range(1, layers + 1) if even(p, pp, v)]
    if 1 not in out:
        out += [
            v for v in {-(-layers // (pp * n)) for n in range(1, layers + 1)} if filled(p, pp, v)
        ]
    return sorted({1, *out})


def worth_trying(p: Plan, x: Row) -> bool:
    """What the search leaves out unless it is asked for."""
    r, node = p.request, p.cluster.nvlink_domain
    ranks = x.dp * x.cp
    return all(
        (
            r.tp is not None or x.tp <= 16,
            r.cp is not None or x.cp == 1 or x.cp * 8192 <= p.training.seq_len,
            r.micro_batch is not None or x.micro_batch <= 64,
            r.schedule is not None
            or (
                x.schedule not in ("gpipe", "sequential", "breadth-first")
                and (x.pp > 1 or x.schedule == "1f1b")
            ),
            r.recompute is not None or worth_repeating(x.recompute, largest_chunk(p, x.pp, x.vpp)),
            r.shard_group is not None
            or x.shard_group == ranks
            or x.shard_group % min(node, ranks) == 0,
            r.offload is not None or r.search_offload or x.offload == "none",
            r.placement is not None
            or x.placement == "tp-cp-dp-pp"
            or (x.pp > 1 and x.dp > 1 and p.cluster.gpus > node),
        )
    )


def worth_repeating(recompute: str, layers: int) -> bool:
    """Blocks of fewer layers than a chunk has, groups of a few sizes that keep less than smaller
    ones."""
    kind, _, size = recompute.partition(":")
    if kind == "block":
        return int(size) < layers
    if kind != "group":
        return True
    k = int(size)
    listed = k in (2, 3, 4, 6, 8, 12, 16) or k == layers <= 16
    return listed and 1 < k <= layers and -(-layers // k) < -(-layers // (k - 1))


def brute_force(p: Plan) -> set[Layout]:
    """All tuples of factors, filtered one by one."""
    r, gpus = p.request, p.cluster.gpus
    numbers = range(1, gpus + 1)

    def tried(name: str, values: Any) -> Any:
        fixed = getattr(r, name)
        return list(values) if fixed is None else [fixed]

    found = set()
    for tp, pp, cp in itertools.product(
        tried("tp", numbers), tried("pp", numbers), tried("cp", numbers)
    ):
        for dp in tried("dp", numbers):
            if tp * pp * cp * dp != gpus:
                continue
            layers = -(-p.model.layers // pp)
            repeats = [
                "none",
                "selective",
                "full",
                *(f"{kind}:{n}" for kind in ("block", "group") for n in range(1, layers + 1)),
            ]
            for vpp, ep, group, zero, sequence, schedule, micro, placement in itertools.product(
                tried("vpp", counts_tried(p, pp)),
                tried(
                    "ep",
                    [
                        e
                        for e in numbers
                        if e == 1 or (p.model.moe and p.model.moe.experts % e == 0)
                    ],
                ),
                tried("shard_group", [n for n in range(1, dp * cp + 1) if (dp * cp) % n == 0]),
                tried("zero", range(4)),
                tried("sequence_parallel", [False, True]),
                tried("schedule", SCHEDULES),
                tried("micro_batch", range(1, p.training.global_batch // dp + 1)),
                tried("placement", PLACEMENTS),
            ):
                most = (
                    1
                    if schedule in ("1f1b", "gpipe", "zb-1p", "zb-2p", "dualpipe")
                    else p.model.layers
                )
                if (dp * cp) % group or p.training.global_batch % (dp * micro) or vpp > most:
                    continue  # allowed() says so too, this only saves time
                if not filled(p, pp, vpp):
                    continue
                asked = r.recompute and recompute_in(r.recompute, largest_chunk(p, pp, vpp))
                for recompute, offload in itertools.product(
                    [asked] if asked else repeats,
                    tried("offload", OFFLOADS if r.search_offload else ["none"]),
                ):
                    x = Row(
                        tp=tp,
                        pp=pp,
                        vpp=vpp,
                        dp=dp,
                        cp=cp,
                        ep=ep,
                        zero=zero,
                        shard_group=group,
                        sequence_parallel=sequence,
                        recompute=recompute,
                        schedule=schedule,
                        micro_batch=micro,
                        offload=offload,
                        placement=placement,
                    )
                    if worth_trying(p, x) and allowed(p, x):
                        found.add(Layout(**x._asdict()))
    return found


def table_layouts(table: Columns) -> list[Layout]:
    return [table.layout(row) for row in range(len(table))]


FIXABLE: dict[str, list[Any]] = {
    "tp": [1, 2, 4],
    "pp": [1, 2, 3],
    "dp": [1, 2, 4],
    "cp": [1, 2],
    "ep": [1, 2],
    "zero": [0, 1, 2, 3],
    "micro_batch": [1, 2, 3],
    "vpp": [1, 2],
    "sequence_parallel": [True, False],
    "recompute": ["none", "full", "block:2", "group:3"],
    "shard_group": [1, 2, 4],
    "schedule": ["1f1b", "gpipe", "interleaved", "zb-1p"],
    "offload": ["none", "optimizer", "params", "activations"],
    "placement": ["tp-cp-dp-pp", "tp-cp-pp-dp"],
}


SOFTWARE = (
    "megatron-core",
    "torchtitan",
    "megatron-deepspeed",
    "pytorch-fsdp",
    "hai-llm",
    "deepspeed",
)


def random_plan(seed: int) -> Plan:
    """A small space: 4 to 8 GPUs, 2 to 6 layers, sometimes experts, sometimes a few values
    fixed."""
    draw = random.Random(seed)
    gpus = draw.choice([4, 6, 6, 8])
    heads = draw.choice([2, 4, 6, 8, 12])
    shape = draw.choice([plans.model, plans.expert_model])(
        layers=draw.choice([2, 3, 4, 6]),
        heads=heads,
        kv_heads=draw.choice([k for k in (1, 2, 3, heads) if heads % k == 0]),
        hidden=draw.choice([192, 384, 500]),
        ffn_hidden=draw.choice([600, 768]),
    )
    fixed = {
        name: draw.choice(FIXABLE[name])
        for name in draw.sample(sorted(FIXABLE), draw.choice([0, 0, 0, 0, 1, 2]))
    }
    if seed % 11 == 3 and "offload" not in fixed:
        fixed["search_offload"] = True
    return plans.plan(
        shape,
        gpus=gpus,
        gpus_per_node=draw.choice([n for n in (2, 4, gpus) if gpus % n == 0]),
        software=SOFTWARE[seed % len(SOFTWARE)],
        seq_len=draw.choice([96, 512, 16384, 16386, 32768]),
        global_batch=draw.choice([4, 6]),
        request=LayoutRequest(**fixed),
    )


@pytest.mark.parametrize("seed", range(36))
def test_search_equals_brute_force(seed: int) -> None:
    p = random_plan(seed)
    expected, found = brute_force(p), search(p)
    if found.estimates is None:
        assert not expected
        return
    got = table_layouts(found.estimates.table)
    assert len(set(got)) == len(got), "no layout is evaluated twice"
    assert set(got) == expected
    assert found.enumerated == len(got) + sum(found.rejected.values())
    # and the best of both is the same
    other = evaluate(p, Columns.of(sorted(expected, key=repr)))
    fitting = [
        seconds for seconds, fits in zip(other.time.seconds, other.fits, strict=True) if fits
    ]
    row = best(found.estimates)
    assert (row is None) == (not fitting)
    if row is not None:
        assert found.estimates.time.seconds[row] == pytest.approx(min(fitting), rel=1e-12)


def test_the_random_plans_are_not_all_alike() -> None:
    sizes = [search(random_plan(seed)).estimates for seed in range(36)]
    assert sum(found is None for found in sizes) < 18
    assert sum(found is not None and len(found.table) > 100 for found in sizes) > 5


@pytest.mark.parametrize("seed", range(36, 76))
def test_every_layout_found_obeys_every_rule_and_the_request(seed: int) -> None:
    p = random_plan(seed)
    found = search(p)
    if found.estimates is None:
        return
    for name, holds in check(p, found.estimates.table).items():
        assert np.all(holds), name
    fixed = p.request.model_dump(
        exclude_none=True, exclude={"uneven_stages", "search_offload", "where", "acting"}
    )
    asked = fixed.pop("recompute", None)
    for x in table_layouts(found.estimates.table):
        assert {name: getattr(x, name) for name in fixed} == fixed
        layers = largest_chunk(p, x.pp, x.vpp)
        assert asked is None or x.recompute == recompute_in(asked, layers)


SMALL = {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": 8, "recompute": "full", "micro_batch": 1}


@pytest.mark.parametrize(
    ("asked", "acts"),
    [
        ({"zero": 3}, lambda x: x.dp * x.cp > 1),
        ({"zero": 1, "stack": "megatron-core"}, lambda x: x.dp * x.cp > 1),
        ({"schedule": "1f1b", "stack": "megatron-core"}, lambda x: x.pp > 1),
        ({"shard_group": 8}, lambda x: x.zero >= 1),
        # nothing else is possible: an answer, which says that nothing is sharded
        ({"zero": 3, "tp": 8}, lambda x: x.shard_group == 1),
        ({"zero": 1, "dp": 1, "stack": "megatron-core"}, lambda x: x.shard_group == 1),
    ],
)
def test_what_is_asked_for_acts(asked: dict[str, Any], acts: Callable[[Layout], bool]) -> None:
    for plan in resolve(read_options({**SMALL, **asked})).plans:
        found = search(plan).estimates
        assert found is None or all(map(acts, table_layouts(found.table)))
    answer = answer_of(resolve(read_options({**SMALL, **asked})))
    assert answer is not None
    assert acts(answer.chosen.table.layout(answer.row))


def test_a_schedule_that_no_usual_stack_runs_is_refused_and_not_ignored() -> None:
    scenario = resolve(read_options({**SMALL, "schedule": "zb-h1"}))
    assert answer_of(scenario) is None
    assert "schedule zb-h1" in str(why_none(scenario))


def test_a_value_the_search_would_not_try_is_kept_when_asked_for() -> None:
    request = LayoutRequest(tp=2, schedule="gpipe", recompute="block:3", sequence_parallel=False)
    found = search(plans.plan(request=request))
    assert found.estimates is not None
    assert {
        (x.tp, x.schedule, x.recompute, x.sequence_parallel)
        for x in table_layouts(found.estimates.table)
    } == {(2, "gpipe", "block:3", False), (2, "gpipe", "full", False)}  # full: stages of two layers


def test_an_impossible_request_finds_nothing_and_says_why() -> None:
    # three stages of eight layers, none of which may differ
    request = LayoutRequest(pp=3, uneven_stages=False)
    found = search(plans.plan(gpus=6, global_batch=60, request=request))
    assert found.estimates is None
    assert set(found.rejected) == {"layers fill the stages"}
    assert found.enumerated == sum(found.rejected.values()) > 0
    assert (
        search(plans.plan(request=LayoutRequest(tp=3))).estimates is None
    )  # no third of eight GPUs


@given(st.integers(1, 100_000))
def test_divisors(number: int) -> None:
    assert divisors(number) == tuple(n for n in range(1, number + 1) if number % n == 0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), max_size=40))
def test_pareto_front_by_definition(points: list[tuple[int, int]]) -> None:
    seconds, peak = (np.array([p[i] for p in points], dtype=float) for i in (0, 1))
    front = [points[row] for row in pareto(seconds, peak)]
    beaten = {
        a for a, b in itertools.product(points, points) if b != a and b[0] <= a[0] and b[1] <= a[1]
    }  # another is at least as good in both, better in one
    assert front == sorted(set(points) - beaten)  # fastest first, equals once


def test_best_ranked_and_smallest() -> None:
    # a model of about 10e9 parameters: some layouts fit eight GPUs, some do not; whatever room they
    # leave (tests/test_fit_chance.py has the rest)
    p = plans.plan(
        plans.model(layers=32, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn_hidden=13824),
        seq_len=4096,
    )
    p = p.model_copy(update={"request": LayoutRequest(headroom=0.0)})
    found = search(p).estimates
    assert found is not None
    seconds, needed, usable = (
        found.time.seconds,
        found.memory.device,
        float(p.cluster.gpu.usable_memory),
    )
    assert found.fits.tolist() == (needed <= usable).tolist()
    assert 0 < found.fits.sum() < len(found.table)
    order = sorted((float(s), row) for row, s in enumerate(seconds) if found.fits[row])
    repeated = found.time.components["recompute"]
    tied = [(float(repeated[row]), s, row) for s, row in order if s <= order[0][0] * (1 + TIE)]
    assert best(found) == min(tied)[2]
    assert ranked(found, 10)[0] == best(found)
    assert needed[smallest(found)] == needed.min()
    piped = found.table.pp > 1
    row = best(found, piped)
    assert row is not None
    assert seconds[row] <= (1 + TIE) * min(
        s for s, marked, fits in zip(seconds, piped, found.fits, strict=True) if marked and fits
    )
    assert best(found, np.zeros(len(found.table), dtype=bool)) is None
    assert needed[smallest(found, piped)] == needed[piped].min()


@pytest.mark.parametrize("software", ["megatron-core", "torchtitan", "deepspeed", "pytorch-fsdp"])
def test_families_are_disjoint(software: str) -> None:
    table = layouts(plans.plan(plans.expert_model(), gpus=16, software=software, seq_len=32768))
    families = family_rows(table)
    assert tuple(families) == (
        "DDP",
        "ZeRO-1",
        "ZeRO-2",
        "ZeRO-3 / FSDP",
        "hybrid shard",
        "TP x PP x DP, ZeRO-1",
    )
    assert sum(column.astype(int) for column in families.values()).max() == 1
    alone = (table.tp * table.pp * table.cp * table.ep) == 1
    covered = np.any(list(families.values()), axis=0)
    assert covered[alone].all()  # whatever is only data parallel has a family


@pytest.mark.parametrize(
    ("chosen", "family"),
    [
        ({}, "DDP"),
        ({"zero": 1}, "ZeRO-1"),
        ({"zero": 2}, "ZeRO-2"),
        ({"zero": 3}, "ZeRO-3 / FSDP"),
        ({"zero": 3, "shard_group": 4}, "hybrid shard"),
        ({"tp": 2, "zero": 1}, "TP x PP x DP, ZeRO-1"),
        ({"pp": 2}, "TP x PP x DP, ZeRO-1"),
        ({"tp": 2, "zero": 3}, None),
    ],
)
def test_family_of_a_layout(chosen: dict[str, Any], family: str | None) -> None:
    families = family_rows(plans.rows(8, chosen))
    assert [name for name, rows in families.items() if rows[0]] == ([family] if family else [])
