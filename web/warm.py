"""Imported once by the server that workers are forked from: what every first estimate would
otherwise read and build again."""

from __future__ import annotations

from planner import plugins
from web import tasks
from web.state import PAGE, filled

tasks.what_if(filled([], PAGE))
tasks.inputs(filled([], PAGE))
for _ in plugins.modules("web.tasks"):
    pass
