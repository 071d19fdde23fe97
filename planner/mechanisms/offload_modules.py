"""Fine-grained offloading of activations: what autograd saves inside some modules of a layer goes
to host memory between forward and backward, beside recomputation and through pipelines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Mechanism, Needed
from planner.specs.names import OFFLOAD_MODULES, offload_modules_name
from planner.specs.options.layout import SearchOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_METHODS

if TYPE_CHECKING:
    from planner.specs.plan import Plan

# what autograd saves inside a module, its input first, by the names of Megatron-Core's
# offload_modules (on_save_for_backward of pipeline_parallel/fine_grained_activation_offload.py);
# MaxText's are results that a layer keeps, and its input
_SAVED: dict[str, tuple[str, ...]] = {
    "qkv_linear": ("attention/input", "latent/input", "latent/low", "latent/normed"),
    "core_attn": ("attention/qkv", "latent/qkv", "attention/core"),
    "attn_proj": ("attention/output",),
    "expert_fc1": ("moe/routed",),
    "moe_act": ("moe/hidden",),
}
_NORM = "norm"  # the leaf of all norms of a layer


@dataclass(frozen=True, kw_only=True)
class OffloadModulesOptions(Record):
    GROUP: ClassVar = SearchOptions.GROUP
    VERBS: ClassVar = SearchOptions.VERBS - METHODS
    WHY_NOT: ClassVar = OF_METHODS

    offload_modules: Annotated[
        str | None,
        option(
            "Modules that --offload activations moves, joined by +: Megatron's attn_norm,"
            " qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act, or MaxText's"
            " decoder_layer_input, qkv_proj, context, out_proj, mlpwi",
            label="Offloaded modules",
            example="expert_fc1+moe_act",
            unset="all that is kept",
            read=offload_modules_name,
            needs=Needs(
                lambda given: given.offload == "activations",
                "selects which activations are offloaded: give --offload activations, too",
                "--offload activations",
            ),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class OffloadModules(Mechanism):
    """modules: whose saved activations leave, by the names of the option."""

    modules: tuple[str, ...]

    NAME = "offload-modules"
    OFF = "all activations that layers keep go to host memory"
    SOURCE = (
        "fine_grained_activation_offload.py of Megatron-Core; remat policies that offload of"
        " MaxText, layers/decoders.py"
    )
    OPTIONS = OffloadModulesOptions
    EXAMPLE: ClassVar = {
        "model": "moonlight-16b-a3b",
        "stack": "megatron-core",
        "offload": "activations",
    }
    NEEDS = (
        Needed(
            "offload_modules",
            "offloading of single modules",
            lambda stack: stack.supports.offload_modules,
            OFFLOAD_MODULES,
        ),
    )

    @classmethod
    def of(cls, options: Any) -> OffloadModules | None:
        text = options.offload_modules
        return None if text is None else cls(tuple(text.split("+")))

    def check(self, plan: Plan) -> None:
        from planner.specs.layers import modules_of

        if missing := [name for name in self.modules if name not in modules_of(plan.model)]:
            remedy = f"{plan.model.name} has no {' and '.join(missing)}; leave that out"
            raise PlanError("--offload-modules", "+".join(self.modules), remedy)

    def offloaded(self, leaf: str, mixing: float) -> float:
        if leaf == _NORM:
            return mixing * ("attn_norm" in self.modules) + (1 - mixing) * (
                "mlp_norm" in self.modules
            )
        saved = {name for module in self.modules for name in _SAVED.get(module, (module,))}
        return float(leaf in saved)


MECHANISM = OffloadModules
