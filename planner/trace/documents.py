"""The answer of `dpplan trace`."""

from planner.specs.documents.listing import ModelTree

__all__ = ["ANSWERS", "ModelTree"]

ANSWERS = {"trace": "ModelTree"}
