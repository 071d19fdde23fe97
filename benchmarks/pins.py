"""Does an answer get better when one more option is given? It must not: what a request leaves open
is searched.

    python benchmarks/pins.py                        # 60 requests x 40 pins, an hour
    python benchmarks/pins.py --requests 6 --pins 12 # a few
    python benchmarks/pins.py --seed 7 --csv pins.csv

Requests are drawn over models, GPUs and counts (96, 104 and 1,000 among them), pins over the free
options of the table and their values. A pin that fits as likely and beats the answer without it by
more than a tie and 0.5 % is printed; the exit status is 1 where there is one. The tests draw a few
(tests/pin_law.py).
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from pin_law import pins_of, requests, violations


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--pins", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--csv", type=Path)
    asked = parser.parse_args()
    started, tried, found = time.perf_counter(), 0, []
    for i, given in enumerate(requests(asked.requests, asked.seed)):
        for one in violations(given, pins_of(asked.pins, asked.seed + i)):
            tried += 1
            if one is not None:
                found.append(one)
                words = " ".join(map(str, given.values()))
                print(
                    f"{words}: {one.seconds:.4g} s, with {one.pin} {one.pinned:.4g} s,"
                    f" {one.gain:.1%} better",
                    flush=True,
                )
    requests_hit = len({tuple(one.request.values()) for one in found})
    print(
        f"{tried} pins with an answer, {len(found)} better than the answer without them, of"
        f" {requests_hit} of {asked.requests} requests; {time.perf_counter() - started:.0f} s"
    )
    if asked.csv:
        with asked.csv.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("model", "gpu", "gpus", "pin", "seconds", "pinned_seconds"))
            table.writerows(
                (*one.request.values(), one.pin, one.seconds, one.pinned) for one in found
            )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
