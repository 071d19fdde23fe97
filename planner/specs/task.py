"""Objectives of fine-tuning: work of a step beyond forward and backward of its sequences."""

from __future__ import annotations

from dataclasses import dataclass

from planner.specs.names import TaskName


@dataclass(frozen=True)
class Task:
    """One objective.

    sequences: of an example, which stand in one micro-batch. reference: forward passes of a
    reference model over the batch of a step; own: of the model itself, without gradients.
    outputs: rows of a head of its own, which replaces the head over the vocabulary.
    """

    title: str
    sequences: int
    reference: int
    own: int
    source: str
    outputs: int | None = None


_TRL = "trl/trainer"
TASKS: dict[TaskName, Task] = {
    "sft": Task("supervised fine-tuning", 1, 0, 0, f"{_TRL}/sft_trainer.py"),
    # chosen and rejected in one batch (concatenated_forward)
    "dpo": Task("DPO", 2, 1, 0, f"{_TRL}/dpo_trainer.py: compute_ref_log_probs"),
    # the batch, and prompts with completions of other examples, which estimate the KL term
    "kto": Task("KTO", 1, 2, 1, f"{_TRL}/kto_trainer.py: KL_logits under torch.no_grad"),
    "orpo": Task("ORPO", 2, 0, 0, f"{_TRL}/orpo_trainer.py: odds ratio without a reference model"),
    "simpo": Task("SimPO", 2, 0, 0, f"{_TRL}/cpo_trainer.py: loss_type simpo, no reference"),
    # chosen and rejected in one batch, a score of each token of which the last counts
    # (GenericForSequenceClassification of transformers, num_labels 1)
    "reward": Task("reward modelling", 2, 0, 0, f"{_TRL}/reward_trainer.py", outputs=1),
    # the reference is a teacher
    "distil": Task("distillation", 1, 1, 0, "trl/experimental/gkd/gkd_trainer.py: compute_loss"),
}
