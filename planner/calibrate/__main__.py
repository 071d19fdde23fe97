"""`python -m planner.calibrate`: one rank, started by torchrun, Slurm or Kubernetes, or by `dpplan
calibrate` as torchrun would.

torchrun --nproc-per-node 8 -m planner.calibrate --out node.toml
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Start over with the environment that measuring needs, then run this rank."""
    from planner.calibrate.command import under_torchrun
    from planner.calibrate.settings import WRONG, environment, read

    words = sys.argv[1:]
    of_dpplan = words[:1] == ["--settings"]
    settings = read(Path(words[1]).read_text("utf-8")) if of_dpplan else under_torchrun(words)
    if isinstance(settings, int):
        return settings
    if os.environ.get("DPPLAN_CALIBRATE_READY") != "1":
        os.environ |= {**environment(settings), "DPPLAN_CALIBRATE_READY": "1"}
        if of_dpplan:  # all ranks are on this machine
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.execv(sys.executable, [sys.executable, "-m", "planner.calibrate", *words])
    try:
        from planner.calibrate.run import work
    except ImportError as error:
        print(
            f"error: needs {error.name}; install it with: pip install 'dpplan[calibrate]'",
            file=sys.stderr,
        )
        return WRONG
    return work(settings)


if __name__ == "__main__":
    raise SystemExit(main())
