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
    parsed = parser.parse_args()
    started, tried, violated = time.perf_counter(), 0, []
    for i, given in enumerate(requests(parsed.requests, parsed.seed)):
        for violation in violations(given, pins_of(parsed.pins, parsed.seed + i)):
            tried += 1
            if violation is not None:
                violated.append(violation)
                words = " ".join(map(str, given.values()))
                print(
                    f"{words}: {violation.seconds:.4g} s, with {violation.pin}"
                    f" {violation.pinned:.4g} s, {violation.gain:.1%} better",
                    flush=True,
                )
    requests_hit = len({tuple(violation.request.values()) for violation in violated})
    print(
        f"{tried} pins with an answer, {len(violated)} better than the answer without them, of"
        f" {requests_hit} of {parsed.requests} requests; {time.perf_counter() - started:.0f} s"
    )
    if parsed.csv:
        with parsed.csv.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(("model", "gpu", "gpus", "pin", "seconds", "pinned_seconds"))
            table.writerows(
                (*violation.request.values(), violation.pin, violation.seconds, violation.pinned)
                for violation in violated
            )
    return bool(violated)


if __name__ == "__main__":
    sys.exit(main())
