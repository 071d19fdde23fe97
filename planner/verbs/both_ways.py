"""Defaults that decide an answer by more than its band, with the answer the other way."""

from __future__ import annotations

from collections.abc import Sequence

from planner.error import PlanError
from planner.estimate.run import reliability
from planner.formulas import flops
from planner.inputs import catalog
from planner.inputs.batch import largest_published
from planner.inputs.cluster import every_price
from planner.inputs.doubts import MTBF_GPU_HOURS
from planner.inputs.scenario import resolve
from planner.ledger import total
from planner.report import layout as report
from planner.search.answer import answer_of
from planner.specs.cluster import ClusterTemplate
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Figures, Report
from planner.specs.layers import of_samples
from planner.specs.options import Options
from planner.specs.plan import Plan
from planner.units import in_unit, percent, show

_WORTH = 0.1  # gain of a batch twice the default from which a much larger one is evaluated
_TWO, _HOUR_S, _DAY_S = 2, 3600.0, 86400.0
_LARGER = 16  # times the default, at most the largest published one


def both_ways(options: Options, plan: Plan, report: Report, advice: Sequence[Advice]) -> list[str]:
    """Sentences, each with the answer by a default and by another value of it. plan: of the
    answer."""
    sentences = (
        _taken_back(plan, report),  # first: the request names the machines
        _batch(options, report, advice),
        _sequence(options, plan, report),
        _precision(options, report, advice),
        _network(options, plan, report),
        _failures(plan, report),
        _reading(plan, report),
        _price(options, report),
    )
    return [sentence for sentence in sentences if sentence is not None]


def _beyond(report: Report, ratio: float) -> bool:
    """Whether an answer this many times this one lies outside of its band."""
    step = report.step
    return not step.low / step.seconds <= ratio <= step.high / step.seconds


def _batch(options: Options, report: Report, advice: Sequence[Advice]) -> str | None:
    """A default batch on this many GPUs that it limits."""
    if options.global_batch is not None or options.grad_accum is not None:
        return None
    doubled = [item for item in advice if set(item.changes) == {"global_batch"}]
    if not any(item.tokens_change_frac >= _WORTH for item in doubled):
        return None
    default, length = report.layout.global_batch, report.training.seq_len
    most = largest_published()[1] // (default * length)
    times = min(_LARGER, 1 << most.bit_length() >> 1)  # a power of two
    other = _answer(_with_batch(options, report, default * times)) if times > 1 else None
    if other is None:
        return None
    gain = other.throughput.tokens_per_s / report.throughput.tokens_per_s
    if not _beyond(report, 1 / gain):
        return None
    stack = f" --stack {report.stack.id}" if options.stack is None else ""
    return (
        f"the default batch decides: {_batch_text(report, default)} per step are {_whole(report)},"
        f" and --global-batch {default * times}{stack}{_tokens(report, default * times)}"
        f" {_whole(other)}"
    )


def _batch_text(report: Report, batch: int) -> str:
    """A batch in words: sequences and their tokens, or samples of another kind."""
    return f"{batch:,} {report.throughput.samples}{_tokens(report, batch)}"


def _tokens(report: Report, batch: int) -> str:
    length = report.training.seq_len
    return "" if length == 1 else f" ({show(batch * length, 'count')} tokens)"


def _with_batch(options: Options, report: Report, batch: int) -> Options:
    """The request with another batch on the stack of the answer: a search of all stacks takes
    several times as long, and seldom changes the stack."""
    return options.changed(global_batch=batch, stack=report.stack.id)


def _sequence(options: Options, plan: Plan, report: Report) -> str | None:
    """The default sequence, and the longest that the model has positions for, with as many tokens
    per step."""
    length, most = report.training.seq_len, plan.model.max_positions
    if options.seq_len is not None or of_samples(plan.model) or plan.lengths is not None:
        return None
    if most < 2 * length or not _beyond(report, _flop(plan, most) / _flop(plan, length)):
        return None
    batch = max(report.layout.global_batch * length // most, 1)
    longer = options.changed(seq_len=most, global_batch=batch, stack=report.stack.id)
    other = _answer(longer)
    if other is None:
        return None
    gain = other.throughput.tokens_per_s / report.throughput.tokens_per_s
    if not _beyond(report, 1 / gain):
        return None
    return (
        f"the default sequence decides: {length:,} tokens are {_whole(report)}, and --seq-len"
        f" {most} --global-batch {batch} {_whole(other)}"
    )


def _flop(plan: Plan, length: int) -> float:
    """Model FLOP per token with sequences of a length."""
    model = plan.model
    weights = total(flops.matmul_weights(model, length))
    attended = flops.attended_elements(model, length)
    return float(flops.model_flop(weights, attended, 1.0, flops.scanned_flop(model)))


def _precision(options: Options, report: Report, advice: Sequence[Advice]) -> str | None:
    """The default precision, and the fastest other one."""
    if options.precision is not None:
        return None
    others = [item for item in advice if set(item.changes) == {"precision"} and item.fits]
    best = max(others, key=lambda item: item.tokens_change_frac, default=None)
    if best is None or not _beyond(report, 1 / (1 + best.tokens_change_frac)):
        return None
    return (
        f"the default precision decides: {report.training.precision} takes"
        f" {show(report.step.seconds, 's')} per step, and --precision {best.changes['precision']}"
        f" {show(best.step_seconds, 's')}"
    )


def _network(options: Options, plan: Plan, report: Report) -> str | None:
    """The usual node of the GPU, and the known cluster with this GPU that has the slowest
    network."""
    cluster = plan.cluster
    stated = (options.cluster, options.inter_node, options.nics_per_node, options.nic_bandwidth)
    if cluster.nodes < _TWO or options.calibration or any(value is not None for value in stated):
        return None
    usual = cluster.nics_per_node * float(cluster.nic_bandwidth)
    known = {
        each.nics_per_node * float(each.nic_bandwidth): each
        for each in catalog.load_all("clusters", ClusterTemplate)
        if each.gpu == cluster.gpu.id
    }
    slowest = min(known, default=usual)
    between = sum(each.seconds for each in report.communication if each.across_nodes)
    most_s = report.step.seconds + between * (usual / slowest - 1)
    if slowest >= usual or not _beyond(report, most_s / report.step.seconds):
        return None
    name = known[slowest].id
    other = _answer(options.changed(gpu=None, cluster=name, stack=report.stack.id))
    if other is None or not _beyond(report, other.step.seconds / report.step.seconds):
        return None
    return (
        f"the default network decides: {show(report.step.seconds, 's')} per step with"
        f" {in_unit(usual, 'Gbit/s'):,.0f} Gbit/s per node, {show(other.step.seconds, 's')} with"
        f" the {in_unit(slowest, 'Gbit/s'):,.0f} of --cluster {name}"
    )


def _goodput(plan: Plan, report: Report, **update: float | None) -> float:
    """Share of the time that advances training where run settings differ, on machines that are
    kept."""
    run = plan.run.model_copy(update={"preempted_s": None, **update})
    stopped = report.run.reliability.stopped_gpus
    return reliability(plan.model_copy(update={"run": run}), stopped)[1]


def _taken_back(plan: Plan, report: Report) -> str | None:
    """Machines that are taken back, and such as are kept."""
    here, kept = report.run.goodput, _goodput(plan, report)
    if not plan.run.is_preempted or not _beyond(report, here / kept):
        return None
    gone = (report.run.reliability.taken_back_s or 0.0) / _DAY_S
    return (
        f"machines that are taken back decide: one of the job's every {show(gone, 'days')}, and"
        f" {percent(here, 0)} of the time advances training; on machines that are kept"
        f" {percent(kept, 0)} (--market)"
    )


def _failures(plan: Plan, report: Report) -> str | None:
    """The default time between failures, and the least and the most that is published."""
    if plan.run.states_failures or _taken_back(plan, report) is not None:
        return None
    here = _goodput(plan, report)
    ends = [_goodput(plan, report, mtbf_gpu_s=hours * _HOUR_S) for hours in MTBF_GPU_HOURS]
    if not any(_beyond(report, here / end) for end in ends):
        return None
    low, high = (
        f"{percent(end, 0)} with one per {h:,.0f}"
        for end, h in zip(ends, MTBF_GPU_HOURS, strict=True)
    )
    each = report.run.reliability.mtbf_gpu_s / _HOUR_S
    return (
        f"the time between failures decides: one per {each:,.0f} GPU-hours leaves"
        f" {percent(here, 0)} of the time to training, {low}, {high} (--mtbf)"
    )


def _reading(plan: Plan, report: Report) -> str | None:
    """Ranks that each read whole weights by the default of the stack, and one of each host."""
    memory, cluster = report.memory, report.cluster
    room, readers = memory.host_room_bytes, (plan.training.weight_readers, plan.stack.pretrained)
    if room is None or readers != (None, "each-rank") or memory.host_pretrained_bytes <= room:
        return None
    ranks = min(cluster.gpus, cluster.gpus_per_node)
    whole, most = show(memory.host_pretrained_bytes * ranks, "B"), show(room * ranks, "B")
    return (
        f"the default of who reads the weights decides on host memory: every rank, as"
        f" {report.stack.id} does, takes {whole} of the {most} of a node, and --weight-readers"
        f" each-host {show(memory.host_pretrained_bytes, 'B')}"
    )


def _price(options: Options, report: Report) -> str | None:
    """The default kind of price, and all others."""
    cost, usd = report.run.cost_usd, report.cluster.usd_per_gpu_hour
    if cost is None or not usd or options.market is not None:
        return None
    prices = [in_unit(float(price), "USD/h") for price in every_price(options)]
    low, high = min(prices) / usd, max(prices) / usd
    if not (_beyond(report, low) or _beyond(report, high)):
        return None
    return (
        f"the kind of price decides: {show(cost, 'USD')} at {report.cluster.price_market},"
        f" {show(cost * low, 'USD')} to {show(cost * high, 'USD')} over all kinds (--market)"
    )


def _answer(options: Options) -> Figures | None:
    """Figures of the best layout of a request, as its own command finds it; None: none fits."""
    try:
        answer = answer_of(resolve(options))
    except PlanError:
        return None
    if answer is None or not answer.fits:
        return None
    return report.figures(report.evaluate_row(answer.chosen, answer.row))


def _whole(report: Report | Figures) -> str:
    """Outcome of an answer: days and cost, or the rate without tokens of the whole run."""
    if report.run.days is None:
        rate = report.throughput
        if rate.samples == "sequences":
            return f"{show(rate.tokens_per_s, '')} tokens/s"
        return f"{show(rate.samples_per_s, '')} {rate.samples}/s"
    cost = "" if report.run.cost_usd is None else f" and {show(report.run.cost_usd, 'USD')}"
    return f"{show(report.run.days, 'days')}{cost}"
