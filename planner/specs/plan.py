"""A plan: model, cluster, training and stack, with the layout still partly open."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

from pydantic import InstanceOf, PlainSerializer

from planner.specs.base import Spec
from planner.specs.capabilities import has, values
from planner.specs.cluster import ClusterSpec
from planner.specs.data import InputSpec, LengthsSpec
from planner.specs.layout import LayoutRequest
from planner.specs.mechanism import Mechanism, SecondModel, TrainedLayers
from planner.specs.model import ModelSpec
from planner.specs.names import (
    BITSANDBYTES,
    ContextWay,
    DispatcherName,
    LossKernel,
    LowPart,
    Precision,
    Selective,
    UpcastName,
)
from planner.specs.precision import RECIPES, Recipe
from planner.specs.quantised import BASES
from planner.specs.ranks import RanksSpec
from planner.specs.run import RunSpec
from planner.specs.stack import StackSpec
from planner.specs.training import Attention, TrainingSpec, scores_on_chip

_FP32_BYTES = 4.0
AMechanism = TypeVar("AMechanism", bound=Mechanism)
T = TypeVar("T")


# nothing is frozen, and all is in 16 bit
_WHOLE = dict.fromkeys(("adapter", "base_precision", "base_group", "base_upcast"))


def _named(mechanisms: tuple[Mechanism, ...]) -> dict[str, Any]:
    return {each.NAME: each.settings() for each in mechanisms}


Mechanisms = Annotated[tuple[InstanceOf[Mechanism], ...], PlainSerializer(_named)]


@dataclass(frozen=True, eq=False)
class SoftwareChoice:
    """A value of a free option of the stack, which a search may choose where the request leaves the
    option open, with the training fields or the mechanism that it sets. Equal values are the same
    choice among plans that differ only in GPUs, batch and prices."""

    option: str
    value: Any
    update: Mapping[str, Any]
    mechanism: Mechanism | None = None  # that it switches on
    start: Literal["", "first", "always", "probe"] = ""  # as in the option table

    def __repr__(self) -> str:
        return f"{self.option}={self.value}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftwareChoice) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def _texts(choices: tuple[SoftwareChoice, ...]) -> list[str]:
    return [repr(choice) for choice in choices]


Software = Annotated[tuple[InstanceOf[SoftwareChoice], ...], PlainSerializer(_texts)]


class Plan(Spec):
    """Everything an estimate depends on besides the layouts."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    stack: StackSpec
    request: LayoutRequest = LayoutRequest()
    run: RunSpec = RunSpec()
    ranks: RanksSpec = RanksSpec()
    lengths: LengthsSpec | None = None  # None: every sequence is full
    data: InputSpec | None = None  # None: loading is not looked at
    mechanisms: Mechanisms = ()  # that are on
    free: Software = ()  # options of the stack that a search may choose
    chosen: Software = ()  # those that it has chosen

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of the mechanisms that are on, by name."""
        return _named(self.mechanisms)

    def setting(self, kind: type[AMechanism]) -> AMechanism | None:
        """A mechanism that is on; None where it is off."""
        return next((each for each in self.mechanisms if isinstance(each, kind)), None)

    def defining(self, hook: str) -> tuple[Mechanism, ...]:
        """Mechanisms that are on and define a hook."""
        return tuple(each for each in self.mechanisms if each.defines(hook))

    def stated(self, ask: Callable[[Mechanism], T | None]) -> T | None:
        """A setting of the first mechanism that has it; None: as without mechanisms."""
        return next((value for each in self.mechanisms if (value := ask(each)) is not None), None)

    @property
    def start(self) -> Software:
        """The free options that are usually best, with which a search begins."""
        first: dict[str, SoftwareChoice] = {}
        for choice in self.free:
            if choice.start in ("first", "always"):
                first.setdefault(choice.option, choice)
        return tuple(first.values())

    def choosing(self, choices: Sequence[SoftwareChoice]) -> Plan:
        """The plan with these free options of its stack."""
        update = {name: value for choice in choices for name, value in choice.update.items()}
        training = self.training.model_copy(update=update) if update else self.training
        on = tuple(choice.mechanism for choice in choices if choice.mechanism is not None)
        return self.model_copy(
            update={
                "training": training,
                "mechanisms": (*self.mechanisms, *on),
                "free": (),
                "chosen": tuple(choices),
            }
        )

    def without(self, kind: type[Mechanism]) -> Plan:
        """The plan with a mechanism off."""
        left = tuple(each for each in self.mechanisms if not isinstance(each, kind))
        plan: Plan = kind.switched_off(self.model_copy(update={"mechanisms": left}))
        return plan

    @property
    def second(self) -> SecondModel | None:
        """The model beside the trained one with whose words the loss compares; None: there is
        none."""
        return self.stated(lambda each: each.second_model(self))

    @property
    def of_reference(self) -> Plan:
        """The reference of an objective: the model without adapters, whose base is in 16 bit where
        it is another one."""
        training = self.training
        if training.adapter is None:
            return self
        changes = _WHOLE if training.reference == "held" else {"adapter": None}
        return self.model_copy(update={"training": training.model_copy(update=changes)})

    @property
    def gpus(self) -> int:
        """GPUs that are paid for: the GPUs of the step, and of a second model beside them."""
        second = self.second
        return self.cluster.gpus + ((second and second.gpus) or 0)

    @property
    def attention(self) -> Attention:
        """The attention kernel: of the request, else of the stack."""
        return self.training.attention or self.stack.fusion.attention

    @property
    def precision(self) -> Precision:
        """Number format by name: what a stack calls fp8 is one of its recipes."""
        requested, known = self.training.precision, values(self.stack, "precision")
        return known[1] if requested == "fp8" and known else requested

    @property
    def recipe(self) -> Recipe | None:
        """How operands of GEMMs are made; None: they have the type of activations."""
        return RECIPES.get(self.precision)

    def is_low(self, part: LowPart) -> bool:
        """Whether a part is in the format of the GEMMs too: by the request, else by the stack."""
        if self.recipe is None:
            return False
        requested, stack = self.training.low_parts, self.stack.precision
        by_stack: dict[LowPart, tuple[Precision, ...]] = {
            "weights": stack.weights,
            "attention": (),
            "dispatch": stack.dispatch,
        }
        return self.precision in by_stack[part] if requested is None else part in requested

    @property
    def stream_bytes(self) -> float:
        """Bytes per element of the residual stream and of activations between matrices of a layer.
        Matrices that return their input's type keep fp32 where norms output fp32."""
        training, base = self.training, self.training.base_precision
        if base is None or not BASES[base].returns_given:
            return training.element_bytes
        wide = self.stack.activations.wide_layernorm and self.model.norm == "layernorm"
        wide = wide or self.base_upcast != "none"
        return _FP32_BYTES if wide else training.element_bytes

    @property
    def base_upcast(self) -> UpcastName:
        """Frozen weights in fp32 beside the matrices of layers: where bitsandbytes quantised these,
        by the request, else as the stack prepares such models."""
        base = self.training.base_precision
        if base == "fp32":
            return "all"
        if base not in BITSANDBYTES:
            return "none"
        return self.training.base_upcast or self.stack.state.prepared

    @property
    def decodes_in_chain(self) -> bool:
        """Whether torch operators decode frozen matrices in forward, whose weights autograd keeps.
        The plugin that makes buffers parameters has the kernels of qlinear_tritonv2.py."""
        base = self.training.base_precision
        chained = base is not None and BASES[base].chained > 0
        return chained and not self.stack.state.shards_buffers

    @property
    def sync_waits(self) -> bool:
        """Whether FSDP reduces gradients only in the last micro-batch: by the request, else by the
        stack."""
        requested = self.training.gradient_sync
        return self.stack.state.whole_gradients if requested is None else requested == "last"

    @property
    def could_expand_segments(self) -> bool:
        """Whether the allocator could expand its segments and does not."""
        able = self.cluster.gpu.expands_segments and has(self.stack, "expandable_segments")
        return able and not self.expandable_segments

    @property
    def expandable_segments(self) -> bool:
        """Whether the allocator's segments are expandable: by the request, else by the stack's
        recipes."""
        requested = self.training.expandable_segments
        wanted = self.stack.expandable_segments if requested is None else requested
        return wanted and self.cluster.gpu.expands_segments

    @property
    def dispatchers(self) -> tuple[DispatcherName, DispatcherName]:
        """How tokens reach the ranks of their experts inside one host, and across hosts: by the
        request, else by the stack."""
        requested, stack = self.training.dispatcher, self.stack.experts
        return (requested, requested) if requested else (stack.dispatcher, stack.dispatcher_across)

    @property
    def flash_attention(self) -> bool:
        """Whether scores stay on the chip."""
        return scores_on_chip(self.attention)

    @property
    def fused_kernels(self) -> bool:
        """Whether the request adds fused kernels that the stack lacks: Liger, Transformer Engine or
        torch.compile."""
        return bool(self.training.fused_kernels or self.training.compile) or self.liger

    @property
    def loss_kernel(self) -> LossKernel | None:
        """The kernel of the loss: of the request, else of the stack."""
        return self.training.loss_kernel or self.stack.fusion.loss

    @property
    def fused_adapters(self) -> bool:
        """Whether products of adapters are added inside the GEMMs of their matrices."""
        adapter = self.training.adapter
        return adapter is not None and (adapter.fused or self.stack.fusion.fused_adapters)

    @property
    def liger(self) -> bool:
        """Whether norm, RoPE, gate and loss are Liger's kernels."""
        return self.stack.fusion.liger and self.loss_kernel == "fused-linear"

    @property
    def context_way(self) -> ContextWay:
        """How ranks of context parallelism share a sequence: of the request, else of the stack."""
        ways: tuple[ContextWay, ...] = values(self.stack, "cp_comm_type")
        return self.training.context_way or (ways[0] if ways else "ring")

    @property
    def selective(self) -> Selective:
        """Kind of selective recomputation: by the request, else by operator of traced blocks, else
        by the stack."""
        return self.training.selective or (
            "products" if self.model.traced else self.stack.selective
        )

    @property
    def fused_norm(self) -> bool:
        """Whether a norm is one kernel: LayerNorm everywhere; RMSNorm is several operators unless
        the request or the stack fuses it."""
        if self.model.norm == "layernorm" or self.training.compile:
            return True
        chosen = self.training.fused_norm
        return self.fused_kernels or self.stack.fusion.fused_norm if chosen is None else chosen

    @property
    def fused_cross_entropy(self) -> bool | None:
        """Whether the loss is one kernel over 16-bit logits, as compiled code has it where it is
        compiled with the model; None: as the stack does."""
        kernel = self.loss_kernel
        chosen = None if kernel is None else kernel != "torch"
        compiled = self.training.compile and self.stack.activations.compiled_logits is not None
        return True if chosen is None and compiled else chosen

    @property
    def fused_rotary(self) -> bool:
        """Whether RoPE is one kernel."""
        return self.fused_kernels or self.stack.fusion.fused_rotary

    @property
    def fused_gate(self) -> bool:
        """Whether the activation of a gated MLP and its product are one kernel."""
        return self.fused_kernels or self.stack.fusion.fused_gate

    @property
    def casts_in_activation(self) -> bool:
        """Whether activations of dense MLPs write the operands of GEMMs themselves."""
        return self.precision in self.stack.fusion.activation_casts

    @property
    def chained(self) -> bool:
        """Whether norm, RoPE or gate of the model is a chain of torch operators."""
        rotary = self.model.positions == "rotary" and not self.fused_rotary
        gate = self.model.gated and not self.fused_gate
        return not self.fused_norm or rotary or gate

    @property
    def joint(self) -> tuple[bool, bool]:
        """Whether queries, keys and values, and gate and up, are one matrix each: in the stack or
        in the code of the model."""
        fusion, kept = self.stack.fusion, self.model.joint
        return fusion.joint_qkv or "qkv" in kept, fusion.joint_gate or "gate" in kept

    @property
    def trained_layers(self) -> TrainedLayers | None:
        """Layers that are trained while others are frozen; None: adapters, or all weights are."""
        return self.stated(lambda each: each.trained_layers())

    @property
    def backward_layers(self) -> int | None:
        """The last layers, where only they have a backward pass; None: all layers have."""
        layers = self.trained_layers
        return None if layers is None or layers.random else layers.count

    @property
    def random_layers(self) -> int | None:
        """Layers that are trained at a time, drawn again now and then; None: always the same."""
        layers = self.trained_layers
        return layers.count if layers is not None and layers.random else None

    @property
    def partial(self) -> bool:
        """Whether some weights are frozen."""
        return self.training.adapter is not None or self.trained_layers is not None

    @property
    def gradients_frac(self) -> float:
        """Share of the layers with a backward pass whose own weights have gradients."""
        if self.training.adapter is not None:
            return 0.0
        return (self.random_layers or self.model.layers) / self.model.layers

    @property
    def trains_head(self) -> bool:
        """Whether the weight of the head has a gradient."""
        training, layers = self.training, self.trained_layers
        if layers is not None and not layers.head:
            return False
        if not self.partial or self.random_layers or self.model.outputs:
            return True
        untied = training.adapter is None and not self.model.tied_embeddings
        return self.trains_words or untied

    @property
    def trains_words(self) -> bool:
        """Whether the embedding is trained beside a part of the weights."""
        layers = self.trained_layers
        return self.training.train_embeddings or (layers is not None and layers.words)

    def gradient_of(self, part: str) -> float:
        """Share of the layers with a backward pass in which weights of a part have gradients."""
        layers = self.trained_layers
        return 0.0 if layers is not None and part in layers.frozen else self.gradients_frac

    @property
    def costs(self) -> bool:
        """Whether anything is paid for a step: machines or electricity."""
        return bool(self.cluster.price.usd_per_gpu_hour or self.run.electricity_usd_per_j)

    @property
    def usable_bytes(self) -> float:
        """Device memory that a framework can allocate on every GPU of the cluster."""
        other = self.ranks.other
        usable = float(self.cluster.gpu.usable_memory)
        return usable if other is None else min(usable, float(other.usable_memory))
