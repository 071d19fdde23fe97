"""ms-swift: `swift sft` and `swift rlhf` on a command line or in a shell script, and their YAML.
`megatron sft` has Megatron-LM's arguments with a few of swift's.

Names and defaults: swift/arguments/*.py, swift/trainers/arguments.py and swift/megatron/arguments
of modelscope/ms-swift at 2026-08.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from planner.formats import adapted, launcher, megatron, sharding, taught, trainer, written
from planner.formats.packed import Rows, read_rows
from planner.formats.record import UNSET, Answer, Argument, Format, Value, unread
from planner.formats.shell import Command, script
from planner.specs.base import PlanError
from planner.specs.task import TASKS

_TASKS = ("sft", "pt", "rlhf")
_BUILT_IN = re.compile(r"zero[0-3](_offload)?")
_MEGATRON = "megatron"  # the argument that says that Megatron-LM's are meant
_BATCH = 16  # sequences per step where accumulation is not said: swift/trainers/arguments.py
_MOST_DIGITS = 10
# defaults of `megatron sft` that are not Megatron-LM's (swift/megatron/arguments/megatron_args.py)
_OWN_DEFAULTS = {
    "micro-batch-size": 1,
    "global-batch-size": 16,
    "use-distributed-optimizer": True,
    "recompute-granularity": "selective",
}


_FROZEN = adapted.Frozen(
    stack="ms-swift", four="", eight="", bits="quant_bits", method="quant_method"
)
_ADAPTERS = adapted.Names(
    rank="lora_rank",
    targets=("target_modules",),
    saved="modules_to_save",
    default_rank=8,
    default_targets="all-linear",
)


_TOP = "gkd_logits_topk"
_TEACHER = taught.Names("teacher_model", "teacher_model_server", _TOP, _TOP)
_WORDS = {"reward": "rm", "distil": "gkd"}  # of objectives without preference pairs, for rlhf_type

# swift/arguments/base_args/template_args.py: None is delete
_EXCESS = Argument(
    "truncation_strategy",
    "excess_length",
    words={
        "delete": "drop",
        "right": "truncate",
        "left": "truncate",
        "truncation_left": "truncate",
        "split": "split",
    },
    default="delete",
)

TABLE = (
    trainer.MAX_STEPS,
    replace(trainer.BATCH[0], default=1),
    replace(trainer.BATCH[1], default=UNSET),
    Argument(
        "model",
        "model",
        meaning=trainer.model_name,
        note=trainer.COPIES,
        also=("model_id_or_path",),
    ),
    Argument("max_length", "seq_len", meaning=trainer.whole),
    _EXCESS,
    *(row for row in trainer.TABLE if row.name in ("optim", "torch_compile")),
    Argument(
        "attn_impl",
        "attention",
        meaning=trainer.attention,
        writes=trainer.name_of(trainer.ATTENTIONS),
        note="sdpa is taken as FlashAttention 2, which torch chooses",
    ),
    replace(trainer.CHECKPOINTING, default=True),
    Argument("zero_hpz_partition_size", "hpz", meaning=trainer.whole),
    Argument("sequence_parallel_size", "cp", meaning=trainer.whole),
    Argument(
        "deepspeed_autotp_size",
        "tp",
        meaning=trainer.whole,
        writes=lambda ranks: ranks if ranks > 1 else None,
    ),
    Argument("env PYTORCH_CUDA_ALLOC_CONF", "expandable_segments", meaning=launcher.expandable),
)
UNREAD = unread("ms_swift")


def detect(name: str, text: str) -> bool:
    """Whether a text starts `swift` or `megatron sft`, or is their YAML."""
    if trainer.is_data(name):
        return _own_keys(name, text)
    return megatron.STARTS_SWIFT.search(text) is not None


_MODULE = re.compile(r"\bswift[./]cli[./](sft|pt|rlhf)(?:\.py)?$")  # of torchrun
_own_keys = trainer.has_key("tuner_type", "train_type", "split_dataset_ratio")


def parse(text: str) -> Mapping[str, Value]:
    """Arguments by name without dashes; variables before the command as `env NAME`."""
    if not megatron.STARTS_SWIFT.search(text):
        return _of_data(text)
    commands = [command for command in script(text).commands if _task(command)]
    if not commands:
        return {}
    command = max(commands, key=lambda command: len(command.words))  # others prepare data
    out = {}
    for name, value in megatron.of_words(megatron.own_words(command.words)).items():
        out[name.replace("-", "_")] = _worked_out(value, command.variables)
    if command.words[0].text == _MEGATRON:
        out[_MEGATRON] = Value(True, command.words[0].line)
    if _task(command) == "rlhf":
        out.setdefault("rlhf_type", Value("dpo"))  # of both programs by default
    launched = command.words[0].text not in _PROGRAMS  # by torchrun, say, a process for each GPU
    for name in _VARIABLES:
        if name in command.variables and not (launched and name == _VISIBLE):
            out[f"env {name}"] = Value(command.variables[name], command.words[0].line)
    return out


def _of_data(text: str) -> dict[str, Value]:
    """YAML or JSON, where lists and variables of the environment may stand too."""
    values = trainer.parse(text)
    return {name.replace("ENV.", "env "): value for name, value in values.items()}


_VISIBLE = "CUDA_VISIBLE_DEVICES"
_VARIABLES = ("NPROC_PER_NODE", "NNODES", _VISIBLE, "PYTORCH_CUDA_ALLOC_CONF")
_PROGRAMS = ("swift", "megatron")
_EXPR = re.compile(r"\$\(expr (\$?\w+) / (\$?\w+)\)")


def _worked_out(value: Value, variables: Mapping[str, str]) -> Value:
    """A quotient that a script leaves to `expr`."""
    match = _EXPR.fullmatch(value.unknown[0]) if value.unknown else None
    if not match:
        return value
    texts = [
        variables.get(text[1:], "") if text.startswith("$") else text for text in match.groups()
    ]
    if not all(text.isdecimal() and len(text) < _MOST_DIGITS for text in texts) or not int(
        texts[1]
    ):
        return value
    return Value(int(texts[0]) // int(texts[1]), value.line)


def _task(command: Command) -> str:
    """Task of a swift command; "" if it does not train."""
    words = [word.text for word in command.words]
    if words and words[0] in _PROGRAMS:
        return words[1] if len(words) > 1 and words[1] in _TASKS else ""
    matches = (_MODULE.search(word) for word in words)
    return next((match[1] for match in matches if match), "")


def read_more(values: Mapping[str, Value], answer: Answer) -> None:
    _processes(answer)
    word = "train_type" if "train_type" in values else "tuner_type"
    adapted.read(answer, _ADAPTERS, word, "full" if _MEGATRON in values else "lora")
    adapted.read_frozen(answer, _FROZEN)
    if _MEGATRON in values:
        _megatron(answer)
        return
    _sharding(answer)
    trainer.read_precision(answer)
    trainer.read_subspace(answer)
    _galore(answer)
    trainer.read_liger(answer, "use_liger_kernel")
    read_rows(answer, Rows())
    for name in ("padding_free", "packing_length"):
        answer.mark(name, "implied", "every sequence is taken as full")
    if (answer.option("cp") or 1) > 1:
        answer.imply("cp_comm_type", "ulysses", "sequence parallelism by heads")
    if answer.get("rlhf_type") == "gkd" and taught.read(answer, _TEACHER):
        answer.mark("rlhf_type", "read")
    trainer.read_task(answer, "rlhf_type", 1)
    adapted.read_lisa(answer, "lisa_activated_layers", "lisa_step_interval")
    trainer.read_degrees(answer)
    _accumulation(answer)
    if answer.option("precision") is None:
        answer.imply("precision", "bf16", "the type of the checkpoint, which is bf16 today")
    trainer.mark_empty(answer)
    trainer.mark_off(answer, UNREAD["lacks"])


def _processes(answer: Answer) -> None:
    """GPUs by the processes that are started: one where NPROC_PER_NODE does not say it. Raises
    PlanError where a process would have several."""
    each, nodes = answer.get("env NPROC_PER_NODE"), answer.get("env NNODES", 1)
    try:
        each, nodes = int(each or 1), int(nodes or 1)
    except ValueError:
        return
    _one_gpu_each(answer, each)
    for name in ("env NPROC_PER_NODE", "env NNODES", "env CUDA_VISIBLE_DEVICES"):
        if name in answer.values:
            answer.mark(name, "implied", "follows from the processes")
    if "env NPROC_PER_NODE" in answer.values:
        answer.arguments.pop("env NPROC_PER_NODE")
        answer.state("gpus", each * nodes, "env NPROC_PER_NODE")
        if nodes > 1:
            answer.state("gpus_per_node", each, "env NPROC_PER_NODE")


def _one_gpu_each(answer: Answer, processes: int) -> None:
    """Refuse processes that see several GPUs each: get_default_device_map of swift/model/utils.py
    spreads the layers over them (device_map auto), of which one computes at a time."""
    seen = str(answer.get(f"env {_VISIBLE}", ""))
    count = len(seen.split(",")) if re.fullmatch(r"\d+(,\d+)*", seen) else 1
    if count // processes > 1:
        raise PlanError(
            _VISIBLE,
            seen,
            f"leaves {count} GPUs to {processes} process{'es' * (processes > 1)}: ms-swift spreads"
            " the layers over them (device_map) and one GPU computes at a time, which is not"
            f" planned; set NPROC_PER_NODE={count} for a replica on each, or leave one GPU visible",
        )


def _galore(answer: Answer) -> None:
    if trainer.is_on(answer, "use_galore"):
        narrow = trainer.is_on(answer, "galore_quantization")
        answer.state("optimizer", "galore8bit" if narrow else "galore", "use_galore")
        if "galore_rank" in answer.values:
            answer.state(
                "optimizer_rank", trainer.number(answer, "galore_rank", 128), "galore_rank"
            )
    # an optimizer for every parameter: all step at the end (GaloreOptimizerWrapper)
    for name in ("galore_quantization", "galore_optim_per_parameter"):
        answer.mark(name, "read")


def _accumulation(answer: Answer) -> None:
    """Accumulation where it is not said: so that a step has 16 sequences, except for GRPO."""
    if "gradient_accumulation_steps" in answer.values:
        return
    each = answer.option("micro_batch") or 1
    world = (answer.option("gpus") or 1) // (answer.option("cp") or 1) or 1
    steps = 1 if answer.get("rlhf_type") == "grpo" else max(1, ceil(_BATCH / each / world))
    answer.imply("grad_accum", steps, f"so that a step has {_BATCH} sequences, by default")


def _sharding(answer: Answer) -> None:
    name = str(answer.get("deepspeed", ""))
    if _BUILT_IN.fullmatch(name):
        for ours, value in sharding.named_plan(name).items():
            answer.state(ours, value, "deepspeed")
        answer.state("stack", sharding.DEEPSPEED, "deepspeed")
    elif answer.get("fsdp") == "fsdp2":
        answer.state("zero", 3, "fsdp")
        answer.state("stack", sharding.FSDP, "fsdp")
    else:
        sharding.read_sharding(answer)


def _megatron(answer: Answer) -> None:
    """Arguments of Megatron-LM with dashes for underscores."""
    values = {
        name.replace("_", "-"): value
        for name, value in answer.values.items()
        if not name.startswith("env ") and name != _MEGATRON
    }
    for name, value in _OWN_DEFAULTS.items():
        values.setdefault(name, Value(value))
    if "fp16" not in values:  # follows torch_dtype of config.json, which is bf16 today
        values.setdefault("bf16", Value(True))
    usual = {"model", "max-length", "attn-impl"}
    inner = megatron.FORMAT.read(
        {name: value for name, value in values.items() if name not in usual}
    )
    for ours, stated in inner.options.items():
        theirs = stated.argument.replace("-", "_")
        if theirs in answer.values and not stated.implied:
            answer.state(ours, stated.value, theirs)
        else:
            answer.imply(ours, stated.value, "as `megatron sft` has it")
    for name, used in inner.arguments.items():
        theirs = name.replace("-", "_")
        if theirs in answer.values and used.use != "not understood":
            answer.mark(theirs, used.use, used.note)
    answer.mark(_MEGATRON, "read")
    answer.imply("stack", "megatron-core", "Megatron-LM is on")
    trainer.read_task(answer, "rlhf_type", 1)
    if (task := answer.option("task")) and (batch := answer.options.get("global_batch")):
        answer.options["global_batch"] = replace(batch, value=batch.value * TASKS[task].sequences)
    read_rows(answer, Rows())
    answer.mark("padding_free", "implied", "every sequence is taken as full")
    trainer.mark_off(answer, UNREAD["lacks"])


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """The arguments of a plan, one on a line."""
    config = trainer.written(TABLE, trainer.of_examples(options))
    config |= trainer.subspace_of(options) | trainer.task_of(options, "rlhf_type")
    config |= taught.written(options, _TEACHER)
    if options.get("task") in _WORDS:
        config["rlhf_type"] = _WORDS[options["task"]]
    if options.get("lisa"):
        config |= {"lisa_activated_layers": options["lisa"], "lisa_step_interval": 20}
    config.pop("precompute_ref_log_probs", None)  # it has no pass of the reference before the run
    config.pop("env PYTORCH_CUDA_ALLOC_CONF", None)
    kind = options.get("precision") or "bf16"
    config |= {kind: True} if kind in ("bf16", "fp16", "tf32") else {}
    if options.get("state_precision") == "bf16":
        config["torch_dtype"] = "bfloat16"
    config |= trainer.liger_of(options, "use_liger_kernel")
    config["tuner_type"] = "full"
    if options.get("lora"):
        config |= {"tuner_type": "lora"} | adapted.written(options, _ADAPTERS)
        config |= adapted.written_frozen(options, _FROZEN)
    stack, stage = options.get("stack"), options.get("zero")
    if stack == sharding.DEEPSPEED and stage is not None:
        away = "_offload" if options.get("offload") in ("optimizer", "params") else ""
        config["deepspeed"] = f"zero{stage}{away}"
    elif stack == sharding.FSDP and stage == sharding.PARAMETERS:
        config |= {"fsdp": "fsdp2", **sharding.optimizer_of(options)}
    return [f"--{name} {_text(value)}" for name, value in config.items()]


def _verb(options: Mapping[str, Any]) -> str:
    return "sft" if options.get("task") in (None, "sft") else "rlhf"


def write(options: Mapping[str, Any]) -> str:
    """The command of a plan."""
    gpus, each = options.get("gpus") or 1, options.get("gpus_per_node")
    nodes = max(1, gpus // each) if each else 1
    before = [f"NPROC_PER_NODE={gpus // nodes}"] + ([f"NNODES={nodes}"] if nodes > 1 else [])
    if options.get("expandable_segments"):
        before.append("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    lines = [*before, f"swift {_verb(options)}", *(f"    {line}" for line in _arguments(options))]
    return " \\\n".join(lines) + "\n"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_text, value))
    return shlex.quote(str(value).lower() if isinstance(value, bool) else str(value))


FORMAT = Format(
    kind="ms-swift",
    title="ms-swift arguments",
    detect=detect,
    parse=parse,
    table=TABLE,
    read_more=read_more,
    **UNREAD,
)

TARGET = written.target(
    "ms-swift",
    "ms-swift",
    write,
    "-m swift.cli.sft",
    where={written.FSDP: ("zero = 3",)},
    files=lambda request, comments: {},
    arguments=lambda request: _arguments(written.plan_of(request)),
    starts=lambda request: f"-m swift.cli.{_verb(request.options)}",
)
