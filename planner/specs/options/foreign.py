"""Options of other tools and what they are called here, or that they are not modelled
(planner/data/foreign.json), and words that people type for a command.

Sources of the names: Megatron-LM (arguments.py), DeepSpeed (config.json), transformers and
accelerate, torchrun, torchtitan, nanotron and Slurm; in lower case with -, without leading --.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

_FILE = Path(__file__).parents[2] / "data" / "foreign.json"
# words that people type for a command, and what does that here
COMMANDS = {
    **dict.fromkeys(("plan", "run", "fit", "fits", "memory", "predict", "estimator"), "estimate"),
    **dict.fromkeys(("optimize", "optimise", "autotune", "layouts"), "search"),
    **dict.fromkeys(("finetune", "fine-tune", "sft", "lora", "qlora"), "tune"),
    **dict.fromkeys(("grpo", "ppo", "rlhf", "reinforce", "rollout"), "rl"),
    **dict.fromkeys(("sweep", "scaling", "vary"), "compare"),
    **dict.fromkeys(("cost", "price", "buy", "size", "advise", "suggest"), "recommend"),
    **dict.fromkeys(("benchmark", "bench", "measure", "profile"), "calibrate"),
    **dict.fromkeys(("web", "dashboard", "ui", "server"), "serve"),
    **dict.fromkeys(("gpus", "models", "networks", "stacks", "clusters", "hosts"), "list"),
    "version": "--version",
}


def answer(option: str) -> str:
    """The name here of another tool's option, "" for an unknown option: "--micro-batch-size" -> "is
    --micro-batch here, ..."."""
    name = option.lstrip("-").replace("_", "-").replace(".", "-").lower()
    return _answers().get(name, "")


def names() -> tuple[str, ...]:
    """Every name that is answered."""
    return tuple(_answers())


@cache
def _answers() -> dict[str, str]:
    answers: dict[str, list[str]] = json.loads(_FILE.read_text("utf-8"))
    return {name: says for says, names in answers.items() for name in names}
