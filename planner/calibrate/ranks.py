"""The ranks of a run: rendezvous, agreement, and naming of a lost rank.

torchrun sees ranks that end, not ones that hang: each rank counts beats in the store they share,
and when a collective breaks the others name whose beats stand still.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from planner.calibrate.settings import Place
from planner.error import PlanError

_BEAT_S = 1.0  # between signs of life; a choice
_LOST_AFTER_BEATS = 4  # a choice

# what torch and gloo say where another rank is gone, against errors of only this rank
_BROKEN = re.compile(
    r"gloo|nccl|connection|monitoredbarrier|timed out|timeout|peer|socket|store", re.IGNORECASE
)


class Lost(RuntimeError):
    """A rank died or hangs; the message names it."""


class Ranks:
    """The ranks of this run and how they agree; for a single rank, everything is local."""

    def __init__(self, where: Place, timeout_s: float, on_gpu: bool) -> None:
        self.where, self.timeout_s = where, timeout_s
        self.together: dist.ProcessGroup | None = None
        self._stop = threading.Event()
        if where.ranks == 1:
            return
        limit = timedelta(seconds=timeout_s)
        try:
            dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=limit)
        except Exception as error:
            raise Lost(
                f"rank {where.rank} found no other ranks within {timeout_s:.0f} s at"
                f" {os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
                f" ({str(error).splitlines()[0]}); check that all nodes run the same command and"
                " reach that address"
            ) from error
        self.together = dist.new_group(backend="gloo", timeout=limit)
        self._store = dist.distributed_c10d._get_default_store()
        self._beats = threading.Thread(target=self._beat, daemon=True)
        self._beats.start()

    def _beat(self) -> None:
        while not self._stop.wait(_BEAT_S):
            try:
                self._store.add(f"dpplan-beats-{self.where.rank}", 1)
            except Exception:  # the store is gone: the run is over
                return

    def agree(self, number: float) -> float:
        """Largest over all ranks."""
        if self.together is None:
            return number
        tensor = torch.tensor([number], dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX, group=self.together)
        return float(tensor[0])

    def meet(self) -> None:
        """All ranks come to this point, or the missing ones are named."""
        if self.together is not None:
            dist.monitored_barrier(
                self.together, timedelta(seconds=self.timeout_s), wait_all_ranks=True
            )

    def share(self, value: Any) -> Any:
        """Broadcast the value of rank 0."""
        values = [value]
        if self.together is not None:
            dist.broadcast_object_list(values, src=0, group=self.together)
        return values[0]

    def gather(self, value: Any) -> list[Any]:
        """One value of each rank, on all ranks."""
        if self.together is None:
            return [value]
        values: list[Any] = [None] * self.where.ranks
        dist.all_gather_object(values, value, group=self.together)
        return values

    def of_node(self, number: float) -> float:
        """Sum over the ranks of this machine."""
        if self.together is None:
            return number
        each = torch.zeros(self.where.ranks, dtype=torch.float64)
        each[self.where.rank] = number
        dist.all_reduce(each, group=self.together)
        first = self.where.rank - self.where.local_rank
        return float(each[first : first + self.where.per_node].sum())

    def lost(self) -> list[int]:
        """Ranks whose beats stand still for a while; beats are counted, since clocks of nodes
        differ."""
        try:
            before = self._beats_so_far()
            time.sleep(_BEAT_S * _LOST_AFTER_BEATS)
            after = self._beats_so_far()
        except Exception:
            return [0]  # the store is on the first node
        return [rank for rank in range(self.where.ranks) if before[rank] == after[rank]]

    def _beats_so_far(self) -> list[int]:
        return [self._store.add(f"dpplan-beats-{r}", 0) for r in range(self.where.ranks)]

    @contextlib.contextmanager
    def named(self, doing: str) -> Iterator[None]:
        """Turn a broken connection into an error that names the rank and the measurements that are
        kept."""
        try:
            yield
        except (PlanError, Lost):
            raise
        except RuntimeError as error:
            if self.together is None or not _BROKEN.search(str(error)):
                raise
            gone = self.lost()
            first = str(error).strip().splitlines()[0]
            who = (
                f"rank {', '.join(map(str, gone))} died"
                if gone
                else f"a rank did not answer ({first})"
            )
            raise Lost(
                f"{who} while measuring {doing}; what was measured until now is kept, run the same"
                " command to go on"
            ) from error

    def close(self) -> None:
        self._stop.set()
        if self.together is not None:
            self._beats.join()
            dist.destroy_process_group()
