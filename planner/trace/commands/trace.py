"""`dpplan trace`: a model file from the code of a model."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.specs.options.own import Output
from planner.trace.options import TraceOptions


def command(options: TraceOptions, out: Output) -> Answer:
    """Run a model's own code on tensors without data, forward and backward, and write what it
    computes as a model file for --model: blocks, with products, attention and bytes moved.

    Exit status: 0 traced, 2 the request is wrong or the code cannot be traced.
    """
    from planner.trace.verb import traced
    from planner.views.listing import tree_view

    answer = traced(options)
    return Answer(
        answer.document,
        view=lambda: tree_view(answer.document),
        files={} if options.out is None else {"out": lambda: answer.text},
    )
