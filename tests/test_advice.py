"""Advice: every entry is the plan that its own command answers; a single change changes one thing;
links decide on offloading."""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import pytest
from command import dpplan, refused

from planner import advise, api
from planner.advise import changes
from planner.formulas.rules import check
from planner.inputs.scenario import resolve
from planner.search.answer import answer_of
from planner.search.pick import pick
from planner.specs.base import PlanError
from planner.specs.columns import Columns
from planner.specs.document import plain
from planner.specs.documents.estimate import Estimate
from planner.specs.layout import Layout
from planner.specs.options import Options, options_of_command

PLAIN = "--stack-defaults"  # searching kernels takes most of the time: two scenarios suffice
SCENARIOS = {
    "fits, nothing fixed": "--model llama-2-7b --gpu h100 --gpus 16 --seq-len 4096",
    "fits, all fixed": (
        "--model llama-2-7b --gpu a100 --gpus 16 --tp 2 --pp 2 --vpp 2 --dp 4 --zero 1"
        " --micro-batch 1 --recompute full --schedule interleaved --global-batch 64"
        f" --stack megatron-core {PLAIN}"
    ),
    "does not fit, one change does": (
        "--model llama-2-7b --gpu rtx4090 --gpus 8 --zero 3 --micro-batch 2 --recompute none "
        "--stack pytorch-fsdp"
    ),
    "does not fit, two changes do": (
        "--model llama-2-7b --gpu a100-sxm4-40gb --gpus 8 --tp 1 --pp 1 --cp 1 --zero 1 "
        f"--micro-batch 2 --recompute none --stack megatron-core {PLAIN}"
    ),
    "experts": "--model mixtral-8x7b --gpu h100 --gpus 64 --recompute full --ep 8 --tp 8 --pp 1"
    f" --stack megatron-core {PLAIN}",
    "long sequences": (
        "--model llama-3.1-8b --gpu h100 --gpus 16 --seq-len 65536 --tp 2 --cp 2 --pp 1"
        f" --stack megatron-core {PLAIN}"
    ),
    "hybrid shards": (
        "--model llama-3-8b --gpus 32 --gpu h100 --stack pytorch-fsdp --zero 3 --shard-group 8"
        f" {PLAIN}"
    ),
}


@cache
def estimated(words: str) -> Any:
    return dpplan("estimate", *shlex.split(words), "--json").json()


def followed(command: str) -> Estimate:
    """The answer of a printed command."""
    given = options_of_command(command, Options, "estimate")
    return api.estimate(api.read_options(given), brief=True)


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_entry_is_what_its_command_answers(name: str) -> None:
    r = estimated(SCENARIOS[name] + " --advice 60")
    assert r["advice"]
    for a in [*r["advice"][:4], *r["advice"][4::8]]:
        answer = followed(a["command"])
        assert plain(answer.layout) == a["layout"], a["command"]
        assert answer.stack.id == a["stack"]
        assert answer.cluster.gpus == a["gpus"]
        assert answer.step.seconds == pytest.approx(a["step_seconds"], rel=1e-9)
        assert answer.throughput.tokens_per_s == pytest.approx(a["tokens_per_s"], rel=1e-9)
        assert answer.memory.device_bytes == pytest.approx(a["device_bytes"], rel=1e-9)
        assert answer.memory.fits == a["fits"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_differences_are_against_the_plan_that_was_asked_for(name: str) -> None:
    r = estimated(SCENARIOS[name] + " --advice 60")
    step, tokens, need = (
        r["step"]["seconds"],
        r["throughput"]["tokens_per_s"],
        r["memory"]["device_bytes"],
    )
    for a in r["advice"]:
        assert a["step_change_s"] == pytest.approx(a["step_seconds"] - step, abs=1e-9)
        assert a["step_change_frac"] == pytest.approx(a["step_seconds"] / step - 1, abs=1e-9)
        assert a["tokens_change_frac"] == pytest.approx(a["tokens_per_s"] / tokens - 1, abs=1e-9)
        assert a["bytes_saved"] == pytest.approx(need - a["device_bytes"], abs=1)
        assert (
            (a["link"] is None) == (a["layout"]["offload"] == "none") == (a["transfer_s"] is None)
        )
    commands = [a["command"] for a in r["advice"]]
    assert len(set(commands)) == len(commands)


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_is_told_without_asking_helps(name: str) -> None:
    r = estimated(SCENARIOS[name])
    for a in r["advice"]:
        assert a["fits"]
        if r["memory"]["fits"]:
            assert a["tokens_change_frac"] > 0.01
            assert a["gpus"] == r["cluster"]["gpus"]
    gains = [a["tokens_per_s"] for a in r["advice"] if a["gpus"] == r["cluster"]["gpus"]]
    assert gains == sorted(gains, reverse=True)


@pytest.mark.parametrize("gpus", [8, 64])
def test_a_search_for_what_is_worth_saying_says_as_much(
    gpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches for advice end where nothing can gain enough to be said."""
    options = api.read_options({"model": "llama-3.1-8b", "gpu": "h100", "gpus": gpus})
    limited = api.estimate(options).advice
    whole = advise.searched
    monkeypatch.setattr(advise, "searched", lambda base, changes, _=0.0: whole(base, changes))
    assert api.estimate(options).advice == limited


def test_what_is_not_searched_says_what_advice_found_it_to_be_worth() -> None:
    given = {"model": "llama-2-70b", "gpu": "h100", "gpus": 184, "stack": "megatron-core"}
    answer = api.estimate(api.read_options(given | {"seq_len": 4096}))
    (entry,) = [entry for entry in answer.advice if entry.gpus < 184]
    (text,) = [text for text in answer.search.not_searched if "--allow-idle" in text]
    assert text.endswith(f"{entry.tokens_change_frac:.1%} faster with {entry.change}")
    others = [text for text in answer.search.not_searched if "--stack" in text]
    assert others
    assert not any("faster with" in text for text in others)


def test_a_kept_plan_differs_in_what_the_entry_names_and_in_what_follows() -> None:
    r = estimated(SCENARIOS["fits, all fixed"] + " --advice 100")
    kept = [a for a in r["advice"] if a["kind"] == "keep"]
    assert len(kept) > 8
    follows = {"dp", "shard_group", "sequence_parallel", "grad_accum"}
    for a in kept:
        moved = {k for k, v in a["layout"].items() if v != r["layout"][k]}
        if a["layout"]["pp"] == 1:
            follows = follows | {"vpp", "schedule"}
        assert moved - follows <= set(a["changes"]) | {"global_batch"}, a
        assert {k: a["layout"][k] for k in a["changes"] if k in a["layout"]} == {
            k: v for k, v in a["changes"].items() if k in a["layout"]
        }


def test_two_changes_are_told_only_where_no_single_one_suffices() -> None:
    alone = estimated(SCENARIOS["does not fit, one change does"])
    assert not alone["memory"]["fits"]
    assert all(len(a["changes"]) == 1 for a in alone["advice"] if a["kind"] == "keep")
    together = estimated(SCENARIOS["does not fit, two changes do"] + " --advice 60")
    suffice = [a["changes"] for a in together["advice"] if a["kind"] == "keep" and a["fits"]]
    assert any(len(changes) == 2 for changes in suffice)
    assert all(len(changes) > 1 for changes in suffice)


def test_of_the_blocks_that_fit_the_smallest_is_told() -> None:
    """--recompute block:N: one layer less does not fit, or with too little room."""
    words = (
        "--model llama-2-7b --gpu a100 --gpus 8 --tp 1 --pp 1 --cp 1 --zero 1 --micro-batch 4"
        f" --recompute none --stack megatron-core {PLAIN}"
    )
    r = estimated(f"{words} --advice 60")
    assert not r["memory"]["fits"]
    block = next(
        a
        for a in r["advice"]
        if str(a["changes"].get("recompute")).startswith("block:") and len(a["changes"]) == 1
    )
    size = int(block["changes"]["recompute"].partition(":")[2])
    assert block["fits"]
    assert size > 1
    fits, fewer = (
        estimated(words.replace("none", f"block:{n}") + " --advice 0")["memory"]
        for n in (size, size - 1)
    )
    assert fits["verdict"] == "fits"
    assert fewer["verdict"] != "fits"
    full = next(a for a in r["advice"] if a["changes"] == {"recompute": "full"})
    assert block["step_seconds"] < full["step_seconds"]


def test_advice_0_evaluates_nothing_and_n_lists_at_most_n() -> None:
    words = SCENARIOS["fits, all fixed"]
    assert estimated(f"{words} --advice 0")["advice"] == []
    few, many = (estimated(f"{words} --advice {n}")["advice"] for n in (3, 60))
    assert few == many[:3]
    assert len(many) > 5
    refused(dpplan("estimate", *words.split(), "--advice", "-1"), "--advice")


def chosen(words: str) -> tuple[Any, Layout, api.Options]:
    options = api.read_options(
        {
            k.strip("-").replace("-", "_"): int(v) if v.isdigit() else v
            for k, v in zip(words.split()[::2], words.split()[1::2], strict=True)
        }
    )
    answer = answer_of(resolve(options))
    assert answer is not None
    return answer.chosen.plan, answer.chosen.table.layout(answer.row), options


@pytest.mark.parametrize(
    "words",
    [
        "--model llama-2-7b --gpu h100 --gpus 16 --tp 2 --pp 2",
        "--model mixtral-8x7b --gpu h100 --gpus 64 --ep 4",
        "--model llama-3-8b --gpu a100 --gpus 32 --zero 3 --stack pytorch-fsdp --shard-group 8",
    ],
)
def test_no_change_is_the_plan_itself_and_degrees_still_multiply_to_the_gpus(words: str) -> None:
    plan, base, _ = chosen(words)
    listed = changes.layout_changes(plan, base)
    assert len(listed) > 10
    for update in (u for variants in listed for u in variants):
        layout = changes.completed(base, update, plan.cluster.gpus, True)
        if layout is None:
            continue
        assert layout != base
        assert layout.tp * layout.pp * layout.cp * layout.dp == plan.cluster.gpus
        assert all(
            getattr(layout, k) == v
            for k, v in update.items()
            if layout.pp > 1 or k not in ("vpp", "schedule")
        )
    assert changes.completed(base, {}, plan.cluster.gpus, True) == base
    assert changes.difference(base, base) == ""


def test_a_pinned_request_is_answered_by_that_layout() -> None:
    plan, base, options = chosen("--model llama-2-7b --gpu a100 --gpus 16 --pp 2")
    again = answer_of(resolve(pick(options, plan, base)))
    assert again is not None
    assert again.chosen.table.layout(again.row) == base
    assert sum(len(f.estimates.table.tp) for f in again.searches if f.estimates is not None) == 1


def test_changes_beyond_an_options_bounds_are_not_advised() -> None:
    batch = 999_999_936  # advice doubles it, beyond the largest that the option takes
    given = {"model": "gpt2", "gpu": "h100", "gpus": 64, "stack_defaults": True}
    options = api.read_options({**given, "global_batch": batch})
    assert api.estimate(options).layout.global_batch == batch


def test_layouts_that_a_rule_forbids_are_not_advised() -> None:
    for name, words in SCENARIOS.items():
        for a in estimated(words + " --advice 60")["advice"][:5]:
            given = {"model": words.split()[1], "gpu": "h100", "gpus": a["gpus"]}
            plan = resolve(api.read_options({**given, "stack": a["stack"]})).plans[0]
            batch, length = a["layout"]["global_batch"], estimated(words)["training"]["seq_len"]
            update = {"global_batch": batch, "seq_len": length}
            training = plan.training.model_copy(update=update)
            plan = plan.model_copy(update={"training": training})
            layout = Layout(**{k: v for k, v in a["layout"].items() if k in Layout.model_fields})
            if "seq_len" not in a["changes"]:
                assert all(bool(ok[0]) for ok in check(plan, Columns.of([layout])).values()), (
                    name,
                    a["change"],
                )


OFFLOAD = (
    "--model llama-2-7b --gpu a100 --gpus 8 --tp 1 --pp 1 --zero 1 --micro-batch 1 --stack"
    " megatron-core --recompute none"
)


def test_a_faster_link_never_waits_longer_and_changes_no_memory() -> None:
    estimate = estimated(OFFLOAD + " --advice 0 --explain")["offload"]
    speed = {link["id"]: link["copy_bytes_per_s"] for link in estimate["links"]}
    by_link = {c["link"]: c for c in estimate["choices"] if c["what"] == "offload activations"}
    assert set(by_link) == set(speed) == {"pcie3", "pcie4", "pcie5", "nvlink-c2c"}
    order = sorted(speed, key=lambda name: speed[name])
    waits = [by_link[name]["transfer_s"] for name in order]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[-1] >= 0
    assert len({c["bytes_saved"] for c in by_link.values()}) == 1


def test_every_choice_is_what_its_command_answers() -> None:
    estimate = estimated(OFFLOAD + " --advice 0 --explain")["offload"]
    for choice in estimate["choices"]:
        answer = followed(choice["command"])
        assert answer.step.seconds == pytest.approx(choice["step_seconds"], rel=1e-9), choice
        assert answer.memory.fits == choice["fits"]


def test_a_layer_by_hand() -> None:
    """Bytes over the share of the bridges that one of eight GPUs gets; PCIe 4 bridges carry 100
    GB/s."""
    estimate = estimated(OFFLOAD + " --advice 0 --explain")["offload"]
    assert estimate["link"] == "pcie4"
    assert estimate["layer"]["transfer_s"] == pytest.approx(
        estimate["layer"]["bytes"] / (100e9 / 8)
    )
    # the copy is longer than running the layer again, and so offloading costs more than recompute
    assert estimate["layer"]["transfer_s"] > estimate["layer"]["recompute_s"]
    recompute, offload = (
        next(c for c in estimate["choices"] if c["what"] == name and c["link"] in (None, "pcie4"))
        for name in ("recompute full", "offload activations")
    )
    assert offload["step_change_s"] > recompute["step_change_s"] > 0


def test_an_offloaded_optimizer_waits_for_the_parameters_that_come_back_at_most() -> None:
    """Gradients leave beside the backward pass; of each parameter a rank owns 2 B come back after
    the update, over a fast link no faster than one core fills its page-locked buffer."""
    words = (
        "--model llama-2-7b --gpu a100 --gpus 8 --stack deepspeed --zero 2 --micro-batch 1"
        " --recompute none --advice 0 --explain"
    )
    estimate = estimated(words)
    away = {
        c["link"]: c["transfer_s"]
        for c in estimate["offload"]["choices"]
        if c["what"] == "offload optimizer"
    }
    rates = {link["id"]: link["copy_bytes_per_s"] for link in estimate["offload"]["links"]}
    back_s = 2 * estimate["model"]["parameters"] / 8 / rates["pcie3"]
    assert 0 < away["pcie3"] < 1.2 * back_s  # a slower step also waits longer for its stragglers
    assert away["pcie3"] >= away["pcie4"] >= away["pcie5"] >= away["nvlink-c2c"] == 0


def test_the_host_link_is_an_option_of_the_cluster() -> None:
    slow, fast = (
        estimated(f"{OFFLOAD} --offload activations --advice 0 --host-link {name}")
        for name in ("pcie3", "c2c")
    )
    assert slow["step"]["seconds"] > fast["step"]["seconds"]
    assert {c["link"] for c in fast["communication"] if c["group"] == "host"} == {"nvlink-c2c"}
    refused(dpplan("estimate", *OFFLOAD.split(), "--host-link", "ib-ndr"), "--host-link")


def test_recipes_are_advised_where_the_software_has_them() -> None:
    """Dispatch, graphs and compiled code are candidates only for stacks that have them; a stack
    without graphs refuses them by name. What a search has taken of them is not advised again."""

    def candidates(stack: str, model: str, **more: Any) -> tuple[set[str], set[str]]:
        given = {"model": model, "gpu": "h100", "gpus": 16, "stack": stack, **more}
        answer = answer_of(resolve(api.read_options(given)))
        assert answer is not None
        plan = answer.chosen.plan
        listed = changes.request_changes(plan, True, True, changes.Promise())
        names = {name for change in listed for name in change.update}
        return names, {choice.option for choice in plan.chosen}

    recipes = {"dispatcher", "cuda_graphs", "ep_overlap"}
    words = (
        "--model qwen3-30b-a3b --gpu h100 --gpus 16 --stack megatron-core --advice 100 --tp 1"
        " --pp 1 --cp 1 --zero 1 --micro-batch 2"
    )
    default, searched = (
        {name for entry in estimated(words + more)["advice"] for name in entry["changes"]}
        for more in (" --stack-defaults", "")
    )
    assert recipes <= default
    assert not recipes & searched
    assert recipes <= {*estimated(words)["search"]["software"]}
    dense, taken = candidates("megatron-core", "llama-3.1-8b", stack_defaults=True)
    assert "compile" not in dense
    assert not taken
    dense, _ = candidates("pytorch-fsdp", "llama-3.1-8b", stack_defaults=True)
    assert "compile" in dense
    assert not dense & recipes
    with pytest.raises(PlanError, match="does not have --cuda-graphs layer"):
        candidates("pytorch-fsdp", "llama-3.1-8b", cuda_graphs="layer")


def test_types_of_states_are_advised_beside_what_the_search_has_chosen() -> None:
    """A master copy in remainders, chosen by the search, does not fix the other states."""
    words = "--model llama-2-7b --gpu a100-sxm4-40gb --gpus 8 --tp 1 --pp 1 --zero 1"
    more = " --micro-batch 2 --recompute none --stack megatron-core --advice 60"
    r = estimated(words + more)
    assert r["search"]["software"]["master_precision"] == "remainder"
    for name in ("state_precision", "moments_precision"):
        entry = next(a for a in r["advice"] if name in a["changes"])
        answer = followed(entry["command"])
        assert answer.memory.device_bytes == pytest.approx(entry["device_bytes"], rel=1e-9)
        stated = estimated(f"{words} --master-precision fp32{more}")
        assert not [a for a in stated["advice"] if name in a["changes"] and a["kind"] == "keep"]
