"""Programs of the Hugging Face family, written: TRL on DeepSpeed and on accelerate, Axolotl and
LLaMA-Factory, by the tables that read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.formats import accelerate, axolotl, deepspeed, llama_factory, trl
from planner.formats.target import PlanToWrite, Target, as_comments

_CONFIG, _ZERO = "train.yaml", "ds_config.json"
_LOST = {
    "model": "it has no name on the Hub: set its path in train.yaml",
    "tp": "the files say no tensor parallelism",
    "tokens": "the trainer counts steps of its own data",
}
_FILL = ("dataset in train.yaml", "learning rate")


def _options(request: PlanToWrite) -> dict[str, Any]:
    """The plan with the options that these writers need."""
    out = {**request.options, "dp": request.replicas, "grad_accum": request.micro_batches}
    out |= {"gpus_per_node": request.gpus_per_node}
    hub = request.model.hub
    return out | ({"model": hub[0]} if hub else {})


def _axolotl(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    return {_CONFIG: as_comments(comments) + axolotl.write(_options(request))}


def _deepspeed(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    """TRL's file and DeepSpeed's, which has no room for comments."""
    text = f"deepspeed: {_ZERO}  # beside this file\n{_trainer(request)}"
    return {_CONFIG: as_comments(comments) + text, _ZERO: deepspeed.write(_options(request))}


def _llama_factory(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    text = _without(llama_factory.write(_options(request)), "deepspeed:", "fsdp")
    head = f"deepspeed: {_ZERO}  # beside this file\n"
    return {_CONFIG: as_comments(comments) + head + text, _ZERO: deepspeed.write(_options(request))}


def _accelerate(request: PlanToWrite, comments: tuple[str, ...]) -> Mapping[str, str]:
    """TRL's file, which says what is repeated, and accelerate's: both at once are refused."""
    head = as_comments(comments)
    config = accelerate.write(_options(request))
    return {
        _CONFIG: head + _trainer(request),
        "accelerate.yaml": head + _without(config, "  fsdp_activation_checkpointing:"),
    }


def _trainer(request: PlanToWrite) -> str:
    """TRL's file without what says how states are sharded."""
    return _without(trl.write(_options(request)), "deepspeed:", "fsdp")


def _without(text: str, *begins: str) -> str:
    """A YAML text without these keys and what is nested in them."""
    lines, dropped = [], False
    for line in text.splitlines(keepends=True):
        nested = dropped and line.startswith(" ") and not any(" " in start[:1] for start in begins)
        dropped = line.startswith(begins) or nested
        lines += [] if dropped else [line]
    return "".join(lines)


TARGETS = (
    Target(
        kind="deepspeed",
        title="TRL on DeepSpeed",
        stacks=("hf-deepspeed", "deepspeed"),
        program='-m trl.scripts.sft --config "$RECIPE/train.yaml"',
        write=_deepspeed,
        lost=_LOST,
        fill=(*_FILL, "the path of ds_config.json, where the program starts elsewhere"),
    ),
    Target(
        kind="accelerate",
        title="TRL on accelerate (FSDP)",
        stacks=("hf-fsdp",),
        program='accelerate launch --config_file "$RECIPE/accelerate.yaml" \\\n'
        '  --machine_rank "$NODE_RANK" --main_process_ip "${MASTER_ADDR:-127.0.0.1}" \\\n'
        '  --main_process_port "${MASTER_PORT:-29500}" \\\n'
        '  -m trl.scripts.sft --config "$RECIPE/train.yaml"',
        write=_accelerate,
        per_node=True,
        where={"hf-fsdp": ("zero >= 2",)},
        lost=_LOST,
        fill=_FILL,
    ),
    Target(
        kind="axolotl",
        title="Axolotl",
        stacks=("hf-fsdp", "hf-trainer"),
        program='-m axolotl.cli.train "$RECIPE/train.yaml"',
        write=_axolotl,
        where={"hf-fsdp": ("zero >= 2",)},
        means={"hf-trainer": {"state_precision": "bf16"}},  # `bf16: true` without FSDP
        alone="hf-trainer",
        lost={**_LOST, "base_precision": "its FSDP 2 takes preferences only in 16 bit"},
        fill=_FILL,
    ),
    Target(
        kind="llama-factory",
        title="LLaMA-Factory",
        stacks=("llama-factory", "hf-deepspeed"),
        program='src/train.py "$RECIPE/train.yaml"',
        write=_llama_factory,
        checkout="LLaMA-Factory",
        lost=_LOST,
        fill=_FILL,
    ),
)
