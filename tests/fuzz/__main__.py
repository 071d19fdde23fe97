"""The long run: `python -m tests.fuzz --minutes 10 --seed 1 --only requests documents`.

Prints what each kind came to, and writes every fault once, as small as it could be made, with the
command that repeats it. Exit status 1 where there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # tests import each other by bare name

from fuzz.long import KINDS, Figures, repeated, run_kind, table


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for all kinds together")
    parser.add_argument("--seed", type=int, default=0, help="the same cases for the same seed")
    parser.add_argument("--only", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--faults", type=Path, default=Path("fuzz-faults"), help="folder of faults")
    parser.add_argument("--repeat", type=Path, help="ask one fault again")
    arguments = parser.parse_args()
    if arguments.repeat is not None:
        document = json.loads(arguments.repeat.read_text(encoding="utf-8"))
        return repeated(document["kind"], document["case"])
    seconds = 60 * arguments.minutes / len(arguments.only)
    every: list[Figures] = []
    for name in arguments.only:
        every.append(run_kind(name, arguments.seed, time.monotonic() + seconds, arguments.faults))
        print(table(every[-1:]), file=sys.stderr)
    print(table(every))
    return 1 if any(entry.faults for entry in every) else 0


if __name__ == "__main__":
    raise SystemExit(main())
