"""Ranks of a small distributed training as processes of this machine, over gloo."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SECONDS = 300.0  # a limit against ranks that wait for each other for ever


def printed(script: Path, ranks: int) -> list[Any]:
    """Results of all ranks: the last line of `python SCRIPT RANKS PORT`, read as JSON."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, str(script), str(ranks), str(port)],
        capture_output=True,
        text=True,
        cwd=script.parent,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    results: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def as_ranks(work: Callable[[int, int], Any]) -> None:
    """The other side of `printed`: be all ranks, forked once torch is imported, which takes longer
    than what they do, and print what `work(rank, ranks)` returns on each."""
    import torch
    import torch.distributed as dist

    ranks, port = (int(x) for x in sys.argv[1:])
    rank = next((rank for rank in range(1, ranks) if os.fork() == 0), 0)
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    results: list[Any] = [None] * ranks
    dist.all_gather_object(results, work(rank, ranks))
    if rank == 0:
        print(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()
