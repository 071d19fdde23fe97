"""Imported once by the server that workers are forked from: what every first estimate would
otherwise read and build again."""

from __future__ import annotations

import signal

# Ctrl-C reaches every process of a terminal: it is the server that ends its workers
signal.signal(signal.SIGINT, signal.SIG_IGN)

from web import tasks  # noqa: E402 (after the signal)
from web.state import START  # noqa: E402

tasks.what_if([(name, str(value)) for name, value in START.items()])
tasks.inputs([(name, str(value)) for name, value in START.items()])
