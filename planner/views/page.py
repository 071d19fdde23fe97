"""A view as a report: one HTML page that opens without a network, with style and plotly's script
inside.

jinja2 and plotly are imported when a page is made, so that a command without one starts quickly.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.specs.base import PlanError
from planner.views.cells import cell_text
from planner.views.chart import Chart, Figure
from planner.views.drawn import svg
from planner.views.figures import TEMPLATE
from planner.views.html import parts_of
from planner.views.view import View

if TYPE_CHECKING:
    from jinja2 import Environment

CONFIG = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
_TEMPLATES = Path(__file__).parent / "templates"
_HEIGHT = "460px"  # of a figure that has no height of its own


def page(view: View, command: str = "", option: str = "--html") -> str:
    """A view as a page. Raises PlanError (naming the option that asked) where plotly or jinja2 is
    missing."""
    try:
        from plotly.io import to_html
        from plotly.offline import get_plotlyjs

        template = environment().get_template("page.html")
    except ImportError as error:
        raise PlanError(
            option, None, f"needs {error.name}, which is missing: pip install plotly jinja2"
        ) from None

    def drawn(chart: Chart) -> str:
        text: str = to_html(
            _with_menu(chart),
            config=CONFIG,
            include_plotlyjs=False,
            full_html=False,
            div_id=chart.name,
            default_height=_HEIGHT,
        )
        return text

    charts = any(isinstance(p, Chart) or p.chart is not None for p in view.parts)
    return template.render(
        view=parts_of(view), command=command, drawn=drawn, script=get_plotlyjs() if charts else ""
    )


def sheet(view: View, command: str, state: str) -> str:
    """A view as a page without a script, its charts as SVG. state: the query of the dashboard's
    page, which that page reads back."""
    template = environment().get_template("page.html")
    return template.render(view=parts_of(view), command=command, drawn=svg, script="", state=state)


@cache
def environment(*folders: Path) -> Environment:
    """The templates of the reports, and of more folders before them. All is escaped, and a name
    that a template does not know is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    env = Environment(
        loader=FileSystemLoader([*folders, _TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    env.globals.update(cell=cell_text)
    return env


def _with_menu(chart: Chart) -> Figure:
    """The figure in the template of all figures; its choices become plotly's menu."""
    layout = {"template": TEMPLATE, **chart.figure["layout"]}
    if chart.choices:
        layout["margin"] = {**TEMPLATE["layout"]["margin"], "t": 70}
        layout["updatemenus"] = [
            {
                "buttons": [
                    {"label": choice.label, "method": "restyle", "args": [choice.restyle]}
                    for choice in chart.choices
                ],
                "active": next(i for i, choice in enumerate(chart.choices) if choice.chosen),
                **{"x": 0, "xanchor": "left", "y": 1.18, "showactive": True},
            }
        ]
    return {"data": chart.figure["data"], "layout": layout}
