"""Every JSON document as declared types, one module per verb or part that verbs share."""

from __future__ import annotations

from importlib import import_module

from planner.specs.document import Document

# what answers with a document: module and name of its declaration; of a list, that of an entry
ANSWERS: dict[str, str] = {
    "estimate": "estimate.Estimate",
    "search": "search.Search",
    "schedule": "schedule.Schedule",
    "validate": "validate.Validation",
    "list gpus": "listing.GpuEntry",
    "list models": "listing.ModelEntry",
    "list networks": "listing.NetworkEntry",
    "list stacks": "listing.StackEntry",
    "list clusters": "listing.ClusterEntry",
    "list schedules": "listing.Entry",
    "/api/explain": "explanation.Explanation",
    "a wrong request": "error.Refusal",
    "a wrong request over HTTP": "error.Problem",
}


def declared(answer: str) -> type[Document]:
    """The declaration of a document of ANSWERS."""
    module, _, name = ANSWERS[answer].partition(".")
    found: type[Document] = getattr(import_module(f"{__name__}.{module}"), name)
    return found
