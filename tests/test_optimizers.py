"""Optimizers: what each keeps against torch's own and published sizes, what Muon computes, how ZeRO
shares it out, pages, types of states, and refusals."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import plans
import pytest
from command import argv, dpplan, refused

from planner.advise.changes import Promise, request_changes
from planner.estimate import Estimates, evaluate
from planner.estimate.machine import machine
from planner.estimate.matrices import layer_matrices
from planner.estimate.memory import state_ledger
from planner.formulas.optimizers import (
    NEWTON_SCHULZ_STEPS,
    OPTIMIZERS,
    newton_schulz_flop,
    optimizer_of,
    preconditioner_elements,
)
from planner.formulas.params import parameter_leaves
from planner.inputs import catalog
from planner.ledger import total
from planner.specs.model import Experts, ModelSpec
from planner.specs.names import OptimizerName


def estimates_of(gpus: int, software: str, layout: dict[str, Any], **training: Any) -> Estimates:
    shape = training.pop("model", None)
    plan = plans.plan(shape, software=software, gpus=gpus, **training)
    return evaluate(plan, plans.rows(gpus, layout))


def test_every_name_has_an_entry_and_a_ledger() -> None:
    assert set(get_args(OptimizerName)) == OPTIMIZERS.keys()
    kept = {name: state_ledger(plans.plan(optimizer=name))["optimizer"] for name in OPTIMIZERS}
    master = plans.stack("megatron-core").state.master
    by_hand: dict[Any, float] = {
        "adam": 8.0,
        "paged-adam": 8.0,
        "lion": 4.0,
        "sgd": 0.0,
        "sgd-momentum": 4.0,
    }
    for name, moments in by_hand.items():
        assert kept[name] == master + moments
    assert kept["sgd"] < kept["adafactor"] < master + 0.1 < kept["adam8bit"] < kept["lion"]
    assert kept["lion"] < kept["muon"] < kept["adam"] < kept["soap"]


def test_states_are_those_of_torch() -> None:
    """Bytes of a 96 x 160 weight in the states of torch.optim after a step, without counters."""
    torch = pytest.importorskip("torch")
    values: dict[Any, Any] = {
        "adam": torch.optim.AdamW,
        "adafactor": torch.optim.Adafactor,
        "muon": torch.optim.Muon,
        "sgd-momentum": lambda p: torch.optim.SGD(p, momentum=0.9),
    }
    for name, make in values.items():
        weight = torch.nn.Parameter(torch.randn(96, 160))
        optimizer = make([weight])
        weight.grad = torch.randn_like(weight)
        optimizer.step()
        kept = sum(v.nbytes for s in optimizer.state.values() for k, v in s.items() if k != "step")
        assert OPTIMIZERS[name].matrix_bytes(96.0, 160.0) == kept, name


def test_eight_bit_states() -> None:
    """torchao's AdamW8bit keeps 1,064,960 bytes of codes and scales of a 512 x 1,024 weight, and
    fp32 moments of one of 63 x 64, 32,256 bytes."""
    assert OPTIMIZERS["adam8bit"].matrix_bytes(512.0, 1024.0) == 1_064_960
    ledgers = [
        state_ledger(plans.plan(plans.model(hidden=hidden), optimizer="adam8bit"))
        for hidden in (512, 4096)
    ]  # norms are below 4,096 elements in one of them
    assert ledgers[0]["optimizer"] > ledgers[1]["optimizer"] == 4 + 2.03125
    assert OPTIMIZERS["adam8bit"].smallest > 63 * 64


def test_newton_schulz_is_what_torch_counts() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    for rows, columns in ((64, 96), (96, 64), (48, 48)):
        weight = torch.nn.Parameter(torch.randn(rows, columns))
        optimizer = torch.optim.Muon([weight])
        weight.grad = torch.randn_like(weight)
        with FlopCounterMode(display=False) as counted:
            optimizer.step()
        flop = newton_schulz_flop(rows, columns, NEWTON_SCHULZ_STEPS)
        assert flop == counted.get_total_flops()
        work = OPTIMIZERS["muon"].work
        assert work is not None
        products = work(float(rows), float(columns)).gemms
        assert flop == sum(
            2 * product.m * product.n * product.k * product.times for product in products
        )


def test_preconditioners_by_hand() -> None:
    # SOAP: a factor and its eigenvectors for each side; of a side above 10,000 none
    assert preconditioner_elements(512.0, 1024.0, 1e9, 1e4) == 2 * (512**2 + 1024**2)
    assert preconditioner_elements(512.0, 50_304.0, 1e9, 1e4) == 2 * 512**2
    # Shampoo in blocks of 256: 2 x 4 blocks with two factors of 256 each
    assert preconditioner_elements(512.0, 1024.0, 256.0, np.inf) == 2 * 8 * 2 * 256**2


def test_matrices_are_the_weights_of_the_gemms() -> None:
    """Over the catalogue: all that a GEMM multiplies by, in layers, is in a matrix once."""
    for model in catalog.load_all("models", ModelSpec):
        plan = plans.plan(model)
        result = layer_matrices(plan, np.ones(1), np.ones(1))
        kept = model.layers * float(sum(entry.elements for entry in result)[0])
        leaves = parameter_leaves(model)
        weights = sum(x.count * x.times for x in leaves if x.matmul and x.place == "layer")
        # kernels of few channels each are products, and no matrix that an optimizer factors
        rel = 0.05 if model.convolves else 0.01
        assert kept == pytest.approx(weights, rel=rel), model.name


def test_muon_shares_matrices_and_adam_the_rest() -> None:
    """Megatron-LM's test of a 12 x 512 GPT with 8 experts, Muon, EP 8 on 8 H100: 1.0214 GiB stay
    allocated after training without, 0.6912 with the distributed optimizer (its golden values of
    d98e8a64). Experts have no replicas; momentum and master copy of the other matrices are dealt
    out, Adam's states of the embedding sharded."""
    model = plans.model(
        **{"layers": 12, "hidden": 512, "heads": 8, "kv_heads": 8, "head_dim": 64, "vocab": 50257},
        **{"norm": "layernorm", "positions": "learned", "mlp": "plain", "tied_embeddings": True},
        **{"ffn_hidden": 2048, "moe": Experts(experts=8, experts_per_token=2, ffn_hidden=1024)},
    )
    items = []
    for zero in (0, 1):
        layout = {"dp": 8, "ep": 8, "zero": zero}
        memory = estimates_of(8, "megatron-core", layout, model=model, optimizer="muon").memory
        items.append(float(memory.components["optimizer"][0]))
    assert (items[0] - items[1]) / 2**30 == pytest.approx(1.0214 - 0.6912, rel=0.05)


def test_muon_that_is_gathered_is_most_of_a_step_without_accumulation() -> None:
    """Each rank orthogonalises what all of them gather: much beside one micro-batch, little beside
    many. Where matrices are distributed, a rank does only its own."""

    def share(software: str, turns: int, **layout: int) -> tuple[float, float]:
        time = estimates_of(
            8, software, {"dp": 8, **layout}, optimizer="muon", global_batch=8 * turns, seq_len=256
        ).time
        work = float(time.components["optimizer"][0])
        return work / float(time.seconds[0]), work

    few, many = (share("pytorch-fsdp", turns, zero=3) for turns in (1, 32))
    assert few[1] == pytest.approx(many[1])
    assert few[0] > 4 * many[0]
    dealt, whole = (share("megatron-core", 1, zero=zero)[1] for zero in (1, 0))
    assert whole / 8 <= dealt < whole / 4
    gathers = estimates_of(8, "pytorch-fsdp", {"dp": 8, "zero": 3}, optimizer="muon").time
    adam = estimates_of(8, "pytorch-fsdp", {"dp": 8, "zero": 3}).time
    extra = gathers.components["data_parallel"][0] - adam.components["data_parallel"][0]
    row = next(x for x in gathers.traffic if x.what == "a matrix for its update")
    assert float(row.seconds[0]) == pytest.approx(float(extra))
    assert extra > 0
    # qkv, out, and the three of the gated MLP in each of eight layers, two of them keys and values
    assert row.count[0] == 8 * 7


def test_pages_leave_as_far_as_there_is_no_room() -> None:
    """On a GPU with a quarter of the states less memory than all takes, that quarter goes to host
    memory and comes back for the update."""
    usual = estimates_of(1, "pytorch-fsdp", {})
    need, states = float(usual.memory.device[0]), float(usual.memory.components["optimizer"][0])
    wide = estimates_of(1, "pytorch-fsdp", {}, optimizer="paged-adam")
    assert wide.memory.device[0] == need
    assert wide.memory.host[0] == 0
    assert wide.time.seconds[0] == usual.time.seconds[0]
    gpu = usual.plan.cluster.gpu.model_copy(update={"usable_memory": need - states / 4})
    cluster = usual.plan.cluster.model_copy(update={"gpu": gpu})
    adam, paged = (
        evaluate(entry.plan.model_copy(update={"cluster": cluster}), plans.rows(1, {}))
        for entry in (usual, wide)
    )
    assert not adam.fits[0]
    assert paged.fits[0]
    assert paged.memory.device[0] == pytest.approx(need - states / 4)
    assert paged.memory.host[0] == pytest.approx(states / 4)
    link = float(machine(paged.plan).host_copy_bandwidth)
    late = paged.time.components["optimizer"] - adam.time.components["optimizer"]
    assert late[0] == pytest.approx(2 * states / 4 / link)


def test_types_of_states() -> None:
    """Megatron-LM's precision-aware optimizer: 18 bytes per parameter become 10."""
    wide = state_ledger(plans.plan(software="megatron-core"))
    assert wide == {"parameters": 2.0, "gradients": 4.0, "optimizer": 12.0}
    types: dict[str, Any] = {
        "moments_precision": "bf16",
        "master_precision": "remainder",
        "gradient_precision": "bf16",
    }
    narrow = state_ledger(plans.plan(software="megatron-core", **types))
    assert narrow == {"parameters": 2.0, "gradients": 2.0, "optimizer": 6.0}
    fp8 = plans.plan(software="megatron-core", moments_precision="fp8", master_precision="none")
    assert state_ledger(fp8)["optimizer"] == 2.0
    layout = {"dp": 8, "zero": 1}
    before, after = (estimates_of(8, "megatron-core", layout, **t) for t in ({}, types))
    assert float(total(after.memory.components)[0]) < float(total(before.memory.components)[0])
    assert after.time.components["optimizer"][0] < before.time.components["optimizer"][0]


def test_gradients_reduced_in_bf16_are_cast_for_the_update() -> None:
    layout = {"dp": 8, "zero": 1}
    kept = [
        estimates_of(8, "megatron-core", layout, gradient_reduce=reduce).memory.timeline[0][-1]
        for reduce in ("fp32", "bf16")
    ]
    parameters = float(kept[0]["parameters"][0]) / 2
    assert kept[0]["gradients"][0] == 2 * kept[1]["gradients"][0] == 4 * parameters
    assert kept[0]["optimizer_temporaries"][0] == 0
    assert kept[1]["optimizer_temporaries"][0] == 4 * parameters / 8


def test_refusals_name_the_reason() -> None:
    request: tuple[str, ...] = argv(
        "estimate --model qwen2.5-0.5b --gpu h100 --gpus 8 --micro-batch"
    )
    request = (*request, "1", "--global-batch", "64")
    flat = ("--stack", "composer-fsdp", "--zero", "3", "--optimizer")
    for words, says in (
        ((*flat, "muon"), "pieces of flat buffers"),
        ((*flat, "adafactor"), "means of rows and columns"),
        ((*flat, "adam8bit"), "a scale per 256 elements"),
        (
            argv("--stack deepspeed --zero 2 --offload optimizer --optimizer muon"),
            "no implementation on the CPU",
        ),
        (("--optimizer", "adam8bit", "--moments-precision", "bf16"), "a type of their own"),
        (("--optimizer", "sgd", "--moments-precision", "bf16"), "no moments"),
        (("--stack", "pytorch-fsdp", "--master-precision", "none"), "--master-precision"),
        (("--stack", "pytorch-fsdp", "--gradient-precision", "bf16"), "--gradient-precision"),
        (("--precision", "fp32", "--moments-precision", "bf16"), "fp32"),
        (("--state-precision", "bf16", "--moments-precision", "fp8"), "one state"),
    ):
        refused(dpplan(*request, *words), says)


def test_advice_proposes_types_that_the_stack_has() -> None:
    """If a plan is short of memory and states no optimizer."""

    def proposed(software: str, **training: Any) -> set[str]:
        plan = plans.plan(software=software, **training)
        result = request_changes(plan, fits=False, everything=False, promise=Promise())
        return {key for entry in result for key in entry.update}

    types = {"moments_precision", "master_precision", "gradient_precision"}
    assert {"optimizer", *types} <= proposed("megatron-core")
    assert not types & proposed("megatron-core", moments_precision="fp16")
    assert not types & proposed("pytorch-fsdp")
    assert not {"optimizer", *types} & proposed("megatron-core", optimizer="muon")


def test_states_in_a_subspace_are_those_of_galores_table() -> None:
    """arXiv 2403.03507 table 2: weights and states in bf16 of LLaMA 350M in rank 256, 1B in 512."""
    for hidden, ffn, rank, published in ((1024, 2736, 256, 1.22), (2048, 5461, 512, 4.38)):
        shape = plans.model(
            layers=24,
            hidden=hidden,
            ffn_hidden=ffn,
            heads=16,
            kv_heads=16,
            head_dim=hidden // 16,
            vocab=32_000,
        )
        plan = plans.plan(shape, optimizer="galore", optimizer_rank=rank, state_precision="bf16")
        kept = state_ledger(plan)
        every = sum(leaf.count * leaf.times for leaf in parameter_leaves(shape))
        counted = (kept["parameters"] + kept["optimizer"]) * every / 2**30
        assert counted == pytest.approx(published, rel=0.06)


def test_states_of_one_matrix_in_a_subspace() -> None:
    """By hand: 64 x 256 in rank 8 keeps 2 x 8 x 256 moments and an 8 x 64 projection in fp32; in 8
    bit moments have a byte and a scale per 256."""
    moments, projection = 2 * 8 * 256, 8 * 64
    plain = optimizer_of("galore", 8).matrix_bytes(64.0, 256.0)
    eight = optimizer_of("galore8bit", 8).matrix_bytes(64.0, 256.0)
    mini = optimizer_of("apollo-mini", None).matrix_bytes(64.0, 256.0)
    assert plain == 4 * (moments + projection)
    assert eight == (1 + 4 / 256) * moments + 4 * projection
    assert mini == 4 * (2 * 256 + 64)
    assert optimizer_of("apollo", 100).matrix_bytes(256.0, 64.0) == 4 * 3 * 64 * 256 - 4 * 64 * 192


def test_a_lower_rank_takes_less_memory_and_a_subspace_found_takes_time() -> None:
    def estimates_with(name: str, rank: int | None = None) -> Estimates:
        return estimates_of(1, "pytorch-ddp", {}, optimizer=name, optimizer_rank=rank)

    whole, low, random = (
        estimates_with("galore", 512),
        estimates_with("galore", 64),
        estimates_with("apollo", 64),
    )
    assert low.memory.components["optimizer"][0] < whole.memory.components["optimizer"][0]
    assert low.memory.components["optimizer"][0] == random.memory.components["optimizer"][0]
    assert random.time.seconds[0] < low.time.seconds[0]
    request = ("--model", "llama-3-8b", "--gpu", "h100", "--gpus", "1", "--stack", "pytorch-ddp")
    refused(dpplan("estimate", *request, "--optimizer-rank", "8"), "--optimizer-rank")
