"""The entry of the lessons in the navigation."""

from web.tabs.base import pages_of

TABS = pages_of(__file__, {})
