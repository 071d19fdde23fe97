"""`dpplan export`: the chosen layout as the files of a framework, with what starts them.

What was written is read back, by the tables that read such files. A value that does not come back
as it went is listed as not expressible, so that no file says less than its plan in silence.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from planner import __version__
from planner.estimate import Estimates
from planner.formats import launch
from planner.formats import recipe as formats
from planner.formats.documents.export import Export, ExportedFile, NotExpressible
from planner.formats.options import ExportOptions
from planner.formats.plan import planned
from planner.formats.semantics import left_to_you
from planner.formats.target import PlanToWrite, Target, no_decoder
from planner.inputs import catalog
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.readers import read_json
from planner.inputs.scenario import resolve
from planner.ledger import first
from planner.report import layout as report
from planner.search.answer import answer_of
from planner.search.pick import pick_command, pick_of
from planner.search.why_none import why_none
from planner.specs.adapters import ALL, ATTENTION, JOINED, MLP, ROLES, target_words
from planner.specs.base import PlanError
from planner.specs.decoder import decoder_of
from planner.specs.document import SCHEMA_VERSION, UNSET
from planner.specs.documents.estimate import Figures
from planner.specs.documents.plan import describe
from planner.specs.hardware import GpuSpec
from planner.specs.layout import PLACEMENTS
from planner.specs.model import ModelSpec
from planner.specs.names import SHARDS_PARAMETERS
from planner.specs.options import LAYOUT, Options, command_line, options_of_command, refuse, rows
from planner.specs.options.adapters import AdapterOptions
from planner.specs.options.cluster import ClusterOptions
from planner.specs.options.data import LengthOptions, LoadingOptions, RankOptions
from planner.specs.options.experts import ExpertOptions
from planner.specs.options.mechanisms import MECHANISMS, MechanismOptions
from planner.specs.options.numbers import number
from planner.specs.options.replicas import ReplicaOptions
from planner.specs.options.run import AnswerOptions, RunOptions
from planner.specs.options.task import TaskOptions
from planner.specs.options.training import TrainingOptions
from planner.units import percent, show
from planner.verbs.estimate import taken

_MOST_BYTES = 20_000_000  # of a saved answer; a search with 1,000 layouts has a tenth
_WIDTH = 76  # characters of a line of comment
# options of a recipe beside its layout, those that only describe the data left out
_OF_DATA = ("expert_load", "expert_spread", "tokens", "seq_len", "global_batch")
_HARDWARE = tuple(name for each in MECHANISMS for name in each.HARDWARE)
_OF_RECIPE = tuple(
    name
    for name in (
        *rows(TrainingOptions),
        *rows(ExpertOptions),
        *rows(AdapterOptions),
        *rows(TaskOptions),
        *rows(ReplicaOptions),
        *rows(MechanismOptions),
        *("cp_comm_type", "offload_modules"),
    )
    if name not in (*_OF_DATA, *_HARDWARE)
)
# options of the hardware, the data and the run, which files of frameworks do not say
_BESIDE_FILES = frozenset(
    {
        *rows(ClusterOptions),
        *_HARDWARE,
        *rows(RankOptions),
        *rows(LengthOptions),
        *rows(LoadingOptions),
        *rows(RunOptions),
        *("calibration", "expert_load", "expert_spread"),
    }
) - {"gpus", "nodes", "excess_length", "short_length"}
_ROUNDED = 1e-3  # relative: numbers of files are rounded
# values that a recipe implies by leaving them out
_UNSAID = {
    **{"optimizer": "adam", "recompute": "none", "excess_length": "truncate"},
    **dict.fromkeys(("etp", "tp", "pp", "cp"), 1),
}
# fields that tell models apart
_SHAPE = ("layers", "hidden", "norm")
_PLAIN = ("heads", "kv_heads", "head_dim", "ffn_hidden", "mlp", "latent")
_OF_EXPERTS = ("experts", "experts_per_token", "ffn_hidden", "shared_ffn_hidden", "dense_layers")


def export(options: Options, settings: ExportOptions) -> Export:
    """The files of a framework for the layout that an estimate with these options takes. Raises
    PlanError without a layout, or if the framework is not the requested stack."""
    refuse(options, "estimate")
    for name, row in rows(AnswerOptions).items():
        if name in options.given():
            why = "says what `dpplan estimate` answers; leave it out of `dpplan export`"
            raise PlanError(row.flag, options.given()[name], why)
    if options.for_target not in (None, settings.to):
        remedy = f"and --to {settings.to} name two frameworks; leave it out"
        raise PlanError("--for-target", options.for_target, remedy)
    target = formats.target(settings.to)
    typed, options = options, target.request(options)
    scenario = resolve(options)
    if why := no_decoder(model := scenario.plans[0].model):
        remedy = f"{why}; {target.title} is written for causal language models: take one of these"
        raise PlanError("--model", model.name, remedy)
    answer = answer_of(scenario)
    if answer is None:
        raise why_none(scenario)
    estimates = report.evaluate_row(answer.chosen, answer.row)
    figures = report.figures(estimates, scenario.sentences)
    plan = plan_of(options, estimates, target.deals)
    gpus = figures.cluster.gpus
    request = PlanToWrite(
        plan, estimates.plan.model, *nodes_of(gpus, figures.cluster.gpus_per_node)
    )
    gpu = estimates.plan.cluster.gpu
    pick = pick_command(options, estimates)
    check = pick.replace("dpplan estimate", "dpplan preflight", 1)
    bare = _recipe_of(target, _files(target, request, gpu, (), check))
    lost = lost_in(target, request, bare)
    written = _as_written(bare, options, lost)
    predicted = figures if written is None or _agree(figures, written) else written
    picked = None if predicted is figures else figures
    comments = tuple(_comments(target, predicted, picked, lost))
    files = _files(target, request, gpu, comments, check)
    return Export(
        schema_version=SCHEMA_VERSION,
        target=target.kind,
        title=target.title,
        files=[ExportedFile(name, _says(name, target), text) for name, text in files.items()],
        not_expressible=lost,
        to_fill=[
            *target.fill,
            *left_to_you(target, model),
            *(f"{n}: {text}" for n, text in launch.to_fill(gpu).items()),
        ],
        plan=plan,
        predicted=predicted,
        picked=picked,
        pick=pick,
        command=f"{command_line(typed, 'export')} --to {target.kind}",
    )


def _recipe_of(target: Target, files: Mapping[str, str]) -> dict[str, str]:
    """The files that say a plan, without those that only start it."""
    launchers = (*launch.LAUNCHERS, *([launch.RUN] if target.per_node else []))
    return {name: text for name, text in files.items() if name not in launchers}


def _as_written(
    files: Mapping[str, str], options: Options, lost: list[NotExpressible]
) -> Figures | None:
    """Prediction for files on the hardware of a request, whoever wrote them; None if they name no
    model or no possible plan."""
    if any(option.option == "model" for option in lost):
        return None
    given = {n: v for n, v in options.given().items() if n in _BESIDE_FILES}
    try:
        planned_back = planned(files, given)
        if planned_back.missing or planned_back.refused:
            return None
        back = taken(read_options(planned_back.options))
    except PlanError:  # the files contradict themselves, or allow no layout
        return None
    return report.figures(back.estimates, back.assumptions)


def _agree(figures: Figures, other: Figures) -> bool:
    """Whether two plans have equal time and memory, up to the rounding of numbers in files."""
    pairs = (
        (figures.step.seconds, other.step.seconds),
        (figures.memory.device_bytes, other.memory.device_bytes),
    )
    return all(math.isclose(*pair, rel_tol=_ROUNDED) for pair in pairs)


def plan_of(options: Options, estimates: Estimates, deals: bool = True) -> dict[str, Any]:
    """The options of a pick that are written: its layout and training, without options that have no
    effect in it.
    deals: the program deals layers out to stages as its profile does."""
    plan, layout = estimates.plan, report.layout_document(estimates.plan, estimates.table.layout(0))
    ranks = layout.dp * layout.cp
    given = pick_of(options, estimates).given()
    idle = {
        "zero": ranks == 1 and plan.model.routed is None,  # experts may have replicas of their own
        "shard_group": layout.zero == 0 or layout.shard_group == ranks,
        "vpp": layout.vpp == 1,
        "ep": layout.ep == 1,
        "cp_comm_type": layout.cp == 1,
        **dict.fromkeys(("dp_overlap", "dp_bucket"), ranks == 1),
        "sub_group_size": ranks == 1 or layout.zero < SHARDS_PARAMETERS,
        "placement": layout.pp == 1 or layout.dp == 1 or layout.placement == PLACEMENTS[0],
    }
    for each in MECHANISMS:
        if each.ACTS:
            idle |= dict.fromkeys(each.ACTS.options, not first(each.ACTS.where(estimates.table)))
    out: dict[str, Any] = {
        "model": options.model,
        "stack": plan.stack.id,
        "gpus": plan.cluster.gpus,
        "seq_len": plan.training.seq_len,
        "global_batch": layout.global_batch,
        "precision": plan.precision,
        "optimizer": plan.training.optimizer,
    }
    table = rows(Options)
    for name in (*LAYOUT, *_OF_RECIPE):
        if name in given and name not in out and not idle.get(name):
            out[name] = number(options, name) if table[name].says.unit else given[name]
    if layout.pipeline_layout is not UNSET and (options.pipeline_layout or not deals):
        out["pipeline_layout"] = layout.pipeline_layout
    if plan.training.tokens is not None:
        out["tokens"] = plan.training.tokens
    if plan.lengths is not None:
        out["excess_length"] = plan.lengths.excess
        out["short_length"] = plan.lengths.short_tokens
    return out


def nodes_of(gpus: int, size: int) -> tuple[int, int]:
    """Nodes, and GPUs of each; part of one node of this size, or whole ones."""
    nodes = max(1, -(-gpus // size))
    return nodes, gpus // nodes


def _files(
    target: Target, request: PlanToWrite, gpu: GpuSpec, comments: tuple[str, ...], check: str
) -> dict[str, str]:
    files = dict(target.write(request, comments))
    return {**files, **launch.scripts(target, request, gpu, comments, check)}


def _says(name: str, target: Target) -> str:
    if name == launch.RUN:
        return f"starts {target.title} on one node"
    return launch.LAUNCHERS.get(name, f"read by {target.title}")


def lost_in(target: Target, request: PlanToWrite, files: Mapping[str, str]) -> list[NotExpressible]:
    """Options that reading the recipe back does not give."""
    back = formats.read(_recipe_of(target, files)).options
    out = []
    for name, value in request.options.items():
        if name == "stack" or same(name, value, back, request):
            continue
        written = back.get(name)
        written = "another shape" if name == "model" and written is not None else written
        out.append(NotExpressible(name, value, written, target.lost.get(name, "")))
    return out


def same(name: str, value: Any, back: Mapping[str, Any], request: PlanToWrite) -> bool:
    """Whether an option of a plan came back as it went."""
    result = back.get(name)
    if name == "model":
        return result is not None and _shape(_model(result)) == _shape(request.model)
    if name == "tokens":  # a run has whole steps
        whole = request.steps * request.options["global_batch"] * request.options["seq_len"]
        return result == whole
    if name == "global_batch" and result is None and "grad_accum" in back:
        return value == back["grad_accum"] * request.options["micro_batch"] * request.replicas
    split = request.get("pipeline_layout")
    if name in ("schedule", "vpp") and result is None and split is not None:
        return back.get("pipeline_layout") == split  # whose chunks say both
    if result is None and name in _UNSAID:
        return bool(value == _UNSAID[name])
    return bool(_plain(name, result) == _plain(name, value))


def _plain(name: str, value: Any) -> Any:
    """A value in one spelling: of adapters the matrices that words name, by their roles."""
    if name != "lora_targets" or value is None:
        return value
    many = {ATTENTION: ("q", "k", "v", "o"), MLP: ("gate", "up", "down")}
    many[ALL] = many[ATTENTION] + many[MLP]
    words = {**ROLES, **JOINED, **many}
    return {role for word in target_words(value) for role in words.get(word, (word,))}


def _model(name: str) -> ModelSpec | None:
    """The model that files state: a name, or its widths."""
    try:
        return model_spec(name)[0]
    except PlanError:
        return None


def _shape(model: ModelSpec | None) -> tuple[Any, ...] | None:
    if model is None:
        return None
    plain = decoder_of(model)
    experts = [getattr(plain.moe, name) for name in _OF_EXPERTS] if plain and plain.moe else []
    widths = [getattr(plain, name, None) for name in _PLAIN]
    stated = [getattr(model, name) for name in _SHAPE]
    return (*stated, model.padded_vocab, model.tied_embeddings, *widths, *experts)


def _comments(
    target: Target, f: Figures, picked: Figures | None, lost: list[NotExpressible]
) -> Iterator[str]:
    """The head of every file: its plan and the prediction for it as written; beside that the
    picked plan, where the file states another."""
    step, memory = f.step, f.memory
    lines = [
        f"{f.model} on {f.cluster.title}: {describe(f.layout)}.",
        f"Written for {target.title} by dpplan {__version__}.",
        f"PREDICTED, not measured: {show(step.seconds, 's')} a step (80 % band"
        f" {show(step.low, 's')} to {show(step.high, 's')}),"
        f" {show(f.throughput.tokens_per_s, 'tokens/s')}, MFU {percent(f.throughput.mfu)},"
        f" {show(memory.device_bytes, 'B')} of {show(memory.capacity_bytes, 'B')} per GPU"
        f" ({memory.verdict}).",
    ]
    if f.run.days is not None:
        lines.append(f"PREDICTED of the whole run: {f.run.days:,.1f} days.")
    for option in lost:
        why = f": {option.why}" if option.why else ""
        instead = "" if option.written is None else f", here {option.written}"
        lines.append(f"NOT IN THESE FILES: {option.option} {option.value}{instead}{why}.")
    if picked is not None:
        lines.append(
            f"PICKED, and not what these files say: {describe(picked.layout)},"
            f" {show(picked.step.seconds, 's')} a step,"
            f" {show(picked.memory.device_bytes, 'B')} per GPU."
        )
    for sentence in lines:
        yield from textwrap.wrap(sentence, _WIDTH, subsequent_indent="  ", break_on_hyphens=False)


# ----- saved answers -----


def saved(name: str, rank: int | None) -> dict[str, Any]:
    """The pick of a saved answer, as options by name. Raises PlanError for a file that is not an
    answer of estimate or search."""
    text = catalog.read_text(catalog.user_path(name, "ANSWER"), "ANSWER", _MOST_BYTES)
    try:
        document = read_json(text)
    except ValueError as error:
        raise PlanError("ANSWER", name, str(error)) from None
    picks = _picks(document)
    if rank and picks and rank not in picks:
        raise PlanError("--rank", rank, "is not a layout of this answer")
    command = picks.get(rank or min(picks, default=0))
    if not isinstance(command, str):
        remedy = (
            "is not an answer of a layout: save one with `dpplan estimate ... --json > answer.json`"
        )
        raise PlanError("ANSWER", name, remedy)
    try:
        given = options_of_command(command, Options, "estimate")
    except ValueError as error:
        raise PlanError("ANSWER", name, f"its command {error}") from None
    return {option: value for option, value in given.items() if option not in rows(AnswerOptions)}


def _picks(answer: Any) -> dict[int, Any]:
    """Commands of the layouts of an answer by their ranks; 0 is the picked layout."""
    if not isinstance(answer, dict):
        return {}
    listed, others = answer.get("top"), answer.get("alternatives")
    if isinstance(listed, list):
        entries = [entry for entry in listed if isinstance(entry, dict)]
        return {rank: entry.get("pick") for rank, entry in enumerate(entries, 1)}
    ranked = [x for x in others if isinstance(x, dict)] if isinstance(others, list) else []
    out = {x["rank"]: x.get("command") for x in ranked if isinstance(x.get("rank"), int)}
    return {0: answer.get("pick"), **out}
