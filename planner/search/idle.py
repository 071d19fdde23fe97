"""Whole nodes left idle, where fewer GPUs are faster: 104 GPUs divide a batch worse than 96."""

from __future__ import annotations

from collections.abc import Callable

from planner.inputs.scenario import Scenario, resolve
from planner.search.answer import Answer
from planner.specs.base import PlanError
from planner.units import percent

_FAIR = 15  # odd part of a number of nodes up to which a batch and layers still divide by it
_MOST_IDLE = 0.25  # share of the nodes: beyond, fewer are seldom faster. A choice


def fewer(gpus: int, node: int) -> list[int]:
    """GPUs of fewer whole nodes that are worth trying: one to three nodes less, and the next
    multiples of powers of two."""
    nodes = gpus // node
    tried = {nodes - 1, nodes - 2, nodes - 3}
    tried |= {nodes // 2**power * 2**power for power in range(1, nodes.bit_length())}
    least = max(1.0, (1 - _MOST_IDLE) * nodes)
    return [node * count for count in sorted(tried, reverse=True) if least <= count < nodes]


def rounder(gpus: int, node: int) -> int | None:
    """The most of the fewer GPUs whose nodes divide better; None where all nodes divide well, and
    within one node."""
    if gpus <= node:
        return None

    def odd(count: int) -> int:
        nodes = count // node
        return nodes // (nodes & -nodes)

    most = min(odd(gpus) - 1, _FAIR)
    return next((count for count in fewer(gpus, node) if odd(count) <= most), None)


def with_idle(
    scenario: Scenario, answer: Answer, search: Callable[[Scenario], Answer | None]
) -> tuple[Scenario, Answer, str]:
    """The fastest of this answer and of those with nodes left idle, for the same batch; and a
    sentence about the idle nodes, "" where all are used."""
    plan, options = answer.chosen.plan, scenario.options
    best, taken, text = _rank(answer), (scenario, answer), ""
    cluster = plan.cluster
    for gpus in fewer(cluster.gpus, cluster.gpus_per_node):
        request = options.changed(gpus=gpus, global_batch=plan.training.global_batch)
        try:
            other = resolve(request)
            searched = search(other)
        except PlanError:  # what was stated does not divide this many
            continue
        if searched is not None and _rank(searched) < best:
            best, taken = _rank(searched), (other, searched)
            idle = (cluster.gpus - gpus) // cluster.gpus_per_node
            ahead = percent(1 - _seconds(searched) / _seconds(answer))
            text = (
                f"{idle} of {cluster.nodes} nodes {'is' if idle == 1 else 'are'} left idle, which"
                f" is {ahead} faster than all of them; they are paid for and not in the cost"
                " (--allow-idle)"
            )
    return *taken, text


def _rank(answer: Answer) -> tuple[bool, float]:
    return not answer.fits, _seconds(answer)


def _seconds(answer: Answer) -> float:
    return float(answer.chosen.time.seconds[answer.row])
