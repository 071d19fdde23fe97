"""Rules of weights, optimizer states and activations: offloading, updates, types."""

from __future__ import annotations

from planner.formulas.optimizers import OPTIMIZERS, TYPE_BYTES, Optimizer
from planner.formulas.params import stream_of
from planner.formulas.rules.rule import Rule, divides, ones
from planner.ledger import Array
from planner.specs.adapters import adapts_experts
from planner.specs.capabilities import has, values
from planner.specs.columns import Columns
from planner.specs.layers import modules_of
from planner.specs.layout import OFFLOADED_OPTIMIZER, RECOMPUTE_MODULES, Layout
from planner.specs.names import SHARDS_PARAMETERS
from planner.specs.plan import Plan
from planner.specs.task import TASKS


def _modules(plan: Plan, c: Columns) -> Array:
    ok = ones(c)
    for missing in set(RECOMPUTE_MODULES) - modules_of(plan.model):
        ok = ok & ~c.repeats_module(missing)
    return ok


def _no_such_modules(plan: Plan, x: Layout) -> str:
    missing = [name for name in x.recompute.split("+") if name not in modules_of(plan.model)]
    return f"{plan.model.name} has no {' and '.join(missing)}; leave that out"


MODULES = Rule("modules are those of the model", ("recompute",), _modules, _no_such_modules)
PARAMETERS = Rule(
    "offloaded parameters need ZeRO-3",
    ("offload",),
    lambda plan, c: ~c.offloads("params") | (c.zero >= SHARDS_PARAMETERS),
    lambda plan, x: (
        f"parameters can be offloaded only where they are sharded, not with ZeRO-{x.zero}"
    ),
    ways=lambda plan, x: ("take --zero 3", "--offload optimizer"),
)


def _activations(plan: Plan, c: Columns) -> Array:
    repeated = c.is_recompute("none") | has(plan.stack, "offload_with_recompute")
    if plan.defining("offloaded"):  # single modules
        kept = repeated | c.is_recompute("selective", "modules")
    else:
        kept = repeated & (c.pp == 1)
    return ~c.offloads("activations") | kept


def _not_offloaded(plan: Plan, x: Layout) -> str:
    beside = has(plan.stack, "offload_with_recompute")
    return (
        f"{plan.stack.title} offloads activations only without a pipeline,"
        f" {'beside recompute' if beside else 'only without recompute'}; here pp is {x.pp},"
        f" recompute {x.recompute}"
    )


def _kept(plan: Plan, x: Layout) -> tuple[str, ...]:
    beside = has(plan.stack, "offload_with_recompute")
    return (
        "--pp 1" if x.pp > 1 else "",
        "--recompute none" if x.recompute != "none" and not beside else "",
        "--offload none",
    )


ACTIVATIONS = Rule(
    "offloaded activations supported", ("offload",), _activations, _not_offloaded, ways=_kept
)


def _adapters(plan: Plan, c: Columns) -> Array:
    adapter, ok = plan.training.adapter, ones(c)
    if adapter is None or plan.stack.family == "megatron":
        return ok
    experts = adapts_experts(plan.model.routed, stream_of(plan.model), adapter)
    return ok & (c.tp == 1) & ((c.ep == 1) | (not experts))


ADAPTERS = Rule(
    "adapters supported",
    ("lora", "tp"),
    _adapters,
    lambda plan, x: (
        f"{plan.stack.title} has no adapters of matrices that tensor or expert parallelism divides;"
        f" here tp is {x.tp}, ep {x.ep}"
    ),
    ways=lambda plan, x: ("--tp 1" if x.tp > 1 else "--ep 1",),
)
EXAMPLES = Rule(
    "micro-batches hold whole examples",
    ("task", "micro_batch"),
    lambda plan, c: divides(float(TASKS[plan.training.task].sequences), c.micro_batch),
    lambda plan, x: (
        f"an example of {TASKS[plan.training.task].title} has"
        f" {TASKS[plan.training.task].sequences} sequences, and a micro-batch {x.micro_batch};"
        " take a --micro-batch and --global-batch that they divide"
    ),
)

IN_LOSS = Rule(
    "tokens outside the loss have no logits in tiles",
    ("loss_share", "loss_kernel"),
    lambda plan, c: ones(c) & ((plan.training.loss_share == 1) | (plan.loss_kernel == "tiled")),
    lambda plan, x: (
        f"the loss of {plan.stack.title} computes logits of all tokens, here"
        f" {plan.training.loss_share:.0%} of them are in it"
    ),
    ways=lambda plan, x: ("--loss-share 100%", "--loss-kernel tiled"),
)

TILES = Rule(
    "a loss in tiles has no chunks",
    ("loss_kernel", "loss_chunks"),
    lambda plan, c: ones(c) & ((plan.training.loss_chunks == 1) | (plan.loss_kernel != "tiled")),
    lambda plan, x: (
        f"the tiled loss of {plan.stack.title} has tiles of a fixed size, here are"
        f" {plan.training.loss_chunks} chunks"
    ),
    ways=lambda plan, x: ("--loss-chunks 1", "--loss-kernel fused-linear"),
)


def _optimizer(plan: Plan) -> Optimizer:
    return OPTIMIZERS[plan.training.optimizer]


def _on_host(plan: Plan, c: Columns) -> Array:
    optimizer = _optimizer(plan)
    return ~c.offloads(*OFFLOADED_OPTIMIZER) if optimizer.work or optimizer.paged else ones(c)


def _blocks(plan: Plan, c: Columns) -> Array:
    if not _optimizer(plan).block or has(plan.stack, "sharded_rows"):
        return ones(c)
    return (c.zero < SHARDS_PARAMETERS) | (c.replicas == 1)


def _matrices(plan: Plan, c: Columns) -> Array:
    optimizer, flat = _optimizer(plan), not has(plan.stack, "sharded_rows")
    if (optimizer.factored and flat) or (optimizer.work and not has(plan.stack, "whole_matrices")):
        return (c.zero < 1) | (c.replicas == 1)
    return ones(c)


ON_HOST = Rule(
    "optimizer runs on the CPU",
    ("optimizer", "offload"),
    _on_host,
    lambda plan, x: (
        f"{_optimizer(plan).title} pages its states itself"
        if _optimizer(plan).paged
        else f"{_optimizer(plan).title} has no implementation on the CPU here"
    ),
    ways=lambda plan, x: ("--offload none", "--optimizer adam"),
)
BLOCKS = Rule(
    "optimizer's blocks stay whole",
    ("optimizer", "zero"),
    _blocks,
    lambda plan, x: (
        f"{_optimizer(plan).title} has a scale per {_optimizer(plan).block} elements of a tensor,"
        f" and shards of {plan.stack.title} under ZeRO-{x.zero} are cut out of flat buffers"
        " anywhere inside them"
    ),
    ways=lambda plan, x: ("--zero 2", "--optimizer adam"),
)
MATRICES = Rule(
    "optimizer knows what ZeRO cuts",
    ("optimizer", "zero"),
    _matrices,
    lambda plan, x: (
        f"{_optimizer(plan).title} needs"
        f" {'means of rows and columns' if _optimizer(plan).factored else 'matrices'}, and shards"
        f" of {plan.stack.title} under ZeRO-{x.zero} are pieces of flat buffers, which are vectors"
    ),
    ways=lambda plan, x: (
        "--zero 0" if 0 in values(plan.stack, "zero") else "",
        "--optimizer adam",
    ),
)


def types_refused(plan: Plan) -> list[str]:
    """Types of states that the request states and that the optimizer or the stack cannot have, with
    what to do."""
    training, state, title = plan.training, plan.stack.state, plan.stack.title
    states = OPTIMIZERS[training.optimizer]
    types = {
        "moments": training.moments_precision,
        "master": training.master_precision,
        "gradient": training.gradient_precision,
    }
    given = [f"--{name}-precision" for name, value in types.items() if value is not None]
    if given and not training.mixed_precision:
        return [
            f"{' and '.join(given)}: states of training in {training.precision} are fp32; take"
            " --precision bf16"
        ]
    remainder = types["master"] == "remainder"
    kept = "states of a type of their own" if states.moments else "no moments"
    wants = TYPE_BYTES[training.gradient_precision or "fp32"]
    refusals = {
        f"--moments-precision: {states.title} has {kept}; leave it out": types["moments"]
        and not (states.typed and (states.moments or states.factored)),
        f"--master-precision: the weights of {title} are what its optimizer updates; leave it out,"
        " or take --state-precision bf16": types["master"] and state.master == 0,
        "--master-precision remainder: 16 bits complete a bf16 weight, not an fp16 one; take"
        " --precision bf16": remainder and training.precision == "fp16",
        f"--gradient-precision: gradients of {title} have the type of its weights, with no buffer"
        " of their own; leave it out, or take --state-precision bf16": types["gradient"]
        and not state.persistent_gradients
        and wants != state.gradient,
    }
    return [sentence for sentence, refused in refusals.items() if refused]


TYPES = Rule(
    "states have such types",
    ("moments_precision", "master_precision", "gradient_precision"),
    lambda plan, c: ones(c) & (not types_refused(plan)),
    lambda plan, x: "; ".join(types_refused(plan)),
)
