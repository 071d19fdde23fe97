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
            lambda asked: rl(asked.of(RlOptions), asked.given),
            lambda found, _: view(found),
            choices={
                "framework": lambda: [(n, one.title) for n, one in frameworks().frameworks.items()]
            },
        )
    },
)
