"""Mechanisms, one per module of this folder; `specs.mechanism` documents what a module declares."""

import planner.specs.options  # noqa: F401  (the option table loads every mechanism)
