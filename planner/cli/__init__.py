"""The command line: parse options, call `planner.api`, render. Heavy imports happen inside
commands."""

from __future__ import annotations


def main() -> None:
    """Entry point of `dpplan`."""
    from planner.cli.app import app

    app()
