"""Files of a trainer around transformers for a plan: its own, and DeepSpeed's beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.formats import deepspeed, sharding
from planner.formats.record import STEPS
from planner.formats.target import PlanToWrite, Target, as_comments

FSDP, DEEPSPEED, ALONE = "hf-fsdp", "hf-deepspeed", "hf-trainer"
STACKS = (FSDP, DEEPSPEED, ALONE)
_JSON = ".json"
LOST = {
    "zero": "FSDP shards gradients, parameters too, or nothing; DeepSpeed has every stage",
    "shard_group": "sharding in groups of ranks has other arguments in every release",
    "model": "the Hub has no such model: write its config.json",
    "recompute": "whole layers or nothing",
    "offload": "FSDP offloads parameters with their states, DeepSpeed states or both",
    "fused_kernels": "Liger's kernels come with its loss: --loss-kernel fused-linear",
}
FILL = ("data, learning rate and its schedule",)


def plan_of(request: PlanToWrite, stack: str = FSDP) -> dict[str, Any]:
    """The options of a plan as writers take them: the model as the Hub calls it, accumulation for
    the batch of a step, and where ranks are."""
    hub = request.model.hub
    return {
        "stack": stack,
        **({STEPS: request.steps} if "tokens" in request.options else {}),
        **request.options,
        "model": hub[0] if hub else request.options["model"],
        "grad_accum": request.micro_batches,
        "gpus_per_node": request.gpus_per_node,
        "dp": request.replicas,
    }


def files(
    write: Callable[[Mapping[str, Any]], str], name: str, stack: str
) -> Callable[[PlanToWrite, tuple[str, ...]], Mapping[str, str]]:
    """The writer of a trainer's file of this name, and of DeepSpeed's for that stack."""

    def both(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
        plan = plan_of(request, stack)
        head = "" if name.endswith(_JSON) else as_comments(comments) + "\n"
        out = {name: head + write(plan)}
        if plan["stack"] in sharding.BY_DEEPSPEED:
            out[sharding.DEEPSPEED_FILE] = deepspeed.write(plan)
        return out

    return both


def target(
    kind: str, title: str, write: Callable[[Mapping[str, Any]], str], program: str, **more: Any
) -> Target:
    """A trainer that torchrun starts with a file; program: with {} for that file."""
    name, stacks = more.pop("file", "train.yaml"), more.pop("stacks", STACKS)
    return Target(
        kind=kind,
        title=title,
        stacks=stacks,
        program=program.format(f'"$RECIPE/{name}"'),
        write=more.pop("files", None) or files(write, name, stacks[0]),
        where=more.pop("where", {FSDP: ("zero >= 2", "cp = 1")}),
        alone=more.pop("alone", ALONE),
        lost=LOST,
        fill=more.pop("fill", FILL),
        **more,
    )
