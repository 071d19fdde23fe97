"""The last layers, the final norm and an untied head are trained; below the first trained layer
nothing has a backward pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from planner.specs.mechanism import Mechanism, TrainedLayers
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, option
from planner.specs.options.verbs import METHODS, OF_FROZEN, PARTLY

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.specs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class LastLayersOptions(Record):
    GROUP: ClassVar = AdapterOptions.GROUP
    VERBS: ClassVar = PARTLY - METHODS
    WHY_NOT: ClassVar = OF_FROZEN

    trainable_layers: Annotated[
        int | None,
        option(
            "Train this many of the last layers, the final norm and an untied head; all below is"
            " frozen and has no backward pass",
            label="Trained layers",
            least=1,
            most=100_000,
            example="2",
            unset="all",
            needs=Needs(
                lambda given: given.lora is None,
                "freezes what adapters of all layers need: leave it or --lora out",
            ),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class LastLayers(Mechanism):
    """layers: that are trained."""

    layers: int

    NAME = "last-layers"
    OFF = "all layers are trained"
    SOURCE = "freeze tuning: finetuning_type freeze of LLaMA-Factory, hparams/finetuning_args.py"
    OPTIONS = LastLayersOptions

    @classmethod
    def of(cls, options: LastLayersOptions) -> LastLayers | None:
        return None if options.trainable_layers is None else cls(options.trainable_layers)

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.rule import Rule

        return (
            Rule(
                "frozen layers stay on one stage",
                ("trainable_layers",),
                lambda plan, c: c.pp == 1,
                lambda plan, x: (
                    "the first stages of a pipeline would have no backward pass, which no schedule"
                    f" here knows; here pp is {x.pp}"
                ),
                ways=lambda plan, x: ("--pp 1", "leave out --trainable-layers"),
            ),
        )

    def check(self, plan: Plan) -> None:
        self.trained_layers().check("--trainable-layers", plan.model)

    def trained_layers(self) -> TrainedLayers:
        return TrainedLayers(self.layers, random=False)


MECHANISM = LastLayers
