"""torchtitan: its TOML (up to 0.2) and its flags, `--parallelism.tensor_parallel_degree 8`.

Names and defaults: torchtitan/config/job_config.py at v0.2.2; later flags:
torchtitan/config/configs.py, which counts tokens where 0.2 counts sequences.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from planner.formats.record import Answer, Argument, Format, Value, of_mechanisms, patterns, unread
from planner.formats.shell import Word, script
from planner.inputs import catalog
from planner.inputs.readers import read_toml
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.options.aliases import words, written

_SECTIONS = frozenset(
    patterns(
        """
        job model training parallelism activation_checkpoint optimizer compile checkpoint
        lr_scheduler metrics profiling quantize float8 mx comm experimental validation
        debug
        """
    )
)
_DETECT = re.compile(
    r"(?m)^[ \t]*(?:data_parallel_shard_degree|tensor_parallel_degree|local_batch_size|flavor"
    r"|selective_ac_option|pipeline_parallel_degree)[ \t]*="
)
_PROGRAM = re.compile(r"\btorchtitan[./]train\b|--(?:parallelism|activation[-_]checkpoint)[.:]")

# flavors by the models of the catalogue that have their shape, a family before each
FLAVORS = {ours: word.split() for ours, word in written("models", "torchtitan").items()}
_SCHEDULES = {word.lower(): ours for word, ours in words("schedules", "torchtitan").items()}
SCHEDULE_WORDS = written("schedules", "torchtitan")
ONE_CHUNK = ("1f1b", "gpipe")
USUAL_CHUNKS = 2  # chunks per rank of a schedule with several, by default
FLOAT8, MX = "quantize.linear.float8", "quantize.linear.mx"
WAYS = {"allgather": "all-gather", "alltoall": "ring"}
PART = "parallelism."


def _detect(name: str, text: str) -> bool:
    if name.endswith(".toml"):
        return bool(_DETECT.search(text))
    return bool(_PROGRAM.search(text))


def _parse(text: str) -> Mapping[str, Value]:
    if _PROGRAM.search(text) and not _DETECT.search(text):
        return dict(_flags(text))
    document, lines = read_toml(text), _lines(text)
    return {name: Value(value, lines.get(name, 0)) for name, value in _flat("", document)}


def _flat(path: str, table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value


_HEADER = re.compile(r"[ \t]*\[([\w.-]+)\]")
_KEY = re.compile(r"[ \t]*([\w.-]+)[ \t]*=")


def _lines(text: str) -> dict[str, int]:
    """The line of every plain key of a TOML text."""
    out: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            section = f"{header[1]}."
        elif key := _KEY.match(line):
            out.setdefault(section + key[1], number)
    return out


def _flags(text: str) -> Iterator[tuple[str, Value]]:
    """Flags of the sections of torchtitan in the commands of a script."""
    for command in script(text).commands:
        words = list(reversed(command.words))
        while words:
            word = words.pop()
            if word.text.startswith("activation"):  # activation-checkpoint:full
                mode = word.text.partition(":")[2]
                yield "activation_checkpoint.mode", Value(mode, word.line)
            if not word.text.startswith("--"):
                continue
            name, has_value, given = word.text[2:].partition("=")
            name, unknown = name.replace("-", "_"), word.unknown
            if name.partition(".")[0] not in _SECTIONS or "." not in name:
                continue
            if not has_value and words and not words[-1].text.startswith("--"):
                value: Word = words.pop()
                has_value, given, unknown = "=", value.text, value.unknown
            section, _, last = name.rpartition(".")
            off = not has_value and last.startswith("no_")
            name = f"{section}.{last.removeprefix('no_')}" if off else name
            yield name, Value(_plain(given) if has_value else not off, word.line, unknown)


def _plain(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return int(text)
    except ValueError:
        return text


def _degree(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("is not a degree")
    return value


TABLE = (
    Argument("training.seq_len", "seq_len", default=2048, also=("training.max_context_length",)),
    Argument(f"{PART}tensor_parallel_degree", "tp", meaning=_degree, default=1),
    Argument(f"{PART}pipeline_parallel_degree", "pp", meaning=_degree, default=1),
    Argument(f"{PART}context_parallel_degree", "cp", meaning=_degree, default=1),
    Argument("compile.enable", "compile"),
    Argument(
        "optimizer.name", "optimizer", words=words("optimizers", "torchtitan"), default="adamw"
    ),
    *of_mechanisms("torchtitan"),
    Argument("training.enable_cpu_offload", "offload", words={True: "params", False: None}),
    Argument("training.dtype", "state_precision", words={"bfloat16": "bf16", "float32": None}),
)


def _more(values: Mapping[str, Value], answer: Answer) -> None:
    answer.imply("stack", "torchtitan", "torchtitan")
    _model(answer)
    _sharding(answer)
    _batch(answer)
    _pipeline(answer)
    _recompute(answer)
    _precision(answer)
    _switches(answer)
    if answer.option("state_precision") is None:
        answer.drop("state_precision")


def _switches(answer: Answer) -> None:
    """Arguments that act only beside tensor, context or expert parallelism."""
    tp, cp = answer.option("tp"), answer.option("cp")
    name = f"{PART}enable_async_tensor_parallel"
    if tp and tp > 1:
        answer.imply("sequence_parallel", True, "tensor parallelism comes with it")
        if answer.get(name):
            answer.state("tp_overlap", "async", name)
    answer.mark(name, "irrelevant", "no tensor parallelism, or switched off")
    rotate = f"{PART}context_parallel_rotate_method"
    if cp and cp > 1:
        way = WAYS.get(answer.get(rotate, "allgather"))
        answer.imply("cp_comm_type", way, "its way to share keys and values", rotate)
    answer.mark(rotate, "irrelevant", "no context parallelism")
    experts, split = f"{PART}expert_parallel_degree", f"{PART}expert_tensor_parallel_degree"
    if (answer.get(experts) or 1) > 1:
        answer.state("ep", answer.get(experts), experts)
        answer.imply("etp", answer.get(split, 1), "ranks that split an expert", split)
        backend = f"{PART}expert_parallel_comm_backend"
        if answer.get(backend) == "deepep":
            answer.state("dispatcher", "deepep", backend)
    for entry in (experts, split, f"{PART}expert_parallel_comm_backend"):
        answer.mark(entry, "implied", "1 or the default: nothing is shared out")


def _model(answer: Answer) -> None:
    family, flavor = answer.get("model.name"), answer.get("model.flavor")
    known = [name for name, pair in FLAVORS.items() if pair == [family, flavor]]
    if known:
        answer.state("model", known[0], "model.flavor")
        answer.mark("model.name", "read")
    elif flavor is not None:
        for name in ("model.name", "model.flavor"):
            answer.mark(name, "not understood", "is not a flavor of a model of the catalogue")


def _sharding(answer: Answer) -> None:
    """ZeRO stage and ranks that shard, from the degrees of data parallelism."""
    shard, copies = (f"{PART}data_parallel_shard_degree", f"{PART}data_parallel_replicate_degree")
    after = f"{PART}fsdp_reshard_after_forward"
    sharding, replicas = answer.get(shard, -1), answer.get(copies, 1)
    cp, pp = answer.option("cp") or 1, answer.option("pp") or 1
    if sharding == 1 and cp == 1:
        answer.imply("zero", 0, "parameters are replicated", shard)
        answer.mark(after, "irrelevant", "nothing is sharded")
    else:
        policy = answer.get(after, "default")
        never = policy == "never" or (policy == "default" and pp > 1)
        note = "gathered weights stay until backward" if never else "FSDP"
        answer.imply("zero", 2 if never else 3, note, shard, after)
        if replicas > 1 and sharding > 0:
            answer.imply("shard_group", sharding * cp, "ranks that shard", shard)
    if sharding > 0:
        answer.imply("dp", sharding * replicas, "sharding x replicas", shard, copies)
        tp = answer.option("tp") or 1
        gpus = sharding * replicas * cp * tp * pp
        answer.imply("gpus", gpus, "product of the degrees", shard, copies)
    elif replicas > 1:
        why = "how many ranks shard follows from the number of GPUs: state the degree of sharding"
        answer.mark(copies, "not understood", why)
    answer.mark(copies, "implied", "1: no replicas of shards")


def _batch(answer: Answer) -> None:
    """Micro-batch, global batch and length, of which later versions count tokens."""
    local, whole, piece = (
        "training.local_batch_size",
        "training.global_batch_size",
        f"{PART}pipeline_parallel_microbatch_size",
    )
    pp, dp, seq_len = answer.option("pp") or 1, answer.option("dp"), answer.option("seq_len")
    tokens = "training.num_tokens_per_microbatch_per_dp_rank"
    if answer.get(tokens) and seq_len:
        answer.state("micro_batch", max(1, answer.get(tokens) // seq_len), tokens)
    elif pp > 1:
        answer.imply("micro_batch", answer.get(piece, 1), "of a pipeline", piece)
    elif answer.get(local) or answer.get("model.flavor"):
        answer.imply("micro_batch", answer.get(local, 8), "on each rank", local)
    answer.mark(piece, "irrelevant", "no pipeline")
    step = "training.num_tokens_per_train_step"
    if (answer.get(whole) or -1) > 0:
        answer.state("global_batch", answer.get(whole), whole)
    elif (answer.get(step) or -1) > 0 and seq_len:
        answer.state("global_batch", answer.get(step) // seq_len, step)
    elif dp and answer.get(local, 8 if answer.get("model.flavor") else None):
        answer.imply("global_batch", dp * answer.get(local, 8), "local batch x replicas", local)
    elif pp == 1:
        answer.imply("grad_accum", 1, "one local batch of each replica a step")
    else:
        count = answer.get(local, 8) // answer.get(piece, 1)
        answer.imply("grad_accum", max(1, count), "local batch / micro-batch", local)
    for name in (whole, step):
        answer.mark(name, "implied", "-1: local batch x replicas")
    answer.mark(local, "implied", "of all micro-batches of a pipeline")
    steps, batch = "training.steps", answer.option("global_batch")
    if answer.get(steps) and batch and seq_len:
        answer.state("tokens", answer.get(steps) * batch * seq_len, steps, "steps x tokens a step")
    answer.mark(steps, "irrelevant", "length of the run")


def _pipeline(answer: Answer) -> None:
    name, size = (f"{PART}pipeline_parallel_schedule", f"{PART}pipeline_parallel_layers_per_stage")
    ends = tuple(f"{PART}pipeline_parallel_{name}_stage_less_layers" for name in ("first", "last"))
    pp = answer.option("pp") or 1
    if pp == 1:
        for entry in (name, size, *ends):
            answer.mark(entry, "irrelevant", "no pipeline")
        return
    given = answer.get(name, "1F1B")
    schedule = _SCHEDULES.get(str(given).lower())
    if schedule is None:
        answer.mark(name, "not understood", "is not a schedule that is timed here")
        return
    answer.imply("schedule", schedule, "1F1B where none is named", name)
    if schedule in ONE_CHUNK:
        answer.mark(size, "implied", "one chunk per rank")
        return
    chunks = USUAL_CHUNKS
    layers, each = _layers(answer.option("model")), answer.get(size)
    if each and layers:
        weights = sum(answer.get(end, 1) for end in ends)
        chunks = math.ceil((layers + weights) / each) // pp
    elif each:
        answer.mark(size, "not understood", "the layers of the model are not known: give --model")
        return
    answer.imply("vpp", chunks, "2 by default", size)


def _layers(model: Any) -> int | None:
    try:
        return None if model is None else catalog.load("models", ModelSpec, model).layers
    except PlanError:
        return None


def _recompute(answer: Answer) -> None:
    mode, option = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
    given = answer.get(mode, "selective" if answer.get("model.flavor") else None)
    every = str(answer.get(option, "2"))
    if given in ("none", "full"):
        answer.state("recompute", given, mode) if mode in answer.values else None
    elif given == "selective" and every == "op":
        note = "by operators, as --stack torchtitan repeats them"
        answer.imply("recompute", "selective", note, mode, option)
    elif given == "selective" and every == "1":
        answer.imply("recompute", "full", "every layer", mode, option)
    elif given is not None:
        why = f"repeats every {every}nd layer" if given == "selective" else f"{given}"
        why = f"{why}: neither all layers nor their operators, which no plan has"
        for name in (mode, option):
            answer.mark(name, "not understood", why)
    answer.mark(option, "irrelevant", "of selective recomputation")


def _precision(answer: Answer) -> None:
    param, converters = "training.mixed_precision_param", "model.converters"
    names = answer.get(converters) or []
    names = [names] if isinstance(names, str) else names
    words = {name.rsplit(".", 1)[-1] for name in names if isinstance(name, str)}
    recipe = next((n for n in (f"{FLOAT8}.recipe_name", "float8.recipe_name") if answer.get(n)), "")
    if "float8" in words:
        scaling = str(answer.get(recipe, "tensorwise")).partition("_")[0]
        answer.state("precision", f"fp8-{scaling}", converters)
        answer.mark(recipe, "read")
    elif "mx" in words:
        answer.state("precision", "mxfp8", converters)
        answer.mark(f"{MX}.recipe_name", "read")
    elif names:
        answer.mark(converters, "not understood", "is not a conversion that is timed here")
    else:
        for value in answer.values:
            if value.startswith("quantize."):
                answer.mark(value, "irrelevant", "no converter is named")
        wide = answer.get(param) == "float32"
        answer.imply("precision", "fp32" if wide else "bf16", "of kernels", param)
        answer.mark(converters, "implied", "none")
    answer.mark(param, "implied", "beside operands in 8 bit")
    gather = next(
        (
            name
            for name in (
                f"{FLOAT8}.enable_fsdp_float8_all_gather",
                "float8.enable_fsdp_float8_all_gather",
            )
            if answer.get(name) is not None
        ),
        "",
    )
    if gather and answer.get(gather) and "float8" in words:
        answer.state("low_precision", "weights", gather)
    answer.mark(gather, "implied", "weights are gathered in 16 bit")


FORMAT = Format(
    kind="torchtitan",
    title="torchtitan TOML or flags",
    detect=_detect,
    parse=_parse,
    table=TABLE,
    read_more=_more,
    **unread("torchtitan"),
)
