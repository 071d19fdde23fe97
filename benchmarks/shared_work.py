"""Many scenarios shared by two workers of a Dask cluster, of which one is killed midway: whether
anything is lost, and how many a second are answered.

    python -m benchmarks.shared_work --scenarios 100000
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path

from planner import api
from planner.specs.options import Options
from planner.verbs.requests import answer
from planner.verbs.workers import processes, workers
from tests.dask_cluster import Cluster

_LENGTHS = 64  # sequence lengths, of all batches each
_ALONE = 500  # that are answered here as well, evenly spread


def requests_of(count: int) -> list[Options]:
    """So many requests of one layout each, no two alike."""
    words = {"model": "llama-3-8b", "gpu": "h100", "gpus": 64, "tp": 1, "pp": 1, "zero": 3}
    words |= {"micro_batch": 1, "recompute": "full", "stack": "pytorch-fsdp"}
    return [
        api.read_options(
            {
                **words,
                "seq_len": 1024 + 64 * (i % _LENGTHS),
                "global_batch": 64 * (i // _LENGTHS + 1),
            }
        )
        for i in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scenarios", type=int, default=100_000)
    count = parser.parse_args().scenarios
    requests = requests_of(count)
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(Path(folder))
        killed_after = 0

        def kill(done: int, total: int) -> None:
            nonlocal killed_after
            if done > total / 2 and not killed_after:
                killed_after = done
                cluster.workers[0].send_signal(signal.SIGKILL)

        started = time.perf_counter()
        try:
            with workers(None, cluster.address):
                points = answer(requests, jobs=processes(None), progress=kill)
        finally:
            cluster.end()
    took = time.perf_counter() - started
    some = range(0, count, max(count // _ALONE, 1))
    alone = answer([requests[i] for i in some])
    same = sum(points[i].report == point.report for i, point in zip(some, alone, strict=True))
    print(
        f"{len(points):,} of {count:,} answered in {took:.0f} s ({len(points) / took:,.0f} a"
        f" second); one of two workers killed after {killed_after:,}; {same} of {len(alone)} equal"
        " to those answered here"
    )


if __name__ == "__main__":
    main()
