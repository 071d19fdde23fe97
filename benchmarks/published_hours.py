"""GPU-hours of published pre-trainings against picks for the same GPUs and tokens.

    python benchmarks/published_hours.py
    python benchmarks/published_hours.py deepseek-v3 gpt-oss-120b

Models whose files have the GPU and hours of their run (`[published.run]`). Where the number of GPUs
is not published 2,048 are taken; where the tokens are not, the tokens that the hours pay for at the
speed of the pick are printed instead. The pick has a search's kernels, overlap and dispatch at
their best; the last column has the stack's defaults (--stack-defaults). Hours include failures,
checkpoints and restarts (--mtbf).
"""

from __future__ import annotations

import argparse

from planner import api
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec

USUAL_GPUS = 2048
USUAL_TOKENS = 1e12  # of which the speed is taken where the tokens are not published


def hours(model: ModelSpec, gpus: int, tokens: float, **more: bool) -> float | None:
    """GPU-hours of the pick; None where there is none."""
    run = model.published.run
    assert run is not None
    given = {"model": model.name, "gpu": run.gpu, "gpus": gpus, "tokens": f"{tokens:.0f}", **more}
    try:
        days = api.estimate(api.read_options(given), brief=True).run.days
    except PlanError as error:
        print(f"{model.name}: {error}")
        return None
    return None if days is None else days * gpus * 24


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("models", nargs="*", help="by default all with published hours")
    wanted = parser.parse_args().models
    print(
        f"{'model':18} {'GPUs':>6} {'GPU':16} {'T tokens':>9} {'published':>10} {'pick':>8}"
        f" {'ratio':>6} {'defaults':>9} {'ratio':>6}"
    )
    for model in catalog.load_all("models", ModelSpec):
        run = model.published.run
        if run is None or run.gpu is None or run.gpu_hours is None:
            continue
        if wanted and model.name not in wanted:
            continue
        gpus, tokens = run.gpus or USUAL_GPUS, run.tokens or USUAL_TOKENS
        picked = hours(model, gpus, tokens)
        plain = hours(model, gpus, tokens, stack_defaults=True)
        if picked is None or plain is None:
            continue
        if run.tokens is None:  # what the hours pay for
            tokens *= run.gpu_hours / picked
            plain, picked = plain * run.gpu_hours / picked, run.gpu_hours
        print(
            f"{model.name:18} {gpus:6,} {run.gpu:16} {tokens / 1e12:8.1f}"
            f"{' ' if run.tokens else '*'} {run.gpu_hours / 1e6:8.3f} M {picked / 1e6:6.3f} M"
            f" {picked / run.gpu_hours:6.2f} {plain / 1e6:7.3f} M {plain / run.gpu_hours:6.2f}",
            flush=True,
        )
    print("* not published: what the published hours pay for at the speed of the pick")


if __name__ == "__main__":
    main()
