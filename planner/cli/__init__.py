"""The command line: parse options, call `planner.api`, render. Heavy imports happen inside
commands."""

from __future__ import annotations

from planner.cli.process import contained


def main() -> None:
    """Entry point of `dpplan`."""
    with contained():
        from planner.cli.app import app

        app()
