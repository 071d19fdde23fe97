"""The lists of actions of all ranks as columns: what is timed, without an object per action."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from planner.ledger import Array
from planner.schedules.base import BACKWARD, FORWARD, INPUT, OVERLAP, WEIGHT, Action, Actions, pair

NAMES = (FORWARD, BACKWARD, INPUT, WEIGHT, OVERLAP)
CODE = {name: code for code, name in enumerate(NAMES)}  # of `Lists.kind`, which is never OVERLAP


@dataclass(frozen=True)
class Lists:
    """Actions in the order of the lists, rank after rank, with overlapped pairs taken apart.

    counts has shape (ranks,), the others one value per forward, backward or gradient.
    """

    counts: Array  # actions of every rank
    node: Array  # the action it belongs to, counted from 1 through all lists
    stage: Array
    kind: Array  # its code
    microbatch: Array
    slot: Array  # 1 for the second of a pair

    @classmethod
    def of(cls, actions: Actions) -> Lists:
        """The columns of lists of actions."""
        parts = [action.parts or (action,) for row in actions for action in row]
        counts = np.fromiter(map(len, parts), np.intp, len(parts))
        first = np.cumsum(counts) - counts
        each = list(itertools.chain.from_iterable(parts))
        stages, kinds, microbatches, _ = zip(*each, strict=True) if each else ((),) * 4
        return cls(
            counts=np.array([len(row) for row in actions], dtype=np.intp),
            node=np.repeat(np.arange(1, len(parts) + 1), counts),
            stage=np.array(stages, dtype=np.intp),
            kind=np.array([CODE[kind] for kind in kinds], dtype=np.intp),
            microbatch=np.array(microbatches, dtype=np.intp),
            slot=np.arange(len(kinds)) - np.repeat(first, counts),
        )

    @property
    def pairs(self) -> Array:
        """Whether each action is an overlapped pair."""
        return np.bincount(self.node, minlength=self.counts.sum() + 1)[1:] > 1

    def action(self, node: int) -> Action:
        """The action of this number."""
        at = np.flatnonzero(self.node == node)
        return _joined([self._leaf(i) for i in at.tolist()])

    def actions(self) -> Actions:
        """One list of actions per rank."""
        nodes = self.flat()
        ends = np.cumsum(self.counts).tolist()
        return [nodes[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def flat(self) -> list[Action]:
        """The actions of all ranks, rank after rank."""
        names = [NAMES[kind] for kind in self.kind.tolist()]
        leaves = map(Action, self.stage.tolist(), names, self.microbatch.tolist())
        if not self.slot.any():
            return list(leaves)
        grouped = itertools.groupby(zip(self.node.tolist(), leaves, strict=True), lambda x: x[0])
        return [_joined([leaf for _, leaf in group]) for _, group in grouped]

    def _leaf(self, i: int) -> Action:
        return Action(int(self.stage[i]), NAMES[self.kind[i]], int(self.microbatch[i]))


def _joined(leaves: list[Action]) -> Action:
    return pair(*leaves) if len(leaves) > 1 else leaves[0]


@dataclass(frozen=True)
class Rank:
    """The steps of a rank that holds two stages: streams 0 and 1.

    steps are codes, 2 kind + stream; of a pair, the stream of its forward: its backward is the
    other stream's. The n-th forward of a stream belongs to its n-th micro-batch, and so on.
    """

    steps: list[int]
    stages: tuple[int, int]
    first: tuple[int, int] = (0, 0)  # micro-batch that a stream begins with


def step(kind: str) -> tuple[int, int]:
    """Codes of a kind for both streams."""
    return 2 * CODE[kind], 2 * CODE[kind] + 1


def two_streams(ranks: Iterable[Rank], microbatches: int) -> Lists:
    """The columns of these ranks, without actions of micro-batches beyond the last."""
    ranks = list(ranks)
    lengths = [len(rank.steps) for rank in ranks]
    code = np.fromiter(itertools.chain.from_iterable(rank.steps for rank in ranks), np.intp)
    apart = np.where(code >= step(OVERLAP)[0], 2, 1)
    node = np.repeat(np.arange(len(code)), apart)
    slot = np.arange(len(node)) - (np.cumsum(apart) - apart)[node]
    kind, stream = code[node] // 2, code[node] % 2
    is_pair = kind == CODE[OVERLAP]
    kind = np.where(is_pair, np.where(slot == 0, CODE[FORWARD], CODE[BACKWARD]), kind)
    stream = np.where(is_pair & (slot == 1), 1 - stream, stream)
    rank = np.repeat(np.arange(len(ranks)), lengths)[node]
    number = np.zeros(len(node), dtype=np.intp)
    for s in (0, 1):
        mine = stream == s
        forward, given, weight = (mine & (kind == CODE[name]) for name in (FORWARD, INPUT, WEIGHT))
        for counted in (forward, mine & ~forward & ~weight):
            number[counted] = _counted(rank[counted])
        number[weight] = number[given]  # which it follows in the same order
    kept = number < microbatches
    used = np.zeros(len(code), dtype=bool)
    used[node[kept]] = True
    owner = np.repeat(np.arange(len(ranks)), lengths)
    stages, first = (np.array([getattr(r, name) for r in ranks]) for name in ("stages", "first"))
    return Lists(
        counts=np.bincount(owner[used], minlength=len(ranks)),
        node=np.cumsum(used)[node[kept]],
        stage=stages[rank, stream][kept],
        kind=kind[kept],
        microbatch=(number + first[rank, stream])[kept],
        slot=slot[kept],
    )


def _counted(group: Array) -> Array:
    """Position of each element in its group; groups are sorted."""
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    return np.arange(len(group)) - np.repeat(starts, np.diff([*starts, len(group)]))
