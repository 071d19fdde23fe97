"""verl: Hydra overrides, `name=value` behind its command.

Names and defaults: verl/trainer/config/ at b178a3cd (2026-01), of supervised fine-tuning
(sft_trainer, fsdp_sft_trainer), and of the actor of reinforcement learning (main_ppo), whose
optimizer step is what is planned here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from planner.formats import adapted, dialects, rl, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.shell import script
from planner.formats.target import GATHERED, SHARDED, PlanToWrite, Target, theirs
from planner.inputs.readers import yaml_places

_PROGRAM = re.compile(
    r"\bverl\.trainer\.(?:main\b|main_ppo|\w*sft_trainer\w*)"
    r"|\b(?:fully_async|one_step_off)_policy\.\w*main\w*"
)
# of the policy, in the words of verl, EasyR1 and SkyRL, whatever script is started
_POLICY = re.compile(r"(?:^|\s)\+{0,2}(?:actor_rollout_ref|worker\.actor|trainer\.policy)\.[\w.]+=")
_PAIR = re.compile(r"\+{0,2}([A-Za-z_][\w.@/-]*)=(.*)", re.S)
_ACTOR = "actor_rollout_ref.actor."
# its own YAML: of reinforcement learning, of supervised fine-tuning
_YAML = re.compile(
    r"^actor_rollout_ref\s*:"
    r"|^[ \t]+(?:partial_pretrain|micro_batch_size_per_device_for_update)\s*:",
    re.M,
)
_MEGATRON = f"{_ACTOR}megatron."
_DYNAMIC = ("data.use_dynamic_bsz", f"{_ACTOR}use_dynamic_bsz")
_FSDP = f"{_ACTOR}fsdp_config."
_E = "engine."
# of generation, of scoring by other models, and of the algorithm: not of the actor's step
_OTHERS = re.compile(
    r"actor_rollout_ref\.(?:rollout|ref|hybrid_engine|nccl_timeout)\b|critic\.|reward|algorithm\.|"
    r"custom_reward|ray_|global_profiler|transfer_queue|async_training|"
    r"rollout\.|rllm[./]|agent\.|env\.|generator\.|environment\.|"
    r"trainer\.(?:algorithm|critic|ref)\."
)


def _parse(text: str) -> Mapping[str, Value]:
    if _YAML.search(text):
        return {name: _stated(value, line) for name, (value, line) in yaml_places(text).items()}
    out: dict[str, Value] = {}
    for command in script(text).commands:
        if not any(_PROGRAM.search(w.text) or _POLICY.match(w.text) for w in command.words):
            continue
        for word in command.words:
            match = _PAIR.fullmatch(word.text)
            if match and not word.text.startswith("-"):
                out[match[1]] = Value(_plain(match[2]), word.line, word.unknown)
    return out


def _stated(value: Any, line: int) -> Value:
    """A value of its YAML, which may be `${another.one}`."""
    unknown = isinstance(value, str) and value.startswith("${")
    return Value(value, line, (value,) if unknown else ())


def _plain(text: str) -> Any:
    word = text.strip("'\"")
    if word.lower() in ("true", "false"):
        return word.lower() == "true"
    if word.lower() in ("null", "none", ""):
        return None
    try:
        return int(word)
    except ValueError:
        return word


def _megatron(name: str, option: str, **more: Any) -> Argument:
    return Argument(_E + name, option, also=(_MEGATRON + name,), **more)


_MODEL_NAMES = ("actor_rollout_ref.model.path", "model.partial_pretrain")
_TABLE = (
    _megatron("tensor_model_parallel_size", "tp"),
    _megatron("pipeline_model_parallel_size", "pp"),
    _megatron("context_parallel_size", "cp"),
    _megatron("virtual_pipeline_model_parallel_size", "vpp"),
    _megatron("expert_model_parallel_size", "ep"),
    _megatron("expert_tensor_parallel_size", "etp"),
    Argument(
        "data.micro_batch_size_per_gpu",
        "micro_batch",
        also=(f"{_ACTOR}ppo_micro_batch_size_per_gpu", "data.micro_batch_size"),
    ),
    Argument("data.max_length", "seq_len"),
)
_LORA = "actor_rollout_ref.model.lora"
_ADAPTED = adapted.Names(
    targets=("model.target_modules", "actor_rollout_ref.model.target_modules"),
    default_targets="all-linear",
)
_RANKS = ("model.lora_rank", "actor_rollout_ref.model.lora_rank", f"{_LORA}.rank")
_HUB = re.compile(r"[\w.-]+/[\w.-]+")


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    for name in values:
        if _OTHERS.match(name):
            answer.mark(name, "irrelevant", "of generation, scoring or the algorithm, not a step")
    _model(answer)
    _gpus(answer)
    _batch(answer)
    _whole_step(answer)
    if _is_megatron(answer):
        answer.imply("stack", "megatron-core", "its Megatron engine")
        _of_megatron(answer)
    else:
        answer.imply("stack", "verl-fsdp", "its FSDP engine")
        _of_fsdp(answer)
    for name in ("engine", "optim", "strategy", f"{_ACTOR}strategy", f"{_E}strategy"):
        answer.mark(name, "read")


def _is_megatron(answer: Answer) -> bool:
    named = (answer.get("engine"), answer.get(f"{_ACTOR}strategy"), answer.get("model_engine"))
    return "megatron" in named or any(name.startswith(_MEGATRON) for name in answer.values)


def _first(answer: Answer, *names: str) -> str:
    """The first of these arguments that has a value, "" where none has."""
    return next((name for name in names if answer.get(name) is not None), "")


def _model(answer: Answer) -> None:
    for name in ("model.path", *_MODEL_NAMES):
        path = answer.get(name)
        if isinstance(path, str) and _HUB.fullmatch(path):
            answer.state("model", path, name)
        else:
            answer.mark(name, "not understood", "is not a name of the Hub: give --model")
    for name in _RANKS:
        rank = answer.get(name, 0)
        if isinstance(rank, int) and rank > 0:
            answer.state("lora", rank, name)
            adapted.read_targets(answer, _ADAPTED)
        answer.mark(name, "implied", "0: all weights are trained")


def _gpus(answer: Answer) -> None:
    nodes, each = "trainer.nnodes", "trainer.n_gpus_per_node"
    if isinstance(answer.get(each), int) and isinstance(answer.get(nodes, 1), int):
        answer.imply("gpus", answer.get(nodes, 1) * answer.get(each), "nodes x GPUs", nodes, each)
        answer.imply("gpus_per_node", answer.get(each), "GPUs of a node", each)


def _batch(answer: Answer) -> None:
    """Sequences of an optimizer step, and tokens of one."""
    old, gpus = f"{_ACTOR}ppo_micro_batch_size", answer.option("gpus")
    shared = answer.get(f"{_ACTOR}ulysses_sequence_parallel_size", 1)
    if isinstance(answer.get(old), int) and gpus and isinstance(shared, int):
        micro = max(1, answer.get(old) * shared // gpus)
        answer.imply("micro_batch", micro, "of all GPUs together", old)
    mini, samples = f"{_ACTOR}ppo_mini_batch_size", "actor_rollout_ref.rollout.n"
    whole = "data.train_batch_size"
    prompt, response = "data.max_prompt_length", "data.max_response_length"
    if answer.get(mini):
        times = answer.get(samples, 1)
        batch = answer.get(mini) * times if isinstance(times, int) else None
        answer.imply("global_batch", batch, "prompts of a step x answers of each", mini, samples)
        answer.mark(whole, "irrelevant", "prompts between two generations")
    elif answer.get(whole) and not answer.get(prompt):
        answer.state("global_batch", answer.get(whole), whole)
    lengths = [answer.get(name) for name in (prompt, response)]
    if all(isinstance(length, int) and length for length in lengths):
        answer.imply("seq_len", sum(lengths), "the longest prompt and answer", prompt, response)
    steps, seq_len = "trainer.total_training_steps", answer.option("seq_len")
    if answer.get(steps) and seq_len and not answer.get(mini) and answer.option("global_batch"):
        per_step = answer.option("global_batch") * seq_len
        answer.state("tokens", answer.get(steps) * per_step, steps, "steps x tokens a step")
    limits = ("data.max_token_len_per_gpu", f"{_ACTOR}ppo_max_token_len_per_gpu")
    limit = _first(answer, *limits)
    if any(answer.get(name) for name in _DYNAMIC) and limit and seq_len:
        count = max(1, answer.get(limit) // seq_len)
        answer.drop("micro_batch")
        answer.imply("micro_batch", count, "as many as the tokens allow", limit)
    for name in (*_DYNAMIC, *limits):
        answer.mark(name, "implied", "micro-batches have as many sequences as stated")


# options of `dpplan rl` by arguments of the trainer, with what that does by itself
_OF_RL = {
    "prompts": ("data.train_batch_size", 1024),
    "responses": ("actor_rollout_ref.rollout.n", 1),
    "response_max": ("data.max_response_length", 512),
    "updates": (f"{_ACTOR}ppo_epochs", 1),
    "generation_tp": ("actor_rollout_ref.rollout.tensor_model_parallel_size", 2),
    "generation_memory": ("actor_rollout_ref.rollout.gpu_memory_utilization", 0.5),
}
_NUMBER = re.compile(r"\d{1,9}(?:\.\d{1,9})?")
# estimators of the advantage; those without a critic cost as GRPO does
_ALGORITHMS = {"gae": "ppo", "grpo": "grpo", "rloo": "rloo", "rloo_vectorized": "rloo"}
_LIKE_GRPO = re.compile(r"grpo|reinforce|remax|opo|gpg|gspo|gdpo")


def _whole_step(answer: Answer) -> None:
    """The rest of a reinforcement-learning step beside the actor's, in options of `dpplan rl`."""
    estimator = str(answer.get("algorithm.adv_estimator", "gae")).lower()
    alike = "grpo" if _LIKE_GRPO.search(estimator) else None
    algorithm = _ALGORITHMS.get(estimator, alike)
    if algorithm is None or not any(name.startswith(_ACTOR) for name in answer.values):
        return
    kept = answer.get(f"{_ACTOR}use_kl_loss") or answer.get("algorithm.use_kl_in_reward")
    whole_step: dict[str, Any] = {"framework": "verl", "algorithm": algorithm}
    for option, (name, usual) in _OF_RL.items():
        whole_step[option] = _number(answer, name, usual, f"--{option.replace('_', '-')}")
    whole_step["reference"] = "yes" if kept else "no"
    whole_step["generation_offload"] = _offload(answer)
    if batch := answer.option("global_batch"):
        whole_step["update_batch"] = batch
    whole_step |= _apart(answer) | _engine(answer)
    whole_step |= _rewards(answer, whole_step.get("gpus") or answer.option("gpus"))
    if not any(answer.get(name) for name in _DYNAMIC):  # it counts sequences, not packed rows
        whole_step["micro_batch"] = None
    numbers = {option: (name,) for option, (name, _) in _OF_RL.items()}
    rl.say(answer, whole_step, "this is the actor's optimizer step", numbers)


_ENGINES = {"vllm": {}, "sglang": {"generation_engine": "sglang"}}
_IN_PROCESS = {"generation_engine": "transformers", "generation_tp": None}
_REWARD = "reward_model."


def _engine(answer: Answer) -> dict[str, Any]:
    """Options of the engine: its vLLM is the default of `dpplan rl`."""
    name = str(answer.get("actor_rollout_ref.rollout.name", "vllm")).lower()
    return _IN_PROCESS if name == "hf" else _ENGINES.get(name, {})


def _rewards(answer: Answer, gpus: int | None) -> dict[str, Any]:
    """Options of a reward model, and of dedicated GPUs for it."""
    path = answer.get(f"{_REWARD}model.path")
    if not answer.get(f"{_REWARD}enable") or not isinstance(path, str) or not _HUB.fullmatch(path):
        return {}
    nodes, each = (answer.get(f"{_REWARD}{name}", 0) for name in ("nnodes", "n_gpus_per_node"))
    alone = answer.get(f"{_REWARD}enable_resource_pool") and isinstance(nodes, int)
    if not alone or not isinstance(each, int) or not gpus or not nodes * each:
        return {"reward_model": path}
    more = {"scoring_gpus": nodes * each, "gpus": gpus + nodes * each, "gpus_per_node": None}
    return {"reward_model": path, **more}


def _number(answer: Answer, name: str, usual: float, flag: str) -> float | None:
    """A stated number, or the default of verl; None for other text, which `dpplan rl` refuses."""
    if name not in answer.values:
        return usual
    text = str(answer.get(name))
    if _NUMBER.fullmatch(text):
        return float(text) if "." in text else int(text)
    answer.mark(name, "not understood", f"is not a number: give {flag}")
    return None


_ASYNC, _TIMES = "async_training.", "trigger_parameter_sync_step"


def _apart(answer: Answer) -> dict[str, Any]:
    """Options of engines on GPUs of their own: one step ahead, or as far as its fully asynchronous
    trainer lets them. Empty where engines and trainer share GPUs."""
    nodes, each = answer.get("rollout.nnodes", 1), answer.get("rollout.n_gpus_per_node")
    training = answer.option("gpus")
    if not isinstance(nodes, int) or not isinstance(each, int) or not training:
        return {}
    out: dict[str, Any] = {"generation_gpus": nodes * each, "gpus": training + nodes * each}
    out["gpus_per_node"] = None  # both may share a node
    names = [name for name in answer.values if name.startswith(_ASYNC)]
    if not names:
        return out | {"ahead": 1}
    batches, times = answer.get(f"{_ASYNC}require_batches", 1), answer.get(f"{_ASYNC}{_TIMES}", 4)
    mini = answer.get(f"{_ACTOR}ppo_mini_batch_size", 0)
    out["prompts"] = batches * times * mini
    stale = answer.get(f"{_ASYNC}staleness_threshold", 0.1)
    out["ahead"] = math.ceil(stale)
    out["partial_rollout"] = bool(stale and answer.get(f"{_ASYNC}partial_rollout", True))
    out["stream"] = 1 if stale else times
    from_engine = answer.get(f"{_ASYNC}use_rollout_log_probs", True)
    return out | {"old_logprobs": "no" if from_engine else "yes"}


def _offload(answer: Answer) -> str:
    """Memory that leaves the GPU between phases, as a word of --generation-offload."""
    prefix = _MEGATRON if _is_megatron(answer) else _FSDP
    parameters = bool(answer.get(f"{prefix}param_offload"))
    optimizer = bool(answer.get(f"{prefix}optimizer_offload"))
    if parameters and optimizer:
        return "both"
    return "parameters" if parameters else "optimizer" if optimizer else "none"


def _of_megatron(answer: Answer) -> None:
    prefix = _MEGATRON if any(n.startswith(_MEGATRON) for n in answer.values) else _E
    for name in ("tp", "pp", "cp"):
        answer.imply(name, 1, "1 where it is not given")
    if (answer.option("tp") or 1) > 1:
        name = f"{prefix}sequence_parallel"
        answer.imply("sequence_parallel", answer.get(name, True), "on where not given", name)
    answer.mark(f"{prefix}sequence_parallel", "irrelevant", "no tensor parallelism")
    name = f"{prefix}use_distributed_optimizer"
    answer.imply("zero", 1 if answer.get(name, True) else 0, "on where not given", name)
    if answer.option("ep") in (None, 1):
        answer.drop("ep", "etp")
    if (answer.option("pp") or 1) > 1:
        chunks = (answer.option("vpp") or 1) > 1
        answer.imply("schedule", "interleaved" if chunks else "1f1b", "by its chunks per rank")
    if answer.option("vpp") in (None, 1):
        answer.drop("vpp")
    for name in ("param_offload", "grad_offload", "optimizer_offload"):
        answer.mark(f"{prefix}{name}", "irrelevant", "only between generation and training")
    _megatron_recompute(answer, f"{prefix}override_transformer_config.")
    answer.mark(_CHECKPOINTING, "irrelevant", "of FSDP: recompute_granularity says it here")
    _precision(answer, f"{prefix}dtype")


def _megatron_recompute(answer: Answer, prefix: str) -> None:
    names = [f"{prefix}recompute_{name}" for name in ("granularity", "method", "num_layers")]
    modules = f"{prefix}recompute_modules"
    granularity, method, layers = (answer.get(name) for name in names)
    if granularity == "full" and method == "block":
        mode = f"block:{layers}"
    elif granularity == "full":
        mode = "full" if layers in (None, 1) else f"group:{layers}"
    elif granularity == "selective":
        listed = re.findall(r"\w+", str(answer.get(modules, "core_attn")))
        mode = "selective" if listed == ["core_attn"] else "+".join(listed)
    else:
        mode = "none"
    answer.imply("recompute", mode, "as Megatron-Core has it", *names, modules)


def _of_fsdp(answer: Answer) -> None:
    prefix = _FSDP if any(name.startswith(_ACTOR) for name in answer.values) else _E
    for name in ("tp", "pp"):
        answer.drop(name)
        answer.imply(name, 1, "only FSDP")
    sp = _first(
        answer,
        f"{prefix}ulysses_sequence_parallel_size",
        f"{_ACTOR}ulysses_sequence_parallel_size",
        "ulysses_sequence_parallel_size",
    )
    cp = answer.get(sp, 1) if sp else 1
    answer.drop("cp")
    answer.imply("cp", cp, "Ulysses", *([sp] if sp else []))
    if cp > 1:
        answer.imply("cp_comm_type", "ulysses", "its way to share sequences")
    keep, size = f"{prefix}reshard_after_forward", f"{prefix}fsdp_size"
    answer.imply("zero", 2 if answer.get(keep) is False else 3, "FSDP", keep)
    group, gpus = answer.get(size, -1), answer.option("gpus")
    if group and group > 0 and group != gpus:
        answer.imply("shard_group", group, "ranks that shard", size)
    answer.mark(size, "implied", "-1: all ranks shard")
    once = _first(answer, "model.enable_gradient_checkpointing", _CHECKPOINTING)
    on = answer.get(once, True) if once else True
    answer.imply(
        "recompute", "full" if on else "none", "on where not given", once or _CHECKPOINTING
    )
    if answer.get(f"{prefix}offload_policy"):
        answer.state("offload", "params", f"{prefix}offload_policy")
    for name in ("param_offload", "grad_offload", "optimizer_offload"):
        answer.mark(f"{prefix}{name}", "irrelevant", "only between generation and training")
    if answer.get(f"{prefix}model_dtype") in ("bf16", "bfloat16"):
        answer.state("state_precision", "bf16", f"{prefix}model_dtype")
    for name in ("model.use_liger", "actor_rollout_ref.model.use_liger"):
        if answer.get(name):
            answer.state("fused_kernels", True, name)
        answer.mark(name, "implied", "off")
    compiled = _first(answer, f"{prefix}use_torch_compile", f"{_ACTOR}use_torch_compile")
    if compiled:
        answer.mark(compiled, "irrelevant", "compiles only the entropy of the loss")
    _loss(answer)
    _precision(answer, f"{prefix}dtype")


def _loss(answer: Answer) -> None:
    """The actor's loss (dp_actor.py): its gradient takes the place of the logits, unless they stay
    for an entropy."""
    entropy = f"{_ACTOR}entropy_coeff"
    if any(name.startswith(_ACTOR) for name in answer.values) and not answer.get(entropy):
        note = "flash-attn's cross entropy in place of the logits, where no entropy is trained"
        answer.imply("loss_kernel", "fused", note, entropy)


_CHECKPOINTING = "actor_rollout_ref.model.enable_gradient_checkpointing"


def _precision(answer: Answer, name: str) -> None:
    word = {"float16": "fp16", "fp16": "fp16"}.get(str(answer.get(name, "bfloat16")), "bf16")
    answer.imply("precision", word, "bf16 where not given", name)


def _detect(name: str, text: str) -> bool:
    if trainer.is_data(name):
        return _YAML.search(text) is not None
    return bool(_PROGRAM.search(text) or _POLICY.search(text)) and not name.endswith(".py")


FORMAT = Format(
    kind="verl",
    title="verl overrides (Hydra)",
    detect=_detect,
    parse=_parse,
    table=_TABLE,
    read_more=_more,
    added=dialects.added,
    left=dialects.irrelevant,
    writable=lambda values: not any(name.startswith(_ACTOR) for name in values),
    **unread("verl"),
)


# ----- writing -----

_STACKS = ("verl-fsdp", "hf-fsdp", "pytorch-fsdp", "megatron-core")
_OF_FSDP = ("zero >= 2",)


def _arguments(request: PlanToWrite) -> list[str]:
    plan: dict[str, Any] = {
        "model.path": request.model.hub[0] if request.model.hub else request.model.name,
        "data.train_batch_size": request.options["global_batch"],
        "data.use_dynamic_bsz": False,
        "trainer.nnodes": request.nodes,
        "trainer.n_gpus_per_node": request.gpus_per_node,
        "trainer.total_training_steps": request.steps,
    }
    arguments = theirs(_TABLE, request)
    engine = {name: value for name, value in arguments.items() if name.startswith(_E)}
    plan |= {name: value for name, value in arguments.items() if name not in engine}
    if request.get("stack") == "megatron-core":
        plan |= {"engine": "megatron", "optim": "megatron", **engine, **_megatron_plan(request)}
    else:
        plan |= {"engine": "fsdp", "optim": "fsdp", **_fsdp_plan(request)}
    return [f"{name}={value}" for name, value in plan.items()]


def _megatron_plan(request: PlanToWrite) -> dict[str, Any]:
    out: dict[str, Any] = {f"{_E}use_distributed_optimizer": request.get("zero", 0) == 1}
    if request.get("tp", 1) > 1:
        out[f"{_E}sequence_parallel"] = request.get("sequence_parallel", False)
    prefix = f"+{_E}override_transformer_config.recompute_"
    kind, _, size = request.get("recompute", "none").partition(":")
    if kind in ("full", "group", "block"):
        method = "block" if kind == "block" else "uniform"
        out |= {f"{prefix}granularity": "full", f"{prefix}method": method}
        out[f"{prefix}num_layers"] = size or 1
    elif kind != "none":
        modules = "core_attn" if kind == "selective" else kind.replace("+", ",")
        out |= {f"{prefix}granularity": "selective", f"{prefix}modules": f"[{modules}]"}
    return out


def _fsdp_plan(request: PlanToWrite) -> dict[str, Any]:
    cp, ranks = request.get("cp", 1), request.replicas * request.get("cp", 1)
    out: dict[str, Any] = {
        f"{_E}strategy": "fsdp2",
        f"{_E}fsdp_size": request.get("shard_group", ranks),
        f"{_E}ulysses_sequence_parallel_size": cp,
        f"{_E}reshard_after_forward": request.get("zero", SHARDED) != GATHERED,
        f"{_E}offload_policy": request.get("offload") == "params",
        "model.enable_gradient_checkpointing": request.get("recompute") == "full",
        "model.use_liger": bool(request.get("fused_kernels")),
    }
    if request.get("state_precision") == "bf16":
        out[f"{_E}model_dtype"] = "bf16"
    return out


TARGET = Target(
    kind="verl",
    title="verl (supervised fine-tuning)",
    stacks=_STACKS,
    program="-m verl.trainer.sft_trainer",
    write=lambda request, comments: {},
    arguments=_arguments,
    deals=False,
    where={"verl-fsdp": _OF_FSDP, "hf-fsdp": _OF_FSDP, "pytorch-fsdp": _OF_FSDP},
    lost={
        "model": "it has no name on the Hub: set model.path",
        "zero": "its FSDP shards parameters or keeps them gathered, its Megatron has ZeRO-1",
        "recompute": "with FSDP it repeats layers or nothing",
        "optimizer": "it has AdamW",
        "placement": "its order of ranks is fixed",
    },
    fill=("data.train_files and data.val_files", "learning rate (optim.lr)"),
)
