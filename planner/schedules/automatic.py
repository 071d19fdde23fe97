"""Automatic zero-bubble schedules: list scheduling under a memory limit. Qi et al. 2023 (arXiv
2401.10241) section 3.1.

A rank that is free runs an input gradient that has arrived, else a forward that has arrived and
fits the memory, else a weight gradient, unless something it must run soon arrives sooner than the
weight gradient would end. How much sooner is the one choice of the heuristic; a few are tried, the
handcrafted schedule beside them, and the shortest wins, as in the paper's grid search.
"""

from __future__ import annotations

import functools
import heapq

import numpy as np

from planner.schedules.base import Action, Actions, forward, input_gradient, weight_gradient
from planner.schedules.split import split_rank
from planner.schedules.timing import Durations, compiled, timed

_PATIENCE = (
    0.0,
    0.5,
    1.0,
)  # share of a weight gradient that a rank would rather wait than start one
# forward passes of a schedule beyond which one choice is tried: each takes about 20 us per pass
_MOST_TRIED = 4096
Seconds = tuple[float, ...]  # per stage


def automatic(
    p: int, m: int, limit: int, f: Seconds, i: Seconds, w: Seconds, send: float
) -> Actions:
    """The shortest schedule found for these durations in which no rank holds more than `limit`
    micro-batches."""
    choices = _PATIENCE if p * m <= _MOST_TRIED else _PATIENCE[1:2]
    tried = [_greedy(p, m, limit, f, i, w, send, patience) for patience in choices]
    tried.append([split_rank(r, m, warm=p - r - 1, behind=r) for r in range(p)])
    if limit >= 2 * p - 1 and m >= 2 * p - 1:
        tried.append([split_rank(r, m, warm=2 * (p - r - 1), behind=2 * r) for r in range(p)])
    durations = Durations(np.array(f), np.array(i), np.array(w), send)
    spans = [float(timed(compiled(actions), durations).span[0]) for actions in tried]
    return tried[spans.index(min(spans))]


@functools.lru_cache(maxsize=256)
def cached(p: int, m: int, limit: int, f: Seconds, i: Seconds, w: Seconds, send: float) -> Actions:
    """As `automatic`, remembered. The lists are shared: do not change them."""
    return automatic(p, m, limit, f, i, w, send)


def _greedy(
    p: int, m: int, limit: int, f: Seconds, i: Seconds, w: Seconds, send: float, patience: float
) -> Actions:
    """One list schedule: ranks act in the order of time, each on what has started elsewhere by
    then."""
    out: list[list[Action]] = [[] for _ in range(p)]
    done_f, done_i, done_w, free = [0] * p, [0] * p, [0] * p, [0.0] * p
    f_at: list[list[float]] = [
        [0.0] * m if r == 0 else [] for r in range(p)
    ]  # when forwards arrive at each rank
    i_at: list[list[float]] = [[] for _ in range(p)]
    turn = [0] * p  # only the latest entry of a rank in the queue counts
    queue = [
        (0.0, -r, 0) for r in range(p)
    ]  # the last rank first among equals: it has the longest way back
    heapq.heapify(queue)

    def act_at(r: int, time: float) -> None:
        turn[r] += 1
        heapq.heappush(queue, (time, -r, turn[r]))

    def deliver(r: int, arrivals: list[float], time: float) -> None:
        arrivals.append(time)
        act_at(r, max(free[r], min(time, waits[r])))

    waits = [np.inf] * p  # what a rank that waits knows to arrive
    while queue:
        now, minus, mine = heapq.heappop(queue)
        r = -minus
        if mine != turn[r] or done_w[r] == m:
            continue
        back = i_at[r][done_i[r]] if done_i[r] < len(i_at[r]) else np.inf
        ahead = (
            f_at[r][done_f[r]]
            if done_f[r] < len(f_at[r]) and done_f[r] - done_w[r] < limit
            else np.inf
        )
        waits[r] = np.inf
        if back <= now:
            free[r] = now + i[r]
            out[r].append(input_gradient(r, done_i[r]))
            done_i[r] += 1
            if r:
                deliver(r - 1, i_at[r - 1], free[r] + send)
        elif ahead <= now:
            free[r] = now + f[r]
            out[r].append(forward(r, done_f[r]))
            done_f[r] += 1
            if r + 1 < p:
                deliver(r + 1, f_at[r + 1], free[r] + send)
            else:
                i_at[r].append(free[r])
        elif done_w[r] < done_i[r] and now + (1 - patience) * w[r] <= min(back, ahead):
            free[r] = now + w[r]
            out[r].append(weight_gradient(r, done_w[r]))
            done_w[r] += 1
        else:
            waits[r] = min(back, ahead)
            if waits[r] < np.inf:
                act_at(r, waits[r])
            continue
        act_at(r, free[r])
    return out
