"""Count training steps of frameworks' own code on fake tensors, and compare the ledger with them.

    python -m benchmarks.frameworks run transformers --count 200 --seed 1
    python -m benchmarks.frameworks compare --by framework recompute --worst 5
    python -m benchmarks.frameworks check --count 20
    python -m benchmarks.frameworks real
    python -m benchmarks.frameworks compiled
    python -m benchmarks.frameworks reading

`run` adds rows to the recorded table (tests/data/frameworks.csv), `check` counts a sample of its
rows again and says which differ, `real` trains small models on the CPU and compares its allocations
with the count, `compiled` records what compiled ones save for backward, `reading`
measures the host memory of a rank that reads weights. The frameworks have an
environment of their own with the versions of constraints.txt; `compare` runs without them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import importlib.metadata
import sys
import time
from pathlib import Path

from benchmarks.frameworks import setting as settings
from benchmarks.frameworks.setting import Counted, Row, Setting

MODULES = {
    "transformers": "transformers_step",
    "peft": "peft_step",
    "accelerate": "accelerate_step",
    "fsdp1": "accelerate_step",
    "trl": "trl_step",
    "grpo": "trl_step",
    "ddp": "ddp_step",
    "torchtitan": "torchtitan_step",
    "megatron": "megatron_step",
    "deepspeed": "deepspeed_step",
}
_NEEDS = {
    "peft": ("peft",),
    "accelerate": ("accelerate",),
    "fsdp1": ("accelerate",),
    "trl": ("trl", "accelerate"),
    "grpo": ("trl", "accelerate"),
    "ddp": ("accelerate",),
    "torchtitan": ("torchtitan",),
    "megatron": ("megatron-core",),
    "deepspeed": ("deepspeed",),
}
_SAVED = 20  # configurations after which the table is written
_REAL_TOLERANCE = 1e-3  # of small models, whose tensors of a few bytes are not all counted
_TOLERANCE = 1e-6  # of a peak that is counted again with the same versions


def versions(framework: str) -> str:
    """Versions of what a framework's rows were counted with."""
    names = ("torch", "transformers", *_NEEDS.get(framework, ()))
    # a build for the CPU traces as one for a GPU
    return " ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in names)


def count(setting: Setting) -> Counted:
    """One step, counted. Raises SystemExit naming the pins where a framework is missing."""
    try:
        module = importlib.import_module(f"benchmarks.frameworks.{MODULES[setting.framework]}")
        counted: Counted = module.run(setting)
    except ModuleNotFoundError as error:
        pins = Path(__file__).with_name("constraints.txt")
        raise SystemExit(f"{setting.framework} needs {error.name}: pip install -r {pins}") from None
    gc.collect()
    return counted


def run(kind: str, number: int, seed: int, family: str | None, table: Path) -> None:
    """Add rows to the table."""
    from benchmarks.frameworks import draw

    rows: dict[Setting, Row] = {}
    if table.exists():
        rows = {row[0]: row for row in settings.read(table)}
    started, failures = time.perf_counter(), 0
    for i, setting in enumerate(draw.drawn(kind, number, seed, family)):
        if setting in rows:
            continue
        try:
            rows[setting] = (setting, count(setting), versions(setting.framework))
        except Exception as error:
            failures += 1
            print(f"cannot be traced: {type(error).__name__}: {str(error)[:200]}\n  {setting}")
        if (i + 1) % _SAVED == 0:
            settings.write(rows.values(), table)
            print(f"{i + 1} of {number}, {time.perf_counter() - started:.0f} s", flush=True)
    settings.write(rows.values(), table)
    print(f"{len(rows)} rows, {failures} not traced, {time.perf_counter() - started:.0f} s")


def compare(table: Path, by: list[str], shown: int, only: str) -> None:
    """Print errors of the ledger."""
    from benchmarks.frameworks import compare as comparing

    rows = [row for row in settings.read(table) if only in str(row[0])]
    pairs = comparing.differences(rows)
    print(comparing.table(pairs, by))
    if shown:
        print(comparing.worst(pairs, shown))


def real() -> int:
    """Print fake against real; 1 where a peak differs by more than 0.1 %."""
    from benchmarks.frameworks import real as reals

    errors = []
    for setting, allocated, counted in reals.differences():
        errors.append(counted / allocated - 1)
        words = (setting.config["model_type"], setting.precision, setting.recompute)
        print(f"{' '.join(words):24s} {allocated:12d} {counted:12d} {100 * errors[-1]:+.3f} %")
    return int(max(map(abs, errors)) > _REAL_TOLERANCE)


def check(table: Path, number: int) -> int:
    """Count a sample again; 1 where a peak is another one."""
    changed = 0
    for setting, before, known in settings.fewer(settings.read(table), number):
        if versions(setting.framework) != known:
            print(f"recorded with {known}, installed is {versions(setting.framework)}")
            return 1
        now = count(setting)
        for field in dataclasses.fields(Counted):
            old, new = getattr(before, field.name), getattr(now, field.name)
            if abs(new - old) > _TOLERANCE * before.peak:
                changed += 1
                print(f"{field.name}: recorded {old}, counted {new}: {setting}")
    print(f"{number} configurations counted again, {changed} differ")
    return int(changed > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--table", type=Path, default=settings.TABLE)
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run")
    running.add_argument("kind")
    running.add_argument("--count", type=int, default=20)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--family")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("--by", nargs="+", default=["framework"])
    comparing.add_argument("--worst", type=int, default=0)
    comparing.add_argument("--only", default="")
    verbs.add_parser("real")
    verbs.add_parser("compiled")
    verbs.add_parser("reading")
    checking = verbs.add_parser("check")
    checking.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    if given.verb == "run":
        run(given.kind, given.count, given.seed, given.family, given.table)
    elif given.verb == "compare":
        compare(given.table, given.by, given.worst, given.only)
    elif given.verb == "real":
        return real()
    elif given.verb == "compiled":
        importlib.import_module("benchmarks.frameworks.compiled").record()
    elif given.verb == "reading":
        for name, taken in importlib.import_module("benchmarks.frameworks.reading").measured():
            print(f"{name:32s} {taken:.3f} bytes of host memory per parameter")
    else:
        return check(given.table, given.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
