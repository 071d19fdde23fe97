"""The whole run: what fails, where checkpoints go, who owns the machines, what electricity is like.
None: a stated default."""

from pydantic import Field

from planner.specs.base import Spec
from planner.specs.hardware import StorageSpec
from planner.specs.names import CheckpointWriter, FailureUnit


class RunSpec(Spec):
    """Everything about a run that no single step shows; base units."""

    mtbf_gpu_s: float | None = Field(
        default=None, gt=0
    )  # running time of one GPU between failures of its job
    mtbf_s: float | None = Field(default=None, gt=0)  # time between failures of the whole job
    # running time of a host until it is taken back, at prices of such a kind; with its source
    preempted_s: float | None = Field(default=None, gt=0)
    preempted_source: str = ""
    notice_s: float | None = Field(default=None, gt=0)  # from the word that it will be
    checkpoint: CheckpointWriter = "async"  # async: training goes on while the file is written
    interval_s: float | None = Field(default=None, gt=0)  # between checkpoints
    storage_bytes_per_s: float | None = Field(
        default=None, gt=0
    )  # what the checkpoint storage writes, for the whole job
    storage_read_bytes_per_s: float | None = Field(
        default=None, gt=0
    )  # what it reads; None: a multiple of what it writes
    storage_measured: bool = False  # both by a calibration
    restart_s: float | None = Field(
        default=None, ge=0
    )  # from failure to the first step, without loading
    spare_nodes: int | None = Field(
        default=None, ge=0, le=1_000_000
    )  # paid for and waiting; None: failed ones are replaced at once
    electricity_usd_per_j: float = Field(default=0.0, ge=0)  # paid beside the machines
    pue: float | None = Field(
        default=None, ge=1, le=5
    )  # energy of the building / energy of its computers (PUE)
    grid_kg_per_j: float | None = Field(default=None, ge=0)  # CO2 equivalent of electricity
    failure_stops: FailureUnit = "job"
    as_project: bool = False  # what whole projects usually take over the plan is counted
    storages: tuple[StorageSpec, ...] = ()  # shipped places for checkpoints, to compare with

    @property
    def is_preempted(self) -> bool:
        """Whether hosts are taken back as often as its kind of price has it."""
        return self.preempted_s is not None and not self.states_failures

    @property
    def states_failures(self) -> bool:
        """Whether the request says how often the job fails."""
        return self.mtbf_gpu_s is not None or self.mtbf_s is not None
