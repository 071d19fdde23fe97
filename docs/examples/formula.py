"""A formula: pure, over arrays, with unit, equation and source; the recorder sees it like any
other.

Run from the repository root: python docs/examples/formula.py
"""

import numpy as np

from planner.ledger import Array, formula, recording


@formula(unit="s", equation="checkpoint bytes / (writers rate)", source="definition")
def checkpoint_write_s(state_bytes: Array, writers: Array, *, writer_bytes_per_s: Array) -> Array:
    """Time to write a sharded checkpoint when every node writes its part at the same rate."""
    return state_bytes / (writers * writer_bytes_per_s)


if __name__ == "__main__":
    with recording("example") as tree:
        seconds = checkpoint_write_s(1e12, np.array([1.0, 8.0, 64.0]), writer_bytes_per_s=2e9)
    call = tree.calls[0]
    print(f"{call.formula.name} = {seconds.tolist()} {call.formula.unit}")
    print(f"  = {call.formula.equation}   [{call.formula.source}]")
