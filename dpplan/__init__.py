"""dpplan in Python: a function per verb, with the options of the command line as keywords.

    import dpplan

    answer = dpplan.estimate(model="llama-3.1-8b", gpu="h100", gpus=64, tokens="1T")
    answer.fits, answer.document.step.seconds, answer.command
    dpplan.compare(model="llama-3.1-8b", gpu="h100", sweep="gpus=8,16,32").to_pandas()

A wrong value is a `PlanError` with the sentence that the command line prints. Signatures come from
the option table, those for editors and type checkers in `__init__.pyi`, which
`python -m dpplan.stub` writes.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from planner import __version__
from planner.error import PlanError

__all__ = ["Answer", "PlanError", "__version__"]


def __getattr__(name: str) -> Any:
    if name == "Answer":
        value: Any = import_module("dpplan.answer").Answer
    elif name.startswith("_") or (value := import_module("dpplan.verbs").function(name)) is None:
        raise AttributeError(f"module 'dpplan' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *import_module("dpplan.verbs").names()})
