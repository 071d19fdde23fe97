"""Distillation from a teacher, by the names of each trainer's arguments."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from planner.formats import trainer
from planner.formats.record import Answer
from planner.inputs import catalog
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec

_BETAS = {0.0: "forward", 1.0: "reverse"}  # of the generalised divergence; others are between
_USUAL_BETA = 0.5  # of TRL's GKDConfig, and of ms-swift's


@dataclass(frozen=True)
class Names:
    """Names of a trainer's arguments of a teacher, "" for those that it lacks."""

    teacher: str = "teacher_model_name_or_path"
    server: str = "teacher_model_server_url"  # where another program holds it
    words: str = ""  # of each token, from the former
    words_of_server: str = "loss_top_k"  # from the latter
    default_words: int = 1


def teacher(value: Any) -> str:
    """A teacher as the catalogue names it, else as the Hub does. Raises ValueError."""
    name = trainer.model_name(value) or str(value)
    with suppress(PlanError):
        return catalog.find("models", name).stem
    return name


def hub_name(ours: str) -> str:
    """The name of a model on the Hub; ours where it has none there."""
    with suppress(PlanError):
        hub = catalog.load("models", ModelSpec, ours).hub
        return hub[0] if hub else ours
    return ours


def read(answer: Answer, names: Names) -> bool:
    """A teacher of its own or on a server, where a file has one."""
    role = next((name for name in (names.teacher, names.server) if answer.get(name)), None)
    if role is None:
        return False
    if role == names.teacher:
        try:
            answer.state("teacher", teacher(answer.get(role)), role)
        except ValueError as error:
            answer.mark(role, "not understood", str(error))
            return False
        answer.imply("reference", "held", "the teacher stands on the GPUs of its student")
        if answer.get(names.words):
            count = trainer.number(answer, names.words, names.default_words)
            answer.state("teacher_top_k", count, names.words)
    else:
        note = "the time of a teacher on a server is not part of the estimate: --teacher-gpus"
        answer.imply("reference", "precomputed", note, role)
        words = trainer.number(answer, names.words_of_server, names.default_words)
        answer.imply("teacher_top_k", words, "words of each token", names.words_of_server)
    answer.imply("task", "distil", "there is a teacher", role)
    _divergence(answer)
    share = answer.get("lmbda", _USUAL_BETA)
    if share not in (0, 0.0):
        note = "the batches that are sampled from the student are not part of the estimate: lmbda 0"
        answer.mark("lmbda", "not understood", note)
    answer.mark("lmbda", "read")
    return True


def _divergence(answer: Answer) -> None:
    beta = answer.get("beta")
    if beta is None:
        answer.imply("divergence", "jsd", "the divergence by default")
        return
    try:
        answer.state("divergence", _BETAS.get(float(beta), "jsd"), "beta")
    except (TypeError, ValueError):
        answer.mark("beta", "not understood", f"{beta!r} is not a share")


def written(options: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """Arguments of the teacher of a plan that computes beside its student."""
    if options.get("task") != "distil" or not options.get("teacher"):
        return {}
    divergence = options.get("divergence") or "forward"
    beta = next((beta for beta, name in _BETAS.items() if name == divergence), _USUAL_BETA)
    out: dict[str, Any] = {names.teacher: hub_name(options["teacher"]), "beta": beta, "lmbda": 0.0}
    if names.words and options.get("teacher_top_k"):
        out[names.words] = options["teacher_top_k"]
    return out
