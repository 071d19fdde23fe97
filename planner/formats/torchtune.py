"""torchtune's YAML: full and LoRA fine-tuning on one GPU or several.

Names and defaults: recipes/configs and recipes/*.py of pytorch/torchtune at 2026-04.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from planner.formats import adapted, trainer, written
from planner.formats.packed import Rows, read_rows
from planner.formats.record import STEPS, Answer, Argument, Format, Value, unread
from planner.formats.target import PlanToWrite
from planner.inputs import catalog
from planner.specs import adapters
from planner.specs.base import PlanError
from planner.specs.options.aliases import words

STACK = "torchtune"
_ADAPTED = re.compile(r"^(lora|qlora|dora)_")
_TUNED = re.compile(r"_(instruct|base|classifier|reward)$")
# our model by the name of the function that builds it
MODELS = words("models", "torchtune")
_OPTIMIZERS = words("optimizers", "torchtune")
# releases up to 0.6 lack the second loss of a kind, so that the first is written
_LOSSES = words("loss_kernels", "torchtune")
_PREFIX = "torchtune.models."
# its modules of models, of which the longest that a builder's name begins with holds it
_MODULES = (
    *("llama2", "llama3", "llama3_1", "llama3_2", "llama3_2_vision", "llama3_3", "llama4"),
    *("mistral", "gemma", "gemma2", "phi3", "phi4", "qwen2", "qwen2_5", "qwen3"),
)
# builders whose names say which weights they load
_OF_BASE = re.compile(r"qwen2_5_(1_5|7|14|32|72)b|qwen3_(0_6|1_7|4|8|14)b")


def built(component: Any) -> tuple[str, str]:
    """The name of a model's function without what is trained of it, and that: lora, qlora."""
    name = str(component).rpartition(".")[2]
    adapted = _ADAPTED.match(name)
    bare = _ADAPTED.sub("", name)
    known = bare if bare in MODELS else _TUNED.sub("", bare)
    return known, adapted[1] if adapted else ""


def _model(component: Any) -> str:
    name, _ = built(component)
    if name not in MODELS:
        raise ValueError(f"{name!r} is not a known model: give --model")
    return MODELS[name]


def _component(ours: Any) -> str | None:
    """The function that builds a model of ours."""
    with suppress(PlanError):
        ours = catalog.find("models", str(ours)).stem
    name = next((name for name, model in MODELS.items() if model == ours), None)
    if name is None:
        return None
    module = max((module for module in _MODULES if name.startswith(f"{module}_")), key=len)
    return f"{_PREFIX}{module}.{name}{'_base' * bool(_OF_BASE.fullmatch(name))}"


def _optimizer(component: Any) -> str:
    if component not in _OPTIMIZERS:
        raise ValueError(f"{component!r} is not modelled; the estimate assumes adam")
    return _OPTIMIZERS[component]


def _offloads(option: str) -> Mapping[Any, Any]:
    return {True: option, False: None}


def _loss(component: Any) -> str:
    if component not in _LOSSES:
        raise ValueError(f"{component!r} is not modelled; the estimate assumes cross-entropy")
    return _LOSSES[component]


TABLE = (
    Argument("loss._component_", "loss_kernel", meaning=_loss, writes=trainer.name_of(_LOSSES)),
    Argument("model._component_", "model", meaning=_model, writes=_component),
    Argument("batch_size", "micro_batch", meaning=trainer.whole),
    Argument("gradient_accumulation_steps", "grad_accum", default=1, meaning=trainer.whole),
    Argument("tokenizer.max_seq_len", "seq_len", meaning=trainer.whole),
    Argument(
        "optimizer._component_",
        "optimizer",
        meaning=_optimizer,
        writes=trainer.name_of(_OPTIMIZERS),
    ),
    Argument("compile", "compile", default=False, meaning=trainer.switch),
    Argument("optimizer_in_bwd", "optimizer_in_backward", meaning=trainer.switch),
    Argument(
        "enable_activation_checkpointing",
        "recompute",
        default=False,
        meaning=trainer.recompute,
        writes=lambda ours: {"full": True, "none": False}.get(ours),
    ),
    Argument("enable_activation_offloading", "offload", words=_offloads("activations")),
    Argument("fsdp_cpu_offload", "offload", words=_offloads("params"), also=("fsdp.cpu_offload",)),
    Argument("model.lora_dropout", "lora_dropout", meaning=lambda share: float(share) or None),
    Argument("tensor_parallel_dim", "tp", meaning=trainer.whole),
    Argument("context_parallel_dim", "cp", meaning=trainer.whole),
)
UNREAD = unread("torchtune")
_TAKEN = {
    "custom_sharded_layers": "shards are taken of every layer alike",
    "memory_efficient_fsdp_wrap": "shards are taken of every layer alike",
    "fsdp_reshard_after_forward": "parameters are gathered again for the backward pass",
    "data_parallel_shard_dim": "follows from the GPUs",
    "data_parallel_replicate_dim": "follows from the GPUs",
}


def parse(text: str) -> Mapping[str, Value]:
    """The plain values by their path, with those that name another put in."""
    return trainer.resolved(trainer.parse(text))


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    _types(answer)
    _adapters(answer)
    _teacher(answer)
    each = trainer.number(answer, "max_steps_per_epoch", 0)
    if each > 0:
        epochs = trainer.number(answer, "epochs", 1)
        answer.state(STEPS, each * epochs, "max_steps_per_epoch", trainer.MAX_STEPS.note)
    replicas = trainer.number(answer, "data_parallel_replicate_dim", 1)
    shards = answer.get("data_parallel_shard_dim", -1)
    if replicas > 1 and isinstance(shards, int) and shards > 1:
        answer.state("shard_group", shards, "data_parallel_shard_dim")
        answer.state("dp", shards * replicas, "data_parallel_replicate_dim")
    answer.imply("zero", 3, "recipes of several GPUs shard with fully_shard")
    answer.imply("stack", STACK, "a file of torchtune")
    if "tokenizer.max_seq_len" in values and answer.get("tokenizer.max_seq_len") is None:
        note = "as long as the documents are: --seq-len says how long"
        answer.arguments.pop("tokenizer.max_seq_len")
        answer.mark("tokenizer.max_seq_len", "implied", note)
    packed = ("dataset.packed", "packed", "dataloader.packed")
    read_rows(answer, Rows(packed=packed, grouped=()))
    for name, note in _TAKEN.items():
        answer.mark(name, "implied", note)
    trainer.read_degrees(answer)
    trainer.mark_empty(answer)
    trainer.mark_off(answer, UNREAD["lacks"])


_KD = "kd_loss._component_"
_DIVERGENCES = {"ForwardKL": "forward", "ReverseKL": "reverse"}  # how names of its losses begin


def _teacher(answer: Answer) -> None:
    """The teacher of a recipe of distillation, and how its words are compared."""
    name, value = "teacher_model._component_", answer.get("teacher_model._component_")
    if value is None:
        return
    try:
        answer.state("teacher", _model(value), name)
    except ValueError as error:
        answer.mark(name, "not understood", str(error).replace("--model", "--teacher"))
        return
    answer.imply("task", "distil", "there is a teacher", name)
    loss = str(answer.get(_KD, "")).rpartition(".")[2]
    known = next((ours for word, ours in _DIVERGENCES.items() if loss.startswith(word)), None)
    if known:
        answer.state("divergence", known, _KD)


def _taught(options: Mapping[str, Any]) -> dict[str, Any]:
    """The teacher of a plan. Raises PlanError where no recipe has it."""
    if options.get("task") != "distil" or not options.get("teacher"):
        return {}
    if not options.get("lora"):
        remedy = "only adapters can do it in torchtune's recipes: give --lora"
        raise PlanError("--task", "distil", remedy)
    built_by = _component(options["teacher"])
    if built_by is None:
        raise PlanError("--teacher", options["teacher"], "torchtune has no builder of its shape")
    divergence = options.get("divergence") or "forward"
    loss = next((word for word, ours in _DIVERGENCES.items() if ours == divergence), None)
    if loss is None:
        remedy = "is not a loss of torchtune: take forward or reverse"
        raise PlanError("--divergence", divergence, remedy)
    chunked = "WithChunkedOutput" * (options.get("loss_kernel") == "chunked")
    return {
        "teacher_model._component_": built_by,
        _KD: f"torchtune.modules.loss.{loss}{chunked}Loss",
        "kd_ratio": 0.5,
    }


def _adapters(answer: Answer) -> None:
    """Adapters of the matrices of attention, of the MLP, and of the head."""
    rank = "model.lora_rank"
    _, how = built(answer.get("model._component_", ""))
    if not how and answer.get(rank) is None:
        return
    if answer.get(rank) is not None:
        answer.state("lora", trainer.number(answer, rank, 8), rank)
    if how == "qlora" or trainer.is_on(answer, "model.quantize_base"):
        name = "model.quantize_base" if how != "qlora" else "model._component_"
        answer.state("base_precision", "nf4-double", name)
    words = answer.get("model.lora_attn_modules", [])
    listed = list(adapted.targets(words)) if isinstance(words, list) else []
    mlp = trainer.is_on(answer, "model.apply_lora_to_mlp")
    if listed or mlp:
        name = "model.lora_attn_modules" if listed else "model.apply_lora_to_mlp"
        answer.state("lora_targets", "+".join([*listed, *(["mlp"] if mlp else [])]), name)
    answer.mark("model.apply_lora_to_mlp", "implied", "among the matrices")
    if how == "dora" or trainer.is_on(answer, "model.use_dora"):
        name = "model.use_dora" if "model.use_dora" in answer.values else "model._component_"
        answer.state("lora_method", "dora", name)
    if trainer.is_on(answer, "model.apply_lora_to_output"):
        why = "an adapter of the head is not modelled"
        answer.mark("model.apply_lora_to_output", "not understood", why)
    for name in ("model.apply_lora_to_output", "model.use_dora"):
        answer.mark(name, "implied", "off")


def _types(answer: Answer) -> None:
    """The whole model is kept in the type of the recipe, with its gradients and moments."""
    kind = str(answer.get("dtype", "")).replace("float", "fp").replace("bfp16", "bf16")
    if kind in ("bf16", "fp16", "fp32"):
        answer.state("precision", kind, "dtype")
    if kind == "bf16":
        answer.state("state_precision", "bf16", "dtype")


_IN_ATTENTION = ("q_proj", "k_proj", "v_proj", "output_proj")
_OF_ATTENTION = {
    **dict.fromkeys(("o_proj", "output_proj"), "output_proj"),
    **{word: word for word in _IN_ATTENTION},
}


def _adapted(options: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The builder with adapters, and the adapted matrices; {} where it cannot state them."""
    rank = options.get("lora")
    if rank is None:
        return {}
    words = adapters.target_words(str(options.get("lora_targets") or adapters.ALL))
    everywhere = adapters.ALL in words
    attention = everywhere or adapters.ATTENTION in words
    mlp = everywhere or adapters.MLP in words
    named = [_OF_ATTENTION[word] for word in words if word in _OF_ATTENTION]
    family, _, name = config["model._component_"].rpartition(".")
    quantised = options.get("base_precision") == "nf4-double"
    out = {
        "model._component_": f"{family}.{'qlora' if quantised else 'lora'}_{name}",
        "model.lora_attn_modules": list(_IN_ATTENTION) if attention else named,
        "model.apply_lora_to_mlp": mlp,
        "model.apply_lora_to_output": False,
        "model.lora_rank": rank,
        "model.lora_alpha": 2 * rank,
    }
    if options.get("lora_dropout"):
        out["model.lora_dropout"] = options["lora_dropout"]
    if options.get("lora_method") == "dora":
        out["model.use_dora"] = True
    return out


def _starts(request: PlanToWrite) -> str:
    recipe = f"{'lora' if request.get('lora') else 'full'}_finetune"
    if request.get("task") == "distil":
        recipe = "knowledge_distillation"
    return f'recipes/{recipe}_distributed.py --config "$RECIPE/train.yaml"'


def write(options: Mapping[str, Any]) -> str:
    """The YAML of a plan: the keys of a recipe that affect cost. Raises PlanError where torchtune
    has no builder of the model, which its recipes cannot do without."""
    config = trainer.written(TABLE, options)
    if "model._component_" not in config:
        raise PlanError("--model", options["model"], "torchtune has no builder of its shape")
    config |= _adapted(options, config) | _taught(options)
    config["dtype"] = "bf16" if options.get("precision") in (None, "bf16") else "fp32"
    if options.get(STEPS):
        config |= {"epochs": 1, "max_steps_per_epoch": options[STEPS]}
    group, dp = options.get("shard_group"), options.get("dp")
    if group and dp and group != dp:
        config |= {"data_parallel_shard_dim": group, "data_parallel_replicate_dim": dp // group}
    return trainer.as_yaml(config)


_component_key = re.compile(r"^\s*_component_:\s*torchtune\.", re.MULTILINE)
FORMAT = Format(
    kind="torchtune",
    title="torchtune YAML",
    detect=lambda name, text: trainer.is_data(name) and _component_key.search(text) is not None,
    parse=parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)

TARGET = written.target(
    "torchtune",
    "torchtune",
    write,
    "recipes/full_finetune_distributed.py --config {}",
    stacks=(STACK,),
    where={STACK: ("zero = 3", "recompute = none,full")},
    means={STACK: {"state_precision": "bf16"}},
    alone="",
    fill=(*written.FILL, "where the checkpoint is"),
    checkout="torchtune",
    starts=_starts,
)
