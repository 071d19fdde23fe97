"""Experiments of Primus whose framework is MaxText: overrides of its arguments in YAML."""

from __future__ import annotations

from planner.formats import maxtext, primus

FORMAT = primus.on("maxtext", maxtext.FORMAT, "Primus experiments on MaxText (YAML)")
