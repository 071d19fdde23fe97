"""The verb `recommend`: questions asked backwards. Every answer is an evaluated plan with the
command that asks for it alone."""

from typing import Any

from planner.verbs.recommend.batches import batch
from planner.verbs.recommend.clusters import Limits, cluster
from planner.verbs.recommend.links import bandwidth
from planner.verbs.recommend.models import largest, model_toml
from planner.verbs.recommend.swaps import offload

__all__ = [
    "QUESTIONS",
    "Limits",
    "answered",
    "bandwidth",
    "batch",
    "cluster",
    "largest",
    "model_toml",
    "offload",
]

QUESTIONS = ("cluster", "bandwidth", "batch", "model", "offload")


def answered(out: dict[str, Any]) -> bool:
    """Whether a document of any question holds what was asked for."""
    question = out["question"]
    if question == "cluster":
        return any(row is not None for row in out["answers"].values())
    if question == "model":
        family = out["family"]
        return out["catalogue"]["answer"] is not None or (
            family is not None and family["answer"] is not None
        )
    return bool(out["memory"]["fits"]) if question == "bandwidth" else True
