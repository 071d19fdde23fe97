"""How the authors of a model trained it: batch, sequence, precision and machines as far as
published, each with its source."""

from typing import Self

from pydantic import Field, model_validator

from planner.specs.base import Spec
from planner.specs.names import Precision
from planner.units import show


class PublishedSequence(Spec):
    """Tokens per sequence of the main phase of the pre-training, before the context is extended."""

    tokens: int = Field(ge=1, le=100_000_000)  # per sequence
    source: str = Field(min_length=1)  # paper with section or table, or a repository's file


class PublishedBatch(Spec):
    """Global batch of the main phase, the last one where it grows: in sequences or in tokens, as
    its source has it."""

    sequences: int | None = Field(default=None, ge=1, le=1_000_000_000)  # per step
    tokens: float | None = Field(default=None, gt=0, le=1e12)  # per step
    ramp: str = ""  # how it grew to that
    source: str = Field(min_length=1)  # paper with section or table, or a repository's file

    @model_validator(mode="after")
    def _one_number(self) -> Self:
        if (self.sequences is None) == (self.tokens is None):
            raise ValueError("give the batch in sequences or in tokens, one of the two")
        return self


class PublishedPrecision(Spec):
    """Compute precision of the training."""

    name: Precision
    source: str = Field(min_length=1)  # paper with section or table, or a repository's file


class PublishedRun(Spec):
    """Machines and duration of a training run; unpublished values are left out."""

    gpu: str | None = None  # profile id
    gpus: int | None = Field(default=None, ge=1, le=1_000_000)  # at most, where the number grew
    gpu_hours: float | None = Field(default=None, gt=0, le=1e12)  # of all GPUs together
    days: float | None = Field(default=None, gt=0, le=36_525)
    tokens: float | None = Field(default=None, gt=0, le=1e18)  # of these hours and days
    source: str = Field(min_length=1)  # paper with section or table, or a repository's file

    @property
    def sentence(self) -> str:
        """The run in words."""
        hours, days = self.gpu_hours, self.days
        if days is None and hours is not None and self.gpus is not None:
            days = hours / self.gpus / 24
        parts = [
            f"{self.gpus:,} x {self.gpu}" if self.gpus else self.gpu,
            f"{show(hours, 'count')} GPU-hours" if hours else None,
            f"{days:,.1f} days" if days else None,
            f"for {show(self.tokens, 'count')} tokens" if self.tokens else None,
        ]
        return f"published run: {', '.join(part for part in parts if part)} ({self.source})"


class Published(Spec):
    """How a model was trained; what its authors did not publish is left out."""

    sequence: PublishedSequence | None = None
    batch: PublishedBatch | None = None
    precision: PublishedPrecision | None = None
    run: PublishedRun | None = None

    @model_validator(mode="after")
    def _batch_in_tokens(self) -> Self:
        if self.batch and self.batch.sequences and self.sequence is None:
            raise ValueError("a batch in sequences needs their length: give published.sequence")
        return self

    @property
    def batch_tokens(self) -> float | None:
        """Tokens per optimizer step."""
        if self.batch is None or self.sequence is None or self.batch.sequences is None:
            return None if self.batch is None else self.batch.tokens
        return float(self.batch.sequences * self.sequence.tokens)
