"""Implausible values of a request, each with the likely intention and the option that says it.

A value is doubted against what is shipped: list prices, the usual node of the GPU, published
batches and times between failures. It is answered all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

from planner.formulas import critical_batch, run_level
from planner.formulas.params import active_parameter_count
from planner.inputs import catalog
from planner.inputs.batch import largest_published, published, title_of
from planner.inputs.prices import depreciation, prices
from planner.inputs.run import storages
from planner.ledger import first
from planner.specs.cluster import ClusterSpec
from planner.specs.hardware import GpuSpec
from planner.specs.layers import of_samples
from planner.specs.model import ModelSpec
from planner.specs.options import Options
from planner.specs.options.numbers import number, number_in
from planner.specs.training import TrainingSpec
from planner.units import in_unit, show

DOUBTFUL = "DOUBTFUL"  # begins a doubt among other sentences

_HOUR_S, _YEAR_S = 3600.0, 365.25 * 86400.0
# published jobs: OPT-175B (arXiv 2205.01068) restarted more than 100 times in 2 months on 992 GPUs,
# one failure per 14,000 GPU-hours; RSC-2 (arXiv 2410.21680) had 2.34 failures per thousand days of
# nodes of 8, one per 82,000
MTBF_GPU_HOURS = (14_000.0, 82_000.0)
_MTBF_BEYOND = 12.0  # times outside of these from which a time between failures is doubted
_BATCH_BEYOND = 4.0  # times the largest published batch
_CRITICAL_BEYOND = (
    100.0  # times the critical batch, where more tokens per step gain next to nothing
)
_PRICE_BEYOND = 3.0  # times outside of all list prices of the GPU
_CAPEX_BEYOND = 5.0  # times what the lowest of these prices would pay back, or less by as much
_SLOWER = 200.0  # times slower than the NICs of the usual node
_FASTER = 4.0  # times faster; the next two generations
_SHORTEST = 64  # tokens; the shortest published pre-training is at 128 (BERT, arXiv 1810.04805)
_LONGEST = 20_000_000  # tokens; twice the longest context that is published (Llama 4 Scout)
_PASSES = 200_000.0  # tokens per parameter: ten times SmolLM2-135M's 15,000
_FEWEST = 10_000  # tokens; a run of fewer is a number whose suffix is missing
_STEPS_BEYOND = 4.0  # times the longest published run
# Llama 3's storage writes 2 TB/s, 7 TB/s at its peak (arXiv 2407.21783, section 3.3.1)
_FASTEST_STORAGE = 7e12
_LONGEST_RESTART_S = 12 * 3600.0  # a night without an operator
_THOUSAND = 1000.0


@dataclass(frozen=True)
class OfCluster:
    """Subject of a check of machines: the options, and the cluster made of them."""

    options: Options
    cluster: ClusterSpec


@dataclass(frozen=True)
class Request(OfCluster):
    """Subject of a check: the options, and the specifications made of them."""

    model: ModelSpec
    training: TrainingSpec


def doubts(request: OfCluster) -> tuple[str, ...]:
    """Sentences about implausible values; empty for an ordinary request."""
    of_work = (check(request) for check in _OF_WORK) if isinstance(request, Request) else ()
    sentences = (*of_work, *(check(request) for check in _OF_CLUSTER))
    return tuple(sentence for sentence in sentences if sentence is not None)


def of_several(requests: Iterable[Iterable[str]]) -> list[str]:
    """Doubts of many requests that differ in machines: of each option the first sentence."""
    out: dict[str, str] = {}
    for sentence in (sentence for sentences in requests for sentence in sentences):
        out.setdefault(sentence.split(maxsplit=1)[0], sentence)
    return list(out.values())


def flagged(sentences: tuple[str, ...]) -> tuple[str, ...]:
    """Doubts as they stand among the assumptions of an answer."""
    return tuple(f"{DOUBTFUL}: {sentence}" for sentence in sentences)


def unflagged(sentences: Iterable[str]) -> tuple[str, ...]:
    """The doubts among sentences."""
    begin = f"{DOUBTFUL}: "
    return tuple(
        sentence.removeprefix(begin) for sentence in sentences if sentence.startswith(begin)
    )


def _batch(request: Request) -> str | None:
    """Tokens taken for sequences."""
    batch, length = request.options.global_batch, request.training.seq_len
    if batch is None or of_samples(request.model):
        return None
    name, largest = largest_published()
    tokens, critical = batch * length, _critical_tokens(request)
    if request.training.tokens is not None and request.training.tokens < max(tokens, _FEWEST):
        return None  # the tokens of the run are the doubtful number
    if tokens <= _BATCH_BEYOND * largest and tokens <= _CRITICAL_BEYOND * critical:
        return None
    sequences = max(1, round(batch / length))
    intended = (
        f"; were {batch:,} tokens meant? --global-batch {sequences}" if batch >= length else ""
    )
    return (
        f"--global-batch {batch:,} are sequences, {show(tokens, 'count')} tokens per step:"
        f" {tokens / critical:,.0f} times the critical batch of this run"
        f" ({show(critical, 'count')} tokens, arXiv 2001.08361), the largest published is"
        f" {show(largest, 'count')} ({name}){intended}"
    )


def _critical_tokens(request: Request) -> float:
    """Critical batch at the loss that the run is expected to end with."""
    parameters = float(active_parameter_count(request.model))
    tokens = request.training.tokens or 20.0 * parameters
    loss = critical_batch.expected_loss(parameters, tokens)
    return first(critical_batch.critical_batch_at_loss(loss))


def _steps(request: Request) -> str | None:
    """A batch so small that the run has more steps than any published one."""
    batch, tokens = request.options.global_batch, request.training.tokens
    if batch is None or tokens is None or of_samples(request.model):
        return None
    if request.training.seq_len < _SHORTEST:
        return None  # the sequence is the doubtful number
    steps = tokens / (batch * request.training.seq_len)
    longest = _longest_published()
    if longest is None or steps <= _STEPS_BEYOND * longest[1]:
        return None
    name, most = longest
    return (
        f"--global-batch {batch:,} makes {show(steps, 'count')} steps of"
        f" {show(tokens, 'count')} tokens: the longest published run has {show(most, 'count')}"
        f" ({name}); without --global-batch a published batch is taken"
    )


@cache
def _longest_published() -> tuple[str, float] | None:
    """The model of the catalogue whose run had the most steps, and their number; None: no run is
    published."""
    steps = {
        name: each.run.tokens / each.batch_tokens
        for name, each in published().items()
        if each.run is not None and each.run.tokens and each.batch_tokens
    }
    name, most = max(steps.items(), key=lambda pair: pair[1], default=("", 0.0))
    return (title_of(name), most) if steps else None


def _tokens(request: Request) -> str | None:
    tokens = request.training.tokens
    parameters = float(active_parameter_count(request.model))
    if tokens is None or of_samples(request.model):
        return None
    if tokens <= _PASSES * parameters:
        return None
    return (
        f"--tokens {show(tokens, 'count')} are {tokens / parameters:,.0f} per parameter; the most"
        f" that is published is near 15,000: look at --tokens and --model"
    )


def _few_tokens(request: OfCluster) -> str | None:
    """A suffix left out."""
    tokens = number(request.options, "tokens")
    is_text = not isinstance(request, Request) or not of_samples(request.model)
    if tokens is None or tokens >= _FEWEST or not is_text:
        return None
    suffix = "T" if tokens < _THOUSAND else "B"
    return (
        f"--tokens {request.options.tokens} is a run of {tokens:,.0f} tokens; were {tokens:g}"
        f" {suffix} meant? --tokens {tokens:g}{suffix}"
    )


def message(size_bytes: float, cluster: ClusterSpec) -> str | None:
    """A doubt of a message of `allreduce`: larger than the memory that it is in."""
    room = float(cluster.gpu.memory)
    if size_bytes <= room:
        return None
    return (
        f"--bytes {show(size_bytes, 'traffic')} are more than the {show(room, 'B')} of a GPU: look"
        " at its unit"
    )


def _sequence(request: Request) -> str | None:
    """Thousands left out."""
    length = request.options.seq_len
    if length is None or of_samples(request.model) or _SHORTEST <= length <= _LONGEST:
        return None
    if length > _LONGEST:
        return f"--seq-len {length:,} is longer than any published context: look at --seq-len"
    return (
        f"--seq-len {length} is a sequence of {length} tokens, the shortest published pre-training"
        f" has 128; were {length}k meant? --seq-len {length}k"
    )


def _failures(request: OfCluster) -> str | None:
    """An MTBF of one GPU given as the MTBF of the job, or the reverse."""
    options, gpus = request.options, request.cluster.gpus
    if options.mtbf is None:
        return None
    stated_s, unit = number_in(options, "mtbf")
    of_job = unit == "h"
    each_h = stated_s / _HOUR_S * (gpus if of_job else 1)
    low, high = MTBF_GPU_HOURS[0] / _MTBF_BEYOND, MTBF_GPU_HOURS[1] * _MTBF_BEYOND
    if low <= each_h <= high or (of_job and gpus == 1):
        return None
    known = (
        f"published jobs fail once per {MTBF_GPU_HOURS[0]:,.0f} to {MTBF_GPU_HOURS[1]:,.0f}"
        " GPU-hours (arXiv 2205.01068, 2410.21680)"
    )
    hours = stated_s / _HOUR_S
    other_h = hours if of_job else hours * gpus
    meant = (
        f"; was the time of one GPU meant? --mtbf '{hours:g} GPU-hours'"
        if of_job
        else f"; was the time of the job meant? --mtbf '{hours:g} h'"
    )
    return (
        f"--mtbf {options.mtbf} is one failure per {each_h:,.0f} GPU-hours; {known}"
        f"{meant if low <= other_h <= high else ''}"
    )


@cache
def _listed(gpu: str) -> tuple[float, float, str] | None:
    """Lowest and highest list price of a GPU in USD per hour, of any kind, and who asks the lowest;
    None where it is on no list."""
    listed = [
        (in_unit(float(entry.usd_per_gpu_hour[gpu]), "USD/h"), entry.title)
        for entry in prices().list
        if gpu in entry.usd_per_gpu_hour
    ]
    return (min(listed)[0], max(listed)[0], min(listed)[1]) if listed else None


def _price(request: OfCluster) -> str | None:
    """Cents, or a price per node."""
    stated = number(request.options, "price")
    listed = _listed(request.cluster.gpu.id)
    if not stated or listed is None:
        return None
    low, high, who = listed
    usd = in_unit(stated, "USD/h")
    if low / _PRICE_BEYOND <= usd <= high * _PRICE_BEYOND:
        return None
    per_node = request.cluster.gpus_per_node
    each = usd / per_node
    meant = (
        f"; was it a node of {per_node}? --price {each:.4g}"
        if low / _PRICE_BEYOND <= each <= high * _PRICE_BEYOND
        else f"; without --price the list price is taken (--market), or --price {low:.2f}"
    )
    title = request.cluster.gpu.title
    return (
        f"--price {usd:g} USD per GPU-hour: list prices of {title} are {low:.2f} ({who}) to"
        f" {high:.2f}{meant}"
    )


def _purchase(request: OfCluster) -> str | None:
    """Thousands left out, or the price of a node."""
    stated = number(request.options, "capex")
    listed = _listed(request.cluster.gpu.id)
    if not stated or listed is None:
        return None
    lifetime_s, use_frac = depreciation(request.options)
    an_hour = float(run_level.owned_usd(1.0, 1.0, lifetime_s, use_frac)) * _HOUR_S
    pays_back = listed[0] / an_hour

    def believed(usd: float) -> bool:
        return pays_back / _CAPEX_BEYOND <= usd <= pays_back * _CAPEX_BEYOND

    if believed(stated):
        return None
    per_node = request.cluster.gpus_per_node
    likely = [
        (stated * 1e3, "were thousands meant"),
        (stated / per_node, f"was it a node of {per_node}"),
        (stated * 1e3 / per_node, f"were it thousands for a node of {per_node}"),
    ]
    meant = next((f"; {guess}? --capex {usd:.0f}" for usd, guess in likely if believed(usd)), "")
    return (
        f"--capex {stated:,.0f} USD per GPU is {stated * an_hour:.3g} USD per hour over its life,"
        f" and renting {request.cluster.gpu.title} costs {listed[0]:.2f} to {listed[1]:.2f}{meant}"
    )


def _network(request: OfCluster) -> str | None:
    """Mbit for Gbit, or bits for bytes."""
    stated = number(request.options, "nic_bandwidth")
    if stated is None or request.options.cluster is not None:
        return None
    usual = float(_usual_nic(request.cluster.gpu.id))
    if usual / _SLOWER <= stated <= usual * _FASTER:
        return None
    given = request.options.nic_bandwidth
    meant = ""
    nics = request.cluster.nics_per_node
    likely = [(1e3, "Gbit/s"), (1 / 8, "bits"), (1 / nics, f"all {nics} of a node")]
    for factor, unit in likely:
        if usual / 8 <= stated * factor <= usual * _FASTER:
            meant = f"; were {unit} meant? --nic-bandwidth"
            meant += f" '{in_unit(stated * factor, 'Gbit/s'):g} Gbit/s'"
            break
    return (
        f"--nic-bandwidth {given} is {max(usual / stated, stated / usual):,.0f} times"
        f" {'slower' if stated < usual else 'faster'} than the NICs of the usual node of"
        f" {request.cluster.gpu.title} ({in_unit(usual, 'Gbit/s'):g} Gbit/s){meant}"
    )


def _node(request: OfCluster) -> str | None:
    """GPUs of the job given as GPUs of a node."""
    each, options = request.cluster.gpus_per_node, request.options
    if options.gpus_per_node is None or each <= (most := _largest_node()):
        return None
    usual = request.cluster.gpu.node.gpus_per_node
    return (
        f"--gpus-per-node {each:,} is a node, within which links are those of"
        f" {request.cluster.intra_node.title}; the largest known has {most};"
        f" were GPUs of the job meant? --gpus {each} --gpus-per-node {usual}"
    )


@cache
def _largest_node() -> int:
    """Most GPUs of a node or an NVLink domain in the catalogue, without other accelerators."""
    gpus = catalog.load_all("gpus", GpuSpec)
    nodes = [entry.node for entry in gpus if entry.accelerator == "gpu"]
    return max(node.nvlink_domain or node.gpus_per_node for node in nodes)


def _spares(request: OfCluster) -> str | None:
    """Spare GPUs, or a number that was meant for something else."""
    spares, nodes = request.options.spare_nodes, request.cluster.nodes
    if spares is None or spares <= nodes:
        return None
    per_node = request.cluster.gpus_per_node
    meant = (
        f"; were {spares} GPUs meant? --spare-nodes {-(-spares // per_node)}"
        if spares / per_node <= nodes
        else ""
    )
    return (
        f"--spare-nodes {spares:,} are paid for and idle beside {nodes:,} nodes that train{meant}"
    )


def _storage(request: OfCluster) -> str | None:
    """Storage faster than any published one."""
    given, rate = request.options.storage, None
    if given is not None and given not in {storage.id for storage in storages()}:
        rate = number(request.options, "storage")
    if rate is None or rate <= _FASTEST_STORAGE:
        return None
    return (
        f"--storage {given} is faster than any published one (Llama 3's writes 7 TB/s at its peak,"
        " arXiv 2407.21783): look at its unit"
    )


def _restart(request: OfCluster) -> str | None:
    """Minutes taken for hours."""
    seconds = number(request.options, "restart")
    if seconds is None or seconds <= _LONGEST_RESTART_S:
        return None
    return (
        f"--restart {request.options.restart} is {show(seconds / _HOUR_S, 'h')} from each failure"
        " to the next step; jobs restart within minutes where a scheduler does it, and within a"
        " night where a person does: look at its unit"
    )


@cache
def _usual_nic(gpu: str) -> float:
    """Bytes per second of one NIC in the usual node of a GPU."""
    known = {entry.id: entry for entry in catalog.load_all("gpus", GpuSpec)}
    return float(known[gpu].node.nic_bandwidth) if gpu in known else 0.0


def _left_out(request: Request) -> str | None:
    """A model that is planned in part."""
    return f"--model is {left}" if (left := request.model.left_out) else None


_OF_WORK: tuple[Callable[[Request], str | None], ...] = (
    _left_out,
    _batch,
    _steps,
    _tokens,
    _sequence,
)
_OF_CLUSTER: tuple[Callable[[OfCluster], str | None], ...] = (
    _few_tokens,
    _failures,
    _price,
    _purchase,
    _network,
    _node,
    _spares,
    _storage,
    _restart,
)
