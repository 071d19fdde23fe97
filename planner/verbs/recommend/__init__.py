"""The verb `recommend`: inverse questions. Every answer is an evaluated plan with its command."""

from collections.abc import Mapping
from typing import Any, NoReturn

from planner.inputs.options import read_options
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
from planner.verbs.recommend.examples import of_examples
from planner.verbs.recommend.links import bandwidth
from planner.verbs.recommend.models import largest, model_toml
from planner.verbs.recommend.swaps import offload
from planner.verbs.workers import Progress, processes, workers

__all__ = [
    "answered",
    "ask",
    "bandwidth",
    "batch",
    "cluster",
    "largest",
    "model_toml",
    "of_examples_alone",
    "offload",
    "scaled_shape",
]


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
    kinds = {name: _words(given.get(name)) for name in ("gpu", "cluster")}
    request = {name: value for name, value in given.items() if name not in kinds}
    jobs = processes(jobs)
    with workers(jobs):
        if question == "cluster":
            return cluster(
                limits, request, kinds["gpu"], kinds["cluster"], jobs=jobs, progress=progress
            )
        for name, words in kinds.items():
            if len(words) > 1:
                raise PlanError(
                    flag(name), ", ".join(words), f"must be one kind for recommend {question}"
                )
            if words:
                request[name] = words[0]
        if question == "offload":
            return offload(request)
        if question == "model":
            return largest(limits, request, jobs=jobs, progress=progress)
        return (bandwidth if question == "bandwidth" else batch)(
            request, jobs=jobs, progress=progress
        )


def of_examples_alone(given: Mapping[str, Any], limits: Limits, examples: int) -> NoReturn:
    """Refuse a question about examples with the command of `dpplan tune` that answers it."""
    request = {name: value for name, value in given.items() if name not in ("gpu", "cluster")}
    command = of_examples(read_options(request), limits, _words(given.get("gpu")), examples)
    why = f"are data of fine-tuning, which is another question: ask `{command}`"
    raise PlanError("--examples", examples, why)


def _words(value: Any) -> list[str]:
    """An option that may be given several times."""
    if not value:
        return []
    return [str(word) for word in value] if isinstance(value, list) else [str(value)]


def answered(document: Recommendation) -> bool:
    """Whether a document of any question has an answer."""
    if isinstance(document, SmallestCluster):
        return any(kind.answer is not None for kind in document.types)
    if isinstance(document, LargestModel):
        family = document.family
        return document.catalogue.answer is not None or (
            family is not None and family.answer is not None
        )
    return not isinstance(document, BandwidthSweep) or document.memory.fits


def scaled_shape(document: Recommendation) -> dict[str, Any] | None:
    """The shape of the largest scaled model; None without one, or for other questions."""
    family = document.family if isinstance(document, LargestModel) else None
    return family.shape if family else None
