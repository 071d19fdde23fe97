"""One declaration of the options that estimate, search and export share, turned into typer
parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

# name -> (type, help, panel); names, defaults and meaning are those of
# planner.specs.options.Options
_CLUSTER, _LAYOUT, _TRAINING = "Cluster", "Layout (what is left out is searched)", "Training"
_RUN = "Run: cost, energy, failures"
_RANKS, _DATA = "Ranks that differ", "Data and its loading"

_OPTIONS: dict[str, tuple[type, str, str]] = {
    "model": (str, "Catalogue name, Hugging Face config.json or model TOML", "Model"),
    "gpu": (str, "GPU id or alias (dpplan list gpus) or a GPU TOML", _CLUSTER),
    "gpus": (int, "Number of GPUs", _CLUSTER),
    "cluster": (str, "Node or cloud instance (dpplan list clusters) or a TOML", _CLUSTER),
    "gpus_per_node": (int, "GPUs per node", _CLUSTER),
    "intra_node": (str, "Link inside a node (dpplan list networks)", _CLUSTER),
    "inter_node": (str, "Fabric between nodes", _CLUSTER),
    "nics_per_node": (int, "Network cards per node", _CLUSTER),
    "nic_bandwidth": (str, "One card, one direction, e.g. '200 Gbit/s'", _CLUSTER),
    "price": (str, "US dollars per GPU-hour", _CLUSTER),
    "clock": (
        float,
        "Tensor clock under load, share of the clock of the dense rate, as measured on the cluster",
        _CLUSTER,
    ),
    "power_limit": (
        str,
        "Power limit of one GPU, e.g. '500 W': lowers the clock under load",
        _CLUSTER,
    ),
    "host_link": (
        str,
        "Link between GPU and host memory, for offloading (dpplan list networks)",
        _CLUSTER,
    ),
    "nvme_read": (
        str,
        "What the NVMe drives of a node read together, e.g. '10 GB/s', for offloading to them",
        _CLUSTER,
    ),
    "nvme_write": (str, "What they write, e.g. '5 GB/s'", _CLUSTER),
    "nvme_capacity": (
        str,
        "Room on them for offloaded states, e.g. '30 TB'; not checked where it is not known",
        _CLUSTER,
    ),
    "tp": (int, "Tensor parallel", _LAYOUT),
    "pp": (int, "Pipeline parallel", _LAYOUT),
    "vpp": (int, "Chunks of layers per rank (interleaved, breadth-first; 2 in a V)", _LAYOUT),
    "dp": (int, "Data parallel", _LAYOUT),
    "cp": (int, "Context parallel", _LAYOUT),
    "ep": (int, "Expert parallel (inside dp x cp)", _LAYOUT),
    "zero": (int, "ZeRO stage 0-3 (3 = FSDP)", _LAYOUT),
    "shard_group": (int, "Ranks over which ZeRO-3 shards (hybrid sharding)", _LAYOUT),
    "sequence_parallel": (bool, "Sequence parallelism beside tensor parallelism", _LAYOUT),
    "schedule": (str, "Pipeline schedule (dpplan list schedules)", _LAYOUT),
    "recompute": (
        str,
        "none, selective, full, block:N (N layers per stage), group:K (one input per K layers)",
        _LAYOUT,
    ),
    "micro_batch": (int, "Sequences per replica and pass", _LAYOUT),
    "offload": (
        str,
        (
            "none, optimizer, params, activations (to host memory); optimizer-nvme,"
            " params-optimizer-nvme, params-nvme"
        ),
        _LAYOUT,
    ),
    "placement": (
        str,
        (
            "Order of ranks, innermost first: tp-cp-dp-pp (stages apart) or tp-cp-pp-dp (replicas"
            " apart)"
        ),
        _LAYOUT,
    ),
    "where": (
        list[str],
        "Only layouts with this, such as 'tp <= 8' or 'recompute = none'; may be repeated",
        _LAYOUT,
    ),
    "search_offload": (
        bool,
        "Try everything that the software can offload to host memory, too",
        _LAYOUT,
    ),
    "uneven_stages": (bool, "Try pipelines whose stages differ in layers, too", _LAYOUT),
    "seq_len": (int, "Tokens per sequence", _TRAINING),
    "global_batch": (int, "Sequences per optimizer step", _TRAINING),
    "precision": (str, "fp32, tf32, fp16, bf16, fp8", _TRAINING),
    "optimizer": (str, "adam, adam8bit, adafactor, sgd, sgd-momentum", _TRAINING),
    "flash_attention": (bool, "Fused attention", _TRAINING),
    "loss_chunks": (
        int,
        "Parts of the tokens whose logits and loss come in turn (fused linear cross-entropy)",
        _TRAINING,
    ),
    "tokens": (str, "Tokens of the whole run, e.g. 15T: adds days, cost and energy", _TRAINING),
    "market": (str, "Which list price: on-demand, spot, community, ... (docs/catalogue.md)", _RUN),
    "capex": (
        str,
        "Own hardware: dollars per GPU with its share of server and network; replaces the price",
        _RUN,
    ),
    "lifetime": (str, "Years over which own hardware is written off", _RUN),
    "use": (str, "Share of its lifetime in which own hardware earns, e.g. 80%", _RUN),
    "electricity": (str, "Own hardware: dollars per kWh", _RUN),
    "pue": (float, "Energy of the building over that of its computers", _RUN),
    "grid": (str, "CO2 of electricity, g per kWh", _RUN),
    "mtbf": (str, "GPU-hours between failures of the job", _RUN),
    "checkpoint": (str, "async: training goes on while the file is written, or sync", _RUN),
    "checkpoint_interval": (str, "Minutes between checkpoints; default: the best", _RUN),
    "storage": (
        str,
        (
            "Checkpoint storage: local-nvme, parallel-fs, object-store, nfs, or what it writes: '20"
            " GB/s'"
        ),
        _RUN,
    ),
    "restart": (str, "Minutes from a failure to the next step, without loading", _RUN),
    "spare_nodes": (int, "Nodes that are paid for and wait for failures", _RUN),
    "jitter": (
        str,
        (
            "Standard deviation of a rank's step over its mean, e.g. 0.5%; the step waits for the"
            " slowest"
        ),
        _RANKS,
    ),
    "slow_hosts": (str, "Chance of a host to be slow, e.g. 0.5%", _RANKS),
    "slow_factor": (float, "How many times as long a slow host computes (1.1)", _RANKS),
    "other_gpu": (str, "GPU of the other hosts, in a cluster of two kinds", _RANKS),
    "other_share": (str, "Share of the GPUs that are of the other kind, e.g. 25%", _RANKS),
    "split": (str, "Of the batch over two kinds: equal, or proportional to their speed", _RANKS),
    "length_mean": (float, "Mean tokens of a document; default: every sequence is full", _DATA),
    "length_sigma": (float, "Standard deviation of the logarithm of the length (1)", _DATA),
    "packing": (
        str,
        (
            "padded: one document per sequence, or packed: filled with documents that do not see"
            " each other"
        ),
        _DATA,
    ),
    "sample_bytes": (str, "Bytes read per sample; default: the stored tokens of a sequence", _DATA),
    "token_bytes": (
        float,
        "Bytes of a stored token; default: 2, or 4 from a vocabulary of 65,500 on",
        _DATA,
    ),
    "decoded_bytes": (str, "Bytes of a sample in host memory, as copied to the GPU", _DATA),
    "read_bytes": (str, "Bytes of one read; default: a sample", _DATA),
    "data_storage": (
        str,
        (
            "Storage of the data: local-nvme, parallel-fs, object-store, nfs, or what it reads: '40"
            " GB/s'"
        ),
        _DATA,
    ),
    "data_iops": (float, "Reads per second that this storage answers", _DATA),
    "read_latency": (str, "Time that a worker waits for a read, e.g. '10 ms'", _DATA),
    "worker_rate": (float, "Samples per second that one worker decodes", _DATA),
    "workers": (int, "Workers that load the samples of one replica", _DATA),
    "prefetch": (int, "Batches that each worker loads ahead (2)", _DATA),
    "stack": (
        str,
        "Training software (dpplan list stacks); default: the usual one for each family of layouts",
        _TRAINING,
    ),
    "calibration": (str, "Calibration file of a measured node", _TRAINING),
    "scenario": (str, "TOML, YAML or JSON file with any of these options as keys", "Model"),
    "top": (int, "Number of layouts listed", "Output"),
}

HELP: dict[str, str] = {
    name: text for name, (_, text, _) in _OPTIONS.items()
}  # the page says the same


def with_request_options(
    command: Callable[..., None], several: tuple[str, ...] = ()
) -> Callable[..., None]:
    """Give a command `command(given: dict, **own)` all request options; unset ones are left out of
    `given`.

    several: options that may be given again; `given` has lists of them.
    """
    return _with(command, _OPTIONS, several)


LINK_OPTIONS = (
    "gpu",
    "gpus",
    "cluster",
    "gpus_per_node",
    "intra_node",
    "inter_node",
    "nics_per_node",
    "nic_bandwidth",
    "calibration",
)


def with_link_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same with the options that say which GPUs communicate over what."""
    return _with(command, {name: _OPTIONS[name] for name in LINK_OPTIONS})


INPUT_OPTIONS = (
    "sample_bytes",
    "decoded_bytes",
    "read_bytes",
    "data_storage",
    "data_iops",
    "read_latency",
    "worker_rate",
    "workers",
    "prefetch",
)


def with_input_options(command: Callable[..., None]) -> Callable[..., None]:
    """The same with the options that say how samples are loaded."""
    return _with(command, {name: _OPTIONS[name] for name in INPUT_OPTIONS})


def _with(
    command: Callable[..., None],
    options: dict[str, tuple[Any, str, str]],
    several: tuple[str, ...] = (),
) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True).parameters
    parameters = []
    for name, (kind, text, panel) in options.items():
        dashed = "--" + name.replace("_", "-")
        declared = f"{dashed}/--no-{dashed[2:]}" if kind is bool else dashed
        if name in several:
            kind, text = list[str], f"{text}; may be given again"
        note = Annotated[
            kind | None,  # type: ignore[valid-type]
            typer.Option(declared, help=text, rich_help_panel=panel, show_default=False),
        ]
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=note)
        )
    rest = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for n, p in own.items() if n != "given"]

    def wrapper(**values: Any) -> None:
        given = {name: values.pop(name) for name in options}
        if "where" in given:
            given["where"] = (
                given["where"] or None
            )  # typer has an empty list where the option is not given
        command(given=given, **values)

    wrapper.__name__, wrapper.__doc__ = command.__name__, command.__doc__
    wrapper.__signature__ = inspect.Signature([*parameters, *rest])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*parameters, *rest]}
    return wrapper
