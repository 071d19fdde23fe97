"""`dpplan prices`: list prices of GPUs, shipped and fetched."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.prices.options import PricesOptions
from planner.specs.options.own import Output


def command(options: PricesOptions, out: Output) -> Answer:
    """List the prices of GPUs by market and provider with what is on offer; --update fetches
    today's, which every cost rests on from then on (--price-day chooses another day).

    Exit status: 0 answered, 2 the request is wrong or the prices cannot be fetched.
    """
    from planner.prices.verb import answer, view

    document = answer(options)
    return Answer(document, view=lambda: view(document))
