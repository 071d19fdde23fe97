"""Memory of captured CUDA graphs beside the tensors that they work on."""

from __future__ import annotations

import numpy as np

from planner import schedules
from planner.estimate.layer.launches import captured_share, decoder_operators
from planner.estimate.machine.kernels import captures_all
from planner.formulas import memory
from planner.ledger import Array
from planner.specs.columns import Columns
from planner.specs.layers import mix_of
from planner.specs.plan import Plan

# of one captured kernel, assumed: vLLM printed 0.21 GiB for 35 graphs of Llama 3.2 1B
# (vllm-project/vllm#11349), 16 layers of about 11 kernels and about 10 more
_KERNEL_BYTES = 34e3


def graph_bytes(plan: Plan, c: Columns) -> Array:
    """Bytes per GPU, outside the allocator: a graph for each layer and micro-batch that a rank
    holds at once, or for all micro-batches of a step where whole iterations are captured."""
    whole = captures_all(plan)
    share = 1.0 if whole else captured_share(plan, mix_of(plan.model))
    if share == 0:
        return 0.0 * c.pp
    microbatches = c.microbatches(plan.training.global_batch)
    first = 0.0 * c.pp
    chunks = schedules.live_chunks(c.schedule, first, c.pp, c.vpp, microbatches)
    copies = microbatches if whole else np.ceil(chunks / c.vpp)
    layers = plan.model.layers / c.pp
    kernels = share * decoder_operators(plan.stack) * layers
    return memory.captured_bytes(kernels, copies, _KERNEL_BYTES)
