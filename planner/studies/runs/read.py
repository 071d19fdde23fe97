"""From a row of a runs table to its scenario: single cells, combinations of cells, and known
practice of publications for empty cells.

A published run ran, and whoever publishes one has tuned it: a cell that its source does not print
is left to the search of `dpplan estimate`. `[unstated]` of a stack is its program's default, which
is known, not open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil

from planner.formats.record import Answer, Stated, Used, Value
from planner.formats.shape import written
from planner.inputs import catalog
from planner.inputs.calibration import Calibration, stack_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import Scenario, resolve
from planner.specs.adapters import WORDS
from planner.specs.base import PlanError
from planner.specs.model import ModelSpec
from planner.specs.names import OFFLOAD_MODULES, SYNC_PARTS, SyncPart
from planner.specs.options import AS_IT_RUNS, Options, Origin, refuse, rows
from planner.specs.options.checked import from_text
from planner.specs.stack import StackSpec
from planner.specs.training import scores_on_chip
from planner.studies.runs import recipes
from planner.studies.runs.cells import Row, Skip, number, options_of, whole
from planner.studies.runs.half import Half
from planner.studies.runs.layout import read_layout
from planner.studies.runs.model import family_of, plain_gpt, row_model
from planner.studies.runs.table import ASSUMED, NEUTRAL, OF_TIME, TABLE, WORD

# year and month, as NeMo numbers its containers, or a round of MLPerf Training: each order as text
_RELEASE = re.compile(r"\d\d\.\d\d|v\d\.\d")
# year and month in the name of a file of benchmarks, as torchtitan names its own
_DATED = re.compile(r"_20(\d\d)(\d\d)[_.]")
_RL_WORDS = 2048  # of the vocabulary in a chunk of the loss of prime-rl
_SIGMA = 0.5  # of the logarithm of lengths of documents where a row does not state it
_METHODS = ("rslora", "dora")  # values of `peft` that are methods of adapters
_ADAPTED = ("lora", "qlora", "gptq-lora", *_METHODS)  # values of runs that train adapters
_LORA = ("lora", "lora_targets", "lora_dropout", "lora_precision", "lora_adapters")
# words for communication between replicas beside compute, and what each switches off
_BESIDE: dict[str, tuple[SyncPart, ...]] = {
    "overlap_grad_reduce": ("reduce",),
    "overlap_param_gather": ("forward", "backward"),
    "overlap_comm": SYNC_PARTS,
}
_OF_EXPERTS = ("etp", "dispatcher", "dispatcher_sms", "ep_overlap", "capacity_factor")
# options layouts of which are open, in the order in which they are named
OPEN = (
    *("tp", "pp", "dp", "cp", "vpp", "ep", "zero", "sequence_parallel", "recompute"),
    "micro_batch",
)


@dataclass(frozen=True)
class Run:
    """A row as a request.

    options: the scenario; stated: what says each of them, by its name: a column, a word of the
    cell `options` (behind `options.`), or where implied a publication or the stack; arguments:
    what became of each cell and word.
    """

    options: Options
    scenario: Scenario
    stated: Mapping[str, Stated]
    arguments: Mapping[str, Used]

    @property
    def open(self) -> tuple[str, ...]:
        """Options of the layout that nothing says: they are searched."""
        routed = self.scenario.parts[0].routed is not None
        free = (name for name in OPEN if getattr(self.options, name) is None)
        return tuple(name for name in free if name != "ep" or routed)

    @property
    def not_understood(self) -> tuple[str, ...]:
        """Words that no option holds."""
        words = (name for name, used in self.arguments.items() if used.use == "not understood")
        return tuple(name.removeprefix(WORD) for name in words)


def read(row: Row, calibration: Calibration | None = None) -> Run:
    """The scenario of a row. Raises Skip or PlanError where it cannot be expressed."""
    row = recipes.completed(row)
    words = options_of(row)
    measured = calibration if calibration and calibration.gpu == row["gpu"] else None
    stack = _stack(row, words, measured)
    cells = {name: Value(cell) for name, cell in row.items() if cell}
    cells |= {WORD + name: Value(word) for name, word in words.items()}
    half = Half(row, words, stack, row_model(row, stack), Answer(cells))
    _read_table(half)
    _named(half, measured)
    for part in (_precision, _kernels, _replicas, _states, _adapters, _experts, _lengths):
        part(half)
    read_layout(half)
    timed = bool(number(row, "step_s", 0.0))
    for word, text in words.items():
        known = half.answer.arguments.get(WORD + word)
        if known is None or known.use == "not understood":
            half.answer.arguments[WORD + word] = _rest(word, text, timed)
    return _settled(half.answer)


def _origin(stated: Stated) -> Origin:
    if stated.implied:
        return Origin("publication", stated.argument)
    word = stated.argument.removeprefix(WORD)
    return Origin("run", f"{'column' if word == stated.argument else 'word'} {word}")


# kernels that a stack may have of its own, beside which a request for them is refused
_OWN = ("compile", "cuda_graphs", "fused_kernels")


def _settled(answer: Answer) -> Run:
    """The request without what does not act in it: what nothing beside it lets act, and kernels
    that the stack has anyway."""
    flags = {row.flag: name for name, row in rows(Options).items()}
    given = {k: option.value for k, option in answer.options.items() if option.value is not None}
    while True:
        origins = {name: _origin(answer.options[name]) for name in given}
        origins["stack_defaults"] = AS_IT_RUNS
        options = read_options({**given, "stack_defaults": True}, origins)
        acts = False
        try:
            refuse(options, "estimate")
            acts = True
            return Run(options, resolve(options), answer.options, answer.arguments)
        except PlanError as error:
            name = flags.get(error.field, "")
            if name not in given or (acts and name not in _OWN):
                raise
            del given[name]
            answer.options.pop(name)


# ---------------------------------------------------------------------------------- what is named


def _stack(row: Row, words: Mapping[str, str], measured: Calibration | None) -> StackSpec:
    """The profile of a row's stack: the stack that its source ran, in the latest release that is
    not newer than the release named, among releases numbered alike."""
    printed = _printed(row["stack"], row.get("source_ref", ""))
    stack = stack_spec(printed, measured)
    dated = _DATED.search(row.get("source_ref", ""))
    release = words.get("release") or (".".join(dated.groups()) if dated else "")
    if not _RELEASE.match(release):
        return stack
    later = [
        s
        for s in catalog.load_all("stacks", StackSpec)
        if s.release_of == stack.id and s.since and s.since <= release
        if s.since.startswith("v") == release.startswith("v")
    ]
    return max(later, key=lambda s: s.since or "", default=stack)


def _printed(stack: str, reference: str) -> str:
    """The profile of the runs of a stack that this source prints, by the narrowest pattern; the
    stack itself without a match."""
    profiles = (
        (len(pattern), s.id)
        for s in catalog.load_all("stacks", StackSpec)
        if (pattern := s.printed_in.get(stack)) and fnmatchcase(reference, pattern)
    )
    return max(profiles, default=(0, stack))[1]


def _named(half: Half, measured: Calibration | None) -> None:
    """Model, stack and calibration, by the names that a request has for them."""
    options, model, named = half.answer.options, half.model, half.row["stack"]
    at = "release" if half.words.get("release") else "source_ref"
    same = half.stack.id == stack_spec(named).id
    options["stack"] = Stated(named if same else half.stack.id, "stack" if same else at, "")
    if "release" in half.words:
        half.answer.mark(WORD + "release", "read")
    known = model.name in catalog.ids("models") and model == catalog.load(
        "models", ModelSpec, model.name
    )
    options["model"] = Stated(model.name if known else written(model), "model", "")
    if measured is not None:
        options["calibration"] = Stated(measured.path, "--calibration", "")


def _read_table(half: Half) -> None:
    """Cells that map one to one, and words that are names of options."""
    answer, table = half.answer, rows(Options)
    for argument in TABLE:
        cell = answer.values.get(argument.name)
        if cell is None:
            continue
        label, value = argument.name.removeprefix(WORD), cell.value
        kind = table[argument.option].kind
        if not argument.words and (kind in (int, float) or argument.factor != 1):
            value = (whole if kind is int else number)({label: value}, label)
        try:
            ours = argument.ours(value)
            if isinstance(ours, str) and table[argument.option].takes_words:
                ours = from_text(table[argument.option], ours)
        except ValueError as error:
            if not argument.name.startswith(WORD):
                raise Skip(f"{label} is {value!r}, which {error}") from None
            answer.mark(argument.name, "not understood", str(error))
        else:
            answer.state(argument.option, ours, argument.name)
    for word, text in half.words.items():
        known = answer.arguments.get(WORD + word)
        if word in table and (known is None or known.use == "not understood"):
            with suppress(ValueError):
                half.say(word, word, from_text(table[word], text))


def _rest(word: str, text: str, timed: bool) -> Used:
    """Status of a word that states no option."""
    if text in ASSUMED.get(word, ()):
        return Used(text, "implied", "as every estimate assumes")
    if word in NEUTRAL or (word in OF_TIME and not timed):
        return Used(text, "irrelevant")
    return Used(text, "not understood")


# --------------------------------------------------------------------- what cells say together


def _precision(half: Half) -> None:
    """The recipe of 8 bit, where the column says 8 bit, and what else is in it."""
    stated, answer = half.row.get("precision", ""), half.answer
    if stated not in ("fp8", "fp4") and {"fp_recipe", "fp8_recipe"} & half.words.keys():
        answer.options["precision"] = Stated(stated or "bf16", "precision", "")
    if half.words.get("fp8_param_gather") == "1":
        also = "+dispatch" if half.stack.precision.dispatch and half.model.routed else ""
        half.say("fp8_param_gather", "low_precision", f"weights{also}")
    wide = family_of(half.row).bf16_layers.get(half.words.get("fp_recipe", ""))
    half.imply("bf16_layers", wide, "publications of its family")


def _attention(half: Half) -> None:
    """The attention kernel that a row names, or that its stack takes where a row names none."""
    answer, words, stack = half.answer, half.words, half.stack
    on_chip = scores_on_chip(stack.fusion.attention)
    if "attention" not in words:
        if "transformer_engine" in words and stack.family != "jax":
            # as its DotProductAttention chooses; in JAX only behind NVTE_FUSED_ATTN
            half.say("transformer_engine", "attention", "cudnn")
        elif half.get("flash_attention") is False and on_chip:
            answer.state("attention", "fused_softmax", "flash_attention")
        elif plain_gpt(half.row):
            usual = stack.unstated.gpt_attention
            kernel = None if usual == stack.fusion.attention else usual
            half.imply("attention", kernel, "what the stack does unstated")
    if half.get("attention"):
        answer.drop("flash_attention")


def _kernels(half: Half) -> None:
    """Kernels of attention, of norm, RoPE and gate, and of the loss."""
    _attention(half)
    answer, words, stack = half.answer, half.words, half.stack
    for word in ("fused_ops", "liger", "transformer_engine"):
        if word in words:
            half.say(word, "fused_kernels", True)
    fused = {"fused_ops", "fused_cross_entropy"} & words.keys()
    if "liger" not in words and (fused or stack.unstated.fused_cross_entropy):
        kernel = "fused-linear" if stack.fusion.liger else "fused"
        if fused:
            half.say(min(fused), "loss_kernel", kernel)
        half.imply("loss_kernel", kernel, "what the stack does unstated")
    if words.get("trainer") == "rl":
        half.say("trainer", "loss_chunks", ceil(half.model.vocab / _RL_WORDS))
    modules = words.get("offload_modules", "").split("+")
    if named := [module for module in OFFLOAD_MODULES if module in modules]:
        answer.options["offload_modules"] = Stated("+".join(named), WORD + "offload_modules", "")


def _replicas(half: Half) -> None:
    """Communication between replicas: what does not run beside compute."""
    off = {part for word, parts in _BESIDE.items() if half.words.get(word) == "0" for part in parts}
    stated = [word for word in _BESIDE if word in half.words]
    for word in stated:
        kept = "+".join(part for part in SYNC_PARTS if part not in off) or "none"
        if half.words[word] in ("0", "1"):
            half.say(word, "dp_overlap", kept if off else None)
    reduced = family_of(half.row).gradient_reduce.get(half.stack.id)
    half.imply("grad_reduce_precision", reduced, "publications of its family")


def _states(half: Half) -> None:
    """Types of weights, gradients and moments that differ from what the stack has."""
    words, answer = half.words, half.answer
    moments, master = half.get("moments_precision"), words.get("master_dtype")
    # bf16 weights without a master copy that is named have none; moments are made like weights
    no_master = master in (None, "none")
    if words.get("params_dtype") == "bf16" and moments in (None, "bf16") and no_master:
        answer.options["state_precision"] = Stated("bf16", WORD + "params_dtype", "")
        answer.drop("moments_precision")
        return
    if moments == "fp32":
        answer.drop("moments_precision")
    aware = words.get("precision_aware") == "1"
    if master == "fp32" and aware and (half.row.get("precision") or "bf16") == "bf16":
        master = "remainder"  # store_param_remainders, on by default (optimizer_config.py)
    if half.stack.state.master and master not in (None, "fp32"):
        answer.options["master_precision"] = Stated(master, WORD + "master_dtype", "")
    if aware:
        half.say("precision_aware", "gradient_precision", words.get("grads_dtype"))


def _adapters(half: Half) -> None:
    """Adapters, where the row says that they are what is trained."""
    words, answer = half.words, half.answer
    if half.get("lora") is None or words.get("peft", "lora") not in _ADAPTED:
        answer.drop(*_LORA)
        return
    targets = str(half.get("lora_targets") or "").lower()
    if unknown := [word for word in targets.split("+") if word and word not in WORDS]:
        raise Skip(f"targets names {unknown[0]!r}, no matrix that is known")
    if targets:
        half.say("targets", "lora_targets", targets)
    if words.get("peft") in _METHODS:
        half.say("peft", "lora_method", words["peft"])
    if words.get("params_dtype") == "bf16":
        half.imply("lora_precision", "bf16", WORD + "params_dtype")
    if "fused_ops" in words:
        half.say("fused_ops", "fused_lora", True)
    if "autocast" not in words and half.get("lora_precision") == "fp32":
        half.imply("lora_autocast", False, "no cell says that it is used")


def _experts(half: Half) -> None:
    """Kernels and dispatch of experts, of models that have some."""
    words, answer = half.words, half.answer
    if half.model.routed is None:
        for option in _OF_EXPERTS:
            answer.drop(option)
    kernels = "grouped" if "recipe" in words else None
    if words.get("te_op_fuser") == "1":
        kernels = "fused"  # Transformer Engine's operation fuser has one kernel for them
    elif words.get("grouped_gemm") == "0":
        kernels = "loop"
    elif {"te_op_fuser", "grouped_gemm"} & words.keys():
        kernels = "grouped"
    kernels = kernels if half.model.routed else None
    for word in ("te_op_fuser", "grouped_gemm"):
        if words.get(word) in ("0", "1"):
            half.say(word, "expert_kernels", kernels)
    half.imply("expert_kernels", kernels, "recipe")
    if words.get("paged_stash") == "1":
        size = number(dict(words), "stash_factor", 1.0)
        half.say("paged_stash", "paged_stash", max(size, 1.0))
        half.say("stash_factor", "paged_stash", max(size, 1.0))


def _lengths(half: Half) -> None:
    """Documents that are packed with boundaries between them."""
    if half.get("length_mean") is not None:
        half.imply("length_sigma", _SIGMA, "a choice")
