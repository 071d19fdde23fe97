"""A plan: what is trained x where x how x by which stack, with the layout still partly open."""

from __future__ import annotations

from planner.specs.base import Spec
from planner.specs.cluster import ClusterSpec
from planner.specs.data import InputSpec, LengthsSpec
from planner.specs.layout import LayoutRequest
from planner.specs.model import ModelSpec
from planner.specs.ranks import RanksSpec
from planner.specs.run import RunSpec
from planner.specs.stack import StackSpec
from planner.specs.training import Attention, TrainingSpec


class Plan(Spec):
    """Everything an estimate depends on besides the layouts it is asked about."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    stack: StackSpec
    request: LayoutRequest = LayoutRequest()
    run: RunSpec = RunSpec()
    ranks: RanksSpec = RanksSpec()
    lengths: LengthsSpec | None = None  # None: every sequence is full
    data: InputSpec | None = None  # None: loading is not looked at

    @property
    def attention(self) -> Attention:
        """The attention kernel: of the request, else of the stack."""
        return self.training.attention or self.stack.fusion.attention

    @property
    def flash_attention(self) -> bool:
        """Whether scores stay on the chip."""
        return self.attention.startswith("flash")

    @property
    def fused_norm(self) -> bool:
        """Whether a norm is one kernel: LayerNorm everywhere; RMSNorm is several operators unless
        the request, the stack or torch.compile fuses it."""
        if self.model.norm == "layernorm" or self.training.compile:
            return True
        chosen = self.training.fused_norm
        return self.stack.fusion.fused_norm if chosen is None else chosen

    @property
    def costs(self) -> bool:
        """Whether anything is paid for a step: machines or electricity."""
        return bool(self.cluster.price.usd_per_gpu_hour or self.run.electricity_usd_per_j)

    @property
    def usable_bytes(self) -> float:
        """Device memory that a framework can allocate on every GPU of the cluster."""
        other = self.ranks.other
        own = float(self.cluster.gpu.usable_memory)
        return own if other is None else min(own, float(other.usable_memory))
