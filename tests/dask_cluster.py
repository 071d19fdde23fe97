"""A scheduler of Dask and its workers, each a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


class Cluster:
    """A scheduler and two workers, which a test may kill."""

    def __init__(self, folder: Path) -> None:
        text = folder / "scheduler.json"
        self._started: list[subprocess.Popen[bytes]] = []
        self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", str(text))
        while not text.exists():
            time.sleep(0.05)
        self.workers = [
            self._start("worker", "--scheduler-file", str(text), "--nthreads", "1", "--no-nanny")
            for _ in range(2)
        ]
        from distributed import Client

        with Client(scheduler_file=str(text), set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            self.address = str(client.scheduler_info()["address"])

    def _start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        self._started.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        )
        return self._started[-1]

    def end(self) -> None:
        for entry in self._started:
            entry.kill()
        for entry in self._started:
            entry.wait(30)
