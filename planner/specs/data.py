"""Document lengths and input pipeline."""

from pydantic import Field

from planner.specs.base import Spec
from planner.specs.names import ExcessLength, Packing


class LengthsSpec(Spec):
    """Documents of different lengths: log-normal, those longer than a sequence cut to it, left out,
    or split into several rows."""

    mean_tokens: float = Field(gt=0, le=1e9)  # of all, before any is cut or left out
    sigma: float = Field(ge=0, le=4)  # standard deviation of the logarithm of the length
    # padded: one document per row, as long as a sequence; longest: as the longest of its
    # micro-batch; bucketed: the same with documents of like lengths together; packed: rows filled
    # with documents that do not see each other
    packing: Packing = "packed"
    longest_tokens: int | None = Field(default=None, ge=1)  # of all; None: as long as a sequence
    excess: ExcessLength = "truncate"  # what becomes of documents longer than a sequence
    short_tokens: int | None = Field(default=None, ge=1)  # shorter documents are left out


class InputSpec(Spec):
    """Samples from storage over worker processes into GPUs; None: no limit, or derived from the
    model."""

    sample_bytes: float | None = Field(default=None, gt=0)  # read per sample
    token_bytes: float | None = Field(
        default=None, gt=0, le=64
    )  # stored per token, where samples are token sequences
    decoded_bytes: float | None = Field(
        default=None, gt=0
    )  # of a sample in host memory, as it is copied to the GPU
    read_bytes: float | None = Field(default=None, gt=0)  # of one read request; None: one sample
    storage_bytes_per_s: float | None = Field(
        default=None, gt=0
    )  # what storage reads for the whole job
    storage_reads_per_s: float | None = Field(
        default=None, gt=0
    )  # read requests it answers for the whole job
    read_latency_s: float = Field(default=0.0, ge=0)  # that a worker waits for each read
    worker_samples_per_s: float | None = Field(
        default=None, gt=0
    )  # one worker, without its waits for reads
    workers: int | None = Field(default=None, ge=1, le=1024)  # per replica of the model
    prefetch: int = Field(default=2, ge=1, le=1024)  # batches that each worker loads ahead
