"""Every JSON document as declared types, one module per verb or part that verbs share."""

from __future__ import annotations

from importlib import import_module

from planner.specs.document import Document

# what answers with a document: module and name of its declaration; of a list, that of an entry
ANSWERS: dict[str, str] = {
    "estimate": "estimate.Estimate",
    "search": "search.Search",
    "recommend cluster": "recommend.SmallestCluster",
    "recommend bandwidth": "recommend.BandwidthSweep",
    "recommend batch": "recommend.SaturatingBatch",
    "recommend model": "recommend.LargestModel",
    "recommend offload": "recommend.SwapOrRecompute",
    "export": "export.Export",
    "compare": "compare.Comparison",
    "batch": "batch.TimeToTarget",
    "tune": "tune.Tuning",
    "read": "read.Read",
    "rl": "reinforcement.Reinforcement",
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
    "validate": "validate.Validation",
    "check": "check.Check",
    "learn": "learn.Lessons",
    "learn LESSON": "learn.Lesson",
    "calibrate": "calibrate.Calibrated",
    "calibrate --verify": "calibrate.Verification",
    "calibrate --diff": "calibrate.Compared",
    "calibrate --merge": "calibrate.Merged",
    "/api/compare": "compare.SideBySide",
    "/api/explain": "explanation.Explanation",
    "a wrong request": "error.Refusal",
    "a wrong request over HTTP": "error.Problem",
}


def declared(answer: str) -> type[Document]:
    """The declaration of a document of ANSWERS."""
    module, _, name = ANSWERS[answer].partition(".")
    document: type[Document] = getattr(import_module(f"{__name__}.{module}"), name)
    return document
