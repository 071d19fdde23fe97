"""Reading samples: what storage and workers must deliver, what is held ahead, and a step that waits
for its data."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import plans
import pytest
from command import argv, dpplan, refused
from hypothesis import given
from hypothesis import strategies as st

from planner.estimate import loading
from planner.estimate.machine import machine
from planner.estimate.step import step_time
from planner.formulas.input_pipeline import (
    covered_s,
    in_flight,
    input_wait_s,
    load_s,
    prefetched_bytes,
    read_bytes_per_s,
    reads_per_sample,
    worker_sample_s,
)
from planner.inputs.run import storages
from planner.specs.data import InputSpec, LengthsSpec

# MLPerf Storage, configs/dlio/workload/resnet50_h100.yaml: a batch of 400 images of 114,660.07 B
# each 0.224 s
IMAGE_BYTES, IMAGES, BATCH_S = 114660.07, 400, 0.224


def test_formulas_by_hand() -> None:
    assert float(read_bytes_per_s(1000.0, 115e3)) == pytest.approx(115e6)
    # a file of 1 MB in reads of 256 KiB is four; a read of 1 MB holds ten samples of 100 kB
    assert float(reads_per_sample(1e6, 256 * 1024.0)) == 4
    assert float(reads_per_sample(1e5, 1e6)) == pytest.approx(0.1)
    assert float(reads_per_sample(1e5, 1e5)) == 1
    # 5 ms of decoding and two reads of 10 ms each
    assert float(worker_sample_s(200.0, 2.0, 0.01)) == pytest.approx(0.025)
    assert float(in_flight(400.0, 0.025)) == pytest.approx(10)  # so ten workers
    # 8 ranks x 4 workers x 2 batches of 32 samples of 600 kB
    assert float(prefetched_bytes(8.0, 4.0, 2.0, 32.0, 6e5)) == pytest.approx(1.2288e9)
    assert float(covered_s(4.0, 2.0, 32.0, 256.0)) == pytest.approx(1.0)
    assert float(load_s(0.1, 0.2, 0.4, 0.3)) == 0.4
    assert float(input_wait_s(0.4, 1.0)) == 0
    assert float(input_wait_s(1.5, 1.0)) == 0.5


@given(sample=st.floats(1, 1e9), read=st.floats(1, 1e9))
def test_reads_hold_at_least_the_sample(sample: float, read: float) -> None:
    reads = float(reads_per_sample(sample, read))
    assert reads * read >= sample * (1 - 1e-12)
    assert reads * read <= sample + read


def test_mlperf_storage_images() -> None:
    """One simulated H100 wants 1,786 images or 204.7 MB (195 MiB) per second."""
    rate = IMAGES / BATCH_S
    document = dpplan(
        "input", "--samples-per-s", rate, "--batch", IMAGES, "--sample-bytes", IMAGE_BYTES, "--json"
    ).json()["input"]
    assert document["samples_per_s"] == pytest.approx(1785.7, abs=0.05)
    assert document["bytes_per_s"] == pytest.approx(204.75e6, rel=1e-4)
    assert document["bytes_per_s"] / 2**20 == pytest.approx(195.3, abs=0.05)
    assert document["bound"] is None
    # 90 % of the accelerators busy is what the benchmark asks: with nine tenths of the bandwidth
    # the step takes 1 / 0.9 as long
    slow = dpplan(
        "input",
        "--samples-per-s",
        rate,
        "--batch",
        IMAGES,
        "--sample-bytes",
        IMAGE_BYTES,
        "--data-storage",
        f"{0.9 * document['bytes_per_s']:.6f} B/s",
        "--json",
    )
    assert slow.status == 3
    late = slow.json()["input"]
    assert late["bound"] == "storage bandwidth"
    assert BATCH_S / (BATCH_S + late["wait_s"]) == pytest.approx(0.9, rel=1e-6)


def test_workers_by_littles_law() -> None:
    words = (
        "input",
        "--samples-per-s",
        2000,
        "--gpus",
        8,
        "--batch",
        50,
        "--sample-bytes",
        "100 kB",
        "--decoded-bytes",
        "150 kB",
        "--worker-rate",
        100,
        "--read-latency",
        "10 ms",
    )
    document = dpplan(*words, "--json").json()["input"]
    # each of eight GPUs takes 250 samples/s, each sample 10 ms of decoding and 10 ms of waiting:
    # five workers
    assert document["workers_busy"] == pytest.approx(5)
    assert document["workers_needed"] == 5
    assert document["reads_in_flight"] == pytest.approx(20)
    assert document["host_bytes_per_node"] == pytest.approx(8 * 5 * 2 * 50 * 150e3)
    assert document["covered_s"] == pytest.approx(5 * 2 * 50 / 250)
    few = dpplan(*words, "--workers", 4, "--json")
    assert few.status == 3
    assert few.json()["input"]["bound"] == "workers"
    assert few.json()["input"]["wait_s"] == pytest.approx(
        0.2 * 0.25
    )  # 50 samples in 0.25 s instead of 0.2 s
    assert "5 workers" in few.json()["input"]["remedy"]
    assert dpplan(*words, "--workers", 5, "--json").status == 0


def fed(spec: InputSpec | None, **changes: Any) -> tuple[float, float]:
    """Seconds of a step of 64 GPUs, 256 sequences of 1,024 tokens, and those in which it waits for
    data."""
    plan = plans.plan(gpus=64, gpus_per_node=8, global_batch=256).model_copy(
        update={"data": spec, **changes}
    )
    time = step_time(plan, plans.rows(64, {}))
    return float(time.seconds[0]), float(time.components["input"][0]) if spec else 0.0


def test_a_slow_storage_is_the_step() -> None:
    usual, _ = fed(None)
    # 256 sequences of 1,024 tokens of 2 B are 524,288 B
    seconds, wait = fed(InputSpec(storage_bytes_per_s=524_288 / (3 * usual)))
    assert seconds == pytest.approx(3 * usual)
    assert wait == pytest.approx(2 * usual)
    assert fed(InputSpec(storage_bytes_per_s=524_288 / (0.9 * usual)))[0] == pytest.approx(
        usual, rel=1e-12
    )
    # twice the bytes where tokens are stored in 4; reads of a sample each, 256 of them
    assert fed(InputSpec(storage_bytes_per_s=524_288 / usual, token_bytes=4))[0] == pytest.approx(
        2 * usual
    )
    assert fed(InputSpec(storage_reads_per_s=256 / (5 * usual)))[0] == pytest.approx(5 * usual)
    # each of 64 replicas loads four samples
    assert fed(InputSpec(workers=2, worker_samples_per_s=1 / usual))[0] == pytest.approx(2 * usual)
    m = machine(plans.plan(gpus=64, gpus_per_node=8, global_batch=256))
    copied = float(m.host_copy_bandwidth) * usual / 4
    assert fed(InputSpec(sample_bytes=1.0, decoded_bytes=7 * copied))[0] == pytest.approx(7 * usual)


def test_padding_is_not_read() -> None:
    usual, _ = fed(None)
    quarter = LengthsSpec(mean_tokens=256, sigma=0.0, packing="padded")
    assert fed(InputSpec(storage_bytes_per_s=524_288 / (8 * usual)), lengths=quarter)[
        0
    ] == pytest.approx(2 * usual)


@given(
    storage=st.floats(1e3, 1e12),
    reads=st.floats(1, 1e9),
    latency=st.floats(0, 1),
    rate=st.floats(0.1, 1e6),
    workers=st.integers(1, 64),
    more=st.floats(1, 10),
)
def test_more_of_anything_never_slows(
    storage: float, reads: float, latency: float, rate: float, workers: int, more: float
) -> None:
    def wait(**changes: Any) -> float:
        given_: dict[str, Any] = {
            "sample_bytes": 1e5,
            "storage_bytes_per_s": storage,
            "storage_reads_per_s": reads,
            "read_latency_s": latency,
            "worker_samples_per_s": rate,
            "workers": workers,
        }
        spec = InputSpec(**(given_ | changes))
        first = loading.sample(spec, 1.0, 1)
        result = loading.times(spec, first, 256.0, 64.0, 2e10)
        return float(
            load_s(result["storage"], result["requests"], result["workers"], result["copies"])
        )

    base = wait()
    assert base > 0
    for better in (
        {"storage_bytes_per_s": storage * more},
        {"storage_reads_per_s": reads * more},
        {"read_latency_s": latency / more},
        {"worker_samples_per_s": rate * more},
        {"workers": workers + 1},
    ):
        assert wait(**better) <= base


@given(
    rate=st.floats(1, 1e5),
    per_worker=st.floats(1, 1e4),
    latency=st.floats(0, 0.1),
    batch=st.integers(1, 512),
)
def test_the_workers_and_bandwidth_that_are_named_suffice(
    rate: float, per_worker: float, latency: float, batch: int
) -> None:
    def needs(**changes: Any) -> Any:
        spec = InputSpec(
            sample_bytes=1e5, worker_samples_per_s=per_worker, read_latency_s=latency, **changes
        )
        first = loading.sample(spec, 1.0, 1)
        result = loading.times(spec, first, 8.0 * batch, 8.0, math.inf)
        return loading.document(
            spec,
            first,
            result,
            samples=8.0 * batch,
            step_s=8 * batch / rate,
            replicas=8.0,
            nodes=1,
            batch=float(batch),
        )

    result = needs()
    workers = result.workers_needed
    if workers <= 1024:
        assert needs(workers=workers).wait_s <= 1e-6 * result.load_s + 1e-8 * 8 * batch / rate
        if workers > 1:
            assert needs(workers=workers - 1).wait_s > 0
    assert needs(storage_bytes_per_s=result.bytes_per_s * (1 + 1e-9)).wait_s == 0


REQUEST: tuple[object, ...] = ("estimate", "--model", "llama-2-7b", "--gpu", "h100", "--gpus", 64)
REQUEST += ("--advice", 0, "--stack", "megatron-core", "--stack-defaults")


def test_tokens_are_a_trickle() -> None:
    """Llama 2 7B on 64 H100: 747,000 tokens/s of 2 B are 1.5 MB/s, less than one disk."""
    report = dpplan(*REQUEST, "--data-storage", "nfs", "--json").json()
    result = report["input"]
    assert result["bytes_per_s"] == pytest.approx(2 * report["throughput"]["tokens_per_s"])
    assert result["bytes_per_s"] < 5e6
    assert result["wait_s"] == 0
    assert report["step"]["components"]["input"] == 0
    usual = dpplan(*REQUEST, "--json").json()
    assert usual["input"] is None
    assert usual["stragglers"] is None
    assert report["step"]["seconds"] == pytest.approx(usual["step"]["seconds"], rel=1e-12)
    nfs = next(storage for storage in storages() if storage.id == "nfs")
    assert result["seconds"]["storage"] == pytest.approx(
        result["sample_bytes"] * 1024 / (2 * nfs.bytes_per_s(8))
    )


LAYOUT = ("--tp", 1, "--pp", 1, "--cp", 1, "--zero", 1, "--micro-batch", 1, "--recompute", "none")


def test_large_samples_bind_and_say_what_to_change() -> None:
    report = dpplan(
        *REQUEST, *LAYOUT, "--sample-bytes", "100 MB", "--data-storage", "nfs", "--json"
    ).json()
    result, step = report["input"], report["step"]
    assert step["bottleneck"] == "input"
    assert step["seconds"] == pytest.approx(1024 * 1e8 / 3e9)  # 1,024 samples of 100 MB at 3 GB/s
    assert result["wait_s"] == pytest.approx(step["components"]["input"])
    assert "storage must read" in result["remedy"]
    text = dpplan(
        *REQUEST, *LAYOUT, "--sample-bytes", "100 MB", "--data-storage", "nfs", "--plain"
    ).stdout
    assert "INPUT-BOUND by storage bandwidth" in text
    enough = f"{result['bytes_per_s'] * 1.001} B/s"
    assert (
        dpplan(
            *REQUEST, *LAYOUT, "--sample-bytes", "100 MB", "--data-storage", enough, "--json"
        ).json()["input"]["wait_s"]
        == 0
    )


@pytest.mark.parametrize(
    ("words", "texts"),
    [
        (("--sample-bytes", "0"), ("--sample-bytes", "positive")),
        (("--sample-bytes", "5 GB/s"), ("--sample-bytes",)),
        (("--sample-bytes", "1 MB", "--token-bytes", "4"), ("--sample-bytes", "--token-bytes")),
        (("--data-storage", "disk"), ("--data-storage", "parallel-fs")),
        (("--data-storage", "-1 GB/s"), ("--data-storage", "positive")),
        (("--data-iops", "0"), ("--data-iops",)),
        (("--read-latency", "-1 ms"), ("--read-latency", "negative")),
        (("--worker-rate", "-3"), ("--worker-rate",)),
        (("--workers", "0"), ("--workers",)),
        (("--prefetch", "0"), ("--prefetch",)),
        (("--token-bytes", "0"), ("--token-bytes",)),
    ],
)
def test_wrong_requests(words: tuple[str, ...], texts: tuple[str, ...]) -> None:
    refused(dpplan(*REQUEST, *words), *texts)


def test_wrong_rates() -> None:
    refused(dpplan("input", "--samples-per-s", 0, "--sample-bytes", "1 MB"), "--samples-per-s")
    refused(dpplan("input", "--samples-per-s", 10), "--sample-bytes")
    refused(dpplan("input", "--samples-per-s", 10, "--sample-bytes", "1 MB", "--gpus", 0), "--gpus")


def test_a_scenario_file_says_the_same(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        'model = "llama-2-7b"\ngpu = "h100"\ngpus = 64\nadvice = 0\n'
        'stack = "megatron-core"\nstack_defaults = true\njitter = "0.5%"\nslow_hosts ='
        ' 0.005\nslow_factor = 1.2\nlength_mean = 900\nother_gpu = "a100"\nother_share ='
        ' 0.25\nsplit = "proportional"\ntoken_bytes = 4\ndata_storage = "nfs"\nworkers = 2\n'
    )
    flags = dpplan(
        *REQUEST,
        *argv(
            "--jitter 0.5% --slow-hosts 0.5% --slow-factor 1.2 --length-mean 900 --other-gpu a100 "
            "--other-share 25% --split proportional --token-bytes 4 --data-storage nfs --workers "
            "2 --json"
        ),
    ).json()
    document = dpplan("estimate", "--scenario", file, "--json").json()
    assert document["step"] == flags["step"]
    assert document["stragglers"] == flags["stragglers"]
    assert document["input"] == flags["input"]
    file.write_text('model = "gpt2"\ngpu = "a100"\nworkers = 0\n')
    refused(dpplan("estimate", "--scenario", file), "--workers")
