"""Cost in step time of taking layouts that fit with 95 % chance: requests with and without.

    python benchmarks/headroom.py

Each request is answered twice: as it is, and with `--headroom 0%`, which takes the fastest layout
that is expected to fit. Printed: how often the layout changes, what that costs in step time, how
many leave under 3 % of memory free, and how likely they fit, without and with.
"""

from __future__ import annotations

import sys
from itertools import product
from statistics import fmean, median

from planner import api
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate

MODELS = ("llama-3.1-8b", "llama-2-13b", "llama-70b", "mixtral-8x7b")
GPUS = ("rtx4090", "l40s", "a100", "h100")
COUNTS = (8, 64, 512)
LITTLE = 0.03  # share of memory


def answers(model: str, gpu: str, gpus: int) -> tuple[Estimate, Estimate] | None:
    """(the fastest that is expected to fit, the answer by default); None where nothing fits."""
    request = {"model": model, "gpu": gpu, "gpus": gpus}
    try:
        estimates = [
            api.estimate(api.read_options({**request, **more}), brief=True)
            for more in ({"headroom": "0%"}, {})
        ]
    except PlanError as error:
        print(f"{model} on {gpus} x {gpu}: {error}", file=sys.stderr)
        return None
    return (
        (estimates[0], estimates[1])
        if all(estimate.memory.fits for estimate in estimates)
        else None
    )


def free(estimate: Estimate) -> float:
    """Share of memory that is left."""
    return estimate.memory.headroom_bytes / estimate.memory.capacity_bytes


def main() -> None:
    pairs = []
    print(f"{'request':34} {'free':>15} {'chance':>13} {'step':>8}")
    for case in product(MODELS, GPUS, COUNTS):
        pair = answers(*case)
        if pair is None:
            print(f"{case[0]} on {case[2]} x {case[1]}: nothing fits")
            continue
        pairs.append(pair)
        risky, sure = pair
        name = f"{case[0]} on {case[2]} x {case[1]}"
        print(
            f"{name:34} {free(risky):6.1%} -> {free(sure):5.1%}"
            f" {risky.memory.fit_chance:5.0%} -> {sure.memory.fit_chance:4.0%}"
            f" {sure.step.seconds / risky.step.seconds - 1:+7.1%}"
        )
    cost = [sure.step.seconds / risky.step.seconds - 1 for risky, sure in pairs]
    moved = [sure.layout != risky.layout for risky, sure in pairs]
    print(f"\n{len(pairs)} requests; {sum(moved)} take another layout by default")
    print(
        f"step time {median(cost):+.1%} in the median, {fmean(cost):+.1%} in the mean,"
        f" {max(cost):+.1%} at worst"
    )
    for name, every in zip(("--headroom 0%", "by default"), zip(*pairs, strict=True), strict=True):
        chances = [estimate.memory.fit_chance for estimate in every]
        print(
            f"{name:14} {sum(free(estimate) < LITTLE for estimate in every)} leave under"
            f" {LITTLE:.0%}; chance to fit {fmean(chances):.0%} in the mean, {min(chances):.0%} at"
            f" least, {sum(estimate.memory.verdict != 'fits' for estimate in every)} below 95 %"
        )


if __name__ == "__main__":
    main()
