"""How ranks differ: jitter, slow hosts, a second kind of GPU."""

from pydantic import Field

from planner.specs.base import Spec
from planner.specs.hardware import GpuSpec
from planner.specs.names import Split


class RanksSpec(Spec):
    """Differences in speed between ranks; by default only the usual jitter."""

    jitter_frac: float | None = Field(
        default=None, ge=0, le=1
    )  # standard deviation of a rank's step over its mean
    slow_frac: float = Field(default=0.0, ge=0, le=1)  # chance of a host to be a slow one
    slow_by_frac: float = Field(default=0.1, ge=0, le=99)  # how much longer it computes
    other: GpuSpec | None = None  # of the other hosts or, in a box, the other cards
    other_frac: float = Field(default=0.0, ge=0, lt=1)  # share of GPUs of that kind
    split: Split = (
        "equal"  # of the batch: the same for all, or whole micro-batches in proportion to speed
    )

    @property
    def uneven(self) -> bool:
        """Whether the request has options of stragglers."""
        return self.jitter_frac is not None or self.slow_frac > 0
