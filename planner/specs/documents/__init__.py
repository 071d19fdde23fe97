"""Every JSON document as declared types, one module per verb or part that verbs share."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from planner import plugins
from planner.specs.document import Document

# verb -> module and name of its document's declaration; for a list, of an entry
_ANSWERS = {
    "estimate": "estimate.Estimate",
    "search": "search.Search",
    "recommend cluster": "recommend.SmallestCluster",
    "recommend bandwidth": "recommend.BandwidthSweep",
    "recommend batch": "recommend.SaturatingBatch",
    "recommend model": "recommend.LargestModel",
    "recommend offload": "recommend.SwapOrRecompute",
    "compare": "compare.Comparison",
    "batch": "batch.TimeToTarget",
    "tune": "tune.Tuning",
    "schedule": "schedule.Schedule",
    "strategies": "strategies.Strategies",
    "allreduce": "allreduce.AllReduce",
    "batchnorm": "batchnorm.BatchNorm",
    "input": "input.InputAnswer",
    "list": "listing.KindEntry",
    "list gpus": "listing.GpuEntry",
    "list models": "listing.ModelEntry",
    "list networks": "listing.NetworkEntry",
    "list stacks": "listing.StackEntry",
    "list clusters": "listing.ClusterEntry",
    "list hosts": "listing.HostEntry",
    "list schedules": "listing.Entry",
    "/api/explain": "explanation.Explanation",
    "a wrong request": "error.Refusal",
    "a wrong request over HTTP": "error.Problem",
}


@cache
def by_answer() -> Mapping[str, str]:
    """Declarations by what answers with them, as module and name: of the core, then of each part
    that is installed (`ANSWERS` of its documents)."""
    out = {answer: f"{__name__}.{name}" for answer, name in _ANSWERS.items()}
    for part in plugins.modules("documents"):
        out |= {answer: f"{part.__name__}.{name}" for answer, name in part.ANSWERS.items()}
    return out


def declared(answer: str) -> type[Document]:
    """The declaration of a document of `by_answer`."""
    module, _, name = by_answer()[answer].rpartition(".")
    document: type[Document] = getattr(import_module(module), name)
    return document
