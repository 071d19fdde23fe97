"""Arguments of transformers' Trainer, which TRL, Axolotl, LLaMA-Factory and ms-swift take too, and
what fsdp, fsdp_config and deepspeed mean wherever they stand.

Names and defaults: TrainingArguments of transformers 5.23 and those before it, FSDP's in
accelerate/utils/dataclasses.py.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from planner.formats.record import STEPS, Answer, Argument, Value
from planner.inputs import catalog, hub_configs
from planner.inputs.readers import read_json, yaml_places, yaml_text
from planner.specs.base import PlanError
from planner.specs.options.aliases import words
from planner.specs.task import TASKS

DDP = "hf-trainer"
_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+|[\w-][\w.-]*")
_QUANTISED_COPY = re.compile(r"(?:-unsloth)?-bnb-4bit$")
OPTIMIZERS = words("optimizers", "trainer")
_BY_LAYER = "_layerwise"  # ends the name of one that updates every weight in its hook
SUBSPACES = ("galore", "galore8bit", "apollo", "apollo-mini")
ATTENTIONS = words("attentions", "trainer")
RECOMPUTE = {True: "full", False: "none"}


def has_key(*names: str) -> Callable[[str, str], bool]:
    """Whether a text has one of these keys at the beginning of a line or of an object."""
    pattern = re.compile(rf"(?:^|[{{,])\s*\"?(?:{'|'.join(names)})\"?\s*:", re.MULTILINE)

    def detect(name: str, text: str) -> bool:
        return is_data(name) and pattern.search(text) is not None

    return detect


def is_data(name: str) -> bool:
    """Whether a file is one of YAML or JSON by its name."""
    return name.endswith((".yaml", ".yml", ".json", ".jsonc"))


def detector(*patterns: re.Pattern[str]) -> Callable[[str, str], bool]:
    """Whether a YAML or JSON file, by its name and text, matches all patterns."""

    def detect(name: str, text: str) -> bool:
        return is_data(name) and all(pattern.search(text) for pattern in patterns)

    return detect


def parse(text: str) -> Mapping[str, Value]:
    """The plain values of a YAML or JSON document by their path."""
    if text.lstrip().startswith("{"):
        document = read_json(text)
        return {name: Value(value) for name, value in _flat("", document)}
    return {name: Value(value, line) for name, (value, line) in yaml_places(text).items()}


def _flat(path: str, value: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, child in value.items():
            yield from _flat(f"{path}.{name}" if path else str(name), child)
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        for i, child in enumerate(value):
            yield from _flat(f"{path}.{i}", child)
    else:
        yield path, value


_REFERENCE = re.compile(r"\$\{([\w.]+)\}")  # of OmegaConf


def resolved(values: Mapping[str, Value]) -> dict[str, Value]:
    """The values with those that name another put in, by its path or, with a point before it,
    beside it; a value that names a further one is unknown."""
    out = dict(values)
    for name, value in values.items():
        match = _REFERENCE.fullmatch(value.value) if isinstance(value.value, str) else None
        path = match[1] if match else ""
        if path.startswith("."):
            path = f"{name.rpartition('.')[0]}{path}".lstrip(".")
        other = values.get(path) if match else None
        if other is not None and not _REFERENCE.search(str(other.value)):
            out[name] = Value(other.value, value.line)
        elif match or (isinstance(value.value, str) and "${" in value.value):
            out[name] = Value(value.value, value.line, (value.value[:40],))
    return out


def whole(value: Any) -> int | None:
    """A number of something; None for auto, which another file says. Raises ValueError."""
    if value == "auto":
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{value!r} is not a number") from None
    if isinstance(value, bool) or not number.is_integer():  # nor infinite
        raise ValueError(f"{value!r} is not a whole number")
    return int(number)


def switch(value: Any) -> bool | None:
    """A switch in any spelling; None for auto. Raises ValueError."""
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word == "auto":
        return None
    if word in ("true", "yes", "1", "on"):
        return True
    if word in ("false", "no", "0", "off", "none", ""):
        return False
    raise ValueError(f"{value!r} is neither true nor false")


def recompute(value: Any) -> str | None:
    """Gradient checkpointing keeps the inputs of layers, or is off."""
    on = switch(value)
    return None if on is None else RECOMPUTE[on]


def optimizer(value: Any) -> str:
    """Our optimizer by their name. Raises ValueError where it is not modelled."""
    name = str(value).lower().removeprefix("optimizernames.").removesuffix(_BY_LAYER)
    known = OPTIMIZERS.get(name)
    if known is None:
        raise ValueError(f"{value!r} is not modelled; the estimate assumes adam")
    return known


def attention(value: Any) -> str | None:
    """Our attention kernel by their name, None for auto. Raises ValueError."""
    if value == "auto":
        return None
    kernel = ATTENTIONS.get(str(value).lower().removeprefix("attentionbackend."))
    if kernel is None:
        raise ValueError(f"{value!r} is not modelled; the estimate assumes the stack's own kernel")
    return kernel


def model_name(value: Any) -> str | None:
    """A model as the Hub names it. Raises ValueError for a folder, which says nothing of it."""
    name = str(value)
    if not _HUB_NAME.fullmatch(name):
        raise ValueError("is a folder: give its config.json to --model")
    name = _QUANTISED_COPY.sub("", name)  # precision of frozen weights is an argument of its own
    organisation, _, copied = name.rpartition("/")
    if hub_configs.named(name) is not None:
        return name
    if organisation and catalog.is_path(name):  # an id of the Hub that no shipped model has
        with suppress(PlanError):
            return catalog.find("models", copied).stem
    return name


def name_of(words: Mapping[str, str]) -> Callable[[Any], Any]:
    """The writing of a table of words: the first of theirs for ours."""

    def write(ours: Any) -> Any:
        return next((word for word, value in words.items() if value == ours), None)

    return write


def steps(value: Any) -> int | None:
    """Steps of a run; -1 leaves them to the epochs."""
    count = whole(value)
    return count if count and count > 0 else None


MAX_STEPS = Argument("max_steps", STEPS, meaning=steps, note="with all of a step: its tokens")
COPIES = "a copy of a model of the catalogue, under another organisation, is that model"
BATCH = (
    Argument("per_device_train_batch_size", "micro_batch", default=8, meaning=whole),
    Argument("gradient_accumulation_steps", "grad_accum", default=1, meaning=whole),
)
TABLE = (
    *BATCH,
    MAX_STEPS,
    Argument("model_name_or_path", "model", meaning=model_name, note=COPIES),
    Argument(
        "optim",
        "optimizer",
        default="adamw_torch_fused",
        meaning=optimizer,
        writes=name_of(OPTIMIZERS),
    ),
    Argument(
        "attn_implementation",
        "attention",
        meaning=attention,
        writes=name_of(ATTENTIONS),
        also=("model_init_kwargs.attn_implementation", "_attn_implementation"),
        note="sdpa is taken as FlashAttention 2, which torch chooses",
    ),
    Argument("torch_compile", "compile", default=False, meaning=switch),
)
CHECKPOINTING = Argument(
    "gradient_checkpointing",
    "recompute",
    default=False,
    meaning=recompute,
    writes=lambda ours: {"full": True, "none": False}.get(ours),
    also=("activation_checkpointing",),
)


def is_off(value: Any) -> bool:
    """Whether a value asks for nothing."""
    return value in (None, False, 0, "", "none", "None", "no", "false", "False", []) or value == {}


def mark_off(answer: Answer, lacks: Mapping[str, str]) -> None:
    """Mark arguments of unmodelled features that are off, as every estimate assumes."""
    for name, value in answer.values.items():
        known = any(fnmatchcase(name, lack) for lack in lacks)
        if known and name not in answer.arguments and is_off(value.value):
            answer.mark(name, "implied", "off, as it is taken to be")


def mark_empty(answer: Answer) -> None:
    """Mark empty arguments as irrelevant."""
    for name, value in answer.values.items():
        if name not in answer.arguments and value.value is None:
            answer.mark(name, "irrelevant", "empty")


_NARROW = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "bf16": "bf16", "fp16": "fp16"}


def read_precision(answer: Answer, loaded: tuple[str, ...] = ("torch_dtype", "dtype")) -> None:
    """bf16, fp16 and tf32 of the trainer, and the type in which the weights are loaded.

    Without sharding the weights stay in the type in which they are loaded, their gradients and
    moments with them; FSDP of accelerate and DeepSpeed keep fp32 ones under mixed precision.
    """
    type_name = next((name for name in loaded if answer.get(name) is not None), "")
    by_type = _NARROW.get(str(answer.get(type_name, "")).rpartition(".")[2])
    is_auto = "auto" in (answer.get("bf16"), answer.get("fp16"))
    precision = next((name for name in ("bf16", "fp16") if is_on(answer, name)), "")
    if precision:
        answer.state("precision", precision, precision)
    elif by_type:
        answer.imply(
            "precision", by_type, "weights are loaded in it, and kernels follow", type_name
        )
    elif is_on(answer, "tf32") and not is_auto:
        answer.state("precision", "tf32", "tf32")
    for name in ("bf16", "fp16", "tf32"):
        answer.mark(name, "implied", "follows from the other types of the file")
    for name in loaded:
        answer.mark(name, "implied", "the type in which weights are loaded")
    alone = not answer.option("zero") and answer.option("stack") == DDP
    if alone and by_type == "bf16" and answer.get("bf16") is not False:
        note = "weights, gradients and moments stay in the type in which weights are loaded"
        answer.imply("state_precision", "bf16", note, type_name)


def is_on(answer: Answer, name: str, default: bool = False) -> bool:
    """Whether an argument is a switch that is on; the default where it is left out or auto."""
    return bool(_read(answer, name, switch, default))


def number(answer: Answer, name: str, default: int) -> int:
    """The whole number of an argument; the default where it is left out or auto."""
    return int(_read(answer, name, whole, default))


def _read(answer: Answer, name: str, means: Callable[[Any], Any], default: Any) -> Any:
    value = answer.get(name)
    try:
        meant = None if value is None else means(value)
    except ValueError as error:
        answer.mark(name, "not understood", str(error))
        return default
    return default if meant is None else meant


def as_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2) + "\n"


def as_yaml(config: Mapping[str, Any]) -> str:
    """A document of plain values by their path, nested as the paths say."""
    return yaml_text(nested(config))


def nested(config: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values by their path as a document."""
    out: dict[str, Any] = {}
    for path, value in config.items():
        into = out
        *above, last = path.split(".")
        for part in above:
            into = into.setdefault(part, {})
        into[last] = value
    return out


def written(table: Iterable[Argument], options: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a table that state these options, by name."""
    out = {}
    for argument in table:
        ours = options.get(argument.option)
        theirs = None if ours is None else argument.theirs(ours)
        if theirs is not None:
            out[argument.name] = theirs
    return out


def types(options: Mapping[str, Any], loaded: str = "torch_dtype") -> dict[str, Any]:
    """bf16, fp16 and tf32 of a plan, and the type in which weights are loaded."""
    kind = options.get("precision")
    out: dict[str, Any] = {name: True for name in ("bf16", "fp16", "tf32") if name == kind}
    if loaded and options.get("state_precision") == "bf16":
        out[loaded] = "bfloat16"
    return out


_RANK = re.compile(r"(?:^|[,\s])rank=(\d{1,6})\b")


def read_subspace(answer: Answer, name: str = "optim") -> None:
    """Options of GaLore and APOLLO: updates of every weight in its hook, and their rank."""
    if str(answer.get(name, "")).lower().endswith(_BY_LAYER):
        answer.imply("optimizer_in_backward", True, "layer by layer", name)
    value = _RANK.search(str(answer.get("optim_args", "")))
    if value and answer.option("optimizer") in SUBSPACES:
        answer.state("optimizer_rank", int(value[1]), "optim_args")


def subspace_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """optim and optim_args of GaLore and APOLLO of a plan."""
    ours = options.get("optimizer")
    if ours not in SUBSPACES or (name := name_of(OPTIMIZERS)(ours)) is None:
        return {}
    by_layer = _BY_LAYER if options.get("optimizer_in_backward") else ""
    out = {"optim": name + by_layer, "optim_target_modules": "all-linear"}
    rank = options.get("optimizer_rank")
    return out | ({"optim_args": f"rank={rank}"} if rank else {})


_TASKS: dict[str, str] = {
    "dpo": "dpo",
    "ipo": "dpo",
    "kto": "kto",
    "orpo": "orpo",
    "simpo": "simpo",
}


def task_of(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The preference objective of a plan under this argument, and its reference model if that runs
    before training."""
    task = options.get("task")
    if task not in _TASKS.values():
        return {}
    is_precomputed = options.get("reference") == "precomputed"
    return {name: task} | ({"precompute_ref_log_probs": True} if is_precomputed else {})


def of_examples(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a plan with a micro-batch in examples, of which pairs are two sequences.
    Raises PlanError where the micro-batch is not made of whole pairs."""
    each = TASKS[options.get("task") or "sft"].sequences
    micro = options.get("micro_batch")
    if each == 1 or micro is None:
        return dict(options)
    if micro % each:
        remedy = f"a micro-batch of {options['task']} consists of pairs: take an even one"
        raise PlanError("--micro-batch", micro, remedy)
    return {**options, "micro_batch": micro // each}


def read_task(answer: Answer, name: str, usual: int) -> None:
    """The objective that an argument names, where it is one of preferences or a model of rewards;
    generation is not part of a training step. usual: micro-batch by default."""
    task = {**_TASKS, "rm": "reward"}.get(str(answer.get(name, "")).lower())
    if task is not None:
        answer.state("task", task, name)
        read_pairs(answer, usual)


def read_pairs(answer: Answer, usual: int) -> None:
    """Examples of the objective that has been read: how many sequences each is, and whether the
    reference's log-probabilities are computed before the run."""
    each = TASKS[answer.option("task")].sequences
    stated = answer.options.get("micro_batch")
    if stated is None:
        answer.imply("micro_batch", usual * each, "sequences of the examples by default")
    else:
        answer.options["micro_batch"] = replace(stated, value=stated.value * each)
    for name in ("precompute_ref_log_probs", "precompute_reference_log_probs"):
        if is_on(answer, name):
            answer.state("reference", "precomputed", name)
        answer.mark(name, "implied", "off")


def read_degrees(answer: Answer) -> None:
    """Without other words every GPU computes whole layers of whole sequences."""
    for name in ("tp", "pp", "cp"):
        if answer.option(name) is None:
            answer.imply(name, 1, "every GPU computes whole layers of whole sequences")


def read_liger(answer: Answer, name: str) -> None:
    """Liger's kernels: norm, RoPE and gate as one kernel each, and the loss with the head."""
    if is_on(answer, name):
        answer.state("loss_kernel", "fused-linear", name)
        answer.imply("fused_kernels", True, "of Liger")
    else:
        answer.mark(name, "implied", "off")


def liger_of(options: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Liger's switch of a plan."""
    return {name: True} if options.get("loss_kernel") == "fused-linear" else {}
