"""Actions of a rank whose weight gradients lag behind its input gradients."""

from __future__ import annotations

from planner.schedules.base import Action, forward, input_gradient, weight_gradient


def split_rank(stage: int, m: int, warm: int, behind: int) -> list[Action]:
    """`warm` forwards, then a forward, an input gradient and the weight gradient of `behind`
    micro-batches earlier in turn."""
    warm = min(m, warm)
    out = [forward(stage, i) for i in range(warm)]
    for i in range(m):
        if warm + i < m:
            out.append(forward(stage, warm + i))
        out.append(input_gradient(stage, i))
        if i >= behind:
            out.append(weight_gradient(stage, i - behind))
    return out + [weight_gradient(stage, i) for i in range(max(m - behind, 0), m)]
