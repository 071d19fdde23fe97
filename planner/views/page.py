"""One page for every report: a title, then charts, tables and sentences in order. The file opens
without a network: style and plotly's script are inside.

jinja2 and plotly are imported when a page is made, so that a command without one starts quickly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from planner.specs.base import PlanError
from planner.views.cells import cell_text
from planner.views.figures import TEMPLATE, Chart, Figure
from planner.views.view import Block

if TYPE_CHECKING:
    from jinja2 import Environment

CONFIG = {"displaylogo": False, "showSendToCloud": False, "responsive": True}
_TEMPLATES = Path(__file__).parent / "templates"
_HEIGHT = "460px"  # of a figure that has no height of its own
_VERDICTS = {"fits": "yes", "holds": "yes", "does not fit": "no", "DOES NOT HOLD": "no"}


@dataclass(frozen=True)
class Folded:
    """A block that is shown when its title is chosen."""

    block: Block


Part = Block | Chart | Folded


def page(title: str, parts: Sequence[Part], command: str = "", option: str = "--html") -> str:
    """A page. Of a block, sentences become paragraphs or, where they are several, a list; a chart
    comes with its table folded under it. Raises PlanError (naming the option that asked) where
    plotly or jinja2 is missing."""
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

    return template.render(
        title=title, command=command, parts=parts, drawn=drawn, script=get_plotlyjs()
    )


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
    env.globals.update(cell=cell_text, verdicts=_VERDICTS)
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
                "active": next(i for i, one in enumerate(chart.choices) if one.chosen),
                **{"x": 0, "xanchor": "left", "y": 1.18, "showactive": True},
            }
        ]
    return {"data": chart.figure["data"], "layout": layout}
