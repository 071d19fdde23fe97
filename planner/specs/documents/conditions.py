"""Ranks that wait for one another, and the data they read."""

from __future__ import annotations

from typing import Annotated

from planner.specs.data import Packing
from planner.specs.document import Document, key
from planner.specs.ranks import Split


class Mixed(Document):
    """Two kinds of GPUs in one job."""

    gpu: Annotated[str, key("profile id of the other kind")]
    share: Annotated[float, key("share of the GPUs of the other type", "1")]
    split: Annotated[Split, key("how the batch is split: equal or proportional")]
    own_s: Annotated[float, key("compute of a step with all GPUs `cluster.gpu`", "s")]
    other_s: Annotated[float, key("compute of a step with all GPUs of the other kind", "s")]
    together_s: Annotated[float, key("computing of a step on both", "s")]


class Lengths(Document):
    """Documents of different lengths; shares count tokens."""

    packing: Annotated[Packing, key("padded, longest, bucketed or packed")]
    mean_tokens: Annotated[
        float, key("mean length of a row's document, long ones cut, split or left out", "tokens")
    ]
    dropped_frac: Annotated[
        float, key("share of documents left out as longer than a sequence or too short", "1")
    ]
    useful_frac: Annotated[float, key("share of tokens that are not padding", "1")]
    useful_tokens_per_s: Annotated[float, key("throughput without padding", "tokens/s")]
    padded_frac: Annotated[
        float, key("`useful_frac` when every document is padded to the sequence", "1")
    ]
    padded_to_longest_frac: Annotated[
        float, key("and when it is padded to the longest of its micro-batch", "1")
    ]
    bucketed_frac: Annotated[
        float, key("and when micro-batches hold documents of like lengths", "1")
    ]
    attention_frac: Annotated[float, key("share of a full row's attention that is computed", "1")]
    imbalance_frac: Annotated[
        float,
        key(
            "how much more the fullest replica has to do than the mean one: of attention where rows"
            " are packed, else of all that it computes",
            "1",
        ),
    ]


class Stragglers(Document):
    """Step time added by waiting for the slowest rank."""

    seconds: Annotated[
        dict[str, float],
        key(
            "parts of the step by reason, names below; in `step.components.stragglers`, or in"
            " `overhead` where neither jitter, slow hosts nor packing was given",
            "s",
        ),
    ]
    share: Annotated[float, key("share of the step that all reasons take", "1")]
    jitter_frac: Annotated[float, key("standard deviation of a rank's step over its mean", "1")]
    bound_frac: Annotated[float, key("sigma sqrt(2 ln N), the bound of the jitter's part", "1")]
    slow_job_frac: Annotated[float, key("chance that the job has a slow host", "1")]
    mixed: Annotated[Mixed | None, key("null with one kind of GPU")]
    lengths: Annotated[Lengths | None, key("null without `--length-mean`")]


class InputTimes(Document):
    """Time of one step's samples by stage of the input pipeline; 0: no limit given."""

    storage: Annotated[float, key("reading at the storage's bandwidth", "s")]
    requests: Annotated[float, key("reading at the storage's rate of requests", "s")]
    workers: Annotated[float, key("decoding by the workers", "s")]
    copies: Annotated[float, key("copies to the GPU", "s")]


class Input(Document):
    """Requirements on the input pipeline."""

    sample_bytes: Annotated[float, key("read per sample", "B")]
    decoded_bytes: Annotated[float, key("copied to the GPU per sample", "B")]
    samples_per_s: Annotated[
        float, key("samples that the job consumes when it does not wait", "samples/s")
    ]
    samples_per_s_per_node: Annotated[float, key("likewise for one node", "samples/s")]
    bytes_per_s: Annotated[float, key("what storage must read", "B/s")]
    bytes_per_s_per_node: Annotated[float, key("likewise for one node", "B/s")]
    reads_per_s: Annotated[float, key("requests that storage must answer", "1/s")]
    reads_in_flight: Annotated[float, key("requests times latency")]
    workers: Annotated[int | None, key("workers per replica, as requested")]
    workers_needed: Annotated[
        int, key("workers per replica, so that the step does not wait for them")
    ]
    workers_busy: Annotated[float, key("workers that are busy on average, if it does not")]
    prefetch: Annotated[int, key("batches ahead per worker")]
    prefetch_needed: Annotated[
        int, key("batches ahead per worker, so that all under way have a place")
    ]
    host_bytes_per_node: Annotated[float, key("host memory of the batches loaded ahead", "B")]
    covered_s: Annotated[float, key("stall of storage that it covers", "s")]
    seconds: Annotated[InputTimes, key("time of one step's samples by stage")]
    load_s: Annotated[float, key("the longest of `seconds`", "s")]
    wait_s: Annotated[float, key("what the step waits; `step.components.input`", "s")]
    bound: Annotated[
        str | None,
        key(
            "storage bandwidth, storage requests, workers or copies to the GPU; null where the"
            " step does not wait"
        ),
    ]
    remedy: Annotated[str | None, key("what to change; null where the step does not wait")]
