"""`dpplan rl`: a step of reinforcement learning."""

from __future__ import annotations

from planner.cli.finish import Answer
from planner.rl.options import RlOptions
from planner.specs.options import Given
from planner.specs.options.own import Output


def command(given: Given, options: RlOptions, out: Output) -> Answer:
    """Estimate a step of PPO, GRPO, DAPO or RLOO: phases, memory, split of the GPUs and cost.

    Exit status: 0 it fits, 3 it does not, 2 the request is wrong.
    """
    from planner.rl import verb as rl
    from planner.rl.view import view

    result, tree = rl.answer(options, given)

    def after() -> list[str]:
        from planner.views.explain import lines

        return [] if tree is None else lines(tree)

    return Answer(result, view=lambda: view(result), after=after, status=0 if result.fits else 3)
