"""Classes without a row, drawn, traced and planned by the commands that a user has.

    python -m benchmarks.traced_unseen [--count 5] [--seed 523] [--out docs/data/traced.csv]

Drawn of the classes of transformers without a row in --out. For each: a row of
`benchmarks.traced_coverage`, which is added to --out; then `dpplan trace config.json` in a process
of its own, its seconds by the clock, and `dpplan estimate` of the file on eight H100.
"""

from __future__ import annotations

import argparse
import csv
import random
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.traced_coverage import (
    COLUMNS,
    GROUPS,
    apart,
    config_of,
    known,
    line,
    of_type,
    types,
    written,
)

_PLANNED = ("--gpu", "h100", "--gpus", "8", "--stack", "pytorch-fsdp", "--plain")
_LINES = 12  # of an answer


def drawn(path: Path, count: int, seed: int) -> list[tuple[str, str, str]]:
    """(group, type, class) without a row, by class once."""
    seen = {row["name"].partition(" ")[2] for row in known(path)}
    pool = {
        name: (group, kind, name)
        for group in GROUPS
        for kind, name in sorted(types(group).items())
        if name not in seen
    }
    return random.Random(seed).sample([pool[name] for name in sorted(pool)], count)


def planned(kind: str, name: str, folder: Path) -> str:
    """Answers of the commands to a class."""
    folder.mkdir()
    config_of(kind, name).to_json_file(folder / "config.json", use_diff=False)
    model, began = folder / "model.toml", time.monotonic()
    dpplan = [sys.executable, "-c", "from planner.cli import main; main()"]
    trace = [*dpplan, "trace", str(folder / "config.json"), "--out", str(model)]
    done = subprocess.run(trace, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode:
        return f"dpplan trace: {done.stderr.strip()[-300:]}"
    command = [*dpplan, "estimate", "--model", str(model), *_PLANNED]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    shown = (done.stdout if not done.returncode else done.stderr).strip().splitlines()
    return "\n".join([f"dpplan trace: {seconds:.0f} s by the clock", *shown[:_LINES]])


def main() -> None:
    """Print rows and plans as they are known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=523)
    parser.add_argument("--out", type=Path, default=Path("docs/data/traced.csv"))
    options = parser.parse_args()
    import transformers

    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        for group, kind, name in drawn(options.out, options.count, options.seed):
            row = written(
                apart(partial(of_type, kind, name), f"{kind} {name}"), group, f"{kind} {name}"
            )
            print(line(row), flush=True)
            print(planned(kind, name, Path(folder) / kind), flush=True)
            with options.out.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="", lineterminator="\n")
                writer.writerow(row)


if __name__ == "__main__":
    main()
