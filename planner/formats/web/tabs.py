"""The tab of `dpplan export`."""

from __future__ import annotations

from planner.formats.options import ExportOptions
from planner.formats.verbs.export import export
from planner.formats.views.export import view
from planner.inputs.options import read_options
from web.tabs.base import Answers, pages_of

TABS = pages_of(
    __file__,
    {
        "/launch": Answers(
            lambda request: export(read_options(request.given), request.of(ExportOptions)),
            lambda document, _: view(document, None),
        )
    },
)
