"""The end of a command after an internal fault: one sentence, as for all other errors. It does not
replace checks: wrong requests are refused where they are read."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from planner import __version__
from planner.cli.refusal import refuse

FAULT = 70  # exit status of an internal error: EX_SOFTWARE of sysexits.h
TRACEBACK = "DPPLAN_TRACEBACK"  # the environment variable that asks for the traceback


def fault(error: Exception, words: list[str]) -> int:
    """Say on stderr (and under --json on stdout) that this is a fault of dpplan, and where; the
    exit status."""
    if os.environ.get(TRACEBACK):
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, MemoryError):
        subject, remedy = (
            "memory",
            "needs more memory than this machine grants; ask for less at once",
        )
        sentence = f"{subject}: {remedy}"
    else:
        last = traceback.extract_tb(error.__traceback__)[-1]
        from planner.inputs.secrets import scrubbed

        subject = f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno}"
        remedy = f"please report it with the command; {TRACEBACK}=1 prints the traceback"
        why = f"{subject}: {scrubbed(str(error))}"
        sentence = f"a fault of dpplan {__version__}, not of the request ({why}); {remedy}"
    refuse(subject, " ".join(words), remedy, "--json" in words, sentence)
    return FAULT
