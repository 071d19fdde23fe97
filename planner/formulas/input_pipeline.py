"""Reading samples: what storage must deliver, how many workers that takes, and when the step waits
for it."""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

TOKEN_BYTES_SMALL, TOKEN_BYTES_LARGE = 2.0, 4.0  # uint16 and int32
# below it Megatron-LM's indexed data set stores uint16 (megatron/core/datasets/indexed_dataset.py)
SMALL_VOCABULARY = 65500
LOADED_TOKEN_BYTES = 8.0  # int64, as torch's embedding and loss are usually given tokens; assumed
PREFETCH = 2  # batches ahead per worker: default of torch.utils.data.DataLoader


@formula(unit="B/s", equation="samples/s bytes", source="definition")
def read_bytes_per_s(samples_per_s: Array, sample_bytes: Array) -> Array:
    """Bytes that storage must deliver per second."""
    return samples_per_s * sample_bytes


@formula(
    unit="1",
    equation="sample / read where a read holds whole samples, else ceil(sample / read)",
    source="own count: a chunk of several samples is read once and shuffled in memory",
)
def reads_per_sample(sample_bytes: Array, read_bytes: Array) -> Array:
    """Read requests per sample."""
    return np.where(
        read_bytes >= sample_bytes, sample_bytes / read_bytes, np.ceil(sample_bytes / read_bytes)
    )


@formula(
    unit="s",
    equation="1 / rate + reads latency",
    source="a worker process reads and decodes one sample after another",
)
def worker_sample_s(worker_samples_per_s: Array, reads: Array, latency_s: Array) -> Array:
    """Time that a worker takes for a sample."""
    return 1 / worker_samples_per_s + reads * latency_s


@formula(
    unit="1", equation="lambda W", source="Little 1961, Operations Research 9(3): L = lambda W"
)
def in_flight(arrivals_per_s: Array, seconds: Array) -> Array:
    """Things under way at a time: busy workers, or reads that wait for storage."""
    return arrivals_per_s * seconds


@formula(
    unit="s",
    equation="max(bytes / rate, reads / IOPS, samples t / workers, copied / host link)",
    source="stages of a pipeline that run side by side: the slowest sets the pace",
)
def load_s(storage_s: Array, requests_s: Array, workers_s: Array, copy_s: Array) -> Array:
    """Time in which the input pipeline delivers one step's samples."""
    return np.maximum(np.maximum(storage_s, requests_s), np.maximum(workers_s, copy_s))


@formula(
    unit="s",
    equation="max(load - step, 0)",
    source="loading ahead runs beside the step: the longer of both sets the pace",
)
def input_wait_s(loading_s: Array, step_s: Array) -> Array:
    """Time a step waits for data when samples are prefetched."""
    return np.maximum(loading_s - step_s, 0.0)


@formula(
    unit="B",
    equation="ranks workers prefetch batch bytes",
    source="torch.utils.data.DataLoader: each worker holds prefetch_factor batches",
)
def prefetched_bytes(
    ranks: Array, workers: Array, prefetch: Array, batch: Array, decoded_bytes: Array
) -> Array:
    """Host memory of samples that are loaded ahead."""
    return ranks * workers * prefetch * batch * decoded_bytes


@formula(
    unit="s",
    equation="workers prefetch batch / rate",
    source="Little 1961: what is loaded ahead lasts so long",
)
def covered_s(workers: Array, prefetch: Array, batch: Array, samples_per_s: Array) -> Array:
    """How long storage may stall before a replica waits: the samples that are loaded ahead over
    those that it consumes."""
    return workers * prefetch * batch / samples_per_s


@formula(
    unit="1",
    equation="n ceil(N / n) - N",
    source=(
        "torch.utils.data.DistributedSampler: indices are repeated from the start until they divide"
    ),
)
def repeated_samples(samples: Array, ranks: Array) -> Array:
    """Samples that an epoch has twice so that every rank has equally many."""
    return ranks * np.ceil(samples / ranks) - samples
