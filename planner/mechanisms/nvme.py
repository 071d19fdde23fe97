"""States on NVMe drives: ZeRO-Infinity of DeepSpeed.

The optimizer's states, and with `params-nvme` the weights, pass through page-locked buffers of host
memory. States are read, updated and written back tile by tile in every step; the shard of a layer
is read ahead of it, while the one before travels from host memory to the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from planner.specs.mechanism import Bytes, Mechanism, Shard, Stage, Step
from planner.specs.names import NVME, NVME_PARAMS, SHARDS_PARAMETERS
from planner.specs.options.cluster import ClusterOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import UPDATES

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.ledger import Array, Ledger

# of a gradient beside its optimizer state on the drives: fp32 (DeepSpeed, swap_out_gradients)
_GRADIENT_BYTES = 4.0
# elements that a rank reads, updates and writes as one tile where --sub-group-size says nothing.
# DeepSpeed's own default is 1e9; users of NVMe offloading set it as small as this
# (text-generation-webui, modules/deepspeed_parameters.py)
_TILE = 1e8
# fp32 buffers of three tiles, one being read, one updated, one written: parameter, gradient, two
# moments (offload_optimizer, buffer_count 4)
_TILE_BUFFERS = 3 * 4 * 4.0
# buffers that parameters pass through: buffer_count 5 of buffer_size 1e8 elements (DeepSpeed,
# docs/_pages/config-json.md)
_PARAMETER_BUFFERS = 5 * 1e8

_ON_DRIVES = Needs(
    lambda given: given.search_offload or given.offload in NVME,
    f"applies to states on NVMe drives: give --offload {', '.join(NVME)}, or --search-offload, too",
    "--offload to NVMe",
)
_PER_S, _BYTES = ("GB/s", "Gbit/s"), ("TB", "GB")


@dataclass(frozen=True, kw_only=True)
class NvmeOptions(Record):
    """Properties of a node's drives in the request, over its profile: `inputs.cluster` reads
    them."""

    GROUP: ClassVar = ClusterOptions.GROUP
    VERBS: ClassVar = UPDATES
    WHY_NOT: ClassVar = "applies to NVMe drives, which this verb does not look at"

    nvme_read: Annotated[
        str | None,
        option(
            "Aggregate NVMe read bandwidth per node, which offloading to NVMe uses",
            label="NVMe read bandwidth per node",
            unit="B/s",
            needs_unit=_PER_S,
            least=1e6,
            most=1e14,
            example="10 GB/s",
            needs=_ON_DRIVES,
            form="folded",
        ),
    ] = None
    nvme_write: Annotated[
        str | None,
        option(
            "Aggregate NVMe write bandwidth per node, which offloading to NVMe uses",
            label="NVMe write bandwidth per node",
            unit="B/s",
            needs_unit=_PER_S,
            least=1e6,
            most=1e14,
            example="5 GB/s",
            needs=_ON_DRIVES,
            form="folded",
        ),
    ] = None
    nvme_capacity: Annotated[
        str | None,
        option(
            "NVMe capacity per node for offloaded states; not checked where unknown",
            label="NVMe capacity per node",
            unit="B",
            needs_unit=_BYTES,
            least=1e6,
            most=1e18,
            example="30 TB",
            verbs=UPDATES - {"schedule"},
            needs=_ON_DRIVES,
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Nvme(Mechanism):
    """No settings: layouts say which states are on drives, the cluster how fast drives are."""

    NAME = "nvme"
    OFF = "states stay in host memory"
    SOURCE = (
        "ZeRO-Infinity, Rajbhandari et al. 2021 (arXiv 2104.07857);"
        " deepspeed/runtime/swap_tensor/pipelined_optimizer_swapper.py"
    )
    OPTIONS = NvmeOptions
    HARDWARE = ("nvme_read", "nvme_write", "nvme_capacity")
    OFFLOADS = NVME
    EXAMPLE: ClassVar = {"zero": 3, "offload": "optimizer-nvme"}
    STEP: ClassVar = {
        "nvme": (
            "NVMe drives",
            "what waiting for NVMe drives adds to the update; only with offloading to them",
        )
    }
    BOTTLENECKS: ClassVar = {
        "NVMe drives": (
            "NVMe drives take {share} of the step: optimizer states are read, updated and written"
            " in every step."
        )
    }

    @classmethod
    def of(cls, options: Any) -> None:
        return None

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.rule import Rule, ones

        return (
            Rule(
                "drives need ZeRO-3",
                ("offload",),
                lambda plan, c: c.zero >= SHARDS_PARAMETERS,
                lambda plan, x: (
                    f"DeepSpeed offloads to NVMe only under ZeRO-3, not with ZeRO-{x.zero}"
                ),
                ways=lambda plan, x: ("take --zero 3", "--offload optimizer"),
            ),
            Rule(
                "drives known for NVMe offloading",
                ("offload",),
                lambda plan, c: ones(c) & (plan.cluster.nvme is not None),
                lambda plan, x: (
                    f"the NVMe drives of {plan.cluster.title} are not known; state them with"
                    " --nvme-read and --nvme-write, such as '10 GB/s' and '5 GB/s', or take"
                    " --offload params"
                ),
            ),
        )

    def memory(self, stage: Stage) -> Bytes:
        import numpy as np

        weights_too = stage.layout.offloads(*NVME_PARAMS)
        moved = stage.optimizer + np.where(weights_too, stage.parameters, 0.0)
        tiles = _TILE_BUFFERS * np.minimum(stage.owned, _tile(stage))
        passing = stage.element_bytes * np.minimum(_PARAMETER_BUFFERS, stage.owned)
        return Bytes(
            host=tiles + np.where(weights_too, passing, 0.0) - moved,
            drive=moved + stage.owned * _GRADIENT_BYTES,
        )

    def brought(self, shard: Shard) -> Array:
        import numpy as np

        from planner.formulas.offload import drive_s

        read = drive_s(shard.bytes, shard.machine.nvme_read)
        return np.where(shard.layout.offloads(*NVME_PARAMS), read, 0.0)

    def after_update(self, step: Step) -> Ledger:
        import numpy as np

        from planner.formulas.offload import drive_s, tiled_update_s

        state = step.optimizer_bytes + _GRADIENT_BYTES
        parameter = np.where(step.layout.offloads(*NVME_PARAMS), step.element_bytes, 0.0)
        read = drive_s(state * step.owned, step.machine.nvme_read)
        write = drive_s((state + parameter) * step.owned, step.machine.nvme_write)
        # a share of a tile counts as one
        tiles = np.maximum(step.owned / _tile(step), 1.0)
        return {"nvme": tiled_update_s(read, step.on_cpu, write, tiles) - step.on_cpu}


def _tile(part: Stage | Step) -> float:
    return part.plan.training.sub_group_size or _TILE


MECHANISM = Nvme
