"""A pick: a request with what it left open filled in by one layout, so that only this layout
answers it."""

from __future__ import annotations

from typing import Any

from planner.estimate import Estimates
from planner.inputs.options import read_options
from planner.search.software import acts
from planner.specs.capabilities import has, values
from planner.specs.columns import Columns
from planner.specs.layout import Layout
from planner.specs.options import LAYOUT, Options, command_line, options_of_command, rows
from planner.specs.plan import Plan, SoftwareChoice

_OF_SEARCHES = ("where", "search_offload", "objective", "allow_idle")
# kernels that a request without a stack may ask for although some stacks have them anyway
_KERNELS = ("compile", "fused_kernels")


def pick(options: Options, plan: Plan, layout: Layout) -> Options:
    """The request with stack, batch and layout filled in; what follows from the rest, and what
    acts in no such layout, is left out."""
    whole = layout.shard_group == layout.dp * layout.cp
    follows = {
        "dp": True,
        "cp": layout.cp == 1 and not values(plan.stack, "cp"),
        "ep": plan.model.routed is None,
        "vpp": layout.pp == 1,
        "schedule": layout.pp == 1,
        "sequence_parallel": layout.tp == 1,
        "shard_group": whole and (layout.zero < 3 or not has(plan.stack, "shard_group")),
        "offload": layout.offload == "none",
    }
    idle = list(_OF_SEARCHES)
    idle += ["uneven_stages"] if layout.pp == 1 else []
    for name in _KERNELS:
        idle += [name] if getattr(options, name) and not getattr(plan.training, name) else []
    # a change of the micro-batch or of the replicas changes their number
    whole_batch = layout.micro_batch * layout.dp * (options.grad_accum or 1)
    idle += ["grad_accum"] if whole_batch != plan.training.global_batch else []
    table = rows(Options)
    filled: dict[str, Any] = {name: table[name].default for name in idle}
    filled |= {name: None if follows.get(name) else getattr(layout, name) for name in LAYOUT}
    filled |= {entry.option: entry.value for entry in software_of(plan, layout)}
    stack, batch = options.stack or plan.stack.id, plan.training.global_batch
    return options.changed(**filled, stack=stack, global_batch=batch)


def software_of(plan: Plan, layout: Layout) -> list[SoftwareChoice]:
    """The free options of the stack that a search has chosen and that act in a layout."""
    table = Columns.of([layout])
    return [entry for entry in plan.chosen if acts(entry.option, table)]


def pick_of(options: Options, estimates: Estimates, row: int = 0) -> Options:
    """The pick of a row of estimates."""
    return pick(options, estimates.plan, estimates.table.layout(row))


def pick_command(options: Options, estimates: Estimates, row: int = 0) -> str:
    """The command that estimates exactly the layout of a row."""
    return command_line(pick_of(options, estimates, row))


def of_command(options: Options, command: str) -> Options:
    """The request with the values of a command, for example the command of its pick; what
    differs comes from the search. Raises PlanError, ValueError."""
    stated = read_options(options_of_command(command, Options, "estimate"))
    pairs = {name: (getattr(stated, name), getattr(options, name)) for name in rows(Options)}
    return options.changed(
        **{name: new for name, (new, old) in pairs.items() if str(new) != str(old)}
    )
