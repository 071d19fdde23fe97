"""Experiments of Primus whose framework is torchtitan: overrides of its arguments in YAML."""

from __future__ import annotations

from planner.formats import primus, torchtitan

FORMAT = primus.on("torchtitan", torchtitan.FORMAT, "Primus experiments on torchtitan (YAML)")
