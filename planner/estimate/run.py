"""The whole run of a plan: failures and checkpoints, days, money, energy and CO2."""

from __future__ import annotations

from dataclasses import dataclass

from planner.estimate import uneven
from planner.estimate.machine import machine
from planner.estimate.memory import state_ledger
from planner.estimate.step import StepTime
from planner.estimate.trained import trained_count
from planner.formulas import run_level
from planner.ledger import Array, first, section, total
from planner.specs.base import PlanError
from planner.specs.cluster import ClusterSpec
from planner.specs.columns import Columns
from planner.specs.document import changed
from planner.specs.documents.run import Project, Reliability, Run, Storage
from planner.specs.plan import Plan
from planner.units import show

_USUAL_STORAGE = "parallel-fs"
_WAITING = "launch"  # of COMPUTING, where the GPU waits for the CPU
_NEVER = 1e-12  # lower bound of goodput, so that it can be divided by
_ENDLESS = 1e-3  # goodput of a run that never ends: a choice, a day of work in three years
_KWH_J, _DAY_S, _HOUR_S = 3.6e6, 86400.0, 3600.0


@dataclass(frozen=True)
class Checkpoints:
    """Size and time of checkpoints on one storage. saved: one is written before a host is taken
    back."""

    write_s: float
    stop_s: float
    interval_s: float
    best_interval_s: float
    restart_s: float  # with loading
    goodput: float
    saved: bool


@dataclass(frozen=True)
class Interruptions:
    """Times between failures of a job, and between hosts that are taken back (None: kept)."""

    failure_s: float
    taken_s: float | None = None
    notice_s: float = 0.0  # from the word that a host is taken back until it is
    stopped_frac: float = 1.0  # share of the job that a failed host stops

    @property
    def either_s(self) -> float:
        """Time until the first of both."""
        if self.taken_s is None:
            return self.failure_s
        return float(run_level.either_s(self.failure_s, self.taken_s))


def checkpoints(
    plan: Plan,
    size_bytes: float,
    storage_bytes_per_s: float,
    stops: Interruptions,
    host_copy_bytes_per_s: float,
    read_bytes_per_s: float | None = None,
) -> Checkpoints:
    """Checkpoints of this size on a storage that writes (and reads) so fast.

    host_copy_bytes_per_s: of one GPU to the memory of its host, which is all that an asynchronous
    checkpoint waits for. Where the notice is long enough to write one, nothing but the restart is
    lost to hosts that are taken back.
    """
    run = plan.run
    write = size_bytes / storage_bytes_per_s
    if run.checkpoint == "async":
        share = size_bytes / plan.cluster.gpus
        stop = float(run_level.checkpoint_stop_s(run_level.PAUSE_S, share, host_copy_bytes_per_s))
        behind = write  # the newest whole file is older by the time it takes to write one
    else:
        stop, behind = (
            float(run_level.checkpoint_stop_s(run_level.PAUSE_S, size_bytes, storage_bytes_per_s)),
            0.0,
        )
    saved = stops.taken_s is not None and run_level.PAUSE_S + write <= stops.notice_s
    lost_s = stops.failure_s if saved else stops.either_s
    best = float(run_level.checkpoint_interval_s(stop, lost_s))
    interval = run.interval_s or max(best, behind)
    load = size_bytes / (read_bytes_per_s or storage_bytes_per_s * run_level.READ_OVER_WRITE)
    restart = (run.restart_s if run.restart_s is not None else run_level.RESTART_S) + load
    if stops.stopped_frac < 1:
        good = float(
            run_level.goodput_of_replicas(
                interval, stop, run_level.REGROUP_S, restart, stops.stopped_frac, stops.either_s
            )
        )
        return Checkpoints(write, stop, interval, best, restart, good, saved=False)
    good = float(run_level.goodput(interval, stop, restart + behind, lost_s))
    if saved:
        stopped = run_level.PAUSE_S + write + restart
        good *= float(run_level.kept_frac(stopped, stops.taken_s))
    return Checkpoints(write, stop, interval, best, restart, good, saved)


def mtbf_gpu_s(cluster: ClusterSpec) -> float:
    """Running time of one GPU between failures of its job, where the request does not say."""
    consumer = cluster.gpu.segment == "consumer"
    return run_level.MTBF_CONSUMER_S if consumer else run_level.MTBF_GPU_S


def interruptions(plan: Plan, stopped: float) -> Interruptions:
    """Interruptions of the job, as stated or as published for its GPU and market. stopped: GPUs
    that a failed host stops."""
    run, cluster = plan.run, plan.cluster
    share = stopped / cluster.gpus
    if run.mtbf_s is not None:
        return Interruptions(run.mtbf_s, stopped_frac=share)
    each = run.mtbf_gpu_s or mtbf_gpu_s(cluster)
    failure = float(run_level.job_mtbf_s(each, cluster.gpus))
    if run.mtbf_gpu_s is not None or run.preempted_s is None:
        return Interruptions(failure, stopped_frac=share)
    taken = run.preempted_s * cluster.gpus_per_host
    back_s = float(run_level.job_mtbf_s(taken, cluster.gpus))
    return Interruptions(failure, back_s, run.notice_s or 0.0, share)


def stopped_gpus(plan: Plan, c: Columns) -> float:
    """GPUs that a failed host stops: of the job, or of the replicas with GPUs on it. A replica is
    what has all states: ZeRO's shards are in no other place. c: one layout."""
    gpus = float(plan.cluster.gpus)
    if plan.run.failure_stops == "job":
        return gpus
    ranks = first(c.tp * c.pp) * max(first(c.cp), first(c.shards), first(c.ep))
    hosts = -(-min(float(plan.cluster.gpus_per_host), gpus) // ranks) * ranks
    return min(hosts, gpus)


def reliability(plan: Plan, stopped: float) -> tuple[Reliability, float]:
    """Time lost to failures, checkpoints and restarts, and the goodput with the storage that the
    request names. stopped: GPUs that a failed host stops."""
    run, cluster = plan.run, plan.cluster
    stops = interruptions(plan, stopped)
    mtbf, mtbf_gpu = stops.either_s, stops.either_s * cluster.gpus
    states = state_ledger(plan)
    size = float(
        run_level.checkpoint_bytes(
            float(trained_count(plan)), states["parameters"] + states["optimizer"]
        )
    )
    speed = {storage.id: storage.bytes_per_s(cluster.nodes) for storage in run.storages}
    copy = machine(plan).host_copy_bandwidth
    stored = run.storage_bytes_per_s or speed[_USUAL_STORAGE]
    here = checkpoints(plan, size, stored, stops, copy, run.storage_read_bytes_per_s)
    # reclaimed spot capacity needs no repair
    repair = run_level.HARDWARE_FRAC * run_level.REPAIR_S / stops.failure_s
    waiting = (
        1.0
        if run.spare_nodes is None
        else float(run_level.spares_suffice_frac(repair, float(run.spare_nodes)))
    )
    others = {name: checkpoints(plan, size, rate, stops, copy) for name, rate in speed.items()}
    result = Reliability(
        mtbf_gpu_s=mtbf_gpu,
        mtbf_s=mtbf,
        checkpoint_bytes=size,
        checkpoint_write_s=here.write_s,
        checkpoint_stop_s=here.stop_s,
        interval_s=here.interval_s,
        best_interval_s=here.best_interval_s,
        restart_s=here.restart_s,
        stopped_gpus=stopped,
        taken_back_s=stops.taken_s,
        notice_s=stops.notice_s if stops.taken_s is not None else None,
        saved_in_notice=here.saved,
        nodes_in_repair=repair,
        spare_nodes=run.spare_nodes,
        spare_nodes_proposed=spares_for(repair),
        spares_suffice_frac=waiting,
        storages=[
            Storage(
                id=name,
                bytes_per_s=speed[name],
                write_s=storage.write_s,
                stop_s=storage.stop_s,
                interval_s=storage.interval_s,
                goodput=max(storage.goodput * waiting, _NEVER),
            )
            for name, storage in others.items()
        ],
    )
    return result, max(here.goodput * waiting, _NEVER)


def spares_for(nodes_in_repair: float) -> int:
    """The fewest spare nodes that suffice 99 % of the time, by bisection."""

    def suffice(spares: int) -> bool:
        share = run_level.spares_suffice_frac(nodes_in_repair, float(spares))
        return float(share) >= run_level.ENOUGH_SPARES

    few, enough = int(nodes_in_repair) - 1, max(1, int(nodes_in_repair))  # the mean never suffices
    while not suffice(enough):
        few, enough = enough, 2 * enough
    while enough - few > 1:
        middle = (few + enough) // 2
        few, enough = (few, middle) if suffice(middle) else (middle, enough)
    return enough


def busy_s(time: StepTime) -> Array:
    """Seconds of the step in which the GPU computes."""
    busy = (name for name in uneven.COMPUTING if name != _WAITING)
    return total({name: time.components.get(name, 0.0) for name in busy})


def step_energy_j(plan: Plan, seconds: Array, busy: Array) -> Array:
    """Energy of one step at the wall plug, all GPUs with their hosts."""
    c = plan.cluster
    drawn = run_level.drawn_frac(busy / seconds, run_level.POWER_FRAC, run_level.WAIT_FRAC)
    facility = run_level.HOST_FACTOR * (plan.run.pue or run_level.PUE)
    board = float(c.power_limit or c.gpu.power)
    return run_level.energy_j(plan.gpus, board, drawn, facility, seconds)


def whole_run(plan: Plan, time: StepTime, c: Columns) -> Run:
    """Days, GPU-hours, dollars, energy and CO2 of all tokens with one layout; None where the
    request does not say how many."""
    cluster, training, run = plan.cluster, plan.training, plan.run
    with section("the whole run"):
        failures, good = reliability(plan, stopped_gpus(plan, c))
        busy = first(busy_s(time) / time.seconds)
        drawn = float(run_level.drawn_frac(busy, run_level.POWER_FRAC, run_level.WAIT_FRAC))
        power_w = first(step_energy_j(plan, time.seconds, busy_s(time)) / time.seconds)
    grid = run.grid_kg_per_j
    if grid is None:
        grid = run_level.GRID_G_PER_KWH / 1e3 / _KWH_J
    out = Run(
        days=None,
        gpu_hours=None,
        cost_usd=None,
        energy_kwh=None,
        co2_kg=None,
        goodput=good,
        low=1.0,  # `report` knows what runs have shown
        high=1.0,
        tokens=None,
        gpu_busy_frac=busy,
        gpu_power_w=float(cluster.power_limit or cluster.gpu.power) * drawn,
        power_w=power_w,
        co2_kg_per_h=power_w * grid * _HOUR_S,
        failures=None,
        hardware_usd=None,
        electricity_usd=None,
        reliability=failures,
        project=Project(*run_level.PROJECT_FRAC, counted=run.as_project),
    )
    if training.tokens is None:
        return out
    if good < _ENDLESS:
        raise _endless(plan, failures)
    length = first(time.row_tokens)
    rate = run_level.tokens_per_s(training.global_batch, length, first(time.seconds))
    wall = float(run_level.run_s(training.tokens, rate, good))
    if run.as_project:
        wall *= run_level.PROJECT_FRAC[1]
    energy = power_w * wall
    paid = plan.gpus + (run.spare_nodes or 0) * cluster.gpus_per_host
    hardware, electricity = cost_usd(plan, paid * wall, energy)
    return changed(
        out,
        days=wall / _DAY_S,
        gpu_hours=wall / 3600 * plan.gpus,
        energy_kwh=energy / _KWH_J,
        tokens=training.tokens,
        co2_kg=energy * grid,
        failures=wall / failures.mtbf_s,
        hardware_usd=hardware,
        electricity_usd=electricity,
        cost_usd=None if hardware is None else hardware + electricity,
    )


def _endless(plan: Plan, r: Reliability) -> PlanError:
    """Why a run never ends, by the option that is the likely cause."""
    run = plan.run
    if run.spare_nodes is not None and r.spares_suffice_frac < _ENDLESS:
        fewest = f"{r.spare_nodes_proposed:,} suffice 99 % of the time"
        return PlanError("--spare-nodes", run.spare_nodes, f"never suffice; {fewest}")
    if run.is_preempted:
        field = "--market"
    elif run.states_failures:
        field = "--mtbf"
    elif run.restart_s is not None and run.restart_s > r.mtbf_s:
        field = "--restart"
    else:
        field = "--gpus" if run.storage_bytes_per_s is None else "--storage"
    return PlanError(
        field,
        None,
        f"a failure every {show(r.mtbf_s / _DAY_S, 'days')} on {plan.cluster.gpus:,} GPUs, after"
        f" each {show(r.restart_s / _DAY_S, 'days')} until the next step, a checkpoint every"
        f" {show(r.interval_s / _DAY_S, 'days')} that takes"
        f" {show(r.checkpoint_write_s / _DAY_S, 'days')} to be written: less than"
        f" {_ENDLESS:.1%} of the time advances training, and the run never ends; look at --mtbf,"
        " --restart, --checkpoint-interval, --storage and --gpus",
    )


def cost_usd(plan: Plan, gpu_s: float, energy_j: float) -> tuple[float | None, float]:
    """(hardware, electricity) in USD for these GPU-seconds; None where no price is known. Rented
    machines include electricity."""
    price = plan.cluster.price.usd_per_gpu_hour
    hardware = None if price is None else float(run_level.machines_usd(gpu_s, float(price)))
    return hardware, energy_j * plan.run.electricity_usd_per_j


def _stopped(plan: Plan, r: Reliability) -> str:
    """Scope of a host failure (replica or job), and why the job if replicas were to continue."""
    if plan.run.failure_stops == "job":
        return "the job"
    if r.stopped_gpus < plan.cluster.gpus:
        return f"{r.stopped_gpus:,.0f} GPUs, the others after {run_level.REGROUP_S:.0f} s train on"
    return "the job, as no other replica has all of the states: --zero 0 or --shard-group"


def _published(plan: Plan) -> str:
    """Source of the time between failures."""
    if plan.cluster.gpu.segment == "consumer":
        return "consumer cards: assumed, the least that is published of others, OPT-175B"
    return "Llama 3"


def assumptions(plan: Plan, failures: Reliability) -> list[str]:
    """Assumptions of a run, as sentences with the options that change them. failures: `reliability`
    of the whole run."""
    run, r = plan.run, failures
    failing = "stated in the request" if run.states_failures else f"{_published(plan)}; --mtbf"
    if run.is_preempted:
        hours = (run.preempted_s or 0.0) / _HOUR_S
        notice = (
            "a checkpoint is written in it"
            if r.saved_in_notice
            else f"too short for a checkpoint, which takes {r.checkpoint_write_s:,.0f} s"
        )
        failing = (
            f"a host is taken back after {hours:g} h, {run.preempted_source}; {run.notice_s or 0:g}"
            f" s of notice, {notice}; --mtbf"
        )
    stored = (
        "stated in the request"
        if run.storage_bytes_per_s is not None
        else f"{_USUAL_STORAGE}; --storage"
    )
    if run.storage_measured:
        stored = "as --calibration measured; --storage"
    sentences = [
        f"goodput: one failure per {r.mtbf_gpu_s / 3600:,.0f} GPU-hours ({failing});"
        f" {run.checkpoint} checkpoint of {r.checkpoint_bytes / 1e9:,.0f} GB every"
        f" {r.interval_s / 60:,.0f} min stops training {r.checkpoint_stop_s:,.1f} s and is"
        f" written in {r.checkpoint_write_s:,.0f} s ({stored}); restart {r.restart_s:,.0f} s"
        f" (--restart); a failed host stops {_stopped(plan, r)} (--failure-stops)"
    ]
    if plan.training.tokens is not None:
        grid = (
            run_level.GRID_G_PER_KWH
            if run.grid_kg_per_j is None
            else run.grid_kg_per_j * 1e3 * _KWH_J
        )
        sentences.append(
            f"energy: {run_level.POWER_FRAC:.0%} of the board limit while the GPU computes,"
            f" {run_level.WAIT_FRAC:.0%} while it waits; {run_level.HOST_FACTOR:g} times with host"
            f" and network, PUE {run.pue or run_level.PUE:g} (--pue); {grid:,.0f} g CO2 per kWh"
            " (--grid)"
        )
    return sentences
