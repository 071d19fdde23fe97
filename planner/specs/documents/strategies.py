"""The answer of `dpplan strategies`."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import UNSET, Document, Doubted, Unset, key
from planner.specs.documents.explain import Explained
from planner.specs.documents.plan import LayoutChoice


class StrategiesCluster(Document):
    """The GPUs that hold the replicas."""

    title: Annotated[str, key("GPUs and links for people")]
    gpu: Annotated[str, key("profile id of the GPU")]
    gpus: Annotated[int, key("GPUs of the job")]
    nodes: Annotated[int, key("nodes of the job")]
    capacity_bytes: Annotated[float, key("what a framework can allocate on this GPU", "B")]


class StrategyLayout(LayoutChoice):
    """The micro-batch and recompute that are fastest for a strategy."""

    grad_accum: Annotated[int, key("micro-batches per replica and step")]


class Phases(Document):
    """Time of a step."""

    seconds: Annotated[float, key("`compute_s` and `exposed_s`", "s")]
    compute_s: Annotated[
        float,
        key("everything but communication of data parallelism, with encoding and decoding", "s"),
    ]
    exposed_s: Annotated[float, key("what that communication adds", "s")]
    hidden_s: Annotated[float, key("the part that overlaps with compute", "s")]


class SentBytes(Document):
    """Bytes that each GPU sends per step."""

    forward: Annotated[float, key("in the forward pass", "B")]
    backward: Annotated[float, key("in the backward pass", "B")]
    optimizer: Annotated[float, key("with the optimizer", "B")]
    between_nodes: Annotated[float, key("of these, per GPU, what leaves the node", "B")]


class Statistics(Document):
    """Convergence cost of a strategy."""

    exact: Annotated[
        bool,
        key(
            "a step has the result of one large synchronous batch; else the factor is an"
            " assumption, and the strategy is not among those that `best` is taken from"
        ),
    ]
    steps_factor: Annotated[
        float, key("steps to the same loss over the steps of exact training", "1")
    ]
    source: Annotated[str, key("where the factor was read")]
    break_even_steps: Annotated[
        float | None,
        key(
            "factor of steps at which it takes as long as the best exact"
            " strategy that fits; null for exact ones, and where none fits",
            "1",
        ),
    ]


class BucketLine(Document):
    """Gradients that are reduced together; seconds count from the start of backward."""

    tensors: Annotated[int, key("gradients in it")]
    bytes: Annotated[float, key("bytes reduced", "B")]
    ready_s: Annotated[float, key("when the last gradient is ready", "s")]
    start_s: Annotated[float, key("start of the reduction", "s")]
    end_s: Annotated[float, key("end of the reduction", "s")]


class BucketTimeline(Document):
    """The last backward pass, bucket by bucket."""

    backward_s: Annotated[float, key("of the last micro-batch", "s")]
    tail_s: Annotated[float, key("reductions after the end of backward", "s")]
    contention_s: Annotated[float, key("by which backward is slower beside reductions", "s")]
    exposed_s: Annotated[float, key("the sum of both", "s")]
    buckets: Annotated[list[BucketLine], key("in the order in which they become ready")]


class Strategy(Document):
    """One way of keeping replicas in step; all from `layout` on is null where it is refused."""

    name: Annotated[str, key("as for `--strategy`")]
    title: Annotated[str, key("name for people")]
    family: Annotated[str, key("DDP, ZeRO, offload, FSDP, frameworks, compressed, local, server")]
    differs: Annotated[str, key("what sets it apart")]
    source: Annotated[str, key("where it was read")]
    stack: Annotated[str, key("whose plan is evaluated")]
    evaluated: Annotated[
        bool,
        key(
            "time and bytes are the estimator's own; else formulas on top of the plan's"
            " computation and memory"
        ),
    ]
    refused: Annotated[str | None, key("why it cannot run")]
    fits: Annotated[bool, key("memory suffices")]
    layout: Annotated[
        StrategyLayout | None, key("the micro-batch and recompute that are fastest for it")
    ]
    device_bytes: Annotated[float | None, key("device memory of a GPU", "B")]
    host_bytes: Annotated[float | None, key("offloaded, per GPU", "B")]
    step: Annotated[Phases | None, key("time of a step")]
    sent_bytes: Annotated[SentBytes | None, key("what each GPU sends per step")]
    statistics: Annotated[Statistics | None, key("cost in convergence")]
    seconds_per_token: Annotated[
        float | None, key("step times steps factor over tokens of a step", "s")
    ]
    break_even_bytes_per_s: Annotated[
        float | None,
        key("bandwidth per GPU below which a code pays; null without compression", "B/s"),
    ]
    timeline: Annotated[BucketTimeline | None, key("null without `--strategy` or buckets")]


class Strategies(Doubted):
    """Ways of keeping replicas in step on one model, cluster and batch."""

    schema_version: Annotated[int, key("1")]
    model: Annotated[str, key("name of the model")]
    cluster: Annotated[StrategiesCluster, key("the GPUs that hold the replicas")]
    global_batch: Annotated[int, key("sequences per optimizer step")]
    seq_len: Annotated[int, key("sequence length", "tokens")]
    precision: Annotated[str, key("number format of training")]
    best: Annotated[
        str | None,
        key("the exact strategy of least time per token that fits; null with `--strategy`"),
    ]
    strategies: Annotated[list[Strategy], key("all, or the one named")]
    fits: Annotated[bool, key("any strategy fits")]
    assumptions: Annotated[list[str], key("what the request left open")]
    explain: Annotated[
        Explained | Unset, key("with `--explain`: formulas of the strategy, as in a report")
    ] = UNSET
