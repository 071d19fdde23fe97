"""Generating text: experts that a batch touches, the distribution of response lengths, and the time
of a decoding phase.

All inputs are float64 scalars or arrays; all times are seconds.
"""

from __future__ import annotations

import math

import numpy as np

from planner.ledger import Array, formula

_below = np.vectorize(lambda z: 0.5 * math.erfc(-z / math.sqrt(2.0)), otypes=[float])


@formula(
    unit="1",
    equation="E (1 - (1 - k/E)^n)",
    source="expected number of distinct experts that n tokens reach, each k of E; own derivation",
)
def touched_experts(tokens: Array, experts: Array, per_token: Array) -> Array:
    """Experts whose weights a decode step of n tokens reads. Routing is taken as even."""
    return -experts * np.expm1(np.asarray(tokens, float) * np.log1p(-per_token / experts))


@formula(
    unit="s",
    equation="base + (r - 1) bytes / bandwidth",
    source=(
        "one-shot all-reduce: every rank reads the whole message of every other (vLLM, csrc/"
        "custom_all_reduce.cuh); 5 us for 128 B over 2 and 4 GPUs, ai-dynamo/aiconfigurator"
        " custom_allreduce tables"
    ),
)
def one_shot_all_reduce_s(
    message_bytes: Array, ranks: Array, *, base_s: Array, bytes_per_s: Array
) -> Array:
    """Time of a small all-reduce among GPUs that read each other's memory; none for one rank."""
    each = base_s + (np.asarray(ranks, float) - 1) * message_bytes / bytes_per_s
    return np.where(np.asarray(ranks) > 1, each, 0.0)


@formula(
    unit="s",
    equation="gpu + step + n sequence",
    source=(
        "an engine schedules, prepares and returns tokens on the CPU between two forward passes:"
        " vLLM blog 2024-09-05 (v0.6) and 2025-01-27 (V1)"
    ),
)
def decode_step_s(gpu_s: Array, sequences: Array, step_s: Array, sequence_s: Array) -> Array:
    """Time of one token of n sequences: the GPU's pass, and CPU work between passes."""
    return gpu_s + step_s + sequences * sequence_s


@formula(
    unit="1",
    equation="1 - Phi((ln t - ln median) / sigma) for t < longest, else 0",
    source="log-normal lengths, cut at the longest allowed; docs/reinforcement.md",
)
def running_frac(tokens: Array, median: Array, sigma: Array, longest: Array) -> Array:
    """Share of responses that are longer than this many tokens; sigma 0: all have the median."""
    t = np.maximum(np.asarray(tokens, float), 1e-9)
    spread = np.maximum(sigma, 1e-9)
    return np.where(t < longest, 1 - _below((np.log(t) - np.log(median)) / spread), 0.0)


@formula(
    unit="1",
    equation="1 - (1 - S)^n",
    source="maximum of n independent lengths: order statistics, David & Nagaraja 2003",
)
def any_running_frac(running: Array, sequences: Array) -> Array:
    """Chance that one of n sequences at least is still being generated; their longest is the sum of
    this over tokens."""
    some = np.minimum(np.asarray(running, float), 1 - 1e-12)
    return -np.expm1(sequences * np.log1p(-some))


@formula(
    unit="s",
    equation="tokens any(S, n r) step(n S / any(S, n))",
    source="own derivation: a batch that shrinks as its responses end, until the last of r engines",
)
def drain_s(tokens: Array, any_of_all: Array, step_s: Array) -> Array:
    """Time that a batch spends at a length, as the sum over all lengths is from n running sequences
    per engine to none. tokens: that this length stands for; step_s: a token with those that run."""
    return tokens * any_of_all * step_s


@formula(
    unit="s",
    equation="(n - slots)+ tokens / slots step",
    source="continuous batching: an ended sequence makes room for the next (Orca, OSDI 2022)",
)
def full_s(sequences: Array, slots: Array, tokens: Array, step_s: Array) -> Array:
    """Time with all slots of an engine taken, while sequences wait."""
    return np.maximum(sequences - slots, 0.0) * tokens / slots * step_s


@formula(
    unit="s",
    equation="n tokens / slots step",
    source="responses that are not done go on in the next step, so that slots are always full",
)
def steady_s(sequences: Array, slots: Array, tokens: Array, step_s: Array) -> Array:
    """Time of as many responses as a step takes, where no step waits for the longest."""
    return sequences * tokens / slots * step_s


@formula(
    unit="s",
    equation="(drain + k full) / (k + 1)",
    source=(
        "own derivation: a generator that may be k steps ahead fills the slots of long responses"
        " with the next prompts, and drains once in k + 1 steps"
    ),
)
def ahead_s(drained_s: Array, filled_s: Array, steps_ahead: Array) -> Array:
    """Time of a step's responses where generation runs this many steps ahead of training."""
    return (drained_s + steps_ahead * filled_s) / (steps_ahead + 1)


@formula(
    unit="s",
    equation="generation + training + refit; max(generation, training) + refit where beside",
    source="synchronous steps wait for each other; one GPU pool generates while the other trains",
)
def reinforcement_step_s(
    generating_s: Array, training_s: Array, refit_s: Array, beside: Array
) -> Array:
    """Time of a step of reinforcement learning. beside: on GPUs of its own, generation works on a
    later step while this one is trained on."""
    slower = np.maximum(generating_s, training_s)
    return np.where(np.asarray(beside) > 0, slower, np.add(generating_s, training_s)) + refit_s


@formula(
    unit="s",
    equation="2 bytes / bandwidth",
    source="states leave for host memory before generation and come back after it; own count",
)
def there_and_back_s(moved_bytes: Array, host_bytes_per_s: Array) -> Array:
    """Time of copies of one GPU's bytes to host memory and back."""
    return 2 * moved_bytes / host_bytes_per_s


@formula(
    unit="s",
    equation="tokens bytes / rate",
    source="a process packs, copies and sends the batch of a pass (DataProto.__getstate__ of verl)",
)
def handed_s(padded_tokens: Array, token_bytes: Array, bytes_per_s: Array) -> Array:
    """Time in which a controller hands rows, padded to the longest, to the workers of a pass."""
    return padded_tokens * token_bytes / bytes_per_s


@formula(
    unit="s",
    equation="done_i + left_i training",
    source="own derivation: parts of a batch are trained on in turn, none before it is generated",
)
def trained_by_s(done_s: Array, training_s: Array, left_frac: Array) -> Array:
    """Time before which a step cannot end that trains on parts of its responses in turn: when a
    part is done, and training on it and on those after it, a share `left_frac` of all."""
    return done_s + left_frac * training_s
