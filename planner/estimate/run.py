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
from planner.specs.document import changed
from planner.specs.documents.run import Project, Reliability, Run, Storage
from planner.specs.plan import Plan
from planner.units import show

_USUAL_STORAGE = "parallel-fs"
_WAITING = "launch"  # of COMPUTING, where the GPU waits for the CPU
_NEVER = 1e-12  # the least goodput that is said, so that it can be divided by
_ENDLESS = 1e-3  # goodput of a run that never ends: a choice, a day of work in three years
_KWH_J, _DAY_S, _HOUR_S = 3.6e6, 86400.0, 3600.0


@dataclass(frozen=True)
class Checkpoints:
    """Size and time of checkpoints on one storage."""

    write_s: float
    stop_s: float
    interval_s: float
    best_interval_s: float
    restart_s: float  # with loading
    goodput: float


def checkpoints(
    plan: Plan,
    size_bytes: float,
    storage_bytes_per_s: float,
    mtbf_s: float,
    host_copy_bytes_per_s: float,
    read_bytes_per_s: float | None = None,
) -> Checkpoints:
    """Checkpoints of this size on a storage that writes (and reads) so fast, under failures of the
    job every mtbf_s.

    host_copy_bytes_per_s: of one GPU to the memory of its host, which is all that an asynchronous
    checkpoint waits for.
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
    best = float(run_level.checkpoint_interval_s(stop, mtbf_s))
    interval = run.interval_s or max(best, behind)
    load = size_bytes / (read_bytes_per_s or storage_bytes_per_s * run_level.READ_OVER_WRITE)
    restart = (run.restart_s if run.restart_s is not None else run_level.RESTART_S) + load
    good = float(run_level.goodput(interval, stop, restart + behind, mtbf_s))
    return Checkpoints(write, stop, interval, best, restart, good)


def reliability(plan: Plan) -> tuple[Reliability, float]:
    """Time lost to failures, checkpoints and restarts, and the goodput with the storage that the
    request names."""
    run, cluster = plan.run, plan.cluster
    if run.mtbf_s is not None:
        mtbf, mtbf_gpu = run.mtbf_s, run.mtbf_s * cluster.gpus
    else:
        mtbf_gpu = run.mtbf_gpu_s or run_level.MTBF_GPU_S
        if run.mtbf_gpu_s is None and run.preempted_s is not None:
            each = run.preempted_s * cluster.gpus_per_host
            mtbf_gpu = float(run_level.either_s(mtbf_gpu, each))
        mtbf = float(run_level.job_mtbf_s(mtbf_gpu, cluster.gpus))
    states = state_ledger(plan)
    size = float(
        run_level.checkpoint_bytes(
            float(trained_count(plan)), states["parameters"] + states["optimizer"]
        )
    )
    speed = {storage.id: storage.bytes_per_s(cluster.nodes) for storage in run.storages}
    copy = machine(plan).host_copy_bandwidth
    stored = run.storage_bytes_per_s or speed[_USUAL_STORAGE]
    here = checkpoints(plan, size, stored, mtbf, copy, run.storage_read_bytes_per_s)
    broken_s = run_level.MTBF_GPU_S if run.is_preempted else mtbf_gpu  # what is taken is no repair
    repair = cluster.gpus * run_level.HARDWARE_FRAC * run_level.REPAIR_S / broken_s
    waiting = (
        1.0
        if run.spare_nodes is None
        else float(run_level.spares_suffice_frac(repair, float(run.spare_nodes)))
    )
    others = {name: checkpoints(plan, size, rate, mtbf, copy) for name, rate in speed.items()}
    result = Reliability(
        mtbf_gpu_s=mtbf_gpu,
        mtbf_s=mtbf,
        checkpoint_bytes=size,
        checkpoint_write_s=here.write_s,
        checkpoint_stop_s=here.stop_s,
        interval_s=here.interval_s,
        best_interval_s=here.best_interval_s,
        restart_s=here.restart_s,
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


def whole_run(plan: Plan, time: StepTime) -> Run:
    """Days, GPU-hours, dollars, energy and CO2 of all tokens; None where the request does not say
    how many."""
    cluster, training, run = plan.cluster, plan.training, plan.run
    with section("the whole run"):
        failures, good = reliability(plan)
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


def assumptions(plan: Plan, failures: Reliability) -> list[str]:
    """Assumptions of a run, as sentences with the options that change them. failures: `reliability`
    of the whole run."""
    run, r = plan.run, failures
    failing = "stated in the request" if run.states_failures else "Llama 3; --mtbf"
    if run.is_preempted:
        hours = (run.preempted_s or 0.0) / _HOUR_S
        failing = f"a host is taken back after {hours:g} h, {run.preempted_source}; --mtbf"
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
        " (--restart)"
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
