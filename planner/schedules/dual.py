"""The eight steps that DualPipe and DualPipeV share: two streams of micro-batches meet on every
rank.

DeepSeek-V3 report (arXiv 2412.19437) section 3.2.1 and figure 5.
"""

from __future__ import annotations

from collections import deque

from planner.schedules.base import BACKWARD, FORWARD, INPUT, OVERLAP, WEIGHT
from planner.schedules.lists import step

_F, _B, _I, _W, _PAIR = map(step, (FORWARD, BACKWARD, INPUT, WEIGHT, OVERLAP))


def steps(depth: int, rank: int, count: int) -> list[int]:
    """Steps of a rank that is `rank` steps from the entry of stream 0 of `depth`; each stream has
    `count` micro-batches."""
    ahead, both = depth - rank - 1, count - 2 * depth + rank + 1
    out = [_F[0]] * (2 * ahead) + [*_F] * (rank + 1) + [_I[1], _W[1], _F[1]] * ahead
    pairs = [*_PAIR] * both
    if both and not ahead:
        pairs[:1] = [_F[0], _B[1]]  # kept apart on the middle rank: the bubble is smaller
    out += pairs + [_B[1], _PAIR[1]] * ahead
    waiting: deque[int] = deque()

    def backward(stream: int, split: bool) -> int:
        if split:
            waiting.append(_W[stream])
        return _I[stream] if split else _B[stream]

    late = False  # the second half of the drain splits its backwards
    for i in range(rank + 1):
        middle = i == (rank + 1) // 2
        late = late or (middle and rank % 2 == 1)
        out.append(backward(1, late))
        late = late or middle
        out.append(backward(0, late))
    for _ in range(ahead):
        if waiting:
            out.append(waiting.popleft())
        out.append(backward(0, late))
    return out + list(waiting)
