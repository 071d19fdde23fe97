"""States on NVMe drives, delayed updates, recompute against swapping: by hand, against
ZeRO-Infinity's figures, as users ask."""

from __future__ import annotations

from typing import Any

import numpy as np
import plans
import pytest
from command import argv, dpplan, refused

from planner.estimate import evaluate
from planner.estimate.machine import machine
from planner.estimate.ranks import layer_seconds
from planner.formulas import offload as outside
from planner.formulas.params import parameter_count
from planner.formulas.rules import check
from planner.inputs import catalog
from planner.ledger import Sourced
from planner.mechanisms.nvme import Nvme
from planner.specs.documents.recommend import Layer
from planner.specs.hardware import LinkSpec, NvmeSpec
from planner.specs.mechanism import Stage
from planner.specs.plan import Plan
from planner.verbs.recommend import swaps

READ, WRITE = 10e9, 5e9
GPUS = 8


def speed(value: float, unit: str = "B/s") -> Sourced:
    return Sourced(value, unit, "assumed", "test")


def with_drives(
    plan: Plan, capacity: float | None = None, read: float = READ, write: float = WRITE
) -> Plan:
    nvme = NvmeSpec(
        read=speed(read),
        write=speed(write),
        capacity=None if capacity is None else speed(capacity, "B"),
    )
    return plan.model_copy(update={"cluster": plan.cluster.model_copy(update={"nvme": nvme})})


def deepspeed(**more: Any) -> Plan:
    return with_drives(plans.plan(plans.model(layers=8), software="deepspeed"), **more)


WAYS = ("none", "optimizer", "params", "optimizer-nvme", "params-optimizer-nvme", "params-nvme")
TABLE = plans.rows(GPUS, *({"zero": 3, "offload": way} for way in WAYS))
AT = {way: row for row, way in enumerate(WAYS)}


def test_tiles_by_hand() -> None:
    # read 4 s, update 10 s, write 2 s. One tile: 16 s. Four: a tile takes 1 + 0.5 on the drives and
    # 2.5 on the CPU, which is the slower: 1 s of reading first, four updates of 2.5 s, 0.5 s of
    # writing last
    assert outside.tiled_update_s(4.0, 10.0, 2.0, 1.0) == pytest.approx(16.0)
    assert outside.tiled_update_s(4.0, 10.0, 2.0, 4.0) == pytest.approx(1.0 + 4 * 2.5 + 0.5)
    # drives of a quarter the speed are the slower: 4 + 2 per tile, four of them, and one update of
    # 2.5 s beside nothing
    assert outside.tiled_update_s(16.0, 10.0, 8.0, 4.0) == pytest.approx(4 * 6.0 + 2.5)
    assert outside.tiled_update_s(4.0, 10.0, 2.0, 1e9) == pytest.approx(
        10.0
    )  # many tiles: the slower of both
    assert outside.drive_s(10e9, 1.25e9) == pytest.approx(8.0)


def test_a_delayed_update_shows_only_what_is_longer_than_the_rest() -> None:
    assert outside.delayed_update_exposed_s(2.0, 3.0) == 0
    assert outside.delayed_update_exposed_s(5.0, 3.0) == pytest.approx(2.0)


def simulated(read: float, update: float, write: float, tiles: int) -> float:
    """Tiles one after the other: one drive that serves reads before writes, one CPU."""
    drive = cpu = 0.0
    done: list[float] = []
    arrived: list[float] = []
    r, u, w = read / tiles, update / tiles, write / tiles
    for k in range(tiles):
        if k >= 2:  # the tile before the last one is written before another is read
            drive = max(drive, done[k - 2]) + w
        drive += r
        arrived.append(drive)
        cpu = max(cpu, arrived[k]) + u
        done.append(cpu)
    for k in range(max(tiles - 2, 0), tiles):
        drive = max(drive, done[k]) + w
    return drive


@pytest.mark.parametrize("tiles", [1, 2, 5, 40])
@pytest.mark.parametrize(
    ("read", "update", "write"), [(4.0, 10.0, 2.0), (6.0, 1.0, 6.0), (1.0, 1.0, 1.0)]
)
def test_the_closed_form_is_near_a_schedule_of_tiles(
    read: float, update: float, write: float, tiles: int
) -> None:
    """A real order of requests waits at most for a tile more than the closed form, and never takes
    less."""
    closed = float(outside.tiled_update_s(read, update, write, float(tiles)))
    played = simulated(read, update, write, tiles)
    assert (
        closed * (1 - 1e-12) - (read + write + update) / tiles
        <= played
        <= closed + (read + write + update) / tiles
    )
    if tiles == 1:
        assert played == pytest.approx(closed)


def test_intensities_of_zero_infinity() -> None:
    """Section 4: seq x bsz for parameters and gradients, a quarter of it for optimizer states, 24
    hd ci for checkpoints."""
    assert outside.state_intensity(2 * 1024.0, 4 * 2.0) == 2048
    assert outside.state_intensity(2 * 1024.0, 2 * 16.0) == 512
    # 2 h B per token out and back for 8 x 12 h^2 FLOP: at width 2,048 49,152 FLOP per byte
    assert outside.checkpoint_intensity(2048.0, 1.0) == 8 * 12 * 2048**2 / (2 * 2 * 2048)
    assert outside.checkpoint_intensity(2048.0, 4.0) == 4 * outside.checkpoint_intensity(
        2048.0, 1.0
    )


def test_bandwidths_of_zero_infinity() -> None:
    """The authors' SC21 slides: at 2K tokens per GPU parameters and gradients, which overlap, need
    60 GB/s, optimizer states, which do not, 1,500 GB/s (DeepSpeed,
    docs/assets/files/SC21-ZeRO-Infinity.pdf). V100: 125 TFLOP/s, about 70 reached."""
    parameters, states = (outside.state_intensity(2048.0, moved) for moved in (8.0, 32.0))
    assert outside.bandwidth_for_efficiency(parameters, 125e12, 0.5) == pytest.approx(
        60e9, rel=0.03
    )  # copies as long as compute
    assert 0.9 < outside.bandwidth_efficiency(states, 1500e9, 70e12) < 0.93
    for share in (0.1, 0.5, 0.9):
        wanted = outside.bandwidth_for_efficiency(states, 70e12, share)
        assert outside.bandwidth_efficiency(states, wanted, 70e12) == pytest.approx(share)


@pytest.mark.parametrize(
    ("forward", "backward", "again"),
    [(1.0, 2.0, 1.0), (1.0, 2.0, 0.3), (2.0, 1.0, 5.0), (1.0, 1.0, 0.0)],
)
def test_at_the_break_even_copies_cost_what_recompute_does(
    forward: float, backward: float, again: float
) -> None:
    copy = float(outside.break_even_copy_s(forward, backward, again))
    assert max(copy - forward, 0) + max(copy - backward, 0) == pytest.approx(again)


def test_what_leaves_host_memory_is_on_the_drives() -> None:
    plan = deepspeed()
    m = evaluate(plan, TABLE).memory
    owned = parameter_count(plan.model) / GPUS
    tile, parameters = (
        12 * 4 * owned,
        2 * owned,
    )  # fewer elements than a tile: buffers hold them all
    for way in ("none", "optimizer", "params"):
        assert m.drive[AT[way]] == 0
    for way in ("optimizer-nvme", "params-optimizer-nvme"):
        assert m.drive[AT[way]] == pytest.approx(
            16 * owned
        )  # fp32 master copy, two moments, gradient
    assert m.drive[AT["params-nvme"]] == pytest.approx((16 + 2) * owned)
    host = {way: float(m.host[row]) for way, row in AT.items()}
    assert host["optimizer-nvme"] == pytest.approx(host["optimizer"] - 12 * owned + tile)
    assert host["params-optimizer-nvme"] == pytest.approx(host["params"] - 12 * owned + tile)
    assert host["params-nvme"] == pytest.approx(
        host["optimizer-nvme"] + parameters
    )  # its buffers, as small as this model
    for name, other in (
        ("optimizer-nvme", "optimizer"),
        ("params-optimizer-nvme", "params"),
        ("params-nvme", "params"),
    ):
        assert m.device[AT[name]] == m.device[AT[other]]


def test_buffers_do_not_grow_with_the_model() -> None:
    plan = deepspeed()
    first = TABLE.pick([AT["params-nvme"]])
    nothing = np.zeros(1)
    small, large = (
        Nvme().memory(Stage(plan, first, nothing, np.array([owned]), nothing, nothing, 2.0)).host[0]
        for owned in (1e9, 1e10)
    )
    assert small == large == pytest.approx(12 * 4 * 1e8 + 2 * 5e8)


def test_capacity_decides() -> None:
    plan = deepspeed()
    need = float(evaluate(plan, TABLE).memory.drive[AT["params-nvme"]]) * GPUS
    for capacity, fits in ((need * 1.01, True), (need * 0.99, False)):
        estimates = evaluate(deepspeed(capacity=capacity), TABLE)
        assert (
            bool(estimates.drive_fits[AT["params-nvme"]])
            is bool(estimates.fits[AT["params-nvme"]])
            is fits
        )
        assert estimates.drive_fits[AT["params"]]
        assert estimates.host_fits.all()


def test_drives_carry_states_once_a_step_each_way() -> None:
    plan = deepspeed()
    time = evaluate(plan, TABLE).time
    owned = parameter_count(plan.model) / GPUS
    shares = READ / GPUS, WRITE / GPUS
    # one tile: nothing overlaps, so that drives add all they take
    expected = 16 * owned / shares[0] + 16 * owned / shares[1]
    for way in ("optimizer-nvme", "params-optimizer-nvme"):
        assert time.components["nvme"][AT[way]] == pytest.approx(expected)
    assert time.components["nvme"][AT["params-nvme"]] == pytest.approx(
        expected + 2 * owned / shares[1]
    )
    assert time.components["nvme"][[AT["none"], AT["optimizer"], AT["params"]]].tolist() == [
        0,
        0,
        0,
    ]
    same = time.components["optimizer"]
    assert same[AT["optimizer-nvme"]] == same[AT["optimizer"]]


def test_tables_without_drives_have_no_such_component() -> None:
    plan = plans.plan(software="deepspeed")
    rows = TABLE.pick(np.arange(3))
    assert "nvme" not in evaluate(plan, rows).time.components
    assert "nvme_read" not in {
        name for name in machine(plan).names() if float(getattr(machine(plan), name))
    }


def test_parameters_from_drives_wait_for_the_slower_of_drive_and_link() -> None:
    slow, fast = (
        evaluate(deepspeed(read=rate), TABLE).time.components["data_parallel"]
        for rate in (1e7, 1e15)
    )
    assert slow[AT["params-nvme"]] > fast[AT["params-nvme"]]
    assert fast[AT["params-nvme"]] == pytest.approx(
        fast[AT["params"]]
    )  # the host link is all that is left
    assert slow[AT["params-optimizer-nvme"]] == slow[AT["params"]]


def test_fast_drives_cost_nothing_but_their_buffers() -> None:
    seconds = evaluate(deepspeed(read=1e30, write=1e30), TABLE).time.seconds
    for way, same in (
        ("optimizer-nvme", "optimizer"),
        ("params-optimizer-nvme", "params"),
        ("params-nvme", "params"),
    ):
        assert seconds[AT[way]] == pytest.approx(seconds[AT[same]], rel=1e-9)


def test_gpus_of_a_node_share_its_drives() -> None:
    for gpus in (1, 2, 8):
        m = machine(with_drives(plans.plan(gpus=gpus, software="deepspeed")))
        assert float(m.nvme_read) == pytest.approx(READ / gpus)
        assert float(m.nvme_write) == pytest.approx(WRITE / gpus)


def test_rules_of_drives() -> None:
    known, unknown = deepspeed(), plans.plan(software="deepspeed")
    rows = plans.rows(
        GPUS, *({"zero": zero, "offload": way} for zero in (2, 3) for way in WAYS[3:])
    )
    assert check(known, rows)["drives need ZeRO-3"].tolist() == [False] * 3 + [True] * 3
    assert check(known, rows)["drives known for NVMe offloading"].all()
    assert not check(unknown, rows)["drives known for NVMe offloading"].any()
    assert (
        check(unknown, TABLE)["drives known for NVMe offloading"].tolist()
        == [True] * 3 + [False] * 3
    )


ASKED = argv("estimate --model gpt2-xl --gpu a100 --gpus 8 --advice 0 --offload")
STATED = ("--nvme-read", "10 GB/s", "--nvme-write", "5 GB/s")


def test_a_request_states_its_drives() -> None:
    answer = dpplan(*ASKED, "params-nvme", *STATED, "--nvme-capacity", "2 TB", "--json").json()
    assert answer["layout"]["offload"] == "params-nvme"
    assert answer["memory"]["nvme_bytes"] > 0
    assert answer["memory"]["nvme_fits"] is True
    assert answer["step"]["components"]["nvme"] > 0
    numbers = {entry["name"]: entry for entry in answer["machine"]} if answer["machine"] else {}
    assert numbers["nvme_read"]["value"] == pytest.approx(10e9 / 8)
    assert numbers["nvme_read"]["source"] == "stated in the request"
    slower = dpplan(
        *ASKED, "params-nvme", "--nvme-read", "1 GB/s", "--nvme-write", "5 GB/s", "--json"
    ).json()
    assert slower["step"]["seconds"] > answer["step"]["seconds"]
    small = dpplan(*ASKED, "params-nvme", *STATED, "--nvme-capacity", "20 GB")
    assert small.status == 3
    assert "DOES NOT FIT: " in small.stdout
    assert "of NVMe drives per GPU, more than the node has" in small.stdout


def test_drives_of_a_profile_serve_who_asks_for_them() -> None:
    words = argv("estimate --model llama-2-13b --gpu h100 --gpus 8 --advice 0 --json")
    document = dpplan(*words, "--offload", "optimizer-nvme").json()
    assert document["stack"]["id"] == "deepspeed"
    assert document["layout"]["zero"] == 3
    assert document["memory"]["nvme_bytes"] > 0
    unasked = dpplan(*words, "--offload", "optimizer").json()
    assert "nvme" not in unasked["step"]["components"]
    assert not any(entry["name"].startswith("nvme") for entry in unasked["machine"])


def test_what_cannot_be_is_refused() -> None:
    refused(dpplan(*ASKED, "optimizer-nvme"), "--offload", "are not known", "--nvme-read")
    refused(
        dpplan(*ASKED, "optimizer-nvme", *STATED, "--stack", "pytorch-fsdp"),
        "does not have --offload optimizer-nvme",
        "--stack deepspeed",
    )
    refused(
        dpplan(*ASKED, "optimizer-nvme", *STATED, "--stack", "deepspeed", "--zero", "2"),
        "only under ZeRO-3",
        "--zero 3",
    )
    refused(
        dpplan(*ASKED, "optimizer-nvme", "--nvme-read", "10 GB/s"), "--nvme-write", "is needed too"
    )
    refused(
        dpplan(*ASKED, "optimizer-nvme", "--nvme-read", "10", "--nvme-write", "5 GB/s"),
        "--nvme-read",
        "needs its unit",
    )
    refused(
        dpplan(*ASKED, "optimizer-nvme", "--nvme-read", "-1 GB/s", "--nvme-write", "5 GB/s"),
        "--nvme-read",
    )
    refused(
        dpplan(*ASKED, "optimizer-nvme", *STATED, "--nvme-capacity", "3 GB/s"), "--nvme-capacity"
    )


def test_a_search_takes_drives_that_are_stated() -> None:
    words = argv(
        "search --model gpt2-xl --gpu a100 --gpus 8 --stack deepspeed --search-offload --json"
    )
    without, with_ = dpplan(*words).json(), dpplan(*words, *STATED).json()
    assert with_["evaluated"] > without["evaluated"]
    assert "drives known for NVMe offloading" not in without["rejected"]


def test_a_layer_by_hand() -> None:
    """A layer that keeps 1 GB, 20 ms forward, 40 ms backward, 20 ms to run again, over 25 GB/s: a
    copy of 40 ms, 20 of them in sight on the way out, none on the way back; as much as
    recompute."""
    layer = Layer(
        kept_bytes=1e9,
        recompute_kept_bytes=0.0,
        forward_s=0.02,
        backward_s=0.04,
        forward_shared_s=0.0,
        backward_shared_s=0.0,
        recompute_s=0.02,
        break_even_bytes_per_s=25e9,
        hidden_bytes_per_s=None,
    )
    whole = {"send_recv_frac": speed(1.0, "1"), "host_bandwidth": None}
    link = catalog.load("networks", LinkSpec, "pcie4").model_copy(update=whole)
    plan = plans.plan(gpus=1)
    for rate, cheaper in ((25.1e9, "swap"), (24.9e9, "recompute")):
        result = swaps.over(plan, link.model_copy(update={"bandwidth": speed(rate)}), layer)
        assert result.cheaper == cheaper
        assert result.copy_s == pytest.approx(1e9 / rate)
        assert result.out_exposed_s == pytest.approx(1e9 / rate - 0.02)
        assert result.back_exposed_s == pytest.approx(max(1e9 / rate - 0.04, 0))
        assert result.hidden_s + result.out_exposed_s + result.back_exposed_s == pytest.approx(
            result.in_turn_s
        )
        assert result.cheaper_in_turn == "recompute"
    assert 1e9 / outside.break_even_copy_s(0.02, 0.04, 0.02) == pytest.approx(25e9)


def test_layer_seconds_are_those_of_the_step() -> None:
    """Eight layers and sixteen micro-batches of one GPU: what the step has as recompute, and as the
    work of its layers."""
    plan = plans.plan(gpus=1, software="pytorch-ddp", global_batch=16)
    table = plans.rows(1, {"recompute": "none"}, {"recompute": "full"})
    seconds, time = layer_seconds(plan, table), evaluate(plan, table).time
    assert (
        seconds.again[0]
        == seconds.again[1]
        == pytest.approx(time.components["recompute"][1] / (8 * 16))
    )
    work = time.ranks.each.mean
    assert seconds.forward[0] == pytest.approx(work.forward[0])
    assert seconds.backward[0] == pytest.approx(work.input_gradient[0] + work.weight_gradient[0])


def answered(*more: str) -> dict[str, Any]:
    document: dict[str, Any] = dpplan(
        "recommend", "offload", "--model", "llama-2-7b", *more, "--json"
    ).json()
    return document


def test_faster_links_never_cost_more_and_the_break_even_parts_them() -> None:
    document = answered("--gpu", "a100", "--gpus", "8")
    assert [link["id"] for link in document["links"]] == ["pcie3", "pcie4", "pcie5", "nvlink-c2c"]
    added = [link["out_exposed_s"] + link["back_exposed_s"] for link in document["links"]]
    assert added == sorted(added, reverse=True)
    layer = document["layer"]
    assert 0 < layer["recompute_kept_bytes"] < layer["kept_bytes"]
    assert layer["hidden_bytes_per_s"] >= layer["break_even_bytes_per_s"]
    for entry in document["links"]:
        assert (entry["bytes_per_s"] > layer["break_even_bytes_per_s"]) == (
            entry["cheaper"] == "swap"
        )
        assert (entry["bytes_per_s"] >= layer["hidden_bytes_per_s"]) == (
            entry["out_exposed_s"] + entry["back_exposed_s"] == 0
        )
    assert (
        document["links"][-1]["cheaper"] == "swap"
    )  # NVLink-C2C hides a layer of 7B behind an A100
    longer = [row["break_even_bytes_per_s"] for row in document["lengths"]]
    assert (
        longer[-1] < longer[0]
    )  # attention grows with the square of the length, its bytes with the length
    link = next(
        link["bytes_per_s"] for link in document["links"] if link["id"] == document["host_link"]
    )
    for entry in document["bounds"]:
        half = next(need["bytes_per_s"] for need in entry["needed"] if need["share_frac"] == 0.5)
        assert entry["efficiency_frac"] == pytest.approx(
            link * entry["ranks"] / (link * entry["ranks"] + half)
        )
    assert [bound["what"] for bound in document["bounds"]] == [
        "parameters and gradients",
        "optimizer states",
        "activation checkpoints",
    ]


def test_a_grace_hopper_node_swaps_over_its_own_link() -> None:
    text = dpplan("recommend", "offload", "--model", "llama-2-7b", "--gpu", "gh200", "--gpus", "8")
    assert text.status == 0
    assert "nvlink-c2c (this node)" in text.stdout
    assert "Recompute or swap a layer of" in text.stdout
    assert text.stdout.isascii()
    words = ("recommend", "offload", "--model", "llama-2-7b", "--gpu", "gh200")
    refused(dpplan(*words, "--days", "3"), "--days", "recommend offload")
