"""The tab of `dpplan rl`."""

from __future__ import annotations

from planner.rl.frameworks import frameworks
from planner.rl.options import RlOptions
from planner.rl.verb import rl
from planner.rl.view import view
from web.tabs.base import Answers, pages_of

TABS = pages_of(
    __file__,
    {
        "/rl": Answers(
            lambda state: rl(state.of(RlOptions), state.given),
            lambda answer, _: view(answer),
            choices={
                "framework": lambda: [
                    (n, framework.title) for n, framework in frameworks().frameworks.items()
                ]
            },
        )
    },
)
