"""Does an answer get better when one more option is given? It must not: what a request leaves open
is searched.

    python -m benchmarks.pins                        # 60 requests x 40 pins, half an hour of CPU
    python -m benchmarks.pins --requests 6 --pins 12 # a few
    python -m benchmarks.pins --seed 7 --page pins.md

Requests are drawn over models, GPUs and counts (96, 104 and 1,000 among them), pins over the free
options of the table and their values. A pin that fits as likely and beats the answer without it by
more than a tie and 0.5 % is printed; the exit status is 1 where there is one. --page writes a row
per request, again after each, so that a run that ends early leaves what it reached. The tests draw
a few (tests/pin_law.py).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pin_law import TOLERANCE, Pinned, Trial, pins_of, requests, sure, trial


def words(pinned: Pinned) -> str:
    """The pin as typed and what it gains."""
    ((name, value),) = pinned.pin.items()
    return f"`--{name.replace('_', '-')} {value}` {pinned.gain:+.2%}"


def sentence(trials: Sequence[Trial], drawn: int) -> str:
    """The result of all requests in a sentence."""
    answered = sum(len(each.pinned) for each in trials)
    alike = sum(entry.is_comparable for each in trials for entry in each.pinned)
    violated = [len(each.violations) for each in trials]
    return (
        f"{drawn} requests, {len(trials)} with an answer; {answered:,} pins with one, {alike:,} of"
        f" them within the search and as likely to fit; {sum(violated)} better by more than"
        f" {TOLERANCE:.1%}, of {sum(map(bool, violated))} requests"
    )


def page(trials: Sequence[Trial], drawn: int, seed: int) -> str:
    """A row per request."""
    lines = []
    for each in trials:
        step, nearest = each.free.step.seconds, each.nearest
        cells = (
            f"{each.request['model']}, {each.request['gpus']:,} {each.request['gpu']}",
            f"{step:.4g} s" + ("" if sure(each.free) else " (does not surely fit)"),
            str(len(each.pinned)),
            str(sum(entry.is_comparable for entry in each.pinned)),
            "none" if nearest is None else words(nearest),
            ", ".join(map(words, each.violations)) or "none",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return f"""# Pins

{sentence(trials, drawn)}. Written by `python -m benchmarks.pins --seed {seed} --page FILE`: does an
answer get better with one more option? Pins count where their stack was searched, they
are not listed as "not searched", and they fit as likely as the pick.

| request | pick | pins with an answer | that count | fastest of these | better |
| --- | ---: | ---: | ---: | --- | --- |
{chr(10).join(lines)}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--pins", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", type=Path)
    parsed = parser.parse_args()
    trials: list[Trial] = []
    for i, given in enumerate(requests(parsed.requests, parsed.seed)):
        started = time.process_time()
        result = trial(given, pins_of(parsed.pins, parsed.seed + i))
        request = " ".join(map(str, given.values()))
        spent = time.process_time() - started
        if result is None:
            print(f"{i + 1}. {request}: no layout; {spent:.1f} s of CPU", flush=True)
        else:
            trials.append(result)
            print(
                f"{i + 1}. {request}: {len(result.pinned)} pins, better:"
                f" {', '.join(map(words, result.violations)) or 'none'}; {spent:.1f} s of CPU",
                flush=True,
            )
        if parsed.page:
            parsed.page.write_text(page(trials, i + 1, parsed.seed))
    print(sentence(trials, parsed.requests))
    return any(each.violations for each in trials)


if __name__ == "__main__":
    sys.exit(main())
