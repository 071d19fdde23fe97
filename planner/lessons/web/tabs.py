"""The entry of the lessons in the navigation."""

from web.tabs.base import Page

TABS = (Page(path="/learn", name="Learn"),)
