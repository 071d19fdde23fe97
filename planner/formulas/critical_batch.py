"""Critical batch size: steps and tokens to the same loss by batch size, the gradient noise scale
that it follows from, and learning rates.

Batches are in tokens here; the laws hold in examples as well, as long as all of them are counted
alike.
"""

from __future__ import annotations

import numpy as np

from planner.ledger import Array, formula

# Kaplan et al. 2020 (arXiv 2001.08361) equation 5.3: Transformers on WebText2, 1,024 tokens of
# context, Adam
LAW_TOKENS = 2e8
LAW_EXPONENT = 0.21

# Hoffmann et al. 2022 (arXiv 2203.15556), parametric fit: nats per token of MassiveText
LEAST_LOSS = 1.69
PARAMETER_TERM, PARAMETER_EXPONENT = 406.4, 0.34
TOKEN_TERM, TOKEN_EXPONENT = 410.7, 0.28


@formula(unit="1", equation="b m d", source="definition")
def global_batch(micro_batch: Array, accumulation: Array, replicas: Array) -> Array:
    """Sequences of one optimizer step."""
    return micro_batch * accumulation * replicas


@formula(
    unit="1",
    equation="S_min (1 + B_crit / B)",
    source="McCandlish et al. 2018, arXiv 1812.06162, equations 2.11 and 2.12",
)
def steps_to_target(least_steps: Array, batch_tokens: Array, critical_tokens: Array) -> Array:
    """Optimizer steps to a fixed loss: least_steps with an endless batch, twice as many at the
    critical one.

    The same hyperbola as tokens_to_target, (S / S_min - 1) (E / E_min - 1) = 1 with B_crit = E_min
    / S_min, solved for S.
    """
    return least_steps * (1 + critical_tokens / batch_tokens)


@formula(
    unit="tokens",
    equation="E_min (1 + B / B_crit)",
    source="McCandlish et al. 2018, arXiv 1812.06162, equations 2.11 and 2.12",
)
def tokens_to_target(least_tokens: Array, batch_tokens: Array, critical_tokens: Array) -> Array:
    """Tokens to a fixed loss: least_tokens with a tiny batch, twice as many at the critical one;
    each step takes B of them."""
    return least_tokens * (1 + batch_tokens / critical_tokens)


@formula(
    unit="1",
    equation="(B_big |G_big|^2 - B_small |G_small|^2) / (B_big - B_small)",
    source="McCandlish et al. 2018, arXiv 1812.06162, appendix A.1, equation A.2",
)
def gradient_squared(
    small_batch: Array, small_squared: Array, big_batch: Array, big_squared: Array
) -> Array:
    """Squared norm of the exact gradient without bias, from mean squared norms of gradients of two
    batches."""
    return (big_batch * big_squared - small_batch * small_squared) / (big_batch - small_batch)


@formula(
    unit="1",
    equation="(|G_small|^2 - |G_big|^2) / (1 / B_small - 1 / B_big)",
    source="McCandlish et al. 2018, arXiv 1812.06162, appendix A.1, equation A.2",
)
def gradient_variance(
    small_batch: Array, small_squared: Array, big_batch: Array, big_squared: Array
) -> Array:
    """Trace of the covariance of one example's gradient without bias, from mean squared norms of
    gradients of two batches."""
    return (small_squared - big_squared) / (1 / small_batch - 1 / big_batch)


@formula(
    unit="1",
    equation="tr(Sigma) / |G|^2",
    source="McCandlish et al. 2018, arXiv 1812.06162, equation 2.9",
)
def noise_scale(variance: Array, squared: Array) -> Array:
    """Simple noise scale, the batch at which noise and gradient are alike; in units of the examples
    of the variance.

    It stands for the critical batch where the Hessian is near a multiple of the identity.
    """
    return variance / squared


@formula(
    unit="tokens",
    equation="2e8 / L^(1 / 0.21)",
    source="Kaplan et al. 2020, arXiv 2001.08361, equation 5.3",
)
def critical_batch_at_loss(loss_nats: Array) -> Array:
    """Critical batch at a loss in nats per token; it depends on the loss and not on the size of the
    model."""
    return LAW_TOKENS / np.power(loss_nats, 1 / LAW_EXPONENT)


@formula(
    unit="1",
    equation="1.69 + 406.4 / N^0.34 + 410.7 / D^0.28",
    source="Hoffmann et al. 2022, arXiv 2203.15556, parametric fit",
)
def expected_loss(parameters: Array, tokens: Array) -> Array:
    """Nats per token of a model of N parameters after D tokens, of data and a tokenizer like those
    of the paper."""
    return (
        LEAST_LOSS
        + PARAMETER_TERM / np.power(parameters, PARAMETER_EXPONENT)
        + TOKEN_TERM / np.power(tokens, TOKEN_EXPONENT)
    )


@formula(
    unit="1",
    equation="rate B / B0",
    source="linear scaling rule: Goyal et al. 2017, arXiv 1706.02677",
)
def linear_rate(rate: Array, batch_tokens: Array, reference_tokens: Array) -> Array:
    """Learning rate in proportion to the batch: SGD, for batches well below the noise scale."""
    return rate * batch_tokens / reference_tokens


@formula(
    unit="1",
    equation="rate sqrt(B / B0)",
    source="square root scaling rule: Malladi et al. 2022, arXiv 2205.10287",
)
def root_rate(rate: Array, batch_tokens: Array, reference_tokens: Array) -> Array:
    """Learning rate with the root of the batch: Adam and RMSprop, while noise outweighs the
    gradient."""
    return rate * np.sqrt(batch_tokens / reference_tokens)


@formula(
    unit="1",
    equation="rate (1 + B_noise / B0) / (1 + B_noise / B)",
    source=(
        "McCandlish et al. 2018, arXiv 1812.06162: eps_max / (1 + B_noise / B), with eps_max from"
        " the rate at B0"
    ),
)
def saturating_rate(
    rate: Array, batch_tokens: Array, reference_tokens: Array, noise_tokens: Array
) -> Array:
    """Best learning rate of SGD near a quadratic: linear far below the noise scale, constant far
    above it."""
    return rate * (1 + noise_tokens / reference_tokens) / (1 + noise_tokens / batch_tokens)
