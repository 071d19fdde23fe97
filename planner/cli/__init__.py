"""The command line: parse options, call a verb, render. Heavy imports happen inside
commands."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from planner.cli.process import Unprinted, contained
from planner.error import PlanError
from planner.plugins import PluginWarning


def main() -> None:
    """Entry point of `dpplan`. An error that no command foresaw ends in a sentence, status 70."""
    # else pydantic reads the metadata of every installed package in search of plugins
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    with contained():
        _sentences()
        try:
            from planner.cli.app import app

            app()
        except Unprinted:  # which `contained` says
            raise
        except PlanError as error:  # of plug-ins, before there is a command
            from planner.cli.refusal import clear_errors

            with clear_errors("--json" in sys.argv):
                raise error from None
        except Exception as error:
            from planner.cli.fault import fault

            raise SystemExit(fault(error, sys.argv[1:])) from None


def _sentences() -> None:
    """Plug-ins that are left out are one line each on stderr, not a place in our code."""
    shown = warnings.showwarning

    def show(message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, PluginWarning):
            print(f"warning: {message}", file=sys.stderr)
        else:
            shown(message, category, *where, **more)

    warnings.showwarning = show
