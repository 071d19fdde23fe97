"""The command line: parse options, call `planner.api`, render. Heavy imports happen inside commands."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `dpplan`."""
    from planner.cli.app import app

    try:
        app()
    except BrokenPipeError:  # the reader of a pipe (head, less) has enough
        sys.stderr.close()
        raise SystemExit(0) from None
