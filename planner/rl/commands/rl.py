"""`dpplan rl`: a step of reinforcement learning."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.rl.options import RlOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, own: RlOptions, out: Output) -> Answer:
    """Estimate a step of PPO, GRPO, DAPO or RLOO: generation, scoring, training and refit, their
    memory, the best split of the GPUs and the cost.

    Exit status: 0 it fits, 3 it does not, 2 the request is wrong.
    """
    from planner.rl import verb as rl
    from planner.rl.view import view

    found, tree = rl.answer(own, given)

    def after() -> list[str]:
        from planner.views.explain import lines

        return [] if tree is None else lines(tree)

    return Answer(found, view=lambda: view(found), after=after, status=0 if found.fits else 3)
