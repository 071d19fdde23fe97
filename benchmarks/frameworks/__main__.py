"""Count training steps of frameworks' own code on fake tensors, and compare the ledger with them.

    python -m benchmarks.frameworks run transformers peft --count 200 --seed 1 --layers 4
    python -m benchmarks.frameworks compare --by framework recompute --worst 5
    python -m benchmarks.frameworks check --count 20
    python -m benchmarks.frameworks real
    python -m benchmarks.frameworks compiled
    python -m benchmarks.frameworks reading
    python -m benchmarks.frameworks reserved
    python -m benchmarks.frameworks verdicts
    python -m benchmarks.frameworks limits

`run` adds rows to the recorded table (tests/data/frameworks.csv), `check` counts a sample of its
rows again and says which differ, `real` trains small models on the CPU and compares its allocations
with the count, `compiled` records what compiled ones save for backward, `reading`
measures the host memory of a rank that reads weights, `reserved` gives allocations in their order
to PyTorch's allocator, `verdicts` and `limits` compare what follows from peaks. The frameworks have
environments of their own, with the versions of the files of pins here; `compare` runs without
them.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import importlib.metadata
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.frameworks import setting as settings
from benchmarks.frameworks.setting import Counted, Row, Setting

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Framework:
    """Where a step of a framework is, and what it needs."""

    module: str
    packages: tuple[str, ...]  # whose versions a row names, beside torch
    pins: str = "constraints.txt"  # of the environment that has them


_TRANSFORMERS = "transformers"
_ACCELERATE = (_TRANSFORMERS, "accelerate")
_TRL = (_TRANSFORMERS, "trl", "accelerate")
FRAMEWORKS = {
    "transformers": Framework("transformers_step", (_TRANSFORMERS,)),
    "peft": Framework("peft_step", (_TRANSFORMERS, "peft")),
    "accelerate": Framework("accelerate_step", _ACCELERATE),
    "fsdp1": Framework("accelerate_step", _ACCELERATE),
    "trl": Framework("trl_step", _TRL),
    "grpo": Framework("trl_step", _TRL),
    "ddp": Framework("ddp_step", _ACCELERATE),
    "torchtitan": Framework("torchtitan_step", (_TRANSFORMERS, "torchtitan")),
    "megatron": Framework("megatron_step", (_TRANSFORMERS, "megatron-core")),
    "deepspeed": Framework("deepspeed_step", (_TRANSFORMERS, "deepspeed")),
    "litgpt": Framework("litgpt_step", ("litgpt", "lightning"), "litgpt.txt"),
    "torchtune": Framework("torchtune_step", ("torchtune", "torchao"), "torchtune.txt"),
    "nanotron": Framework("nanotron_step", ("nanotron",), "nanotron.txt"),
    "diffusers": Framework("diffusers_step", ("diffusers", "accelerate"), "diffusers.txt"),
}
_SAVED = 20  # configurations after which the table is written
_REAL_TOLERANCE = 1e-3  # of small models, whose tensors of a few bytes are not all counted
_TOLERANCE = 1e-6  # of a peak that is counted again with the same versions


def versions(framework: str) -> str:
    """Versions of what a framework's rows are counted with here."""
    # a build for the CPU traces as one for a GPU
    return " ".join(
        f"{name} {importlib.metadata.version(name).split('+')[0]}"
        for name in ("torch", *FRAMEWORKS[framework].packages)
    )


def count(setting: Setting) -> Counted:
    """One step, counted. Raises SystemExit naming the pins where a framework is missing."""
    framework = FRAMEWORKS[setting.framework]
    try:
        module = importlib.import_module(f"benchmarks.frameworks.{framework.module}")
        counted: Counted = module.run(setting)
    except ModuleNotFoundError as error:
        pins = _HERE / framework.pins
        raise SystemExit(f"{setting.framework} needs {error.name}: pip install -r {pins}") from None
    gc.collect()
    return counted


def run(given: argparse.Namespace) -> None:
    """Add rows to the table."""
    from benchmarks.frameworks import draw

    table: Path = given.table
    rows: dict[tuple[Setting, str], Row] = {}
    if table.exists():
        rows = {(row[0], row[2]): row for row in settings.read(table)}
    started, failures = time.perf_counter(), 0
    drawn = [
        each
        for kind in given.kinds
        for each in draw.drawn(kind, given.count, given.seed, given.family, given.layers)
    ]
    for i, setting in enumerate(drawn):
        key = setting, versions(setting.framework)
        if key in rows:
            continue
        try:
            rows[key] = (setting, count(setting), key[1])
        except Exception as error:
            failures += 1
            print(f"cannot be traced: {type(error).__name__}: {str(error)[:200]}\n  {setting}")
        if (i + 1) % _SAVED == 0:
            settings.write(rows.values(), table)
            print(f"{i + 1} of {len(drawn)}, {time.perf_counter() - started:.0f} s", flush=True)
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


def installed(framework: str) -> str:
    """`versions`, empty where a package is missing."""
    try:
        return versions(framework)
    except importlib.metadata.PackageNotFoundError:
        return ""


def check(table: Path, number: int) -> int:
    """Count a sample of what was recorded with the installed versions again; 1 where a peak is
    another one."""
    here = {name: installed(name) for name in FRAMEWORKS}
    rows = [row for row in settings.read(table) if row[2] == here[row[0].framework]]
    if not rows:
        known = sorted({row[2] for row in settings.read(table)})
        print("none of the recorded versions is installed:", *known, sep="\n  ")
        return 1
    changed = 0
    for setting, before, _ in settings.fewer(rows, number):
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
    running.add_argument("kinds", nargs="+")
    running.add_argument("--count", type=int, default=20)
    running.add_argument("--seed", type=int, default=1)
    running.add_argument("--family")
    running.add_argument("--layers", type=int, default=12, help="most of a model")
    comparing = verbs.add_parser("compare")
    comparing.add_argument("--by", nargs="+", default=["framework"])
    comparing.add_argument("--worst", type=int, default=0)
    comparing.add_argument("--only", default="")
    verbs.add_parser("real")
    verbs.add_parser("compiled")
    verbs.add_parser("reading")
    verbs.add_parser("verdicts")
    limiting = verbs.add_parser("limits")
    limiting.add_argument("--count", type=int, default=18)
    reserving = verbs.add_parser("reserved")
    reserving.add_argument("--count", type=int, default=17)
    checking = verbs.add_parser("check")
    checking.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    if given.verb == "run":
        run(given)
    elif given.verb == "compare":
        compare(given.table, given.by, given.worst, given.only)
    elif given.verb == "real":
        return real()
    elif given.verb == "compiled":
        importlib.import_module("benchmarks.frameworks.compiled").record()
    elif given.verb == "verdicts":
        comparing_of = importlib.import_module("benchmarks.frameworks.compare")
        pairs = comparing_of.differences(settings.read(given.table))
        print(importlib.import_module("benchmarks.frameworks.limits").verdicts(pairs))
    elif given.verb == "limits":
        importlib.import_module("benchmarks.frameworks.limits").show(count, given.count)
    elif given.verb == "reserved":
        importlib.import_module("benchmarks.frameworks.reserved").show(given.count)
    elif given.verb == "reading":
        for name, taken in importlib.import_module("benchmarks.frameworks.reading").measured():
            print(f"{name:32s} {taken:.3f} bytes of host memory per parameter")
    else:
        return check(given.table, given.count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
