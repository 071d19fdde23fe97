"""The whole run: days, money, energy, failures and checkpoints."""

from __future__ import annotations

from typing import Annotated

from planner.specs.document import Document, key


class Storage(Document):
    """Checkpoints on one shipped storage."""

    id: Annotated[str, key("every shipped storage, whatever the request names")]
    bytes_per_s: Annotated[float, key("what it writes for this job", "B/s")]
    write_s: Annotated[float, key("time until a checkpoint is written", "s")]
    stop_s: Annotated[float, key("time for which it stops training", "s")]
    interval_s: Annotated[float, key("work between checkpoints", "s")]
    goodput: Annotated[float, key("share of wall time that advances training", "1")]


class Reliability(Document):
    """Time lost to failures, checkpoints and restarts."""

    mtbf_gpu_s: Annotated[float, key("running time of one GPU between failures of its job", "s")]
    mtbf_s: Annotated[float, key("time between failures of this job", "s")]
    checkpoint_bytes: Annotated[float, key("whole checkpoint", "B")]
    checkpoint_write_s: Annotated[float, key("time until it is written", "s")]
    checkpoint_stop_s: Annotated[float, key("time for which it stops training", "s")]
    interval_s: Annotated[float, key("work between checkpoints", "s")]
    best_interval_s: Annotated[
        float, key("Young-Daly; the interval is at least the time of writing a checkpoint", "s")
    ]
    restart_s: Annotated[float, key("from failure to the next step, with loading", "s")]
    stopped_gpus: Annotated[float, key("GPUs that a failed host stops", "GPUs")]
    taken_back_s: Annotated[
        float | None, key("time between hosts of this job that are taken back; null: kept", "s")
    ]
    notice_s: Annotated[float | None, key("from the word that a host is taken back", "s")]
    saved_in_notice: Annotated[bool, key("a checkpoint is written before it is")]
    nodes_in_repair: Annotated[float, key("nodes in repair on average")]
    spare_nodes: Annotated[int | None, key("as requested; null: failed nodes are replaced at once")]
    spare_nodes_proposed: Annotated[int, key("fewest that suffice 99 % of the time")]
    spares_suffice_frac: Annotated[
        float, key("share of the time in which no more nodes are in repair than `spare_nodes`", "1")
    ]
    storages: Annotated[list[Storage], key("every shipped storage")]


class Project(Document):
    """Duration of published projects over the best plan for the same tokens on the same
    machines."""

    low: Annotated[float, key("fast end of the 80 % band", "1")]
    usual: Annotated[float, key("the middle project", "1")]
    high: Annotated[float, key("slow end", "1")]
    counted: Annotated[
        bool, key("`--as project`: days, GPU-hours, cost, energy and CO2 are those of a project")
    ]


class Run(Document):
    """The run over all tokens; what depends on them is null without `--tokens`."""

    days: Annotated[float | None, key("wall time; null without `--tokens`", "days")]
    gpu_hours: Annotated[float | None, key("wall time times GPUs", "GPU-hours")]
    cost_usd: Annotated[float | None, key("cost; null also without a price", "USD")]
    energy_kwh: Annotated[float | None, key("energy at the wall plug", "kWh")]
    co2_kg: Annotated[float | None, key("CO2 equivalent of that energy", "kg")]
    goodput: Annotated[float, key("share of wall time that advances training", "1")]
    low: Annotated[
        float,
        key(
            "days, GPU-hours, dollars, energy and CO2 over those expected at the fast end of the 80"
            " % band: that of the step, with failures and stops",
            "1",
        ),
    ]
    high: Annotated[float, key("the same at the slow end", "1")]
    tokens: Annotated[float | None, key("tokens of the whole run", "tokens")]
    gpu_busy_frac: Annotated[float, key("share of the step in which the GPU computes", "1")]
    gpu_power_w: Annotated[float, key("mean board power of a GPU in a step", "W")]
    power_w: Annotated[
        float, key("mean power of all GPUs at the wall plug in a step: with hosts, cooling", "W")
    ]
    co2_kg_per_h: Annotated[float, key("CO2 equivalent of that power", "kg/h")]
    failures: Annotated[float | None, key("failures expected in the run")]
    hardware_usd: Annotated[
        float | None,
        key("part of the cost: rent, or depreciation of own hardware; with spare nodes", "USD"),
    ]
    electricity_usd: Annotated[
        float | None, key("the other part of the cost; 0 for rented machines", "USD")
    ]
    reliability: Annotated[Reliability, key("failures, checkpoints and restarts")]
    project: Annotated[Project, key("what whole projects take over a plan")]
