"""A step of torchtitan's models, sharded by its own code, one rank of a fake world."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineSchedule
from torch.distributed.pipelining.stage import InferenceMode
from torch.testing._internal.distributed.fake_pg import FakeStore

from benchmarks.frameworks import gpu_rules, stepping
from benchmarks.frameworks.live import LiveBytes, fake
from benchmarks.frameworks.setting import Counted, Setting

# Triton's kernel that sorts tokens by expert: no dense model runs it
sys.modules.setdefault(
    "torchtitan.models.moe.kernels", Mock(__spec__=None, name="kernels of experts")
)

from torchtitan.components.loss import cross_entropy_loss  # noqa: E402
from torchtitan.config import JobConfig  # noqa: E402
from torchtitan.distributed import ParallelDims, parallel_dims, pipeline_parallel, utils  # noqa: E402
from torchtitan.models import llama3, qwen3  # noqa: E402

_WHOLE = 2  # the ZeRO stage whose gathered parameters stay until backward


def job_of(setting: Setting) -> JobConfig:
    """The configuration that a user would write."""
    job = JobConfig()
    job.training.seq_len = setting.seq_len
    job.training.local_batch_size = setting.micro_batch * (
        setting.accumulation if setting.pipeline > 1 else 1
    )
    job.activation_checkpoint.mode = setting.recompute
    job.activation_checkpoint.selective_ac_option = "op"
    job.parallelism.tensor_parallel_degree = setting.tensor
    job.parallelism.pipeline_parallel_degree = setting.pipeline
    job.parallelism.pipeline_parallel_schedule = setting.schedule
    job.parallelism.pipeline_parallel_microbatch_size = setting.micro_batch
    if setting.zero == _WHOLE:
        job.parallelism.fsdp_reshard_after_forward = "never"
    elif setting.pipeline > 1:
        job.parallelism.fsdp_reshard_after_forward = "always"
    return job


def model_of(setting: Setting) -> tuple[nn.Module, Any, Callable[..., nn.Module]]:
    """The model, its arguments, and what shards it."""
    fields = setting.config
    shape = {
        "dim": fields["hidden_size"],
        "n_layers": fields["num_hidden_layers"],
        "n_heads": fields["num_attention_heads"],
        "n_kv_heads": fields["num_key_value_heads"],
        "vocab_size": fields["vocab_size"],
        "max_seq_len": setting.seq_len,
    }
    width = fields["intermediate_size"]
    if fields["model_type"] == "qwen3":
        arguments = qwen3.Qwen3ModelArgs(
            **shape,
            head_dim=fields["head_dim"],
            hidden_dim=width,
            enable_weight_tying=fields["tie_word_embeddings"],
        )
        return qwen3.Qwen3Model(arguments), arguments, qwen3.parallelize_qwen3
    # a width that is rounded up to a multiple of itself
    args = llama3.TransformerModelArgs(**shape, multiple_of=width, ffn_dim_multiplier=0.01)
    return llama3.Transformer(args), args, llama3.parallelize_llama


@contextlib.contextmanager
def traced() -> Iterator[None]:
    """Device meshes are made outside of fake tensors: they read the numbers of ranks."""
    meshes: Any = DeviceMesh
    before = meshes._concatenate

    @functools.wraps(before)
    def concatenate(*args: Any, **kwargs: Any) -> Any:
        with unset_fake_temporarily():
            return before(*args, **kwargs)

    meshes._concatenate = staticmethod(concatenate)
    try:
        yield
    finally:
        meshes._concatenate = before


def dimensions(setting: Setting) -> ParallelDims:
    """Meshes of a fake world, of which this is the first rank (of the setting's stage)."""
    if dist.is_initialized():
        dist.destroy_process_group()
    inner = setting.ranks // setting.pipeline
    os.environ["LOCAL_RANK"] = "0"
    dist.init_process_group(
        "fake", store=FakeStore(), rank=setting.stage * inner, world_size=setting.ranks
    )
    parallel_dims.device_type = "cpu"  # which it takes from torch on a machine without a GPU
    dims = ParallelDims(
        dp_replicate=1,
        dp_shard=-1,
        cp=1,
        tp=setting.tensor,
        pp=setting.pipeline,
        ep=1,
        etp=1,
        world_size=setting.ranks,
    )
    dims.build_mesh()
    return dims


def stage_of(setting: Setting, *args: Any, **kwargs: Any) -> PipelineStage:
    """A stage with the shapes that it receives and sends, which a fake world cannot ask for."""
    _, index, count, device = args
    fields, shape = setting.config, (setting.micro_batch, setting.seq_len)
    words = torch.zeros(shape, dtype=torch.long, device=device)
    hidden, scores = (
        torch.empty((*shape, width), dtype=torch.bfloat16, device=device)
        for width in (fields["hidden_size"], fields["vocab_size"])
    )
    first, last = index == 0, index == count - 1
    stages: Any = PipelineStage
    return stages(
        *args,
        input_args=words if first else hidden.clone().requires_grad_(),
        output_args=(scores if last else hidden.clone()).requires_grad_(),
        input_grads=None if first else hidden,
        output_grads=None if last else hidden,
        **kwargs,
    )


def _known(
    schedule: Any, stages: list[PipelineStage], has_backward: bool = True, *more: Any
) -> None:
    for stage in stages:
        stage._inference_mode = InferenceMode.STATIC


@contextlib.contextmanager
def pipelined(setting: Setting) -> Iterator[None]:
    """Stages are built again in place of copies of a model without memory, and ask no
    neighbours."""
    before = pipeline_parallel.copy, pipeline_parallel.PipelineStage
    schedules: Any = _PipelineSchedule
    warmup = schedules._warmup_p2p
    pipeline_parallel.copy = SimpleNamespace(deepcopy=lambda model: model_of(setting)[0])
    pipeline_parallel.PipelineStage = functools.partial(stage_of, setting)
    schedules._warmup_p2p = _known
    try:
        yield
    finally:
        pipeline_parallel.copy, pipeline_parallel.PipelineStage = before
        schedules._warmup_p2p = warmup


def run(setting: Setting) -> Counted:
    """Two steps on fake tensors, of which the second is counted."""
    dims, job = dimensions(setting), job_of(setting)
    with gpu_rules.rules(), traced(), pipelined(setting), fake() as live:
        model, arguments, shard = model_of(setting)
        if setting.pipeline > 1:
            schedule, parts, *_ = pipeline_parallel.pipeline_llm(
                model,
                dims,
                job,
                torch.device("cpu"),
                arguments,
                shard,
                functools.partial(_loss, live),
            )
            del model
            take = functools.partial(_piped, setting, live, schedule, parts)
        else:
            parts = [shard(model, dims, job)]
            take = functools.partial(_step, setting, live, parts[0])
        for part in parts:
            part.train()
            marked(part, live)
        weights = [weight for part in parts for weight in part.parameters()]
        optimizer = stepping.optimizer_of(setting, weights)
        gradients = 0

        def labelled() -> None:
            nonlocal gradients
            for part in parts:
                live.label_model(part, optimizer)
            gradients = live.by_origin["gradients"]

        labelled()
        for _ in range(2):
            live.restart()
            optimizer.zero_grad()
            take()
            labelled()
            live.phase("step")
            utils.clip_grad_norm_(weights, 1.0, foreach=True)
            optimizer.step()
            labelled()
        return stepping.counted(live, gradients)


def marked(model: Any, live: LiveBytes) -> None:
    """Backward begins where the gradient of the head's input is there, or of what a stage sends."""

    def begins(tensor: torch.Tensor) -> None:
        tensor.register_hook(lambda gradient: live.phase("backward"))

    if model.output is not None:
        model.output.register_forward_pre_hook(lambda module, args: begins(args[0]))
    else:
        model.register_forward_hook(lambda module, args, sent: begins(sent))
    model.register_forward_pre_hook(lambda module, args: live.phase("forward"))


def _loss(live: LiveBytes, scores: torch.Tensor, words: torch.Tensor) -> torch.Tensor:
    """The loss of its trainer."""
    live.label([scores], "logits")
    live.at_loss = dict(live.by_origin)
    live.phase("loss")
    loss: torch.Tensor = cross_entropy_loss(scores, words)
    return loss


def _step(setting: Setting, live: LiveBytes, model: nn.Module) -> None:
    """Trainer.forward_backward_step of every micro-batch."""
    context = utils.get_train_context(setting.tensor > 1)
    for batch in _words(setting, live, setting.accumulation, 1):
        with context():
            scores = model(batch)
            loss = _loss(live, scores, batch) / 1.0
            del scores
            loss.backward()
            del loss


def _piped(setting: Setting, live: LiveBytes, schedule: Any, parts: list[nn.Module]) -> None:
    """A step through a pipeline schedule, which runs all micro-batches."""
    first, last = (
        any(getattr(part, name) for part in parts) for name in ("tok_embeddings", "norm")
    )
    (words,) = _words(setting, live, 1, setting.accumulation)
    targets: dict[str, Any] = {"target": words, "losses": []} if last else {}
    live.phase("forward")
    schedule.step(*[words] * first, **targets, return_outputs=False)


def _words(setting: Setting, live: LiveBytes, count: int, times: int) -> list[torch.Tensor]:
    shape = times * setting.micro_batch, setting.seq_len
    words = [torch.zeros(shape, dtype=torch.long) for _ in range(count)]
    live.label(words, "batch")
    return words
