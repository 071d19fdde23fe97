"""A browser and a server for tests: Chromium as it is installed, and `dpplan serve` as a process of
its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from command import ROOT

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str:
    """Path of the browser. These tests never skip: without one they fail and say what is
    missing."""
    response = os.environ.get("CHROMIUM") or next(
        (path for name in NAMES if (path := shutil.which(name))), None
    )
    if response is None:
        raise RuntimeError(
            "Chromium is missing: apt-get install chromium, or name one with"
            " CHROMIUM=/path/to/chromium"
        )
    return response


def free_port() -> int:
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1])


@contextmanager
def served(timeout_s: float = 90) -> Iterator[str]:
    """Address of a server that runs inside the block."""
    port = free_port()
    code = "import sys; from planner.cli import main; sys.argv[0] = 'dpplan'; main()"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", str(port)],
        cwd=ROOT,
        env=env,
        stderr=subprocess.PIPE,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        until = time.monotonic() + timeout_s
        while True:
            try:
                with urllib.request.urlopen(
                    f"{address}/page/view?model=gpt2&gpu=a100", timeout=timeout_s
                ):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    text = (
                        process.stderr.read().decode()
                        if process.poll() is not None and process.stderr
                        else ""
                    )
                    raise RuntimeError(f"dpplan serve did not answer: {text}") from None
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
