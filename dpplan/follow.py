"""Follow the log of a running job, and say how its step compares with the prediction of its
recipe: torchtitan, Megatron-LM and every program whose logs `dpplan check` reads.

    python -m dpplan.follow train.log --recipe train.sh --gpu h100 &

It stands beside the job, reads only the log, and says a verdict once there are enough steps, and
again when it changes. Options: as of `dpplan check`. It ends when the log has not grown for
an hour.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dpplan.watch import MEASURED, compared

_EVERY_S, _IDLE_S = 30.0, 3600.0
_CHECK = "from planner.cli import main; main()"
_WRONG = 2  # exit status of a wrong request

Wait = Callable[[float], None]


def read(words: Sequence[str]) -> dict[str, Any]:
    """The document of `dpplan check`, by a process that ends. Raises SystemExit with its sentence
    for a wrong request; a log without steps yet is not one."""
    command = [sys.executable, "-c", _CHECK, "check", *words, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    if done.returncode == _WRONG and "holds no step" not in done.stderr:
        raise SystemExit(done.stderr.strip())
    return dict(document)


def sentence(document: dict[str, Any]) -> tuple[str, str]:
    """Verdict and sentence of a document; empty as long as there are too few steps."""
    against = document.get("against") or {}
    steps = document["files"][0]["steps"] if against else {"steady": 0}
    if steps["steady"] < MEASURED:
        return "", ""
    report = {"seconds": against["predicted_s"], "low": against["low"], "high": against["high"]}
    return against["verdict"], compared(against["measured_s"], report)["sentence"]


def follow(words: Sequence[str], wait: Wait = time.sleep, idle_s: float = _IDLE_S) -> Iterator[str]:
    """Sentences about a log, the first of the words, each time its verdict changes."""
    log, verdict, size, still_s = Path(words[0]), "", -1, 0.0
    while still_s <= idle_s:
        now = log.stat().st_size if log.exists() else 0
        if now != size:
            size, still_s = now, 0.0
            latest, text = sentence(read(words)) if now else ("", "")
            if latest not in ("", verdict):
                verdict = latest
                yield text
        wait(_EVERY_S)
        still_s += _EVERY_S


if __name__ == "__main__":
    for line in follow(sys.argv[1:]):
        print(f"dpplan: {line}", flush=True)
