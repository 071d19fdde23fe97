"""How long a sweep of 10,000 scenarios takes on two cores, and how much memory its processes need.

    python benchmarks/sweep_rate.py                 # all cases, two processes
    python benchmarks/sweep_rate.py searched --jobs 1 --points 2500
    python benchmarks/sweep_rate.py searched --points 300 --alone   # what batches save

Target: 10,000 scenarios within 60 s on two cores. Every case is one `dpplan compare` with two
sweeps, with its document and its CSV. With --alone each case runs a second time in one process with
a search for each scenario in place of planner/search/batched.py.
"""

from __future__ import annotations

import argparse
import os
import resource
import time

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

from planner.search import batched
from planner.specs.options.own import CompareOptions
from planner.verbs.compare import compare, csv_text

# the second sweep has as many values as make the number of points; GPUs take 25 counts of whole
# nodes
GPUS = "gpus=8..200+8"
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "one layout": (
        "global_batch",
        {
            "model": "llama-2-7b",
            "gpu": "a100",
            "stack": "megatron-core",
            "tp": 1,
            "pp": 1,
            "vpp": 1,
            "micro_batch": 1,
            "zero": 1,
            "recompute": "none",
        },
    ),
    "one stack, layout searched": (
        "global_batch",
        {"model": "llama-2-7b", "gpu": "a100", "stack": "megatron-core"},
    ),
    "searched": ("global_batch", {"model": "llama-2-7b", "gpu": "a100"}),
    "searched, bandwidths": (
        "nic_bandwidth",
        {"model": "llama-2-7b", "gpu": "a100", "global_batch": 4800},
    ),
}


def sweep(name: str, points: int) -> str:
    """The second sweep: batches that 24 divides, or bandwidths 1 Gbit/s apart."""
    count = max(2, points // 25)
    return (
        f"global-batch=600..{600 * count}+600"
        if name == "global_batch"
        else f"nic-bandwidth=100..{99 + count}+1 Gbit/s"
    )


def cpu_s() -> float:
    """Seconds of all processes so far: on a busy machine the number to compare, 120 s on two cores
    are the 60 s of the target."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def measure(name: str, points: int, jobs: int, title: str) -> None:
    """Run one case and print its line."""
    option, given = CASES[name]
    started, spent = time.perf_counter(), cpu_s()
    out = compare(CompareOptions(sweep=(GPUS, sweep(option, points)), jobs=jobs), given)
    csv_text(out)
    seconds, spent = time.perf_counter() - started, cpu_s() - spent
    layouts = sum(row.layouts for row in out.points if row.refused is None)
    peak = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    count = len(out.points)
    print(
        f"{title:28} {count:7,} {layouts:12,} {seconds:8.1f} {spent:7.1f}"
        f" {10_000 * spent / count:17.0f} {peak * 1024 / 2**30:8.2f} GiB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", nargs="*", choices=[[], *CASES], help="default: all")
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--alone", action="store_true", help="and a search for each scenario")
    parsed = parser.parse_args()
    print(
        f"{'case':28} {'points':>7} {'layouts':>12} {'seconds':>8} {'CPU s':>7}"
        f" {'CPU s per 10,000':>17} {'peak memory':>12}"
    )
    choose = batched.choose
    for name in parsed.case or CASES:
        measure(name, parsed.points, parsed.jobs, name)
        if parsed.alone:
            batched.choose = lambda requests: [choose([plans])[0] for plans in requests]
            measure(name, parsed.points, 1, "  a search for each")
            batched.choose = choose


if __name__ == "__main__":
    main()
