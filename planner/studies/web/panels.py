"""Charts of the studies on the page of a plan."""

from planner.studies.web import panel

PANELS = {"measured": lambda state: [panel.chart(state.options)]}
