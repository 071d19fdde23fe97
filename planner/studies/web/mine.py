"""My run: a launch script, the plan that it states, what makes it fit, the files to launch it
with, its log beside the prediction, a calibration; each a step with an address of its own."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, get_args

from planner import api
from planner.formats import recipe as formats
from planner.formats.documents.read import Read
from planner.formats.plan import planned
from planner.formats.verbs import read
from planner.formats.views.read import change_blocks, read_blocks
from planner.formats.views.read import verdict as read_verdict
from planner.specs.base import PlanError
from planner.specs.documents.estimate import Estimate
from planner.specs.names import TargetName
from planner.specs.options import Given, Group, Options, Record, flag, option, rows
from planner.studies import check
from planner.studies.check.sort import is_runs_table, recipes_of
from planner.studies.documents.check import Check
from planner.studies.logs.programs import titles
from planner.studies.views.check import view as check_view
from planner.studies.web import panel
from planner.units import show, span
from planner.views.advice import advice_block
from planner.views.estimate import memory_text, short_of
from planner.views.screen import plan_blocks
from planner.views.view import Block, File, Link, Mark, View
from web import limits
from web.panels import calibrated
from web.state import State, marks_of, of_mapping, stated
from web.tabs.base import Answers, Step, TabRequest, Within

_SAVE, _APPEND = "my-cluster.toml", "my-runs.csv"
_WRITTEN = "megatron"  # files for readers of a recipe whose framework has no writer
_FIELD = "FILE"
_LONG = 30  # rows from which a table is folded


@dataclass(frozen=True, kw_only=True)
class RunForm(Record):
    """Options that only the page has."""

    GROUP: ClassVar = Group("launch", "Launch files")

    to: Annotated[
        TargetName | None,
        option(
            "Framework whose files are written",
            label="Launch files for",
            example="megatron",
            unset="the framework of the script, or Megatron",
        ),
    ] = None


@dataclass(frozen=True)
class Mine:
    """Contents of the files. plan: of the recipe or of the address, as the page has it, and its
    estimate; given: the same as options, empty where none is possible; calibration, table: results
    as texts; notes: why one of those is not there."""

    logs: tuple[str, ...]
    recipes: tuple[str, ...]
    recipe: Read | None
    plan: State | None
    given: Given
    estimate: Estimate | None = None
    checked: Check | None = None
    calibration: str = ""
    appended: str = _APPEND
    table: str = ""
    notes: list[str] = field(default_factory=list)


def _find(request: TabRequest) -> Mine:
    recipes = recipes_of(request.files, _FIELD)
    logs = tuple(name for name in request.files if name not in recipes)
    state, given, document, estimate = None, Given({}), None, None
    if recipes:
        plan = planned(recipes, request.given)
        if not plan.missing and not plan.refused:
            given = plan.options
            state = _state(given, request)  # within the limits of a page
        document = read.answer(plan)
        estimate = document.estimate
    elif state := _of_address(request):
        options = {**state.options.given(), **request.given}  # typed defaults, too
        given = Given(options, state.options.origins)
        estimate = api.estimate(state.options)
    mine = Mine(logs, tuple(recipes), document, state, given, estimate)
    return _checked(mine, request.files) if logs else mine


def _of_address(request: TabRequest) -> State | None:
    """The plan of the fields, what an earlier file says among them; None without a model. Beside
    files no default of the page is one."""
    pairs = stated(request.pairs) if request.files else request.pairs
    names = {name for name, text in pairs if text}
    return request.state if names & {"model", "config"} else None


def _state(given: Given, request: TabRequest, calibration: str | None = None) -> State:
    """A plan as the page has it, with what was pasted. Raises PlanError beyond its limits."""
    config = request.state.config
    texts = {"config": config, "calibration": calibration or request.state.calibration}
    instead = ("calibration", "model") if config else ("calibration",)
    options = {n: v for n, v in given.items() if n not in instead}
    return of_mapping({**options, **texts}, marks_of(given))


def _checked(mine: Mine, files: Mapping[str, bytes]) -> Mine:
    """With what the logs say, and every result that they allow; a runs table among them is the one
    that the run is added to."""
    tables = [name for name in mine.logs if is_runs_table(files[name])]
    appended = (*tables, _APPEND)[0]
    taken = {n: v for n, v in mine.given.items() if "check" in rows(Options)[n].verbs}
    given = Given(taken, mine.given.origins)
    given.planned = mine.given.planned
    answer = check.with_results(mine.logs, given, _SAVE, appended)
    learned = answer.document.learned
    return replace(
        mine,
        checked=answer.document,
        calibration=learned.calibration if learned else "",
        appended=appended,
        table=answer.table or "",
        notes=answer.document.notes if mine.plan else [],
    )


def _view(mine: Mine, request: TabRequest) -> View:
    """The answer in a sentence: of the log, of the recipe, or of the plan."""
    files = _results(mine)
    if mine.checked:
        checked = check_view(mine.checked)
        unplanned = mine.plan is None and checked.mark == "maybe"
        verdict = _UNPLANNED if unplanned else checked.verdict
        return View(_title(mine), verdict, checked.mark, files=files)
    if mine.recipe:
        mark, verdict = read_verdict(mine.recipe)
        return View(_title(mine), verdict, mark)
    if mine.estimate is None:
        return View(_title(mine), _UNPLANNED, "maybe")
    return View(_title(mine), _fits(mine.estimate), "yes" if mine.estimate.memory.fits else "no")


def _title(mine: Mine) -> str:
    files = ", ".join((*mine.recipes, *mine.logs))
    return f"{files}: what they say" if files else "The plan of this address"


def _fits(e: Estimate) -> str:
    """Time and memory of an estimate in a sentence."""
    sentence = memory_text(e.memory) if e.memory.fits else short_of(e)
    band = span(e.step.low, e.step.high, "s")
    return f"{show(e.step.seconds, 's')} per step ({band}), {e.memory.verdict}: {sentence}"


# ------------------------------------------------------------------------------------- the steps


def _steps(mine: Mine, request: TabRequest) -> Iterator[Step | Within]:
    rest = shlex.split(request.command)[2:]
    recipe = shlex.join(["dpplan", "read", *mine.recipes, *rest, "--full"]) if mine.recipe else ""
    yield Step("script", "Script", _script(mine), recipe)
    state, estimate = mine.plan, mine.estimate
    measured: list[Step | Within] = []
    if state is None or estimate is None:
        yield Step("plan", "Plan", _unplanned(mine))
    else:
        yield Step("plan", "Plan", _plan(state, estimate), estimate.command)
        yield Step("fit", "Fit", _cure(mine, estimate))
        yield Within("/launch", [*state.pairs, ("to", _target(mine, request))])
        like = panel.view(estimate, state.options, f"/panel/measured?{state.query}")
        measured = [Step("measured", "Measured", like, "dpplan validate")]
        measured += [Within("/export", state.pairs)]
    yield Step("log", "Log", _log(mine), _checked_as(mine, rest) if mine.checked else "")
    yield Step("calibration", "Calibration", _calibration(mine, request))
    yield from measured


def _plan(state: State, estimate: Estimate) -> View:
    mark: Mark = "yes" if estimate.memory.fits else "no"
    links = [Link(word="Open on the page of plans", address=f"/?{state.query}")]
    return View("The plan", _fits(estimate), mark, parts=plan_blocks(estimate), links=links)


def _unplanned(mine: Mine) -> View:
    verdict = read_verdict(mine.recipe)[1] if mine.recipe else _UNPLANNED
    return View("The plan", verdict, "maybe")


def _script(mine: Mine) -> View:
    if mine.recipe:
        blocks = [_folded(block) for block in read_blocks(mine.recipe, full=True)]
        return View.of(blocks, mark="yes" if mine.recipe.undecided == {} else "maybe")
    kinds = _kinds()
    stated_by = _of_files(mine.plan) if mine.plan else []
    verdict = "Read before" if stated_by else "Drop a launch script or a configuration"
    return View("Script", verdict, "yes" if stated_by else "", parts=[*stated_by, kinds])


def _of_files(state: State) -> list[Block]:
    """Options of the address that a file said."""
    origins = {name: state.options.origin(name) for name in state.marks}
    listed = [
        [flag(name), str(getattr(state.options, name)), origin.where]
        for name, origin in origins.items()
        if origin is not None and origin.kind == "file"
    ]
    return [Block("Said by files", [], ["option", "value", "where"], listed)] if listed else []


def _folded(block: Block) -> Block:
    return replace(block, folded=len(block.rows) > _LONG or block.title == "Every argument")


def _cure(mine: Mine, estimate: Estimate) -> View:
    """Changes that make it fit, or faster: in words of the files, else of the plan."""
    fits = estimate.memory.fits
    sentence = "It fits. What would be faster" if fits else f"It does not fit: {short_of(estimate)}"
    if mine.recipe and mine.recipe.estimate:
        blocks = change_blocks(mine.recipe, mine.recipe.estimate)
        return View("Fit", sentence, "yes" if fits else "no", parts=blocks, links=_changes(mine))
    parts = [advice_block(estimate, estimate.advice)] if estimate.advice else []
    if not parts:
        sentence = (
            "It fits, and no single change tried is faster"
            if fits
            else f"{sentence}; nothing helps"
        )
    return View("Fit", sentence, "yes" if fits else "no", parts=parts)


def _changes(mine: Mine) -> list[Link]:
    """Changes of the recipe: the same page with their plan."""
    if mine.recipe is None or mine.plan is None or mine.plan.config:  # which no command holds
        return []
    changes = (
        ("Apply what makes it fit", mine.recipe.remedy),
        ("Apply the better recipe", mine.recipe.better),
    )
    return [
        Link(word=word, command=change.command, chosen=tuple(change.changes))
        for word, change in changes
        if change
    ]


def _log(mine: Mine) -> View:
    if mine.checked is None:
        return View("Log", _NO_LOG)
    checked = check_view(mine.checked)
    parts = [_folded(part) for part in checked.parts if isinstance(part, Block)]
    notes = Block("Not made of these files", mine.notes) if mine.notes else None
    return replace(checked, parts=[*parts, *([notes] if notes else [])])


def _calibration(mine: Mine, request: TabRequest) -> View:
    """The calibration that the logs make, and the effect of the one that the plan has."""
    if mine.calibration:
        links = []
        with contextlib.suppress(PlanError):  # longer than a page takes: there is the file
            learned = _state(mine.given, request, mine.calibration)
            links = [Link(word="Apply, as calibrated", address=f"/run?{learned.query}#plan")]
        links = [link for link in links if len(link.address) <= limits.MAX_QUERY_BYTES]
        return View("Calibration", "Learned from these logs", "yes", links=links)
    if mine.plan and mine.plan.calibration and mine.estimate:
        parts = calibrated.blocks(mine.plan.options, mine.estimate)
        return View("Calibration", "This plan is calibrated", "yes", parts=parts)
    return View("Calibration", _NO_CALIBRATION)


def _kinds() -> Block:
    """The kinds of files that can be dropped."""
    recipes = ", ".join(known.title for known in formats.formats())
    return Block(
        "What can be dropped",
        ["Recipe and log together say most: what was planned beside what came of it."],
        ["file", "of", "what the page says of it"],
        [
            ["recipe", recipes, _OF_RECIPE],
            ["log", ", ".join(titles()), _OF_LOG],
            ["trace", "torch profiler, Chrome JSON, packed or not", _OF_TRACE],
            ["snapshot", "torch.cuda.memory._dump_snapshot", _OF_SNAPSHOT],
            ["message", "CUDA out of memory, with its traceback", _OF_SHORTAGE],
            ["prediction", "dpplan rl --json", _OF_PHASES],
            ["runs table", "my-runs.csv, as this page writes it", _OF_RUNS],
        ],
        folded=True,
    )


_OF_RECIPE = "every argument by its use, the plan, its prediction, what would be faster"
_OF_LOG = (
    "the middle step, warm-up and checkpoints apart, against the band; what would explain the rest,"
    " and what to measure next; a calibration"
)
_OF_TRACE = "kernels, collectives and idle time beside the predicted step, the first line wrong"
_OF_SNAPSHOT = "allocated by component, beside the prediction; reserved and free"
_OF_SHORTAGE = "what asked, how much was missing, whether as much lay idle"
_OF_PHASES = "phases of a log of verl or NeMo RL beside those of this answer"
_OF_RUNS = "the run is added to it; several runs make a better calibration than one"


_UNPLANNED = "Read; drop the recipe beside it, or choose model and GPU above, to compare it"
_NO_LOG = "Drop the log of the run: its steps and memory are compared with this plan"
_NO_CALIBRATION = "The log of a run makes one, which fits later predictions to your cluster"


def _target(mine: Mine, request: TabRequest) -> str:
    """The framework whose files are written: the one that is chosen, else the recipe's, where it is
    a target of export."""
    kind = mine.recipe.kind if mine.recipe else ""
    return request.of(RunForm).to or (kind if kind in get_args(TargetName) else _WRITTEN)


def _results(mine: Mine) -> list[File]:
    out = []
    if mine.calibration:
        says = "the calibration that these runs make, for --calibration and for the plan's form"
        out.append(File(_SAVE, mine.calibration, says))
    if mine.table:
        says = "the runs table with this run, for `dpplan validate`; drop it with the next log"
        out.append(File(mine.appended, mine.table, says))
    return out


def _command(mine: Mine, request: TabRequest) -> str:
    """The command that gives the same answer for these files, or for the plan."""
    rest = shlex.split(request.command)[2:]
    if mine.logs:
        return _checked_as(mine, rest)
    if mine.recipe:
        return shlex.join(["dpplan", "read", *mine.recipes, *rest, "--full"])
    return mine.estimate.command if mine.estimate else ""


def _checked_as(mine: Mine, rest: list[str]) -> str:
    recipes = [word for name in mine.recipes for word in ("--recipe", name)]
    saved = ["--save", _SAVE] if mine.calibration else []
    saved += ["--append", mine.appended] if mine.table else []
    return shlex.join(["dpplan", "check", *mine.logs, *recipes, *rest, *saved])


ANSWERS = Answers(_find, _view, _command, (RunForm,), plan=lambda mine: mine.plan, steps=_steps)
