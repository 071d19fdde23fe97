"""Rules that a layout has to meet: each is one object, a condition with its sentence.

Search masks tables of layouts with the conditions; refusals and `dpplan explain` say the sentences.
"""

from planner.formulas.rules import divide, stack, state, traced
from planner.formulas.rules.rule import Rule as Rule
from planner.formulas.rules.rule import of_mechanism
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.options import MECHANISMS
from planner.specs.plan import Plan

RULES: tuple[Rule, ...] = (
    *(divide.DEGREES, divide.HEADS, divide.WIDTHS, divide.WHOLE),
    *(traced.TENSOR, traced.CONTEXT, traced.SELECTED),
    *(divide.PLAIN, divide.LAYERS),
    *(divide.BATCH, divide.SEQUENCE, divide.SCANS, divide.CONTEXT, divide.EXPERTS),
    divide.SPLITS,
    *(stack.MICROBATCHES, stack.SCHEDULE, stack.SHARD_GROUP, stack.SUPPORTED),
    *(state.MODULES, state.PARAMETERS, state.ACTIVATIONS),
    *(of_mechanism(each, rule) for each in MECHANISMS for rule in each.rules()),
    *(state.ADAPTERS, state.EXAMPLES, state.TILES, state.IN_LOSS),
    *(state.ON_HOST, state.BLOCKS, state.MATRICES, state.TYPES),
    *(stack.TENSOR_ALONE, stack.REPLICAS, stack.SHARING),
    *(stack.PLACEMENT, stack.SEQUENCE_PARALLEL, stack.ACTING),
)


def check(plan: Plan, columns: Columns) -> dict[str, Array]:
    """Every rule as a boolean column, by name: True where the layout is allowed."""
    return {rule.name: rule.holds(plan, columns) for rule in RULES}
