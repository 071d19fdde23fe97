"""How fast layouts are decided: inside the evaluator, in process, as a command from nothing, and
over many scenarios.

    python benchmarks/search_rate.py            # everything; a minute and a half
    python benchmarks/search_rate.py --quick    # without the sweep
    python benchmarks/search_rate.py --plain    # the evaluator against plain columns, and memory

Bars on a machine of two cores: 3 million layouts/s on one core inside the evaluator; the whole
dense space of Llama 3.1 405B on 2,048 and 16,384 GPUs in 0.3 s in process; `dpplan search` from
nothing in 1.2 s; 10,000 scenarios in 60 s on two cores; 1 GB. The best of several runs is printed
with the median: a wide range says that the machine was busy.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from planner import api
from planner.estimate import outline
from planner.estimate.memory import needed
from planner.estimate.step import step_time
from planner.inputs.scenario import resolve
from planner.search import allowed_layouts, search
from planner.search.answer import answer_of
from planner.specs.plan import Plan

DENSE = {
    "model": "llama-3.1-405b",
    "gpu": "h100",
    "stack": "megatron-core",
    "global_batch": 2048,
    "uneven_stages": True,
}
# sequences of 128 Ki tokens open context parallelism; more GPUs and a larger batch more degrees
SPACES: dict[str, dict[str, Any]] = {
    "405B, 2,048 GPUs, 8 Ki tokens": {**DENSE, "gpus": 2048},
    "405B, 16,384 GPUs, 8 Ki tokens": {**DENSE, "gpus": 16384},
    "405B, 2,048 GPUs, 128 Ki tokens": {**DENSE, "gpus": 2048, "seq_len": 131072},
    "405B, 16,384 GPUs, 128 Ki tokens": {
        **DENSE,
        "gpus": 16384,
        "seq_len": 131072,
        "global_batch": 16384,
    },
    "405B, 15,360 GPUs (not a power of two), 128 Ki tokens": {
        **DENSE,
        "gpus": 15360,
        "seq_len": 131072,
        "global_batch": 15360,
    },
}
PLAIN_BLOCK = 16384  # layouts; the quickest of 1,024 to 65,536
COMMAND = ["search", "--model", "llama-3.1-405b", "--gpu", "h100", "--gpus", "2048"]
SCENARIOS = 10_000
RUNS = 5


def plan_of(**given: Any) -> Plan:
    return resolve(api.read_options(given)).plans[0]


def timed(
    call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter, runs: int = RUNS
) -> tuple[float, float]:
    """(best, median) seconds of a call."""
    call()
    out = []
    for _ in range(runs):
        started = clock()
        call()
        out.append(clock() - started)
    return min(out), statistics.median(out)


def rates() -> None:
    """Layouts per second inside the evaluator (seconds of the processor: it is one thread), and the
    whole search in process."""
    for title, given in SPACES.items():
        plan = plan_of(**given)
        estimates = search(plan).estimates
        assert estimates is not None
        space = estimates.space
        del estimates
        inside, usual = timed(
            lambda plan=plan, space=space: outline(plan, space).time, time.process_time
        )
        whole, whole_usual = timed(lambda plan=plan: _evaluated(plan))
        print(f"{title}: {space.count:,} layouts")
        print(
            f"  evaluator {inside:.3f} s (median {usual:.3f}): {space.count / inside / 1e6:.2f} M"
            " layouts/s"
        )
        print(f"  with enumeration and rules {whole:.3f} s (median {whole_usual:.3f})", flush=True)


def _evaluated(plan: Plan) -> None:
    """All layouts of a plan, with their time, which is evaluated lazily."""
    estimates = search(plan).estimates
    assert estimates is not None
    _ = estimates.time


def factored_once(title: str) -> tuple[int, float, float]:
    """(layouts, CPU seconds, peak GB of the process) of one evaluation by factored columns."""
    plan = plan_of(**SPACES[title])
    space = allowed_layouts(plan)
    started = time.process_time()
    _ = outline(plan, space).time
    return space.count, time.process_time() - started, peak_gb()


def plain_once(title: str) -> tuple[int, float, float]:
    """Layouts, CPU seconds and memory of the same formulas on plain columns, in blocks that stay in
    the processor's cache."""
    plan = plan_of(**SPACES[title])
    space = allowed_layouts(plan)
    started = time.process_time()
    arrays = [np.empty(space.count) for _ in range(4)]
    for start in range(0, space.count, PLAIN_BLOCK):
        part = np.arange(start, min(start + PLAIN_BLOCK, space.count))
        columns = space.flat(part)
        step, memory = step_time(plan, columns), needed(plan, columns)
        values = (step.seconds, step.components["recompute"], memory.device, memory.host)
        for array, value in zip(arrays, values, strict=True):
            array[part] = value
    return space.count, time.process_time() - started, peak_gb()


def peak_gb() -> float:
    """Largest resident set of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def against_plain() -> None:
    """Layouts per second and memory with factored columns and without, each in a process of its
    own."""
    start = multiprocessing.get_context("spawn")
    for title in SPACES:
        for name, call in (("factored", factored_once), ("plain", plain_once)):
            with start.Pool(1) as pool:
                count, seconds, peak = pool.apply(call, (title,))
            print(
                f"{title}: {count:,} layouts, {name} columns: {seconds:.2f} s,"
                f" {count / seconds / 1e3:,.0f} k layouts/s, {peak:.2f} GB at most",
                flush=True,
            )


def command() -> None:
    """The command from nothing: interpreter, imports, search, tables."""
    code = "from planner.cli import main; main()"
    best, usual = timed(
        lambda: subprocess.run(
            [sys.executable, "-c", code, *COMMAND], stdout=subprocess.DEVNULL, check=True
        )
    )
    print(f"dpplan {' '.join(COMMAND)}: {best:.2f} s (median {usual:.2f})")


def scenario(i: int) -> float:
    """Step time of one scenario of a sweep: model, GPU, GPUs, batch and sequence vary, the layout
    is nearly fixed."""
    gpus = 8 << (i % 6)
    options = api.read_options(
        {
            "model": ("llama-3.1-8b", "llama-2-7b", "llama-2-13b")[i % 3],
            "gpu": ("a100", "h100", "b200")[i // 3 % 3],
            "gpus": gpus,
            "global_batch": gpus * (1 + i // 9 % 16),
            "seq_len": 1024 * (1 + i % 4),
            "stack": "megatron-core",
            "tp": 2,
            "pp": 1,
            "cp": 1,
            "micro_batch": 1,
            "zero": 1,
            "recompute": "none",
            "sequence_parallel": True,
        }
    )
    answer = answer_of(resolve(options))
    assert answer is not None
    return float(answer.chosen.time.seconds[answer.row])


def sweep() -> None:
    """Scenarios one by one on two processes: nothing is shared between them but the catalogue."""
    started = time.perf_counter()
    with multiprocessing.Pool(2) as pool:
        seconds = pool.map(scenario, range(SCENARIOS), chunksize=100)
    spent = time.perf_counter() - started
    print(
        f"{SCENARIOS:,} scenarios on two processes: {spent:.1f} s"
        f" ({len(set(np.round(seconds, 9))):,} different step times)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="without the sweep")
    parser.add_argument("--plain", action="store_true", help="only factored against plain columns")
    given = parser.parse_args()
    if given.plain:
        against_plain()
        return
    rates()
    print(f"largest resident set: {peak_gb():.2f} GB")
    command()
    if not given.quick:
        sweep()


if __name__ == "__main__":
    main()
