"""The input pipeline of a plan: what one step reads, and how long storage, workers and copies take
for it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.estimate import uneven
from planner.estimate.machine import Machine
from planner.formulas import input_pipeline as formulas
from planner.ledger import Array, Ledger, firsts, section
from planner.specs.columns import Columns
from planner.specs.data import InputSpec
from planner.specs.documents.conditions import Input, InputTimes
from planner.specs.plan import Plan

BOUNDS = {
    "storage": "storage bandwidth",
    "requests": "storage requests",
    "workers": "workers",
    "copies": "copies to the GPU",
}


@dataclass(frozen=True)
class Sample:
    """One sample on its way."""

    stored_bytes: float
    decoded_bytes: float
    reads: float
    worker_s: float  # a worker's time for it


def sample(spec: InputSpec, tokens: float, vocab: int, useful_frac: float = 1.0) -> Sample:
    """A sample of a request; without `sample_bytes`, a sequence of tokens as tokenised files store
    them."""
    per_token = spec.token_bytes or token_bytes(vocab)
    stored = spec.sample_bytes or tokens * per_token * useful_frac
    decoded = spec.decoded_bytes or (spec.sample_bytes or tokens * formulas.LOADED_TOKEN_BYTES)
    reads = float(formulas.reads_per_sample(stored, spec.read_bytes or stored))
    rate = spec.worker_samples_per_s or math.inf
    return Sample(
        stored, decoded, reads, float(formulas.worker_sample_s(rate, reads, spec.read_latency_s))
    )


def token_bytes(vocab: int) -> float:
    """Bytes of a stored token: the smaller type where the vocabulary fits."""
    return (
        formulas.TOKEN_BYTES_SMALL
        if vocab < formulas.SMALL_VOCABULARY
        else formulas.TOKEN_BYTES_LARGE
    )


def times(
    spec: InputSpec, sample: Sample, samples: Array, replicas: Array, copy_bytes_per_s: Array
) -> Ledger:
    """Seconds that each stage takes for `samples` read by this many replicas at once; 0 where a
    stage has no stated limit."""
    share = samples / replicas
    return {
        "storage": samples * sample.stored_bytes / (spec.storage_bytes_per_s or math.inf),
        "requests": samples * sample.reads / (spec.storage_reads_per_s or math.inf),
        "workers": share * sample.worker_s / (spec.workers or math.inf),
        "copies": share * sample.decoded_bytes / copy_bytes_per_s,
    }


def _sample(plan: Plan) -> Sample:
    assert plan.data is not None
    return sample(
        plan.data, float(plan.training.seq_len), plan.model.vocab, uneven.useful_frac(plan)
    )


def wait_s(plan: Plan, m: Machine, c: Columns, step_s: Array) -> Array:
    """Time that a step waits for its samples; every replica loads its own share once."""
    assert plan.data is not None
    samples = c.batch(plan.training.global_batch)
    with section("input pipeline"):
        seconds = times(plan.data, _sample(plan), samples, c.dp, m.host_copy_bandwidth)
        loading = formulas.load_s(
            seconds["storage"], seconds["requests"], seconds["workers"], seconds["copies"]
        )
        return formulas.input_wait_s(loading, step_s)


def needs(plan: Plan, m: Machine, table: Columns, step_s: float) -> Input | None:
    """Storage and workers that the chosen layout needs so that no step waits for data; None if the
    request has no loading."""
    if plan.data is None:
        return None
    replicas, nodes = float(table.dp[0]), plan.cluster.nodes
    batch = float(plan.training.global_batch)
    seconds = times(plan.data, _sample(plan), batch, replicas, m.host_copy_bandwidth)
    return document(
        plan.data,
        _sample(plan),
        seconds,
        samples=batch,
        step_s=step_s,
        replicas=replicas,
        nodes=nodes,
        batch=float(table.micro_batch[0]),
    )


def document(
    spec: InputSpec,
    sample: Sample,
    stage_s: Ledger,
    *,
    samples: float,
    step_s: float,
    replicas: float,
    nodes: int,
    batch: float,
) -> Input:
    """Needs of a step that consumes `samples` in step_s, and the waiting time with the stated
    storage and workers."""
    rate = samples / step_s
    seconds = firsts(stage_s)
    slowest = max(seconds, key=lambda name: seconds[name])
    loading = seconds[slowest]
    wait = float(formulas.input_wait_s(loading, step_s))
    busy = float(formulas.in_flight(rate / replicas, sample.worker_s))
    needed = max(1, math.ceil(busy - 1e-9))
    workers = spec.workers or needed
    here = max(1.0, replicas / nodes)  # replicas whose loaders share a node
    bytes_per_s = float(formulas.read_bytes_per_s(rate, sample.stored_bytes))
    reads_per_s = rate * sample.reads
    return Input(
        sample_bytes=sample.stored_bytes,
        decoded_bytes=sample.decoded_bytes,
        samples_per_s=rate,
        samples_per_s_per_node=rate / nodes,
        bytes_per_s=bytes_per_s,
        bytes_per_s_per_node=bytes_per_s / nodes,
        reads_per_s=reads_per_s,
        reads_in_flight=float(formulas.in_flight(reads_per_s, spec.read_latency_s)),
        workers=spec.workers,
        workers_needed=needed,
        workers_busy=busy,
        prefetch=spec.prefetch,
        prefetch_needed=max(1, math.ceil(busy / workers - 1e-9)),
        host_bytes_per_node=float(
            formulas.prefetched_bytes(here, workers, spec.prefetch, batch, sample.decoded_bytes)
        ),
        covered_s=float(formulas.covered_s(workers, spec.prefetch, batch, rate / replicas)),
        seconds=InputTimes(**seconds),
        load_s=loading,
        wait_s=wait,
        bound=BOUNDS[slowest] if wait > 0 else None,
        remedy=_remedy(slowest, spec, bytes_per_s, reads_per_s, needed) if wait > 0 else None,
    )


def _remedy(
    slowest: str, spec: InputSpec, bytes_per_s: float, reads_per_s: float, workers: int
) -> str:
    """The change after which the step no longer waits."""
    if slowest == "storage":
        return (
            f"storage must read {bytes_per_s / 1e9:,.3g} GB/s, not"
            f" {(spec.storage_bytes_per_s or 0) / 1e9:,.3g} GB/s: faster storage, a copy on local"
            " drives, or smaller samples"
        )
    if slowest == "requests":
        return (
            f"storage must answer {reads_per_s:,.0f} reads/s, not"
            f" {spec.storage_reads_per_s or 0:,.0f}: larger reads (--read-bytes) of several samples"
            " that are shuffled in memory"
        )
    if slowest == "workers":
        return f"{workers} workers per replica, not {spec.workers}; or decode less on the CPU"
    return "copy fewer bytes per sample to the GPU: smaller types, decode or enlarge on the GPU"
