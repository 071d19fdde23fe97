"""Options: the objective of a fine-tuning."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from planner.specs.names import BaseName, DivergenceName, ReferenceName, TaskName
from planner.specs.options import aliases
from planner.specs.options.record import Record
from planner.specs.options.row import Group, Needs, beside, option
from planner.specs.options.verbs import PARTS, REQUESTS
from planner.specs.task import TASKS

_OF_REFERENCE = Needs(
    lambda given: TASKS[given.task or "sft"].reference > 0,
    "is of an objective that compares with a reference: give --task dpo, kto or distil, too",
    "--task dpo, kto or distil",
)
_OF_DISTIL = Needs(
    lambda given: given.task == "distil",
    "is of distillation: give --task distil, too",
    "--task distil",
)
_OF_TEACHER = beside("is of the model that teaches", "teacher")
_FEW_WORDS = beside("sends the most likely words of each token alone", "teacher_top_k")


@dataclass(frozen=True, kw_only=True)
class TaskOptions(Record):
    GROUP: ClassVar = Group("task", "Objective of fine-tuning")
    VERBS: ClassVar = REQUESTS - PARTS - {"strategies"}
    WHY_NOT: ClassVar = "changes whole steps of training alone"

    task: Annotated[
        TaskName | None,
        option(
            "Objective: sft, dpo, kto, orpo, simpo, reward (a model of rewards, whose head is one"
            " score) or distil (the words of a --teacher), with sequences, passes and reference"
            " models as TRL has them; dpo, orpo, simpo and reward have pairs, two sequences of a"
            " micro-batch each",
            label="Objective",
            example="dpo",
            aliases=aliases.TASKS,
            unset="a loss over each sequence",
            form="folded",
        ),
    ] = None
    reference: Annotated[
        ReferenceName | None,
        option(
            "Reference of dpo and kto, or teacher of distil: held (a second model beside the"
            " first), shared (the same base without its adapters; of dpo and kto) or precomputed"
            " (before the run)",
            label="Reference model",
            example="precomputed",
            unset="shared with --lora, else held",
            needs=_OF_REFERENCE,
            form="folded",
        ),
    ] = None
    teacher: Annotated[
        str | None,
        option(
            "Teacher of distil, named as --model is: frozen, in forward passes alone, with the"
            " vocabulary of the student",
            label="Teacher",
            catalogue="models",
            example="gpt2-xl",
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
            aliases=aliases.BASES,
            example="nf4-double",
            unset="16 bit",
            needs=_OF_TEACHER,
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
            most=1_000_000,
            example="2",
            unset="the teacher shares the GPUs of the student",
            needs=_FEW_WORDS,
            form="folded",
        ),
    ] = None
    teacher_top_k: Annotated[
        int | None,
        option(
            "Words per token, the most likely ones, whose probabilities come from the teacher",
            label="Words of the teacher",
            least=1,
            most=1_000_000,
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
            " reverse (KL of the student, likewise) or jsd (Jensen-Shannon alone, as TRL's GKD)",
            label="Divergence",
            example="jsd",
            unset="forward",
            needs=_OF_DISTIL,
            form="folded",
        ),
    ] = None
