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
    """What every rank of `python SCRIPT RANK RANKS PORT` printed last, read as JSON."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(ranks), str(port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=script.parent,
        )
        for rank in range(ranks)
    ]
    out = [process.communicate(timeout=SECONDS) for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(
        error[-2000:] for _, error in out
    )
    return [json.loads(text.splitlines()[-1]) for text, _ in out]


def as_rank(work: Callable[[int, int], Any]) -> None:
    """The other side of `printed`: be the rank that the arguments name and print what
    `work(rank, ranks)` returns."""
    import torch
    import torch.distributed as dist

    rank, ranks, port = (int(x) for x in sys.argv[1:])
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(ranks),
    }
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    print(json.dumps(work(rank, ranks)))
    dist.barrier()
    dist.destroy_process_group()
