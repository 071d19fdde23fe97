"""The verb `recommend`: questions asked backwards. Every answer is an evaluated plan with the
command that asks for it alone."""

from collections.abc import Mapping
from typing import Any

from planner.specs.base import PlanError
from planner.specs.documents.recommend import (
    BandwidthSweep,
    LargestModel,
    Recommendation,
    SmallestCluster,
)
from planner.specs.options import flag
from planner.specs.options.recommend import Limits, Question
from planner.verbs.recommend.batches import batch
from planner.verbs.recommend.clusters import cluster
from planner.verbs.recommend.links import bandwidth
from planner.verbs.recommend.models import largest, model_toml
from planner.verbs.recommend.swaps import offload
from planner.verbs.requests import Progress, processes

__all__ = ["answered", "ask", "bandwidth", "batch", "cluster", "largest", "model_toml", "offload"]


def ask(
    question: Question,
    given: Mapping[str, Any],
    limits: Limits,
    *,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Recommendation:
    """The document of a question.

    given: options of a request; `gpu` and `cluster` may be several for the question `cluster`.
    jobs: worker processes, by default as many as this machine has cores.
    """
    alone, kinds = dict(given), {}
    for name in ("gpu", "cluster"):
        value = alone.pop(name, ())
        kinds[name] = [str(one) for one in value] if isinstance(value, list) else [str(value)]
        kinds[name] = kinds[name] if value else []
    many = processes(jobs)
    if question == "cluster":
        return cluster(limits, alone, kinds["gpu"], kinds["cluster"], jobs=many, progress=progress)
    for name, values in kinds.items():
        if len(values) > 1:
            raise PlanError(
                flag(name), ", ".join(values), f"must be one kind for recommend {question}"
            )
        alone.update({name: values[0]} if values else {})
    if question == "offload":
        return offload(alone)
    if question == "model":
        return largest(limits, alone, jobs=many, progress=progress)
    return (bandwidth if question == "bandwidth" else batch)(alone, jobs=many, progress=progress)


def answered(document: Recommendation) -> bool:
    """Whether a document of any question holds what was asked for."""
    if isinstance(document, SmallestCluster):
        return any(kind.answer is not None for kind in document.types)
    if isinstance(document, LargestModel):
        family = document.family
        return document.catalogue.answer is not None or (
            family is not None and family.answer is not None
        )
    return not isinstance(document, BandwidthSweep) or document.memory.fits
