"""Options: which weights are trained, all or adapters beside them."""

from dataclasses import dataclass
from typing import ClassVar

from planner.specs.names import AdapterMethod, BaseName, GradientType, UpcastName
from planner.specs.options.record import Record
from planner.specs.options.row import Group
from planner.specs.options.verbs import PARTLY


@dataclass(frozen=True, kw_only=True)
class AdapterOptions(Record):
    GROUP: ClassVar = Group("adapters", "Adapters and frozen weights")
    VERBS: ClassVar = PARTLY
    WHY_NOT: ClassVar = "leaves weights frozen, whose states are what is compared"

    lora: int | None = None
    lora_method: AdapterMethod | None = None
    lora_targets: str | None = None
    lora_dropout: float | None = None
    lora_precision: GradientType | None = None
    lora_autocast: bool | None = None
    base_precision: BaseName | None = None
    base_group: int | None = None
    base_upcast: UpcastName | None = None
    lora_adapters: int | None = None
    fused_lora: bool = False
    train_embeddings: bool = False
