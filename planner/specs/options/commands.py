"""Options of the commands that plan nothing: validate, check, calibrate, serve, schema."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from planner.specs.hosts import host_name
from planner.specs.options.own import OUTPUT, Shared
from planner.specs.options.record import Record
from planner.specs.options.row import Group, option

_MEASURE, _PROVE = Group("measure", "Measure"), Group("prove", "Prove")
_NODES = Group("nodes", "Files of several nodes")


@dataclass(frozen=True, kw_only=True)
class ValidateOptions(Shared):
    GROUP: ClassVar = Group("validate", "Validation")

    runs: Annotated[
        tuple[str, ...],
        option(
            "CSV files with the columns of docs/validation.md, folders of them, or folders of"
            " recipes with a results.csv or results.toml",
            argument="[RUNS.csv...]",
            file="read",
            example="runs.csv",
            unset="the shipped runs",
        ),
    ] = ()
    suite: Annotated[
        tuple[str, ...], option("Runs of this suite alone", example="small-runs", unset="all")
    ] = ()
    calibration: Annotated[
        str | None,
        option("Calibration file of a measured node", file="read", example="calibration.toml"),
    ] = None
    coverage: Annotated[
        bool, option("Do the shipped bands hold: without a run's suite, GPU, software, kind")
    ] = False
    ablations: Annotated[
        bool, option("Error with each mechanism off, and with each stated option left out")
    ] = False
    cross_validate: Annotated[
        bool, option("Errors on held-out models, GPU counts or suites; takes up to a minute")
    ] = False
    csv: Annotated[
        str | None,
        option(
            "Write one line per run to this CSV file",
            file="written",
            group=OUTPUT,
            example="runs.csv",
        ),
    ] = None
    plot: Annotated[
        str | None,
        option(
            "Write predicted against measured to this HTML page",
            file="written",
            group=OUTPUT,
            example="runs.html",
        ),
    ] = None
    residuals: Annotated[
        str | None,
        option(
            "Write measured over predicted, fitted without the run's suite, to this CSV file",
            file="written",
            group=OUTPUT,
            example="residuals.csv",
        ),
    ] = None
    memory_residuals: Annotated[
        str | None,
        option(
            "Write what runs say of the memory they needed, over the predicted need, to this CSV"
            " file",
            file="written",
            group=OUTPUT,
            example="memory_residuals.csv",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CheckOptions(Record):
    GROUP: ClassVar = OUTPUT

    logs: Annotated[
        tuple[str, ...],
        option(
            "Logs of training, torch profiler traces, memory snapshots, or runs tables; a model is"
            " named by --model, with the other options of its recipe",
            argument="[LOG...]",
            file="read",
            example="train.log",
        ),
    ] = ()
    save: Annotated[
        str | None,
        option(
            "Write clock, fabric and overheads as these runs have them, to this calibration file",
            file="written",
            example="my-cluster.toml",
        ),
    ] = None
    append: Annotated[
        str | None,
        option(
            "Add the run to this runs table, which `dpplan validate` reads",
            file="written",
            example="my-runs.csv",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class CalibrateOptions(Record):
    GROUP: ClassVar = _MEASURE

    out: Annotated[
        str | None,
        option(
            "Write the calibration to this .toml file; raw records lie beside it",
            file="written",
            example="node.toml",
        ),
    ] = None
    quick: Annotated[bool, option("Measure about a minute, for a first look")] = False
    thorough: Annotated[bool, option("Measure more shapes and sizes, up to an hour")] = False
    processes: Annotated[
        int,
        option("Ranks on this machine; more machines: torchrun", least=1, most=1024, example="2"),
    ] = 1
    threads: Annotated[
        int | None,
        option("CPU threads of a rank", least=1, most=1024, example="1", unset="cores over ranks"),
    ] = None
    timeout: Annotated[
        float,
        option(
            "Seconds after which a rank that does not answer counts as lost",
            least=5,
            most=86400,
            example="60",
        ),
    ] = 120.0
    storage: Annotated[
        str | None,
        option(
            "Folder that checkpoints are written to",
            file="read",
            example="/mnt/checkpoints",
            unset="the folder of --out",
        ),
    ] = None
    verify: Annotated[
        bool, option("Train small decoders and compare with the estimate", group=_PROVE)
    ] = False
    calibration: Annotated[
        str | None,
        option(
            "Calibration file to verify",
            file="read",
            group=_PROVE,
            example="node.toml",
            unset="the shipped profile",
        ),
    ] = None
    tolerance: Annotated[
        float,
        option(
            "Mean error above which the exit status is 3",
            group=_PROVE,
            most=100,
            or_zero=True,
            example="0.2",
            least=1e-6,
        ),
    ] = 0.1
    case: Annotated[
        tuple[str, ...],
        option(
            "A decoder of your own:"
            " layers=4,hidden=512,heads=8,ffn=2048,vocab=8192,seq=256,micro_batch=2",
            group=_PROVE,
            length=1000,
            example="layers=4,hidden=512,heads=8,ffn=2048,vocab=8192,seq=256,micro_batch=2",
        ),
    ] = ()
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None,
        option(
            "Precision: fp32, bf16 or fp16",
            group=_PROVE,
            example="fp32",
            unset="fp32 on CPUs, bf16 on GPUs",
        ),
    ] = None
    report: Annotated[
        str | None,
        option(
            "Write report.md, .html and .json to this folder",
            file="written",
            group=_PROVE,
            example="report",
        ),
    ] = None
    diff: Annotated[
        tuple[str, str] | None,
        option(
            "Compare the files of two nodes, the largest loss first",
            file="read",
            group=_NODES,
            example="node.toml",
        ),
    ] = None
    merge: Annotated[
        tuple[str, ...],
        option(
            "Join files of nodes of one kind into --out",
            file="read",
            group=_NODES,
            example="node.toml",
        ),
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ServeOptions(Record):
    GROUP: ClassVar = Group("serve", "Server")

    host: Annotated[
        str,
        option("Address to listen on; one of the network needs --allow-host", example="0.0.0.0"),
    ] = "127.0.0.1"
    port: Annotated[int, option("Port to listen on", least=1, most=65535, example="8000")] = 8321
    allow_host: Annotated[
        tuple[str, ...],
        option(
            "Name or IP address by which browsers reach it, without port",
            read=host_name,
            example="plan.example.org",
            unset="names of this machine alone",
        ),
    ] = ()
    token_file: Annotated[
        str | None,
        option(
            "File with a token, which is then the password for any user; or the environment"
            " variable DPPLAN_TOKEN",
            file="read",
            example="token.txt",
            unset="no password",
        ),
    ] = None
