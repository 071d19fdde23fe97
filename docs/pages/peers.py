"""Other public planners beside dpplan, of docs/record."""

from __future__ import annotations

from benchmarks.planners.leaderboard import boards, side_by_side, titles
from benchmarks.planners.peers import listed


def page() -> str:
    """Step time, a line per planner."""
    times, _ = boards()
    return (
        f"{side_by_side(times, titles(listed()))}\nError of the step time of measured runs, over"
        " those that a planner can express; [memory, classes and how it is"
        " made](docs/record/leaderboard.md).\n"
    )
