"""Where a critical batch comes from, and what a run that reaches a loss implies for runs with
another batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.formulas import critical_batch as formulas
from planner.specs.base import PlanError
from planner.specs.documents.batch import Published
from planner.specs.options import flag, rows
from planner.specs.options.numbers import number, within
from planner.specs.options.own import BatchOptions
from planner.units import parse_count

_OPTIONS = ("critical_batch", "target_loss", "gradient_norm")  # that all say the critical batch

# batches of the papers that set out to train with large ones, and the largest of a language model
# in the catalogue; images or sequences
PUBLISHED = (
    Published(
        model="ResNet-50 on ImageNet",
        optimizer="SGD",
        batch=8192,
        how="rate in proportion to the batch, 5 epochs of warm-up; 256 GPUs, one hour",
        source="Goyal et al. 2017, arXiv 1706.02677",
    ),
    Published(
        model="AlexNet on ImageNet",
        optimizer="LARS",
        batch=8192,
        how="a rate per layer",
        source="You et al. 2017, arXiv 1708.03888",
    ),
    Published(
        model="ResNet-50 on ImageNet",
        optimizer="LARS",
        batch=32768,
        how="a rate per layer",
        source="You et al. 2017, arXiv 1708.03888",
    ),
    Published(
        model="BERT-Large",
        optimizer="LAMB",
        batch=65536,
        how="32,768 in the second phase; 8,599 steps, 76 minutes on a TPUv3 pod",
        source="You et al. 2019, arXiv 1904.00962",
    ),
    Published(
        model="DeepSeek-V3",
        optimizer="AdamW",
        batch=15360,
        how="sequences of 4,096 tokens, grown from 3,072",
        source="DeepSeek-AI 2024, arXiv 2412.19437, section 4.2",
    ),
)


@dataclass(frozen=True)
class Critical:
    """A critical batch in tokens, and where it comes from."""

    tokens: float
    source: str
    measured: bool
    loss_nats: float | None = None


@dataclass(frozen=True)
class Target:
    """A run that is known to reach its target: it takes `tokens` with a batch of
    `reference_tokens`."""

    critical: Critical
    reference_tokens: float
    tokens: float

    @property
    def least_tokens(self) -> float:
        """Tokens to the target with a tiny batch."""
        return self.tokens / float(
            formulas.tokens_to_target(1.0, self.reference_tokens, self.critical.tokens)
        )

    @property
    def least_steps(self) -> float:
        """Steps to the target with an endless batch."""
        return self.least_tokens / self.critical.tokens

    def steps(self, batch_tokens: float) -> float:
        return float(formulas.steps_to_target(self.least_steps, batch_tokens, self.critical.tokens))

    def tokens_with(self, batch_tokens: float) -> float:
        return float(
            formulas.tokens_to_target(self.least_tokens, batch_tokens, self.critical.tokens)
        )

    def scaled(self, factor: float) -> Target:
        """The same run, were the critical batch this many times as large."""
        return replace(self, critical=replace(self.critical, tokens=self.critical.tokens * factor))


def read(request: BatchOptions, *, seq_len: int, parameters: float, tokens: float) -> Critical:
    """The critical batch that a request states, measured or leaves to the laws. Raises PlanError
    naming the option.

    With none of the options the loss is what the parametric fit expects of a model of this many
    parameters after this many tokens.
    """
    given = [flag(name) for name in request.given() if name in _OPTIONS]
    if len(given) > 1:
        raise PlanError(given[1], None, f"and {given[0]} both say the critical batch; give one")
    stated, loss = number(request, "critical_batch"), request.target_loss
    if stated is not None:
        return Critical(stated, "stated in the request (--critical-batch)", False)
    if request.gradient_norm:
        sequences = noise_of(request.gradient_norm)
        source = (
            f"measured gradient norms: a noise scale of {sequences:,.4g} sequences (McCandlish et"
            " al. 2018)"
        )
        return Critical(sequences * seq_len, source, True)
    if loss is None:
        expected = float(formulas.expected_loss(parameters, tokens))
        source = (
            f"loss {expected:.3f} expected of this model after these tokens (Hoffmann et al. 2022),"
            " critical batch at that loss by Kaplan et al. 2020; other data and tokenizers differ:"
            " measure with --gradient-norm"
        )
        return Critical(float(formulas.critical_batch_at_loss(expected)), source, False, expected)
    source = f"loss {loss:g} (--target-loss), critical batch at that loss by Kaplan et al. 2020"
    return Critical(float(formulas.critical_batch_at_loss(loss)), source, False, loss)


def noise_of(norms: Sequence[str]) -> float:
    """Noise scale in sequences from two of BATCH:NORM, norms being roots of mean squared norms.
    Raises PlanError."""
    option = "--gradient-norm"
    if len(norms) != 2:
        raise PlanError(
            option,
            ", ".join(norms),
            "needs two batches, such as --gradient-norm 8:1.5 --gradient-norm 512:0.4",
        )
    (small, small_norm), (big, big_norm) = sorted(_norm(text) for text in norms)
    if small == big:
        raise PlanError(option, ", ".join(norms), "needs two batches that differ")
    values = (small, small_norm**2, big, big_norm**2)
    squared = float(formulas.gradient_squared(*values))
    variance = float(formulas.gradient_variance(*values))
    if variance <= 0:
        raise PlanError(
            option,
            ", ".join(norms),
            "the larger batch must have the smaller norm; average over more steps",
        )
    if squared <= 0:
        raise PlanError(
            option,
            ", ".join(norms),
            "is only noise, no gradient can be distinguished from it; average over more steps, "
            "or measure a larger batch",
        )
    return float(formulas.noise_scale(variance, squared))


def _norm(text: str) -> tuple[float, float]:
    batch, _, norm = text.partition(":")
    table = rows(BatchOptions)
    try:
        pair = parse_count(batch), parse_count(norm)
        within(table["reference_batch"], pair[0])
        within(table["gradient_norm"], pair[1])
    except ValueError as error:
        raise PlanError(
            "--gradient-norm",
            text,
            f"{error}; must be BATCH:NORM, such as 8:1.5, the batch in sequences",
        ) from None
    return pair
