"""Ledgers of named leaves, numbers that know their source, the recorder, and what every registered
formula owes its reader."""

from __future__ import annotations

import copy
import importlib
import pickle
import pkgutil
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner.formulas
from planner.ledger import (
    FORMULAS,
    Sourced,
    formula,
    group,
    merge,
    recording,
    scale,
    section,
    take,
    total,
    under,
)
from planner.units import UnitError, unit_factor

for _module in pkgutil.iter_modules(planner.formulas.__path__):
    importlib.import_module(f"planner.formulas.{_module.name}")

NAMES = st.sampled_from(["a", "a/b", "a/b/c", "b", "b/c", "c/a/a"])
LEDGERS = st.dictionaries(NAMES, st.integers(-1000, 1000).map(float))


# --------------------------------------------------------------------------------------------------


def test_arithmetic_of_a_small_ledger() -> None:
    ledger = {"attention/qkv": 3.0, "attention/out": 1.0, "mlp": np.array([2.0, 4.0])}
    assert total(ledger).tolist() == [6.0, 8.0]
    assert group(ledger)["attention"] == 4.0
    assert list(group(ledger)) == ["attention", "mlp"]
    assert under("layer", {"qkv": 1.0}) == {"layer/qkv": 1.0}
    assert merge({"a": 1.0, "b": 2.0}, {"b": 3.0, "c": 4.0}) == {"a": 1.0, "b": 5.0, "c": 4.0}
    assert scale({"a": 1.5, "b": -2.0}, 2.0) == {"a": 3.0, "b": -4.0}
    assert total({}) == 0.0


def test_take_keeps_what_has_no_rows() -> None:
    taken = take({"column": np.arange(4.0), "constant": 7.0}, np.array([3, 1]))
    assert taken["column"].tolist() == [3.0, 1.0]
    assert taken["constant"] == 7.0


@given(LEDGERS, LEDGERS)
def test_nothing_is_lost_by_merging_grouping_or_renaming(
    a: dict[str, float], b: dict[str, float]
) -> None:
    assert total(merge(a, b)) == total(a) + total(b)
    for depth in (1, 2, 3):
        assert total(group(a, depth)) == total(a)
    assert group(a, 3) == a
    assert set(group(under("top", a))) == ({"top"} if a else set())
    assert total(scale(a, 3.0)) == 3.0 * total(a)


def test_ledgers_given_are_left_alone() -> None:
    a, b = {"x": np.array([1.0])}, {"x": np.array([2.0])}
    merge(a, b)
    group({"x/y": a["x"], "x/z": b["x"]})
    scale(a, 5.0)
    assert a["x"].tolist() == [1.0]
    assert b["x"].tolist() == [2.0]


# ------------------------------------------------------------------------------------------------ s


def test_a_sourced_number_computes_like_a_float() -> None:
    rate = Sourced(2.0, "B/s", "vendor", "datasheet", "2026-01")
    for result in (rate * 3, 3 * rate, rate + 1, rate / 2, -rate, rate**2, np.float64(3) * rate):
        assert not isinstance(result, Sourced)
    assert rate * 3 == 6.0
    assert rate == 2.0
    assert hash(rate) == hash(2.0)
    assert (np.array([1.0, 2.0]) * rate).dtype == np.float64


@pytest.mark.parametrize(
    "again",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deep"],
)
def test_a_copy_keeps_its_source(again: Any) -> None:
    one = again(Sourced(1.5, "s", "measured", "a table", "2026-02"))
    assert (float(one), one.unit, one.kind, one.source, one.date) == (
        1.5,
        "s",
        "measured",
        "a table",
        "2026-02",
    )


# --------------------------------------------------------------------------------------------------


@pytest.fixture
def double() -> Any:
    """Two formulas of a module that does not exist, one calling the other; unregistered
    afterwards."""
    before = dict(FORMULAS)

    @formula(unit="1", equation="2 x", source="test")
    def inner(x: float) -> float:
        """Twice."""
        return 2 * x

    @formula(unit="1", equation="2 (x + y)", source="test")
    def outer(x: float, y: float = 1.0) -> float:
        """Twice the sum."""
        return inner(x + y)

    yield outer
    FORMULAS.clear()
    FORMULAS.update(before)


def test_calls_are_recorded_as_a_tree(double: Any) -> None:
    with recording("root") as tree:
        with section("part"):
            double(3.0, y=4.0)
        double(1.0)
    part, second = tree.calls
    assert (tree.formula.name, part.formula.name, second.formula.name) == ("root", "part", "outer")
    (first,) = part.calls
    assert (first.inputs, first.output) == ({"x": 3.0, "y": 4.0}, 14.0)
    assert [(call.formula.name, call.inputs, call.output) for call in first.calls] == [
        ("inner", {"x": 7.0}, 14.0)
    ]
    assert (second.inputs, second.output) == ({"x": 1.0}, 4.0)


def test_nothing_is_recorded_when_off(double: Any) -> None:
    with recording() as tree:
        pass
    with section("outside"):
        assert double(1.0) == 4.0
    assert tree.calls == []


def test_an_inner_recording_is_its_own(double: Any) -> None:
    with recording() as one:
        double(1.0)
        with recording() as two:
            double(2.0)
        double(3.0)
    assert [call.inputs["x"] for call in one.calls] == [1.0, 3.0]
    assert [call.inputs["x"] for call in two.calls] == [2.0]


def test_the_tree_survives_an_error(double: Any) -> None:
    with recording() as tree:
        with pytest.raises(TypeError), section("fails"):
            double("no number")
        double(1.0)
    assert [call.formula.name for call in tree.calls] == ["fails", "outer"]


def test_threads_record_only_themselves(double: Any) -> None:
    together = threading.Barrier(3)
    trees: dict[float, Any] = {}

    def explain(x: float) -> None:
        with recording() as tree:
            together.wait()
            for _ in range(50):
                double(x)
            together.wait()
        trees[x] = tree

    threads = [threading.Thread(target=explain, args=(x,)) for x in (1.0, 2.0)]
    for one in threads:
        one.start()
    together.wait()
    double(3.0)  # nobody records this thread
    together.wait()
    for one in threads:
        one.join()
    for x, tree in trees.items():
        assert [call.inputs["x"] for call in tree.calls] == [x] * 50


# ------------------------------------------------------------------------------------------- regist

_KERNEL = {
    "rate_flop_per_s": 312e12,
    "compute_units": 108.0,
    "efficiency": 0.9,
    "tile_exponent": 0.04,
    "tile_overhead_s": 4e-6,
    "wave_softness": 0.3,
    "launch_s": 1e-6,
    "memory_bytes_per_s": 2e12,
    "memory_frac": 0.7,
}

_PAIRS = {
    "ranks_per_node": 8.0,
    "base_s": 1e-5,
    "latency_s": 4e-6,
    "hop_s": 5e-6,
    "pair_bytes_per_s": 2e11,
    "card_bytes_per_s": 2e10,
    "ramp": 1e-9,
}
_SHARDED = {
    "zero": [0.0, 1.0, 2.0, 3.0],
    "shard_ranks": [8.0, 1.0, 8.0, 64.0],
    "microbatches": [1.0, 4.0, 4.0, 4.0],
}

# inputs of every registered formula: lists are columns of one value per layout, numbers are the
# same for all
EXAMPLES: dict[str, dict[str, Any]] = {
    "formulas.all_reduce.exchange_steps": {"ranks": [1.0, 2.0, 6.0, 1024.0]},
    "formulas.all_reduce.recursive_doubling_s": {
        "tensor_bytes": [1e3, 1e6, 1e9],
        "ranks": [1.0, 6.0, 64.0],
        **_PAIRS,
    },
    "formulas.all_reduce.halving_doubling_s": {
        "tensor_bytes": [1e3, 1e6, 1e9],
        "ranks": [1.0, 6.0, 64.0],
        **_PAIRS,
    },
    "formulas.all_reduce.grid_all_reduce_s": {
        "reduce_scatter_s": [0.0, 1e-3],
        "column_s": [1e-4, 2e-3],
        "all_gather_s": [0.0, 1e-3],
    },
    "formulas.all_reduce.parameter_server_s": {
        "tensor_bytes": [1e3, 1e9, 1e9],
        "workers": [1.0, 8.0, 64.0],
        "servers": [1.0, 1.0, 8.0],
        "base_s": 1e-5,
        "hop_s": 5e-6,
        "worker_bytes_per_s": 2e10,
        "server_bytes_per_s": 1e10,
    },
    "formulas.all_reduce.least_sent_bytes": {
        "tensor_bytes": [1e6, 1e9, 1e9],
        "ranks": [1.0, 2.0, 64.0],
    },
    "formulas.compression.coded_bytes": {
        "elements": [1e6, 1e9],
        "bits": [8.0, 1.0],
        "scale_bytes": 4.0,
        "block_elements": [256.0, 4096.0],
    },
    "formulas.compression.sparse_bytes": {
        "elements": [1e6, 1e9],
        "density_frac": [0.01, 1.0],
        "value_bytes": 4.0,
        "index_bytes": 4.0,
    },
    "formulas.compression.low_rank_bytes": {
        "row_plus_column_elements": [1e4, 1e6],
        "rest_elements": [0.0, 1e5],
        "rank": [1.0, 4.0],
        "bytes_per_element": 4.0,
    },
    "formulas.compression.low_rank_flop": {"matrix_elements": [1e6, 1e9], "rank": [1.0, 4.0]},
    "formulas.compression.codec_s": {
        "moved_bytes": [0.0, 1e9],
        "flop": [0.0, 1e12],
        "memory_bytes_per_s": 2e12,
        "stream_frac": 0.8,
        "rate_flop_per_s": 3e14,
    },
    "formulas.compression.exchanged_bytes": {
        "code_bytes": [1e6, 1e6, 1e6],
        "ranks": [1.0, 8.0, 8.0],
        "gathered": [0.0, 0.0, 1.0],
    },
    "formulas.compression.break_even_bytes_per_s": {
        "dense_sent_bytes": [1e9, 1e9],
        "coded_sent_bytes": [1e8, 2e9],
        "codec_s": [1e-3, 1e-3],
    },
    "formulas.data_parallel.forward_volume_bytes": {"parameter_bytes": 1e9, **_SHARDED},
    "formulas.data_parallel.backward_volume_bytes": {
        "parameter_bytes": 1e9,
        "gradient_bytes": 2e9,
        **_SHARDED,
        "reductions": 2.0,
    },
    "formulas.data_parallel.optimizer_volume_bytes": {
        "parameter_bytes": 1e9,
        "zero": [0.0, 1.0, 2.0, 3.0],
        "shard_ranks": [8.0, 1.0, 8.0, 64.0],
    },
    "formulas.data_parallel.leaving_bytes": {
        "sent_bytes": 1e9,
        "ranks": [8.0, 16.0, 4.0],
        "ranks_per_node": [8.0, 8.0, 1.0],
    },
    "formulas.data_parallel.local_steps_s": {"exchange_s": [1.0, 2.0], "local_steps": [1.0, 500.0]},
    "formulas.data_parallel.bounded_staleness_factor": {
        "straggler_factor": [1.0, 1.2, 1.2],
        "slack_steps": [0.0, 0.0, 8.0],
    },
    "formulas.data_parallel.dropped_batch_factor": {"workers": [8.0, 100.0], "backups": [0.0, 5.0]},
    "formulas.kernels.measured_operator_s": {
        "elements": [0.0, 1e6, 1e9],
        "kernels": [1.0, 2.0, 2.0],
        "seconds_per_element": 1e-10,
        "gap_s": 2e-6,
    },
    "formulas.memory.resident_bytes": {
        "kept_bytes": [0.0, 1e9, 1e10],
        "layer_bytes": [1e8, 1e9, 1e9],
        "window_layers": 2.0,
    },
    "formulas.memory.chunked_loss_bytes": {
        "logits_bytes": [1e9, 1e9, 1e9],
        "chunks": [1.0, 8.0, 4096.0],
        "tokens": [4096.0, 4096.0, 1024.0],
        "hidden": 4096.0,
        "vocab": 32000.0,
        "element_bytes": 2.0,
        "tp": [1.0, 2.0, 4.0],
    },
    "formulas.offload.drive_s": {
        "moved_bytes": [0.0, 1e9, 1e11],
        "drive_bytes_per_s": [1e9, 1.25e9, 6e9],
    },
    "formulas.offload.tiled_update_s": {
        "read_s": [4.0, 16.0, 4.0],
        "update_s": 10.0,
        "write_s": [2.0, 8.0, 2.0],
        "tiles": [1.0, 4.0, 100.0],
    },
    "formulas.offload.delayed_update_exposed_s": {
        "update_s": [1.0, 5.0, 0.0],
        "rest_s": [3.0, 3.0, 1.0],
    },
    "formulas.offload.state_intensity": {
        "tokens": [2048.0, 4096.0],
        "bytes_per_parameter": [8.0, 32.0],
    },
    "formulas.offload.checkpoint_intensity": {
        "hidden": [2048.0, 8192.0],
        "layers_between": [1.0, 4.0],
    },
    "formulas.offload.bandwidth_efficiency": {
        "intensity_flop_per_byte": [512.0, 2048.0],
        "bytes_per_s": [1.5e12, 7e10],
        "peak_flop_per_s": 7e13,
    },
    "formulas.offload.bandwidth_for_efficiency": {
        "intensity_flop_per_byte": [512.0, 2048.0],
        "peak_flop_per_s": 7e13,
        "efficiency_frac": [0.5, 0.9],
    },
    "formulas.offload.break_even_copy_s": {
        "forward_s": [1.0, 1.0, 2.0],
        "backward_s": [2.0, 2.0, 1.0],
        "recompute_s": [1.0, 0.3, 5.0],
    },
    "formulas.overlap.host_copy_s": {
        "copied_bytes": [0.0, 1e9, 1e10],
        "host_bytes_per_s": [1e10, 2e10, 2.5e10],
    },
    "formulas.overlap.offload_exposed_s": {"compute_s": [0.0, 1.0, 2.0], "copy_s": [1.0, 0.5, 3.0]},
    "formulas.collectives.group_bandwidth_bytes_per_s": {
        "ranks": [1.0, 2.0, 4.0, 8.0],
        "bandwidth_bytes_per_s": 448e9,
        "frac": [0.8, 0.7, 0.8, 0.7],
        "two_rank_frac": 0.9,
        "peers": 7.0,
        "mesh": [0.0, 0.5, 1.0, 1.0],
        "host_bytes_per_s": [1e12, 1e12, 1e12, 2e10],
    },
    "formulas.collectives.ring_intra_s": {
        "tensor_bytes": [0.0, 1e6, 1e9],
        "ranks": [1.0, 2.0, 8.0],
        "passes": [2.0, 1.0, 2.0],
        "base_s": 5e-6,
        "latency_s": 4e-6,
        "bytes_per_s": [2.4e11, 2.1e11, 2.4e11],
        "ramp": 1e-8,
    },
    "formulas.collectives.switch_all_reduce_s": {
        "tensor_bytes": [0.0, 1e6, 1e9],
        "ranks": [1.0, 5.0, 8.0],
        "base_s": 5e-6,
        "setup_s": 5e-5,
        "bytes_per_s": 4.5e11,
    },
    "formulas.collectives.card_bandwidth_bytes_per_s": {
        "nic_bytes_per_gpu_per_s": 25e9,
        "nic_frac": [0.8, 0.9, 1.0],
        "socket_bytes_per_s": [1e15, 1e15, 1.2e9],
    },
    "formulas.collectives.node_bandwidth_bytes_per_s": {
        "ranks_per_node": [1.0, 4.0, 8.0],
        "card_bytes_per_s": [2e10, 2.2e10, 2.5e10],
        "intra_bytes_per_s": 1e11,
    },
    "formulas.collectives.ring_inter_s": {
        "tensor_bytes": [1e3, 1e6, 1e9],
        "ranks": [1.0, 16.0, 512.0],
        "nodes": [1.0, 2.0, 64.0],
        "passes": [1.0, 2.0, 2.0],
        "base_s": 5e-6,
        "latency_s": 2e-6,
        "hop_s": 2e-5,
        "node_bytes_per_s": [1e11, 1e11, 5e10],
    },
    "formulas.collectives.tree_inter_s": {
        "tensor_bytes": [1e3, 1e6, 1e9],
        "nodes": [2.0, 16.0, 512.0],
        "ranks_per_node": [1.0, 8.0, 8.0],
        "base_s": 5e-6,
        "latency_s": 2e-6,
        "hop_s": 2e-5,
        "node_bytes_per_s": 1e11,
    },
    "formulas.collectives.all_to_all_s": {
        "tensor_bytes": [1e6, 1e7, 1e8],
        "ranks": [1.0, 8.0, 64.0],
        "ranks_per_node": [1.0, 8.0, 8.0],
        "remote_frac": [1.0, 0.5, 0.5],
        "base_s": 5e-6,
        "latency_s": 2e-6,
        "hop_s": 2e-5,
        "intra_bytes_per_s": 3e11,
        "card_bytes_per_s": 22.5e9,
    },
    "formulas.collectives.send_recv_s": {
        "message_bytes": [0.0, 1e6, 1e9],
        "latency_s": 4e-6,
        "bytes_per_s": 1e11,
    },
    "formulas.collectives.remote_copies_frac": {
        "nodes": [1.0, 4.0, 8.0],
        "experts_per_token": [2.0, 8.0, 8.0],
        "group_limit": [1e9, 1e9, 4.0],
    },
    "formulas.data_parallel.shard_count": {
        "zero": [0.0, 1.0, 3.0],
        "level": 2.0,
        "shard_ranks": [8.0, 8.0, 0.0],
    },
    "formulas.data_parallel.ring_volume_bytes": {
        "parameters": [7e9, 7e9, 7e10],
        "zero": [0.0, 3.0, 3.0],
        "shard_ranks": [8.0, 64.0, 1.0],
        "bytes_per_element": 2.0,
    },
    "formulas.data_parallel.optimizer_step_s": {
        "parameters": [7e9, 1e9],
        "bytes_per_parameter": [46.0, 34.0],
        "memory_bytes_per_s": 2e12,
        "elementwise_frac": 0.75,
    },
    "formulas.data_parallel.streamed_state_s": {
        "parameters": [1e9, 7e9],
        "host_bytes_per_s": [2e10, 3e10],
    },
    "formulas.data_parallel.cpu_step_s": {
        "node_parameters": [1e9, 7e9],
        "cpu_parameters_per_s": 4e8,
    },
    "formulas.flops.causal_pairs": {
        "seq_tokens": [512.0, 4096.0, 8192.0],
        "window_tokens": [4096.0, 4096.0, 1024.0],
    },
    "formulas.flops.attention_forward_flop": {
        "pairs": [8e6, 1e9],
        "heads": [8.0, 32.0],
        "query_width": [64.0, 192.0],
        "value_width": [64.0, 128.0],
    },
    "formulas.flops.model_flop": {
        "matmul_weight_count": [1e9, 7e9],
        "attention_weight": [1e5, 3e5],
        "tokens": [1e6, 4e6],
        "seq_tokens": [2048.0, 4096.0],
    },
    "formulas.kernels.alignment_frac": {
        "n": [64.0, 72.0, 100.0],
        "k": [128.0, 128.0, 63.0],
        "element_bytes": 2.0,
        "unaligned_frac": [0.5, 0.5, 0.0625],
    },
    "formulas.kernels.gemm_s": {
        "m": [1.0, 4096.0, 2048.0],
        "n": [64.0, 4096.0, 11008.0],
        "k": [64.0, 4096.0, 4096.0],
        "batch": [1.0, 1.0, 8.0],
        "extra_bytes": [0.0, 1e6, 0.0],
        "input_bytes": [2.0, 1.0, 2.0],
        "alignment": [1.0, 1.0, 0.75],
        **_KERNEL,
    },
    "formulas.kernels.attention_shape_frac": {
        "keys": [512.0, 4096.0, 16384.0],
        "head_width": [64.0, 128.0, 256.0],
    },
    "formulas.kernels.elementwise_s": {
        "moved_bytes": [0.0, 1e6, 1e9],
        "kernels": [1.0, 2.0, 3.0],
        "memory_bytes_per_s": 2e12,
        "elementwise_frac": 0.4,
        "gap_s": 4e-6,
    },
    "formulas.kernels.power_limited_clock_frac": {
        "power_w": [700.0, 350.0, 500.0],
        "dense_rate_flop_per_s": [989e12, 756e12, 148e12],
        "energy_j_per_flop": 1.2e-12,
    },
    "formulas.kernels.flash_attention_s": {
        "flop": [1e9, 1e12],
        "kernels": [1.0, 3.0],
        "rate_flop_per_s": 312e12,
        "attention_frac": [0.6, 0.5],
        "gap_s": 4e-6,
    },
    "formulas.kernels.launch_bound_s": {
        "gpu_s": [0.0, 1e-3, 1e-2],
        "operators": [0.0, 30.0, 30.0],
        "operator_launch_s": 3e-5,
    },
    "formulas.memory.state_bytes": {
        "parameters": [7e9, 7e10],
        "bytes_per_parameter": [16.0, 2.0],
        "shards": [1.0, 64.0],
    },
    "formulas.memory.norm_kept_bytes": {
        "local_tokens": [2048.0, 4096.0],
        "hidden": 4096.0,
        "norms": 2.0,
        "bytes_per_element": 2.0,
    },
    "formulas.memory.product_input_bytes": {
        "local_tokens": [2048.0, 4096.0],
        "width": 4096.0,
        "element_bytes": 2.0,
    },
    "formulas.memory.projected_bytes": {
        "tokens": [2048.0, 4096.0],
        "width": 4096.0,
        "element_bytes": 2.0,
        "tp": [1.0, 8.0],
    },
    "formulas.memory.attention_core_bytes": {
        "tokens": [2048.0, 4096.0, 4096.0],
        "heads": 32.0,
        "keys": 4096.0,
        "score_bytes": [0.0, 2.0, 5.0],
        "tp": [1.0, 2.0, 8.0],
    },
    "formulas.memory.dropout_mask_bytes": {
        "local_tokens": [2048.0, 4096.0],
        "hidden": 4096.0,
        "masks": 2.0,
    },
    "formulas.memory.mlp_kept_bytes": {
        "tokens": [2048.0, 4096.0],
        "ffn_hidden": 11008.0,
        "bytes_per_element": [6.0, 8.0],
        "tp": [1.0, 4.0],
    },
    "formulas.memory.logits_bytes": {
        "tokens": [2048.0, 4096.0],
        "vocab": 32000.0,
        "bytes_per_logit": 6.0,
        "tp": [1.0, 4.0],
    },
    "formulas.memory.best_group_layers": {
        "layers": [32.0, 80.0],
        "input_bytes": [1e6, 2e6],
        "layer_bytes": [0.0, 3e7],
    },
    "formulas.memory.reserved_bytes": {
        "lasting_bytes": [1e9, 8e10],
        "passing_bytes": [2e9, 1e10],
        "fragmentation_frac": 0.2,
    },
    "formulas.overlap.prefetched_exposed_s": {
        "compute_s": [1.0, 1.0, 0.0],
        "communication_s": [0.5, 2.0, 1.0],
        "slowdown": [0.2, 0.2, 0.0],
    },
    "formulas.overlap.bucketed_exposed_s": {
        "sync_s": [0.5, 2.0, 0.0],
        "window_s": [1.0, 1.0, 1.0],
        "last_bucket_s": 0.01,
        "slowdown": 0.2,
    },
    "formulas.overlap.straggler_factor": {"gpus": [0.0, 1.0, 2048.0], "sigma": 0.004},
    "formulas.pipeline.pipeline_s": {
        "slowest_s": [1.0, 2.0],
        "microbatches": [4.0, 16.0],
        "idle_s": [0.0, 2.5],
    },
    "formulas.pipeline.weight_gradient_s": {"products_backward_s": [0.0, 3.0]},
    "formulas.inference.kv_cache_bytes": {
        "tokens": [1.0, 4096.0, 1e6],
        "width": 2048.0,
        "full_layers": 16.0,
        "windowed_layers": 16.0,
        "window_tokens": 4096.0,
        "element_bytes": 2.0,
    },
    "formulas.inference.working_bytes": {
        "chunk_tokens": 2048.0,
        "hidden": 4096.0,
        "ffn_hidden": 14336.0,
        "sequences": [1.0, 256.0],
        "vocab": 128256.0,
        "tp": [1.0, 8.0],
        "element_bytes": 2.0,
    },
    "formulas.run_level.tokens_per_s": {
        "global_batch": [64.0, 1024.0],
        "seq_tokens": 4096.0,
        "step_s": [0.5, 10.0],
    },
    "formulas.run_level.utilisation": {
        "flop": [1e15, 1e18],
        "gpus": [8.0, 2048.0],
        "rate_flop_per_s": 312e12,
        "step_s": [1.0, 5.0],
    },
    "formulas.run_level.checkpoint_interval_s": {
        "checkpoint_s": [10.0, 60.0],
        "mtbf_s": [1e4, 1e6],
    },
    "formulas.run_level.job_mtbf_s": {"mtbf_gpu_s": 1.8e8, "gpus": [8.0, 16384.0, 1e6]},
    "formulas.run_level.checkpoint_bytes": {"parameters": [7e9, 4e11], "bytes_per_parameter": 14.0},
    "formulas.run_level.checkpoint_stop_s": {
        "pause_s": 6.3,
        "stored_bytes": [1e8, 1e12],
        "bytes_per_s": 2e10,
    },
    "formulas.run_level.goodput": {
        "interval_s": [400.0, 4000.0, 10.0],
        "checkpoint_s": 6.0,
        "restart_s": 600.0,
        "mtbf_s": [1e4, 1e7, 1e-3],
    },
    "formulas.run_level.spares_suffice_frac": {
        "nodes_in_repair": [0.0, 2.0, 900.0],
        "spares": 12.0,
    },
    "formulas.run_level.drawn_frac": {
        "busy_frac": [0.0, 0.5, 1.0],
        "load_frac": 0.85,
        "wait_frac": 0.5,
    },
    "formulas.run_level.owned_usd": {
        "gpu_s": [3600.0, 1e9],
        "capex_usd": 4e4,
        "lifetime_s": 1.2e8,
        "use_frac": 0.8,
    },
    "formulas.run_level.run_s": {
        "tokens": 1e12,
        "rate_tokens_per_s": [1e5, 1e6],
        "goodput_frac": [1.0, 0.9],
    },
    "formulas.run_level.energy_j": {
        "gpus": [8.0, 2048.0],
        "power_w": 400.0,
        "power_frac": 0.85,
        "facility_factor": 1.4,
        "time_s": [3600.0, 1e6],
    },
    "formulas.stragglers.slow_job_frac": {
        "hosts": [1.0, 64.0, 2048.0],
        "slow_frac": [0.005, 0.0, 1.0],
    },
    "formulas.stragglers.expected_slowest": {
        "hosts": [2.0, 64.0, 1e5],
        "ranks_per_host": [1.0, 8.0, 8.0],
        "jitter_frac": [0.01, 0.0, 0.004],
        "slow_frac": [0.0, 0.005, 0.3],
        "slow_by_frac": 0.1,
    },
    "formulas.stragglers.equal_split_s": {"own_s": [1.0, 2.0], "other_s": 1.5},
    "formulas.stragglers.proportional_split_s": {
        "own_s": [7.0, 7.0, 16.0],
        "other_s": [14.0, 14.0, 41.0],
        "replicas": [4.0, 4.0, 64.0],
        "other_replicas": [0.0, 1.0, 16.0],
        "microbatches": [7.0, 7.0, 16.0],
    },
    "formulas.stragglers.cut_moment": {
        "mean_frac": [0.2, 0.2, 2.0],
        "sigma": [1.0, 0.0, 0.5],
        "order": [1.0, 2.0, 4.0],
    },
    "formulas.stragglers.longest_frac": {
        "mean_frac": [0.2, 0.2, 2.0],
        "sigma": [1.0, 0.0, 0.5],
        "documents": [1.0, 8.0, 4.0],
    },
    "formulas.stragglers.packed_attention_frac": {"mean": [0.2, 1.0], "mean_square": [0.09, 1.0]},
    "formulas.stragglers.packed_spread_frac": {
        "mean": [0.25, 0.2],
        "square": [0.0625, 0.09],
        "cube": [0.015625, 0.057],
        "fourth": [0.00390625, 0.045],
    },
    "formulas.stragglers.batch_norm_forward_bytes": {
        "channels": [64.0, 2048.0],
        "element_bytes": 4.0,
    },
    "formulas.stragglers.batch_norm_backward_bytes": {
        "channels": [64.0, 2048.0],
        "element_bytes": 4.0,
    },
    "formulas.input_pipeline.read_bytes_per_s": {
        "samples_per_s": [100.0, 1e6],
        "sample_bytes": 115e3,
    },
    "formulas.input_pipeline.reads_per_sample": {
        "sample_bytes": [1e5, 1e6, 1e5],
        "read_bytes": [1e6, 262144.0, 1e5],
    },
    "formulas.input_pipeline.worker_sample_s": {
        "worker_samples_per_s": [200.0, 50.0],
        "reads": [1.0, 0.1],
        "latency_s": 0.01,
    },
    "formulas.input_pipeline.in_flight": {"arrivals_per_s": [100.0, 1e5], "seconds": 0.025},
    "formulas.input_pipeline.load_s": {
        "storage_s": [0.1, 0.5],
        "requests_s": [0.2, 0.2],
        "workers_s": [0.4, 0.4],
        "copy_s": 0.3,
    },
    "formulas.input_pipeline.input_wait_s": {"loading_s": [0.4, 1.5], "step_s": 1.0},
    "formulas.input_pipeline.prefetched_bytes": {
        "ranks": [1.0, 8.0],
        "workers": 4.0,
        "prefetch": 2.0,
        "batch": [1.0, 32.0],
        "decoded_bytes": 6e5,
    },
    "formulas.input_pipeline.covered_s": {
        "workers": [1.0, 4.0],
        "prefetch": 2.0,
        "batch": 32.0,
        "samples_per_s": [10.0, 256.0],
    },
    "formulas.scaling.amdahl_s": {
        "serial_s": 0.2,
        "parallel_s": [100.0, 900.0],
        "gpus": [8.0, 4096.0],
    },
    "formulas.scaling.efficiency": {
        "tokens_per_s": [1e5, 3e5],
        "gpus": [16.0, 64.0],
        "first_tokens_per_s": 6e4,
        "first_gpus": 8.0,
    },
    "formulas.scaling.marginal_frac": {
        "tokens_per_s": [1e5, 3e5],
        "gpus": [16.0, 64.0],
        "before_tokens_per_s": 6e4,
        "before_gpus": 8.0,
        "first_tokens_per_s": 6e4,
        "first_gpus": 8.0,
    },
    "formulas.scaling.communication_ratio": {
        "exposed_s": [0.0, 0.5, 0.1],
        "hidden_s": [1.0, 0.0, 0.2],
        "compute_s": 4.0,
    },
    "formulas.scaling.log_mean_s": {"after_s": [2.0, 1.0, 3.0], "before_s": [1.0, 1.0, 8.0]},
    "formulas.critical_batch.global_batch": {
        "micro_batch": [1.0, 4.0],
        "accumulation": [32.0, 1.0],
        "replicas": [8.0, 512.0],
    },
    "formulas.critical_batch.steps_to_target": {
        "least_steps": 1e5,
        "batch_tokens": [1e3, 4e6, 1e12],
        "critical_tokens": [4e6, 4e6, 1e7],
    },
    "formulas.critical_batch.tokens_to_target": {
        "least_tokens": 1e12,
        "batch_tokens": [1e3, 4e6, 1e8],
        "critical_tokens": [4e6, 4e6, 1e7],
    },
    "formulas.critical_batch.gradient_squared": {
        "small_batch": [1.0, 8.0],
        "small_squared": [101.0, 2.25],
        "big_batch": [100.0, 512.0],
        "big_squared": [2.0, 1.0],
    },
    "formulas.critical_batch.gradient_variance": {
        "small_batch": [1.0, 8.0],
        "small_squared": [101.0, 2.25],
        "big_batch": [100.0, 512.0],
        "big_squared": [2.0, 1.0],
    },
    "formulas.critical_batch.noise_scale": {"variance": [100.0, 10.0], "squared": [1.0, 0.5]},
    "formulas.critical_batch.critical_batch_at_loss": {"loss_nats": [1.8, 2.5, 6.0]},
    "formulas.critical_batch.expected_loss": {
        "parameters": [1e8, 7e9, 7e10],
        "tokens": [2e9, 2e12, 1.5e13],
    },
    "formulas.critical_batch.linear_rate": {
        "rate": 3e-4,
        "batch_tokens": [1e6, 4e6],
        "reference_tokens": 4e6,
    },
    "formulas.critical_batch.root_rate": {
        "rate": 3e-4,
        "batch_tokens": [1e6, 4e6],
        "reference_tokens": 4e6,
    },
    "formulas.critical_batch.saturating_rate": {
        "rate": 3e-4,
        "batch_tokens": [1e6, 4e6, 1e9],
        "reference_tokens": 4e6,
        "noise_tokens": 7e6,
    },
}

SHIPPED = sorted(FORMULAS)


def _function(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(f"planner.{module}"), attribute)


def test_every_formula_has_an_example_and_every_example_a_formula() -> None:
    assert sorted(EXAMPLES) == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_vector_equals_scalar(name: str) -> None:
    function, given_ = _function(name), EXAMPLES[name]
    columns = {key: np.array(value) for key, value in given_.items() if isinstance(value, list)}
    for column in columns.values():
        column.setflags(write=False)  # inputs belong to the caller
    together = np.asarray(function(**(given_ | columns)))
    (count,) = {len(column) for column in columns.values()}
    assert together.shape == (count,)
    assert together.dtype == np.float64
    assert np.isfinite(together).all()
    for row in range(count):
        alone = {key: value[row] if key in columns else value for key, value in given_.items()}
        assert float(function(**alone)) == pytest.approx(together[row], rel=1e-14, abs=0)
        one_row = given_ | {key: column[row : row + 1] for key, column in columns.items()}
        assert np.asarray(function(**one_row)).tolist() == pytest.approx(
            [together[row]], rel=1e-14, abs=0
        )


@pytest.mark.parametrize("name", SHIPPED)
def test_rows_do_not_depend_on_their_order(name: str) -> None:
    function, given_ = _function(name), EXAMPLES[name]
    columns = {key: np.array(value) for key, value in given_.items() if isinstance(value, list)}
    forward = np.asarray(function(**(given_ | columns)))
    backward = np.asarray(
        function(**(given_ | {key: column[::-1] for key, column in columns.items()}))
    )
    # a reversed view is strided, and SIMD loops of strided and of contiguous arrays may round apart
    assert backward[::-1].tolist() == pytest.approx(forward.tolist(), rel=1e-14, abs=0)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_formula_says_what_it_is(name: str) -> None:
    what = FORMULAS[name]
    assert what.equation
    assert len(what.source) >= 5
    assert what.doc.split("\n\n")[0].endswith("."), "the docstring begins with a sentence"
    if what.unit not in ("layers", "element", "J"):
        try:
            unit_factor(what.unit)
        except UnitError as error:
            pytest.fail(str(error))
