"""The prediction of `dpplan estimate --calibration FILE` for a decoder that verification trains, by
the public API only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tomli_w

from planner.calibrate.cases import Case
from planner.inputs import catalog
from planner.inputs.options import read_options
from planner.specs.options import Options
from planner.verbs.estimate import estimate

_MODEL = "model.toml"  # what the estimate reads of the case
# torchtitan as the decoders are split (`training.tensor_plan`): norms of every rank see all tokens,
# where torchtitan itself has sequence parallelism. Of its id, so that a calibration acts on it.
_TENSOR_ALONE = "tensor-alone.toml"
_SPLIT = {
    "id": "torchtitan",
    "title": "torchtitan without sequence parallelism",
    "source": "planner/calibrate/training.py",
    "base": "torchtitan",
    "supports": {"tensor_alone": True},
}
# parallel -> (stack, ZeRO stage, which degree takes the ranks)
_LAYOUTS = {
    "single": ("pytorch-ddp", 0, "dp"),
    "ddp": ("pytorch-ddp", 0, "dp"),
    "zero1": ("pytorch-ddp", 1, "dp"),
    "fsdp": ("pytorch-fsdp", 3, "dp"),
    "fsdp-noreshard": ("pytorch-fsdp", 2, "dp"),
    "tensor": ("torchtitan", 0, "tp"),
    "pipeline": ("torchtitan", 0, "pp"),
}
STATES = ("parameters", "gradients", "optimizer")


def model_text(case: Case) -> str:
    """The decoder as a model TOML."""
    llama = case.family == "llama"
    return tomli_w.dumps(
        {
            "name": f"{case.family}-{case.hidden}",
            "layers": case.layers,
            "hidden": case.hidden,
            "heads": case.heads,
            "kv_heads": case.heads,
            "head_dim": case.hidden // case.heads,
            "ffn_hidden": case.ffn,
            "vocab": case.vocab,
            "max_positions": case.seq,
            "mlp": "gated" if llama else "plain",
            "norm": "rmsnorm" if llama else "layernorm",
            "norm_bias": not llama,
            "positions": "rotary" if llama else "learned",
        }
    )


def options(
    case: Case, model: str, *, gpu: str, ranks: int, precision: str, calibration: str | None
) -> Options:
    """The request a user would make for this case."""
    stack, zero, degree = _LAYOUTS[case.parallel]
    ranks = 1 if case.parallel == "single" else ranks
    degrees = {"tp": 1, "pp": 1, "dp": 1} | {degree: ranks}
    return read_options(
        {
            "model": model,
            "gpu": gpu,
            "gpus": ranks,
            "calibration": calibration,
            "stack": _TENSOR_ALONE if degree == "tp" else stack,
            "stack_defaults": True,
            "zero": zero,
            **degrees,
            "vpp": 1,
            "cp": 1,
            "ep": 1,
            "sequence_parallel": False,
            "schedule": "1f1b" if degree == "pp" else None,
            "recompute": case.recompute,
            "micro_batch": case.micro_batch,
            "seq_len": case.seq,
            "precision": precision,
            "global_batch": case.micro_batch * case.microbatches * degrees["dp"],
            "offload": "none",
            "top": 1,
        }
    )


@dataclass(frozen=True)
class Prediction:
    """The estimate of a case: seconds of a step and its parts, bytes of each rank's states, tokens
    per second."""

    step_s: float
    components: Mapping[str, float]  # add up to step_s
    communication_s: float  # that nothing hides
    optimizer_s: float
    states: list[dict[str, float]]  # bytes by name of STATES, per rank
    peak_bytes: float
    tokens_per_s: float


def predict(
    case: Case, *, gpu: str, ranks: int, precision: str, calibration: str | None
) -> Prediction:
    """The estimate of a case on these ranks."""
    given = {_MODEL: model_text(case), _TENSOR_ALONE: tomli_w.dumps(_SPLIT)}
    if calibration is not None:
        path = catalog.user_path(calibration, "--calibration")
        given[str(path)] = catalog.read_text(path, "--calibration")
    request = options(
        case, _MODEL, gpu=gpu, ranks=ranks, precision=precision, calibration=calibration
    )
    with catalog.only_given(given):
        out = estimate(request, brief=True)
    stages = [
        next(phase.components for phase in stage.phases if phase.name == "optimizer step")
        for stage in out.memory.per_stage
    ]
    states = [{name: stage.get(name, 0.0) for name in STATES} for stage in stages]
    whole = ranks if case.parallel != "single" else 1
    return Prediction(
        step_s=out.step.seconds,
        components=out.step.components,
        communication_s=sum(row.seconds - row.hidden_seconds for row in out.communication),
        optimizer_s=out.step.components.get("optimizer", 0.0),
        states=states if len(states) == whole else states * whole,
        peak_bytes=out.memory.peak_bytes,
        tokens_per_s=out.throughput.tokens_per_s,
    )
