"""LISA: embedding, final norm, head and a few random layers are trained at a time. Gradients pass
through the other layers, whose weights are frozen until their turn comes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from planner.error import PlanError
from planner.specs.mechanism import Mechanism, TrainedLayers
from planner.specs.names import LisaStates
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, beside, option
from planner.specs.options.verbs import METHODS, OF_FROZEN, PARTLY

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.specs.plan import Plan


@dataclass(frozen=True, kw_only=True)
class LisaOptions(Record):
    GROUP: ClassVar = AdapterOptions.GROUP
    VERBS: ClassVar = PARTLY - METHODS
    WHY_NOT: ClassVar = OF_FROZEN

    lisa: Annotated[
        int | None,
        option(
            "LISA: train embedding, final norm, head and this many random layers at a time; the"
            " others are frozen, but gradients pass through them",
            label="Random trained layers",
            least=1,
            most=100_000,
            example="2",
            unset="all",
            needs=Needs(
                lambda given: given.lora is None and given.trainable_layers is None,
                "trains whole layers in turn: leave it, or --lora and --trainable-layers out",
            ),
            form="folded",
        ),
    ] = None
    lisa_states: Annotated[
        LisaStates | None,
        option(
            "Layers whose optimizer states LISA keeps: active (dropped when others come, as the"
            " paper has it) or visited (LMFlow, Axolotl and ms-swift drop none)",
            label="States of LISA",
            example="visited",
            unset="active",
            verbs=PARTLY - METHODS - {"batch"},
            why_not="changes only memory: use `dpplan estimate`",
            needs=beside("applies to layers that are trained in turn", "lisa"),
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Lisa(Mechanism):
    """layers: trained at a time; states: whose moments are kept."""

    layers: int
    states: LisaStates

    NAME = "lisa"
    OFF = "all layers are trained in every step"
    SOURCE = "LISA, Pan et al. 2024 (arXiv 2403.17919), algorithm 1"
    OPTIONS = LisaOptions

    @classmethod
    def of(cls, options: LisaOptions) -> Lisa | None:
        return None if options.lisa is None else cls(options.lisa, options.lisa_states or "active")

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.rule import Rule

        return (
            Rule(
                "random layers stay on one stage",
                ("lisa",),
                lambda plan, c: c.pp == 1,
                lambda plan, x: "stages have different numbers of random layers",
                ways=lambda plan, x: ("--pp 1", "leave out --lisa"),
            ),
        )

    def check(self, plan: Plan) -> None:
        self.trained_layers().check("--lisa", plan.model)
        if plan.model.towers:
            remedy = f"{plan.model.name} has towers of layers; leave it out"
            raise PlanError("--lisa", self.layers, remedy)

    def trained_layers(self) -> TrainedLayers:
        return TrainedLayers(self.layers, random=True, kept_moments=self.states == "visited")


MECHANISM = Lisa
