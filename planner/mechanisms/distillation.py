"""Distillation: a student learns the distribution over the vocabulary that a teacher gives, a
second model, frozen, of forward passes only.

The teacher shares the GPUs of its student, whose ranks divide it without a pipeline; or it has GPUs
of its own, for which training waits; or it has computed before the run. From elsewhere come the
most likely words of each token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from planner.error import PlanError
from planner.specs.mechanism import Divergence, Mechanism, SecondModel
from planner.specs.names import BaseName, DivergenceName, ReferenceName
from planner.specs.options.aliases import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Needs, beside, option
from planner.specs.options.task import TaskOptions

if TYPE_CHECKING:
    from planner.formulas.rules.rule import Rule
    from planner.ledger import Array
    from planner.specs.columns import Columns
    from planner.specs.model import ModelSpec
    from planner.specs.plan import Plan

_MOST = 1_000_000
_TUNE = "torchtune/modules/loss/kd_losses.py"
# bytes per logit as torch computes it operator by operator in fp32
DIVERGENCES: dict[DivergenceName, Divergence] = {
    "forward": Divergence("KL of the teacher", 9, 8, 75, True, f"{_TUNE}: ForwardKLLoss"),
    "reverse": Divergence("KL of the student", 13, 12, 197, True, f"{_TUNE}: ReverseKLLoss"),
    "jsd": Divergence(
        "Jensen-Shannon",
        28,
        32,
        356,
        False,
        "trl/experimental/gkd/gkd_trainer.py: generalized_jsd_loss",
    ),
}
_OF_DISTIL = Needs(
    lambda given: given.task == "distil",
    "applies to distillation: give --task distil, too",
    "--task distil",
)
# a teacher is not trained, and its logits are written once
_FROZEN: dict[str, Any] = {
    **dict.fromkeys(("adapter", "base_group", "base_upcast", "reference")),
    "task": "sft",
    "train_embeddings": False,
    "loss_kernel": "fused",
    "loss_chunks": 1,
}


@dataclass(frozen=True, kw_only=True)
class DistillationOptions(Record):
    GROUP: ClassVar = TaskOptions.GROUP
    VERBS: ClassVar = TaskOptions.VERBS
    WHY_NOT: ClassVar = TaskOptions.WHY_NOT

    teacher: Annotated[
        str | None,
        option(
            "Teacher of distil, named as --model is: frozen, forward only, with the vocabulary of"
            " the student",
            label="Teacher",
            example="gpt2-xl",
            catalogue="models",
            needs=_OF_DISTIL,
            form="folded",
        ),
    ] = None
    teacher_precision: Annotated[
        BaseName | None,
        option(
            "How the teacher keeps the matrices of its layers, in the words of --base-precision (a"
            " quantization_config among TRL's teacher_model_init_kwargs)",
            label="Teacher in",
            example="nf4-double",
            unset="16 bit",
            aliases=aliases("bases"),
            needs=beside("describes the teacher", "teacher"),
            form="folded",
        ),
    ] = None
    teacher_gpus: Annotated[
        int | None,
        option(
            "Dedicated GPUs on which the teacher computes, as a server that the training waits"
            " for, beside --gpus",
            label="GPUs of the teacher",
            least=1,
            most=_MOST,
            example="2",
            unset="the teacher shares the GPUs of the student",
            needs=beside("sends only the most likely tokens of each position", "teacher_top_k"),
            form="folded",
        ),
    ] = None
    teacher_top_k: Annotated[
        int | None,
        option(
            "Words per token, the most likely ones, whose probabilities come from the teacher",
            label="Words of the teacher",
            least=1,
            most=_MOST,
            example="64",
            unset="all of the vocabulary",
            needs=_OF_DISTIL,
            form="folded",
        ),
    ] = None
    divergence: Annotated[
        DivergenceName | None,
        option(
            "Loss of distil: forward (KL of the teacher, with cross-entropy, as torchtune has it),"
            " reverse (KL of the student, likewise) or jsd (only Jensen-Shannon, as TRL's GKD)",
            label="Divergence",
            example="jsd",
            unset="forward",
            needs=_OF_DISTIL,
            form="folded",
        ),
    ] = None


@dataclass(frozen=True)
class Distillation(Mechanism):
    """teacher: its name; words: per token that are compared, all where None; model: the teacher,
    where it is known."""

    teacher: str | None
    reference: ReferenceName
    precision: BaseName | None
    gpus: int | None
    words: int | None
    divergence: DivergenceName
    model: ModelSpec | None = None

    NAME = "distillation"
    OFF = "the labels are learned, without a teacher"
    SOURCE = (
        "Hinton et al. 2015 (arXiv 1503.02531); gkd_trainer.py of TRL, kd_losses.py of torchtune"
    )
    OPTIONS = DistillationOptions
    GPUS = ("teacher_gpus",)
    EXAMPLE: ClassVar = {"task": "distil"}

    @classmethod
    def of(cls, options: Any) -> Distillation | None:
        if options.task != "distil":
            return None
        return cls(
            options.teacher,
            options.reference or "held",
            options.teacher_precision,
            options.teacher_gpus,
            options.teacher_top_k,
            options.divergence or "forward",
        )

    @classmethod
    def switched_off(cls, plan: Plan) -> Plan:
        objective = {"task": "sft", "reference": None}
        return plan.model_copy(update={"training": plan.training.model_copy(update=objective)})

    def settings(self) -> dict[str, Any]:
        values = super().settings()
        del values["model"]
        return values

    @classmethod
    def rules(cls) -> tuple[Rule, ...]:
        from planner.formulas.rules.divide import divided
        from planner.formulas.rules.rule import Rule, ones

        def holds(plan: Plan, c: Columns) -> Array:
            second = plan.second
            if second is None or second.plan is None or second.place != "here":
                return ones(c)
            return (c.pp == 1) & divided(second.plan, c)

        return (
            Rule(
                "ranks divide the teacher",
                ("teacher", "tp", "pp", "ep"),
                holds,
                lambda plan, x: (
                    f"{_name(plan)} computes on the GPUs of its student, without a"
                    f" pipeline and divided as that is; here tp is {x.tp}, pp {x.pp}, ep {x.ep}"
                ),
                ways=lambda plan, x: ("--tp 1 --pp 1", "--teacher-gpus with --teacher-top-k"),
            ),
        )

    def resolved(
        self, student: ModelSpec, read: Callable[[str], tuple[ModelSpec, list[str]]]
    ) -> tuple[Distillation, list[str]]:
        self._check_place()
        if self.teacher is None:
            if self.reference == "precomputed":
                words = "its words were computed before, by a model that is not looked at"
                return self, [f"teacher: {words}"]
            remedy = "is needed by --task distil: the model whose words are learned"
            raise PlanError("--teacher", None, f"{remedy}, or --reference precomputed")
        try:
            model, inferred = read(self.teacher)
        except PlanError as error:
            raise PlanError("--teacher", error.value, error.remedy) from None
        if model.vocab != student.vocab or not student.vocab:
            raise PlanError(
                "--teacher",
                self.teacher,
                f"has a vocabulary of {model.vocab:,}, {student.name} one of {student.vocab:,},"
                " whose probabilities do not compare word by word; take a teacher of the same"
                " family",
            )
        return replace(self, model=model), [*inferred, self._sentence(model)]

    def _check_place(self) -> None:
        """Raises PlanError where the teacher's probabilities have no source."""
        if self.reference == "shared":
            remedy = "is the student itself without its adapters: take held or precomputed"
            raise PlanError("--reference", self.reference, remedy)
        if self.reference == "precomputed" and self.gpus is not None:
            remedy = "apply to a teacher in every step: leave them or --reference precomputed out"
            raise PlanError("--teacher-gpus", self.gpus, remedy)
        if self.reference == "precomputed" and self.words is None:
            remedy = "keeps only the most likely tokens: say how many per position"
            raise PlanError("--reference", self.reference, f"{remedy} (--teacher-top-k)")

    def _sentence(self, model: ModelSpec) -> str:
        from planner.formulas.params import parameter_count

        place = "forward only, on the GPUs of its student"
        if self.gpus:
            place = f"on {self.gpus:,} GPUs of its own, for which training waits"
        elif self.reference == "precomputed":
            place = "in one pass over the examples before the run, on the same GPUs"
        size = f"{parameter_count(model) / 1e9:,.2f}B parameters in {self.precision or '16 bit'}"
        return f"teacher: {model.name}, {size}, {place}"

    def second_model(self, plan: Plan) -> SecondModel:
        place: Literal["here", "apart", "before"] = "apart" if self.gpus else "here"
        if self.reference == "precomputed":
            place = "before"
        return SecondModel(
            plan=None if self.model is None else self._of_teacher(plan, self.model),
            place=place,
            gpus=self.gpus,
            option="--teacher-gpus" if self.gpus else "--gpus",
            words=self.words,
            divergence=DIVERGENCES[self.divergence],
        )

    def _of_teacher(self, plan: Plan, model: ModelSpec) -> Plan:
        """The plan of the teacher on the same GPUs."""
        frozen = {**_FROZEN, "base_precision": self.precision}
        others = (each for each in plan.mechanisms if each is not self)
        return plan.model_copy(
            update={
                "model": model,
                "training": plan.training.model_copy(update=frozen),
                "mechanisms": tuple(each for each in others if each.trained_layers() is None),
            }
        )


def _name(plan: Plan) -> str:
    """The teacher of a plan, for a sentence."""
    distillation = plan.setting(Distillation)
    model = distillation and distillation.model
    return model.name if model else "the teacher"


MECHANISM = Distillation
