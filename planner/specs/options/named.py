"""Names that rows of options.json refer to: conditions on other options, readers of texts, bounds
that other code knows as well, groups. Sets of verbs and reasons are in `verbs`, other words for
values in `aliases`.
"""

from __future__ import annotations

from typing import Any

from planner.specs import names
from planner.specs.hosts import host_name
from planner.specs.names import (
    BITSANDBYTES,
    OFFLOADED_OPTIMIZER,
    OPTIMIZER_NAMES,
    SYNC_PARTS,
    joined_words,
)
from planner.specs.options import row
from planner.specs.options.row import Group, Needs, beside
from planner.specs.options.verbs import SEARCHES, WAITS
from planner.specs.precision import is_low
from planner.specs.task import TASKS

# groups that single options are in, beside the group of their record
OUTPUT = Group("output", "Output")
WORK = Group("work", "Work")
PROVE = Group("prove", "Prove")
NODES = Group("nodes", "Files of several nodes")
GENERATION = Group("generation", "Generation")
RUN = Group(
    "run", "Run: cost, energy, failures", "Failures, checkpoints, energy and what must hold."
)

# bounds and texts
NAME_LENGTH = row.NAME_LENGTH
MAX_ISLAND_NODES = names.MAX_ISLAND_NODES
MAX_OVERSUBSCRIPTION = names.MAX_OVERSUBSCRIPTION
MOST_TIMES = 1000  # the mean: more than there are ranks of experts in any run
OPTIMIZERS = ", ".join(OPTIMIZER_NAMES)

# readers of texts
recompute_name = names.recompute_name
host = host_name


def pipeline(text: str) -> str:
    from planner.specs.pipeline_layout import layout_name

    return layout_name(text)


def condition(text: str) -> str:
    from planner.specs.where import constraint

    return constraint(text).text


def sync_parts(text: str) -> str:
    return joined_words(text, SYNC_PARTS)


# the cluster
def _on_host(given: Any) -> bool:
    return given.search_offload or given.offload in OFFLOADED_OPTIMIZER


OF_UPDATE = Needs(
    _on_host,
    "applies to an optimizer on the host: give --offload optimizer, --offload params, or"
    " --search-offload, too",
    "--offload optimizer",
)
OF_OVERSUBSCRIPTION = Needs(
    lambda given: given.oversubscription is not None or given.cluster is not None,
    "acts where links between islands are oversubscribed: give --oversubscription, or"
    " a --cluster that states it, too",
    "--oversubscription",
)
OF_ISLANDS = Needs(
    lambda given: (
        given.island_nodes is not None or given.cluster is not None or given.oversubscription == 1
    ),
    "applies to links between islands of nodes: give --island-nodes, or a --cluster with them",
    "--island-nodes",
)


# the layout
def _has_stages(given: Any) -> bool:
    return given.gpus > 1 and given.pp != 1


OF_CONTEXT = Needs(
    lambda given: given.cp != 1, "needs context parallelism: leave it out, or give --cp above 1"
)
OF_SELECTIVE = Needs(
    lambda given: given.recompute == "selective",
    "applies to selective recomputation: take --recompute selective",
    "--recompute selective",
)
WITHOUT_OFFLOAD = Needs(
    lambda given: given.offload is None, "searches what --offload fixes: leave one of them out"
)
OF_STAGES = Needs(
    _has_stages,
    "applies to pipelines, and there is one stage: leave it out, or give more --gpus and no --pp 1",
    verbs=SEARCHES - {"recommend cluster"},  # whose GPUs are looked for
)
OF_REPLICAS = Needs(
    lambda given: given.dp != 1 and given.gpus != 1,
    "applies to data parallelism: leave it out, or give --dp above 1",
)
OF_BUCKETS = Needs(  # ZeRO of DeepSpeed has them on one rank, too
    lambda given: given.zero or (given.dp != 1 and given.gpus != 1),
    "applies to data parallelism: leave it out, or give --dp above 1 or a ZeRO stage",
)

# training
OF_LOW_PRECISION = Needs(
    lambda given: is_low(given.precision or ""),
    "applies to training in 8 or 4 bit: take --precision fp8, mxfp8 or nvfp4",
)
OF_NARROW = Needs(
    lambda given: given.precision in (None, "bf16") or is_low(given.precision),
    "keeps bf16 states, with which kernels work in bf16 or less: leave it out, or take"
    " --precision bf16",
)
# of one state beside an option of all of them
WITHOUT_STATES = Needs(
    lambda given: given.state_precision is None,
    "sets one state, and --state-precision bf16 all: leave one of them out",
)
OF_SUBSPACE = Needs(
    lambda given: given.optimizer in ("galore", "galore8bit", "apollo", "apollo-mini"),
    "applies to GaLore and APOLLO: take --optimizer galore, galore8bit or apollo",
)
OF_ZERO_3 = Needs(lambda given: given.zero in (None, 3), "needs ZeRO-3: take --zero 3", "--zero 3")
WITHOUT_FLASH = Needs(
    lambda given: given.flash_attention is None, "says more than --flash-attention: leave that out"
)

# adapters and the objective of fine-tuning
OF_LORA = beside("applies to low-rank adapters", "lora")
OF_PARTS = beside("applies to training a part of the weights", "lora", "trainable_layers")
OF_FP32_ADAPTERS = Needs(
    lambda given: given.lora is not None and given.lora_precision == "fp32",
    "applies to adapters in fp32: give --lora and --lora-precision fp32, too",
    "--lora-precision fp32",
)
OF_GROUPS = Needs(
    lambda given: given.base_precision in ("gptq", "gptq-8bit", "awq", "hqq"),
    "applies to formats with groups of any size: take --base-precision gptq, awq or hqq",
)
OF_BITSANDBYTES = Needs(
    lambda given: given.base_precision in BITSANDBYTES,
    "applies to bitsandbytes: take --base-precision nf4-double or another of its formats",
)
OF_REFERENCE = Needs(
    lambda given: TASKS[given.task or "sft"].reference > 0,
    "applies to an objective that compares with a reference: give --task dpo, kto or distil, too",
    "--task dpo, kto or distil",
)

# ranks, data and the whole run
OF_TWO_KINDS = beside("applies to a second kind of GPU", "other_gpu")
OF_LENGTHS = beside("applies to documents of different lengths", "length_mean")
OF_SLOW_HOSTS = beside("applies to slow hosts", "slow_hosts")
OF_LONGEST = Needs(
    lambda given: given.packing in ("longest", "bucketed"),
    "applies to rows that are as long as their longest document: give --packing longest",
    "--packing longest",
)
OF_READS = beside(
    "is the size of the reads that are counted", "data_iops", "read_latency", verbs=WAITS
)
OF_WAITS = beside("is what workers wait for", "workers", verbs=WAITS)
OF_A_WORKER = beside("applies to one worker", "workers", verbs=WAITS)
OF_WORKERS = beside("is how many load at a time", "worker_rate", "read_latency", verbs=WAITS)
# rows of `recommend batch` tell the cost of a run, and no price of an hour
OF_COST = beside("sets the cost of a run", "tokens", verbs=frozenset({"recommend batch"}))
OF_SAMPLES = Needs(
    lambda given: given.tokens is None, "says the same as --tokens: leave one of them out"
)
OF_RUN = beside(
    "chooses what days and cost include",
    "tokens",
    "samples",
    verbs=frozenset({"estimate", "search", "recommend cluster"}),
)
OF_OWN = beside("applies to own hardware", "capex")
OF_ELECTRICITY = beside(
    "sets the electricity of own hardware", "capex", verbs=frozenset({"batch", "tune"})
)
