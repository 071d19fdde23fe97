"""Colossal-AI: commands of `colossalai run` and torchrun that start its examples of language
models, Colossal-LLaMA, ColossalMoE and ColossalChat.

Names and defaults: examples/language and applications of hpcaitech/ColossalAI@4f9953be. Other
programs have no defaults here: only their commands count.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from planner.formats import megatron, sharding, trainer
from planner.formats.record import Answer, Argument, Format, Value, unread
from planner.formats.shell import Word, script

_RUN = re.compile(r"\bcolossalai\s+run\b")
_PLUGIN = re.compile(r"--plugin[\s=][\"']?(?:gemini|low_level_zero|hybrid_parallel|3d\b|zero2)")
_PROGRAM = "script"
_SAME = {
    **{"c": "config", "p": "plugin", "b": "batch_size", "g": "grad_checkpoint"},
    **{"l": "max_length", "x": "use_flash_attn", "xformers": "use_flash_attn"},
    **{"micro_batch_size": "batch_size", "mbs": "microbatch_size", "max_len": "max_length"},
    **{"use_grad_checkpoint": "grad_checkpoint", "gradient_checkpointing": "grad_checkpoint"},
    **{"zero": "zero_stage", "pretrained": "pretrain", "model_name_or_path": "pretrain"},
    **{"tp_size": "tp", "pp_size": "pp", "sp_size": "sp", "model_name": "pretrain"},
    **{"lr": "learning_rate", "s": "num_steps", "i": "ignore_steps", "tp_degree": "tp"},
}
_CHAT: dict[str, Any] = {"batch_size": 4, "max_length": 2048, "mixed_precision": "fp16"}
_CHAT |= {"accumulation_steps": 1}
_GENERATING = {name: value for name, value in _CHAT.items() if name != "batch_size"}
_OPT = {"batch_size": 32, "mixed_precision": "fp16", "grad_checkpoint": True}
_OPT |= {"offload_optim_frac": 1.0}
# degrees that a program gives the plugin for several, which are not arguments
_OWN_DEGREES = {"opt_train_demo.py": {"tp": 2, "pp": 2, "num_microbatches": 2}}
# what a program takes where its command does not say it; every one of them has --plugin gemini
_DEFAULTS: dict[str, dict[str, Any]] = {
    "benchmark.py": {
        **{"config": "7b", "batch_size": 2, "max_length": 4096, "mixed_precision": "bf16"}
    },
    "train.py of Colossal-LLaMA": {
        **{"batch_size": 2, "max_length": 8192, "mixed_precision": "fp16"}
    },
    "train.py of ColossalMoE": {
        **{"batch_size": 1, "max_length": 2048, "mixed_precision": "bf16", "plugin": "hybrid"},
        **{"pretrain": "mistralai/Mixtral-8x7B-v0.1", "zero_stage": 2, "pp": 2, "ep_size": 2},
    },
    "train_sft.py": {
        **{"batch_size": 4, "max_length": 512, "mixed_precision": "bf16"},
        **{"accumulation_steps": 8},
    },
    "train_dpo.py": _CHAT,
    "train_rm.py": _CHAT | {"accumulation_steps": 8},
    "train_kto.py": _CHAT | {"accumulation_steps": 8},
    "train_orpo.py": _CHAT | {"accumulation_steps": 8},
    "train_ppo.py": _GENERATING | {"accumulation_steps": 8},
    "train_grpo.py": _GENERATING | {"accumulation_steps": 8},
    "opt_benchmark.py": _OPT | {"pretrain": "facebook/opt-125m"},
    "opt_train_demo.py": _OPT | {"pretrain": "facebook/opt-350m"},
}
_TASKS = {"train_dpo.py": "dpo", "train_rm.py": "reward", "train_kto.py": "kto"}
_TASKS |= {"train_orpo.py": "orpo"}
_PAIRED = ("dpo", "reward", "orpo")
_GENERATES = ("train_ppo.py", "train_grpo.py")
_LLAMAS = {"7b": "llama-2-7b", "13b": "llama-2-13b", "70b": "llama-2-70b"}
# ZeRO stage of a plugin; Gemini shards weights in chunks, which it gathers as they are used
_STAGES = {"ddp": 0, "torch_ddp": 0, "torch_ddp_fp16": 0, "low_level_zero": 1, "zero2": 2}
_STAGES |= {"zero2_cpu": 2, "gemini": 3, "gemini_auto": 3, "fsdp": 3, "fsdp_cpu": 3}
_HYBRID = ("3d", "3d_cpu", "hybrid_parallel", "hybrid")
_OF_PLUGINS = (
    *("tp", "pp", "sp", "zero_stage", "sp_mode", "microbatch_size", "num_microbatches"),
    *("pp_style", "n_chunks", "dp_size", "offload_optim_frac", "offload_param_frac"),
)
_OWN_TYPES = {"torch_ddp": "fp32"}  # of opt_*.py, whatever the others take
_WAYS = {"all_to_all": "ulysses", "ring_attn": "ring"}
_STYLES = {"1f1b": "1f1b", "interleaved": "interleaved", "zbv": "zb-v"}
_TABLE = (
    Argument("pretrain", "model", meaning=trainer.model_name, note=trainer.COPIES),
    Argument("max_length", "seq_len", meaning=trainer.whole),
    Argument("mixed_precision", "precision", words={"bf16": "bf16", "fp16": "fp16"}),
    Argument("accumulation_steps", "grad_accum", meaning=trainer.whole),
    Argument("batch_size", "micro_batch", meaning=trainer.whole),
)


def _parse(text: str) -> Mapping[str, Value]:
    """Arguments of the command with most of them, by the names of ColossalChat."""
    best: dict[str, Value] = {}
    shell = script(text)
    for command in (*shell.commands, *shell.possible):
        best = max(best, _of_words(command.words), key=len)
    return best


def _of_words(words: Sequence[Word]) -> dict[str, Value]:
    at = next((i for i, word in enumerate(words) if word.text.endswith(".py")), None)
    if at is None:
        return {}
    given = {
        name.replace("-", "_"): value for name, value in megatron.of_words(words[at + 1 :]).items()
    }
    out = {_SAME.get(name, name): value for name, value in given.items()}
    if not out:
        return {}
    program = words[at].text.rpartition("/")[2]
    if program == "train.py":
        moe = " of ColossalMoE" if "ep_size" in given else ""
        program += " of Colossal-LLaMA" if "pretrained" in given else moe
    if "pretrain" in out and out["pretrain"].value is True:  # an empty variable
        out["pretrain"] = Value(None, out["pretrain"].line)
    usual = {"plugin": "gemini", "accumulation_steps": 1} | _DEFAULTS.get(program, {})
    if program in _DEFAULTS:
        degrees = _OWN_DEGREES.get(program, {})
        missing = {name: value for name, value in (usual | degrees).items() if name not in out}
        out |= {name: Value(value, program=program) for name, value in missing.items()}
    return out | {_PROGRAM: Value(program, words[at].line)}


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    program = str(answer.get(_PROGRAM))
    if program in _GENERATES:
        why = "generation is not part of the estimate, which covers the policy's optimizer step"
        answer.mark(_PROGRAM, "not understood", why)
    elif program in _TASKS:
        answer.state("task", _TASKS[program], _PROGRAM)
        if _TASKS[program] in _PAIRED:
            trainer.read_pairs(answer, _CHAT["batch_size"])
    answer.mark(_PROGRAM, "implied", "every token is trained")
    name = str(answer.get("config", ""))
    if name in _LLAMAS:
        answer.state("model", _LLAMAS[name], "config")
    elif name:
        answer.mark("config", "not understood", "is a shape that its benchmark makes of its own")
    on = trainer.is_on(answer, "grad_checkpoint")
    answer.imply("recompute", "full" if on else "none", "off by default", "grad_checkpoint")
    if trainer.is_on(answer, "use_flash_attn"):
        answer.state("attention", "flash2", "use_flash_attn")
    answer.imply("optimizer", "adam", "its HybridAdam")
    if (rank := trainer.number(answer, "lora_rank", 0)) > 0:
        answer.state("lora", rank, "lora_rank")
    answer.mark("lora_rank", "implied", "no adapters")
    _by_plugin(answer)
    if answer.arguments.get("plugin") is None or answer.arguments["plugin"].use != "not understood":
        trainer.read_degrees(answer)


def _by_plugin(answer: Answer) -> None:
    """Sharding of states, and the degrees of the plugin that takes several."""
    plugin = str(answer.get("plugin", ""))
    if plugin in _HYBRID:
        _hybrid(answer)
    elif plugin in _STAGES:
        answer.state("zero", _STAGES[plugin], "plugin")
        answer.imply("stack", sharding.DEEPSPEED, "shards states as ZeRO does")
        if plugin == "gemini":
            _gemini(answer)
    elif answer.get("plugin") is not None:
        answer.mark("plugin", "not understood", "is not a known plugin")
    if plugin in _OWN_TYPES and answer.option("precision") == "fp16":
        answer.imply("precision", _OWN_TYPES[plugin], "its plugin casts nothing")
    if plugin.endswith("_cpu"):
        answer.state("offload", "optimizer", "plugin")
    for name in _OF_PLUGINS:
        answer.mark(name, "irrelevant", "of another plugin")


def _gemini(answer: Answer) -> None:
    """GeminiPlugin: tensor parallelism, and states in the host's memory."""
    if answer.values.get("tp", Value(1)).program == "" and (answer.get("tp") or 1) != 1:
        answer.state("tp", answer.get("tp"), "tp")
    optimizer, weights = "offload_optim_frac", "offload_param_frac"
    shares = {name: answer.get(name, 0.0) for name in (optimizer, weights)}
    if shares[optimizer] == 1:
        answer.state("offload", "params" if shares[weights] == 1 else "optimizer", optimizer)
    for name, share in shares.items():
        partly = share not in (0, 1)
        answer.mark(name, "not understood" if partly else "implied", "a part of it" * partly)


def _hybrid(answer: Answer) -> None:
    """HybridParallelPlugin: a batch is cut into micro-batches only where there is a pipeline."""
    if answer.get("plugin") == "hybrid_parallel" and "tp" not in answer.values:
        answer.mark("plugin", "not understood", "its degrees stand in the program")
        return
    if answer.get("ep_size"):
        answer.state("ep", answer.get("ep_size"), "ep_size")
    tp, pp, shared = (trainer.number(answer, name, 1) for name in ("tp", "pp", "sp"))
    for name, value in (("tp", tp), ("pp", pp)):
        answer.imply(name, value, "1 by default", name)
    answer.imply("zero", trainer.number(answer, "zero_stage", 0), "0 by default", "zero_stage")
    answer.mark("plugin", "implied", "its degrees say how")
    way = str(answer.get("sp_mode", "split_gather"))
    if way in _WAYS and shared > 1:
        answer.imply("cp", shared, "its way to share sequences", "sp", "sp_mode")
        answer.imply("cp_comm_type", _WAYS[way], "its way to share sequences", "sp_mode")
    elif tp > 1:
        sharing = trainer.is_on(answer, "enable_sequence_parallelism") or shared > 1
        answer.imply("sequence_parallel", sharing, "of tensor-parallel ranks", "sp", "sp_mode")
    answer.mark("enable_sequence_parallelism", "implied", "of tensor-parallel ranks")
    if trainer.is_on(answer, "zero_cpu_offload"):
        answer.state("offload", "optimizer", "zero_cpu_offload")
    batch = answer.option("micro_batch")
    if pp > 1 and isinstance(batch, int):
        parts = trainer.number(answer, "num_microbatches", 0)
        each = batch // parts if parts else trainer.number(answer, "microbatch_size", 1)
        whole = batch * (answer.option("grad_accum") or 1)
        answer.drop("micro_batch", "grad_accum")
        names = ("microbatch_size", "num_microbatches")
        answer.imply("micro_batch", each, "1 by default", *names)
        answer.imply("grad_accum", max(1, whole // each), "micro-batches of a batch", "batch_size")
        style = str(answer.get("pp_style", "1f1b"))
        answer.imply("schedule", _STYLES.get(style), "1f1b by default", "pp_style")
        if (chunks := trainer.number(answer, "n_chunks", 1)) > 1:
            answer.imply("vpp", chunks, "chunks of a rank", "n_chunks")


def _detect(name: str, text: str) -> bool:
    started = _RUN.search(text) or ("torchrun" in text and _PLUGIN.search(text))
    return bool(started) and not name.endswith((".py", ".ipynb", ".md"))


FORMAT = Format(
    kind="colossal-ai",
    title="Colossal-AI commands",
    detect=_detect,
    parse=_parse,
    table=_TABLE,
    whole=True,
    read_more=_more,
    **unread("colossal_ai"),
)
