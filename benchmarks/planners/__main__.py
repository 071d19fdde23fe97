"""The leaderboard: dpplan and other public planners on the same measured runs.

    python -m benchmarks.planners                    # all of them, 10 min of two cores
    python -m benchmarks.planners --only calculon    # ask it again, beside the recorded answers
    python -m benchmarks.planners --page             # only the page, of the recorded answers

Planners are fetched at the commits of docs/record/planners.csv into ~/.cache/dpplan-planners
(DPPLAN_PLANNERS names another folder), or from git directories in FOLDER/OWNER+NAME/repo by
`--clones FOLDER`, and get an environment each. Writes docs/record/answers.csv and leaderboard.md.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.planners import leaderboard, peers
from benchmarks.planners.leaderboard import OURS
from benchmarks.planners.recipes import answered
from benchmarks.record.entries import today, version

_RECIPES = peers.CACHE / "recipes.jsonl"  # of the last run, for --only
_REASONS = 4  # printed of a planner's refusals


def _recipes(only: list[str]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Recipes, and dpplan's answers; the recorded recipes where only others are asked."""
    if only and OURS not in only and _RECIPES.exists():
        return [json.loads(line) for line in _RECIPES.read_text("utf-8").splitlines()], []
    recipes, ours = answered()
    _RECIPES.parent.mkdir(parents=True, exist_ok=True)
    _RECIPES.write_text("".join(json.dumps(recipe) + "\n" for recipe in recipes), "utf-8")
    return recipes, ours


def _by_run(replies: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    return {
        reply["run_id"]: {name: reply[name] for name in leaderboard.COLUMNS[2:] if name in reply}
        for reply in replies
        if "refused" not in reply
    }


def _refused(planner: str, replies: list[dict[str, Any]]) -> None:
    reasons = Counter(reply["refused"] for reply in replies if "refused" in reply)
    print(f"{planner}: {len(replies) - reasons.total()} of {len(replies)} answered")
    for reason, times in reasons.most_common(_REASONS):
        print(f"  {times:5} {reason}")


def _answer(only: list[str], clones: Path | None) -> None:
    """Record the answers of planners, each as soon as it has answered."""
    planners = peers.listed()
    answers = dict(leaderboard.read()) if leaderboard.ANSWERS.exists() else {}
    recipes, ours = _recipes(only)
    for place, planner in enumerate(planners):
        if only and planner.planner not in only:
            continue
        if planner.planner == OURS:
            answers[OURS] = _by_run(ours)
            planners[place] = replace(planner, commit=version(), date=today())
            leaderboard.write_planners(planners)
        else:
            peers.fetch(planner, clones)
            replies = peers.ask(planner, recipes)
            _refused(planner.planner, replies)
            answers[planner.planner] = _by_run(replies)
        leaderboard.write({name.planner: answers.get(name.planner, {}) for name in planners})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[], metavar="PLANNER")
    parser.add_argument("--clones", type=Path, help="folder of git directories")
    parser.add_argument("--page", action="store_true", help="write only the page")
    given = parser.parse_args()
    if not given.page:
        _answer(given.only, given.clones)
    leaderboard.PAGE.write_text(leaderboard.page(), encoding="utf-8")


if __name__ == "__main__":
    main()
