"""Mechanisms: each module is one, by being here; `specs.mechanism` says what it declares."""

import planner.specs.options  # noqa: F401  (the option table loads every mechanism)
