"""Imported once by the server that workers are forked from: what every first estimate would
otherwise read and build again."""

from __future__ import annotations

from web import tasks
from web.state import START

tasks.what_if([(name, str(value)) for name, value in START.items()])
tasks.inputs([(name, str(value)) for name, value in START.items()])
