"""How long `dpplan estimate` takes from nothing: whole processes, a layout that is given and the
full search for 2,048 GPUs.

    python benchmarks/cold_start.py            # 11 runs of each, in turn
    python benchmarks/cold_start.py --profile  # also: which imports and functions the time goes to

Wall and CPU seconds, and their ratio to `import numpy` in the same run, which a busy or slow
machine changes least. Targets: three times as much with the layout given, four with the search.
Quote the median; a wide range says that the machine was busy.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import os
import pstats
import re
import resource
import statistics
import subprocess
import sys
import time

SEARCH = ["estimate", "--model", "llama-70b", "--gpus", "2048", "--gpu", "rtx4090"]
FIXED = [
    *SEARCH,
    "--tp",
    "2",
    "--pp",
    "16",
    "--vpp",
    "5",
    "--dp",
    "64",
    "--zero",
    "1",
    "--micro-batch",
    "1",
    "--recompute",
    "full",
    "--schedule",
    "interleaved",
    "--stack",
    "megatron-core",
]
NUMPY = "numpy imported"
CASES: dict[str, tuple[list[str], float | None]] = {
    "python, nothing imported": (["-c", "pass"], None),
    NUMPY: (["-c", "import numpy"], None),
    "numpy, pydantic and typer imported": (["-c", "import numpy, pydantic, typer"], None),
    "layout given": (["-c", "from planner.cli import main; main()", *FIXED], 3.0),
    "full search": (["-c", "from planner.cli import main; main()", *SEARCH], 4.0),
}


# compiled modules are kept and read, as of an installed package
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
}


def seconds(words: list[str]) -> tuple[float, float]:
    """(wall, CPU) of one process."""
    started, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, env=ENVIRONMENT, check=True)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imports(words: list[str], most: int = 12) -> list[str]:
    """Packages by the time their own code takes to import."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=True)
    spent: dict[str, int] = {}
    for self_us, name in re.findall(
        r"^import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", done.stderr, re.MULTILINE
    ):
        package = name.partition(".")[0]
        spent[package] = spent.get(package, 0) + int(self_us)
    order = sorted(spent, key=lambda package: -spent[package])
    return [f"{spent[package] / 1000:8.1f} ms  {package}" for package in order[:most]]


def calls(words: list[str], most: int = 15) -> str:
    """Functions of the planner by the time spent in and below them."""
    from planner.cli import main

    sys.argv = ["dpplan", *words]
    profile = cProfile.Profile()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        profile.runcall(main)
    out = io.StringIO()
    pstats.Stats(profile, stream=out).sort_stats("cumulative").print_stats(r"planner/.*\.py", most)
    return "\n".join(line for line in out.getvalue().splitlines() if ".py:" in line)


def run(runs: int, profile: bool) -> None:
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in CASES}
    for turn in range(runs + 1):
        for name, (words, _) in CASES.items():
            spent = seconds(words)
            if turn:  # the first compiles and fills caches
                times[name].append(spent)
    print(f"{'seconds of a whole process':34s}   wall: min median    max    CPU: min median    max")
    numpy = statistics.median(cpu for _, cpu in times[NUMPY])
    for name, (_, target) in CASES.items():
        walls, cpus = zip(*times[name], strict=True)
        rows = [(min(times), statistics.median(times), max(times)) for times in (walls, cpus)]
        shown = "    ".join(" ".join(f"{value:6.3f}" for value in row) for row in rows)
        beside = f"   {rows[1][1] / numpy:4.1f} x numpy"
        print(f"{name:34s}  {shown}" + (f"{beside} (target {target:.0f})" if target else ""))
    if profile:
        print(
            "\nimports of the full search (with the overhead of tracing them)\n"
            + "\n".join(imports(CASES["full search"][0]))
        )
        for name, words in (("layout given", FIXED), ("full search", SEARCH)):
            print(f"\n{name}, modules imported (with the overhead of profiling)\n{calls(words)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=11)
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    run(given.runs, given.profile)
