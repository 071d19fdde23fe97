"""The command line: parse options, call `planner.api`, render. Heavy imports happen inside
commands."""

from __future__ import annotations

import os
import sys

from planner.cli.process import Unprinted, contained


def main() -> None:
    """Entry point of `dpplan`. An error that no command foresaw ends in a sentence, status 70."""
    # else pydantic reads the metadata of every installed package in search of plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with contained():
        from planner.cli.app import app

        try:
            app()
        except Unprinted:  # which `contained` says
            raise
        except Exception as error:
            from planner.cli.fault import fault

            raise SystemExit(fault(error, sys.argv[1:])) from None
