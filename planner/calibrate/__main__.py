"""`python -m planner.calibrate`: one rank under torchrun, Slurm or Kubernetes; a worker of `dpplan
calibrate`.

torchrun --nproc-per-node 8 -m planner.calibrate --out node.toml
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Start over with the environment that measuring needs, then run this rank."""
    from planner.calibrate.command import under_torchrun
    from planner.calibrate.settings import environment, read

    given = os.environ.get("DPPLAN_CALIBRATE")
    settings = read(given) if given else under_torchrun(sys.argv[1:])
    if isinstance(settings, int):
        return settings
    if os.environ.get("DPPLAN_CALIBRATE_READY") != "1":
        os.environ |= {
            **environment(settings.threads),
            "DPPLAN_CALIBRATE_READY": "1",
            "DPPLAN_CALIBRATE": settings.text(),
        }
        os.execv(sys.executable, [sys.executable, "-m", "planner.calibrate", *sys.argv[1:]])
    try:
        from planner.calibrate.run import work
    except ImportError as error:
        print(
            f"error: needs {error.name}; install it with: pip install 'dpplan[calibrate]'",
            file=sys.stderr,
        )
        return 2
    return work(settings)


if __name__ == "__main__":
    raise SystemExit(main())
