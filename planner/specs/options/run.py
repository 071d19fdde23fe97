"""Options: the whole run. What it costs, what fails, where checkpoints go, what must hold."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import CheckpointWriter, Objective
from planner.specs.options.record import Record
from planner.specs.options.row import NAME_LENGTH, Group, beside, option
from planner.specs.options.verbs import PHASES, RUNS

NOT_OF_RUNS = "is of the whole run, which this verb does not look at"
# rows of `recommend batch` tell the cost of a run, and no price of an hour
OF_COST = beside("sets the cost of a run", "tokens", verbs=frozenset({"recommend batch"}))
_OF_OWN = beside("is of own hardware", "capex")
_RUN = Group(
    "run", "Run: cost, energy, failures", "Failures, checkpoints, energy and what must hold."
)


@dataclass(frozen=True, kw_only=True)
class RunOptions(Record):
    GROUP: ClassVar = _RUN
    VERBS: ClassVar = RUNS
    WHY_NOT: ClassVar = NOT_OF_RUNS

    market: Annotated[
        str | None,
        option(
            "Kind of list price, the same for every GPU of the answer: on-demand, hyperscaler,"
            " community, spot, survey-lowest; or a provider (lambda, aws, ...) or a TOML file of"
            " your own quotes (docs/catalogue/prices.md)",
            label="Market of the price",
            length=NAME_LENGTH,
            example="spot",
            unset="on-demand; a GPU without such a price has none",
            verbs=RUNS | PHASES,
            needs=OF_COST,
            form="folded",
        ),
    ] = None
    capex: Annotated[
        float | str | None,
        option(
            "Own hardware: purchase price in US dollars per GPU with its share of server and"
            " network; replaces the rental price",
            label="Purchase price per GPU (USD)",
            unit="USD",
            least=0.01,
            most=1e7,
            or_zero=True,
            example="30000",
            needs=OF_COST,
            form="folded",
        ),
    ] = None
    lifetime: Annotated[
        float | str | None,
        option(
            "Own hardware: years over which it is depreciated",
            label="Depreciation period",
            unit="years",
            least=0.1,
            most=30,
            example="3 years",
            unset="4 years",
            needs=_OF_OWN,
            form="folded",
        ),
    ] = None
    use: Annotated[
        float | str | None,
        option(
            "Own hardware: utilization, the share of its lifetime in which it trains",
            label="Utilization",
            unit="1",
            most=1,
            least=0.001,
            example="60%",
            unset="80%",
            needs=_OF_OWN,
            form="folded",
        ),
    ] = None
    electricity: Annotated[
        float | str | None,
        option(
            "Own hardware: electricity price in US dollars per kWh",
            label="Electricity price (USD/kWh)",
            unit="USD/kWh",
            least=1e-6,
            most=100,
            or_zero=True,
            example="0.2",
            unset="0.1",
            needs=_OF_OWN,
            form="folded",
        ),
    ] = None
    pue: Annotated[
        float | None,
        option(
            "Power usage effectiveness of the data center: its energy over that of its computers",
            label="Power usage effectiveness",
            least=1,
            most=5,
            example="1.3",
            needs=beside(
                "sets the electricity of own hardware", "capex", verbs=frozenset({"batch", "tune"})
            ),
            form="folded",
        ),
    ] = None
    grid: Annotated[
        float | str | None,
        option(
            "Carbon intensity of electricity, g CO2 per kWh",
            label="Carbon intensity (g/kWh)",
            unit="g/kWh",
            least=1e-3,
            most=10_000,
            or_zero=True,
            example="50",
            verbs=RUNS - {"batch", "tune", "recommend cluster", "recommend model"},
            why_not="sets the CO2 of a run, which this verb does not state",
            form="folded",
        ),
    ] = None
    mtbf: Annotated[
        str | None,
        option(
            "Mean time between failures: of one GPU in GPU-hours, or of the whole job in hours",
            label="MTBF (GPU-hours, or hours of the job)",
            unit="GPU-hours",
            or_unit="h",
            needs_unit=("GPU-hours", "h"),
            least=0.01,
            most=1e12,
            example="10000 GPU-hours",
            form="folded",
        ),
    ] = None
    checkpoint: Annotated[
        CheckpointWriter | None,
        option(
            "Checkpoint writer: async trains on while the file is written, sync waits for it",
            label="Checkpoint writer",
            example="sync",
            unset="async",
            form="folded",
        ),
    ] = None
    checkpoint_interval: Annotated[
        str | None,
        option(
            "Time between checkpoints",
            label="Checkpoint interval",
            unit="min",
            needs_unit=("min", "s"),
            least=0.01,
            most=1e6,
            example="30 min",
            unset="the optimum",
            form="folded",
        ),
    ] = None
    storage: Annotated[
        str | None,
        option(
            "Checkpoint storage: local-nvme, parallel-fs, object-store, nfs, or its write"
            " bandwidth, e.g. '20 GB/s'",
            label="Checkpoint storage",
            unit="B/s",
            needs_unit=("GB/s", "Gbit/s"),
            catalogue="storage",
            least=1e3,
            most=1e15,
            example="nfs",
            unset="parallel-fs",
            form="shown",
        ),
    ] = None
    restart: Annotated[
        str | None,
        option(
            "Time from a failure to the next step, loading the checkpoint not included",
            label="Restart time",
            unit="min",
            least=1e-4,
            needs_unit=("min", "s"),
            most=1e5,
            or_zero=True,
            example="20 min",
            form="folded",
        ),
    ] = None
    spare_nodes: Annotated[
        int | None,
        option(
            "Spare nodes: paid for and idle until a node fails",
            label="Spare nodes",
            least=0,
            most=1_000_000,
            example="1",
            unset="failed nodes are replaced at once",
            form="shown",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ObjectiveOptions(Record):
    GROUP: ClassVar = Group("answer", "Answer")
    VERBS: ClassVar = frozenset({"search"})

    objective: Annotated[
        Objective,
        option(
            "What listed layouts are ranked by: time, memory, cost, energy or tokens-per-dollar",
            label="Objective",
            example="memory",
        ),
    ] = "time"


@dataclass(frozen=True, kw_only=True)
class AnswerOptions(Record):
    GROUP: ClassVar = ObjectiveOptions.GROUP
    VERBS: ClassVar = frozenset({"estimate"})

    top: Annotated[
        int,
        option(
            "Number of layouts listed",
            label="Layouts listed",
            least=1,
            most=1000,
            example="2",
            verbs=frozenset({"estimate", "search"}),
        ),
    ] = 5
    advice: Annotated[
        int | None,
        option(
            "Evaluate every change of the plan and list that many; 0 lists none",
            label="Changes listed",
            least=0,
            most=1000,
            example="0",
            unset="changes that help, a few",
        ),
    ] = None
    require: Annotated[
        tuple[str, ...],
        option(
            "Exit with status 4 unless this holds, e.g. 'memory < 90%', 'days.high < 30', 'fits'",
            label="Requirements",
            length=1000,
            example="memory < 90%",
            group=_RUN,
            form="shown",
        ),
    ] = ()
