"""Options become specs: stragglers and heterogeneity, document lengths, the input pipeline."""

from __future__ import annotations

from planner.formulas.input_pipeline import PREFETCH
from planner.formulas.run_level import READ_OVER_WRITE
from planner.formulas.stragglers import longer_frac
from planner.inputs import catalog
from planner.inputs.run import storage_of
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.data import InputSpec, LengthsSpec
from planner.specs.hardware import GpuSpec, StorageSpec
from planner.specs.layers import attended_of
from planner.specs.model import ModelSpec
from planner.specs.names import Split
from planner.specs.options import LOADING, Options
from planner.specs.options.numbers import number
from planner.specs.parts import Attended
from planner.specs.ranks import RanksSpec
from planner.specs.training import TrainingSpec

_SPLIT: Split = "equal"  # of the batch between two kinds of GPUs
_PACE = {"equal": ", so that all keep the pace of the slower", "proportional": ""}
_LEAST_LEFT = 1e-6  # of documents, below which a data set has none
_SLOW_BY = 1.1  # how much longer a slow host takes when the request does not say


def ranks_spec(options: Options, cluster: ClusterSpec, training: TrainingSpec) -> RanksSpec:
    """How ranks differ. Raises PlanError naming the option."""
    factor = options.slow_factor or _SLOW_BY
    other, share = None, 0.0
    if options.other_gpu is not None:
        other, share = _other(options, cluster, training)
    return RanksSpec(
        jitter_frac=number(options, "jitter"),
        slow_frac=number(options, "slow_hosts") or 0.0,
        slow_by_frac=factor - 1,
        other=other,
        other_frac=share,
        split=options.split or _SPLIT,
    )


def _other(options: Options, cluster: ClusterSpec, training: TrainingSpec) -> tuple[GpuSpec, float]:
    """The second kind of GPU and its share: whole hosts, of a single host whole GPUs."""
    card = catalog.load("gpus", GpuSpec, options.other_gpu or "")
    if card.rate(training.precision) is None:
        raise PlanError(
            "--other-gpu",
            options.other_gpu,
            f"{card.title} has no {training.precision}; name a --precision of both",
        )
    if options.other_share is None:
        raise PlanError(
            "--other-gpu",
            options.other_gpu,
            "needs --other-share, the share of GPUs of this kind, such as '25%'",
        )
    share = number(options, "other_share") or 0.0
    if not 0 < share < 1:
        raise PlanError(
            "--other-share",
            options.other_share,
            "must be more than 0 and less than 1; with one kind, name it in --gpu",
        )
    # hosts of one kind each; in a single box its cards
    many, part = (cluster.nodes, "hosts") if cluster.nodes > 1 else (cluster.gpus, "GPUs")
    count = share * many
    if many < 2 or abs(count - round(count)) > 1e-6 or round(count) in (0, many):
        near = min(max(round(count), 1), max(many - 1, 1))
        raise PlanError(
            "--other-share",
            options.other_share,
            f"must be whole {part}, of {many} here: take {near}/{many} = {near / many:.6g}"
            if many > 1
            else "needs two GPUs or more; give --gpus",
        )
    return card, share


def two_kinds(options: Options, cluster: ClusterSpec) -> list[str]:
    """Assumptions about GPUs of two kinds, as a sentence. Raises PlanError for an unknown kind."""
    share = number(options, "other_share")
    if options.other_gpu is None or share is None:
        return []
    split = options.split or _SPLIT
    return [
        f"two kinds of GPUs: {share:.0%} are"
        f" {catalog.load('gpus', GpuSpec, options.other_gpu).title}, {split} split of the"
        f" batch{_PACE[split]}; replicas use one GPU type where possible; links, price and power"
        f" of {cluster.gpu.title}, memory of the smaller (--other-gpu, --other-share, --split)"
    ]


def packs(model: ModelSpec) -> bool:
    """Whether attention over packed documents is modelled: the keys of a query hang on nothing but
    how far back they lie in its document."""

    def plain(core: Attended) -> bool:
        windowed = core.kernel == "attention" and core.rate == 1 and not core.near
        return core.chunk is None and (core.window is None or windowed)

    return all(plain(core) for core, _ in attended_of(model))


def lengths_spec(options: Options, model: ModelSpec, seq_len: int) -> LengthsSpec | None:
    """Lengths of documents, None where every sequence is full. Raises PlanError naming the
    option."""
    if options.length_mean is None:
        return None
    if model.towers:
        remedy = f"needs one length per sample, and {model.name} has several; leave it out"
        raise PlanError("--length-mean", options.length_mean, remedy)
    packing = options.packing or ("packed" if packs(model) else "padded")
    if packing == "packed" and not packs(model):
        raise PlanError(
            "--packing",
            "packed",
            f"{model.name} attends to blocks of tokens or to chosen ones, whose work over packed"
            " documents is not modelled; take --packing padded",
        )
    sparse = any(core.kernel != "attention" for core, _ in attended_of(model))
    if packing in ("longest", "bucketed") and sparse:
        raise PlanError(
            "--packing",
            packing,
            f"{model.name} has attention to chosen keys, whose time over rows of different lengths"
            " is not modelled; take --packing padded",
        )
    sigma = 1.0 if options.length_sigma is None else options.length_sigma
    spec = LengthsSpec(
        mean_tokens=options.length_mean,
        sigma=sigma,
        packing=packing,
        longest_tokens=options.longest_row,
        excess=options.excess_length or "truncate",
        short_tokens=options.short_length,
    )
    _refuse_nothing_left(spec, seq_len)
    return spec


def _refuse_nothing_left(spec: LengthsSpec, seq_len: int) -> None:
    """Refuse lengths of which hardly a document is neither too long nor too short to train on."""
    long = longer_frac(spec.mean_tokens / seq_len, spec.sigma) if spec.excess == "drop" else 0.0
    kept = longer_frac(spec.mean_tokens / (spec.short_tokens or _LEAST_LEFT), spec.sigma)
    if kept - long >= _LEAST_LEFT:
        return
    ways = {
        "--excess-length drop": spec.excess == "drop",
        f"--short-length {spec.short_tokens}": spec.short_tokens is not None,
    }
    remedies = {
        "take --excess-length truncate": spec.excess == "drop",
        "lower --short-length": spec.short_tokens is not None,
    }
    named = " and ".join(way for way, is_taken in ways.items() if is_taken)
    remedy = ", ".join(way for way, is_taken in remedies.items() if is_taken)
    raise PlanError(
        "--length-mean",
        spec.mean_tokens,
        f"leaves nothing to train on: with a sigma of {spec.sigma:g} less than one document in a"
        f" million is left by {named} of a sequence of {seq_len:,}; {remedy}, or raise --seq-len",
    )


def input_spec(options: Options, nodes: int) -> InputSpec | None:
    """The way of samples from storage to GPU, None where no option states it. Raises PlanError
    naming the option."""
    if all(getattr(options, name) is None for name in LOADING):
        return None
    if options.sample_bytes is not None and options.token_bytes is not None:
        raise PlanError(
            "--sample-bytes",
            options.sample_bytes,
            "and --token-bytes both say how large a sample is; leave one out",
        )
    spec: dict[str, float | None] = {
        "sample_bytes": number(options, "sample_bytes"),
        "decoded_bytes": number(options, "decoded_bytes"),
        "read_bytes": number(options, "read_bytes"),
        "token_bytes": options.token_bytes,
        "storage_bytes_per_s": _storage(options, nodes),
        "storage_reads_per_s": options.data_iops,
        "worker_samples_per_s": options.worker_rate,
    }
    latency = number(options, "read_latency") or 0.0
    return InputSpec(
        **spec,
        read_latency_s=latency,
        workers=options.workers,
        prefetch=options.prefetch or PREFETCH,
    )


def _storage(options: Options, nodes: int) -> float | None:
    """--data-storage in bytes per second that it reads for the whole job."""
    storage = storage_of(options, "data_storage")
    if not isinstance(storage, StorageSpec):
        return storage
    if storage.read_per_node is None:
        return storage.bytes_per_s(nodes) * READ_OVER_WRITE
    return float(storage.read_per_node) * nodes
