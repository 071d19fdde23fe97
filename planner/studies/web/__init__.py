"""Tabs, panels and addresses of the studies."""
