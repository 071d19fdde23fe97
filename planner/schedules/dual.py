"""The eight steps that DualPipe and DualPipeV share: two streams of micro-batches meet on every
rank.

DeepSeek-V3 report (arXiv 2412.19437) section 3.2.1 and figure 5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from planner.schedules.base import Action, backward, forward, input_gradient, pair, weight_gradient

Stream = Callable[
    [int], tuple[int, int]
]  # n-th micro-batch of a stream on this rank -> (stage, micro-batch)


def steps(depth: int, rank: int, count: int, streams: tuple[Stream, Stream]) -> list[Action]:
    """Actions of a rank that is `rank` steps from the entry of stream 0 of `depth`; each stream has
    `count` micro-batches."""
    out: list[Action] = []
    forwards, backwards = [0, 0], [0, 0]
    waiting: deque[Action] = deque()

    def f(stream: int) -> Action:
        forwards[stream] += 1
        return forward(*streams[stream](forwards[stream] - 1))

    def b(stream: int) -> Action:
        backwards[stream] += 1
        return backward(*streams[stream](backwards[stream] - 1))

    def split(stream: int) -> Action:
        stage, i = streams[stream](backwards[stream])
        backwards[stream] += 1
        waiting.append(weight_gradient(stage, i))
        return input_gradient(stage, i)

    ahead = depth - rank - 1
    out += [f(0) for _ in range(2 * ahead)]
    for _ in range(rank + 1):
        out += (f(0), f(1))
    for _ in range(ahead):
        out += (split(1), waiting.popleft(), f(1))
    for i in range(count - 2 * depth + rank + 1):
        if i == 0 and ahead == 0:
            out += (f(0), b(1))  # kept apart on the middle rank: the bubble is smaller
        else:
            out.append(pair(f(0), b(1)))
        out.append(pair(f(1), b(0)))
    for _ in range(ahead):
        out += (b(1), pair(f(1), b(0)))
    late = False  # the second half of the drain splits its backwards
    for i in range(rank + 1):
        middle = i == (rank + 1) // 2
        late = late or (middle and rank % 2 == 1)
        out.append(split(1) if late else b(1))
        late = late or middle
        out.append(split(0) if late else b(0))
    for _ in range(ahead):
        if waiting:
            out.append(waiting.popleft())
        out.append(split(0) if late else b(0))
    return out + list(waiting)
