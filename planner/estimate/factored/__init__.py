"""Factored columns: columns that know which options they depend on, so that arithmetic happens once
per distinct combination, not once per layout. README.md explains it with an example.
"""

from planner.estimate.factored import functions
from planner.estimate.factored.column import is_factored
from planner.estimate.factored.space import Space, distinct_combinations

__all__ = ["Space", "distinct_combinations", "functions", "is_factored"]
