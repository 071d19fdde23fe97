"""My run: recipe and log dropped together; what `read` and `check` say of them, the calibration and
the row of a runs table as files to take along."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import get_args

from planner.formats import recipe as formats
from planner.formats.documents.read import Read
from planner.formats.plan import planned
from planner.formats.verbs import read
from planner.formats.views.read import view as read_view
from planner.specs.base import PlanError
from planner.specs.names import TargetName
from planner.specs.options import Given
from planner.studies import check
from planner.studies.check.sort import is_runs_table, recipes_of
from planner.studies.documents.check import Check
from planner.studies.logs.programs import titles
from planner.studies.views.check import view as check_view
from planner.views.view import Block, File, Link, View
from web import limits
from web.state import State, marks_of, of_mapping
from web.tabs.base import Answers, TabRequest

_SAVE, _APPEND = "my-cluster.toml", "my-runs.csv"
_WRITTEN = "megatron"  # files for whom reads a recipe of no framework that is written
_FIELD = "FILE"
_LONG = 30  # rows from which a table is folded


@dataclass(frozen=True)
class Mine:
    """Contents of the files. plan: of the recipe or of the fields, as the page has it; given: the
    same as options, empty where none is possible; calibration, table: results as texts; notes: why
    one of those is not there."""

    logs: tuple[str, ...]
    recipes: tuple[str, ...]
    recipe: Read | None
    plan: State | None
    given: Given
    checked: Check | None = None
    calibration: str = ""
    appended: str = _APPEND
    table: str = ""
    notes: list[str] = field(default_factory=list)


def _find(request: TabRequest) -> Mine | None:
    if not request.files:
        return None
    recipes = recipes_of(request.files, _FIELD)
    logs = tuple(name for name in request.files if name not in recipes)
    given, document = request.given, None
    if recipes:
        plan = planned(recipes, given)
        is_whole = not plan.missing and not plan.refused
        given = plan.options if is_whole else Given({})
        state = _state(given, request) if is_whole else None  # within the limits of a page
        document = read.answer(plan)
    elif "model" in given:
        state = _state(given, request)
    else:
        given, state = Given({}), None
    mine = Mine(logs, tuple(recipes), document, state, given)
    return _checked(mine, request.files) if logs else mine


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
    answer = check.with_results(mine.logs, mine.given, _SAVE, appended)
    learned = answer.document.learned
    return replace(
        mine,
        checked=answer.document,
        calibration=learned.calibration if learned else "",
        appended=appended,
        table=answer.table or "",
        notes=answer.document.notes if mine.plan else [],
    )


def _view(mine: Mine | None, request: TabRequest) -> View:
    """The log, then the recipe."""
    if mine is None:
        return _empty()
    views = [check_view(mine.checked)] if mine.checked else []
    views += [read_view(mine.recipe, full=True)] if mine.recipe else []
    blocks = [part for view in views for part in view.parts if isinstance(part, Block)]
    first = views[0] if views else View("", _UNPLANNED, "maybe")
    unplanned = mine.checked is not None and mine.plan is None and first.mark == "maybe"
    return View(
        ", ".join((*mine.logs, *mine.recipes)),
        _UNPLANNED if unplanned else first.verdict,
        first.mark,
        parts=[replace(block, folded=len(block.rows) > _LONG) for block in blocks],
        links=_links(mine, request),
        files=_results(mine),
        notes=mine.notes,
    )


def _empty() -> View:
    """The kinds of files that can be dropped."""
    recipes = ", ".join(known.title for known in formats.formats())
    return View(
        "What is read",
        "Nothing is dropped yet",
        parts=(
            Block(
                "Files",
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
            ),
        ),
    )


_OF_RECIPE = "every argument by its use, the plan, its prediction, what would be faster"
_OF_LOG = (
    "the middle step, warm-up and checkpoints apart, against the band; what would explain the rest,"
    " and what to measure next; a calibration"
)
_OF_TRACE = "kernels, collectives and idle time beside the predicted step, the first line wrong"
_OF_SNAPSHOT = "what is held by component, beside the prediction; reserved and free"
_OF_SHORTAGE = "what asked, how much was missing, whether as much lay idle"
_OF_PHASES = "phases of a log of verl or NeMo RL beside those of this answer"
_OF_RUNS = "the run is added to it; several runs make a better calibration than one"


_UNPLANNED = "Read; drop the recipe beside it, or choose model and GPU above, to compare it"


def _links(mine: Mine, request: TabRequest) -> list[Link]:
    """The plan on the page of plans, as it is and with what was learned."""
    if mine.plan is None:
        return []
    out = [("Apply to the plan", mine.plan)]
    if mine.calibration:
        with contextlib.suppress(PlanError):  # longer than a page takes: there is the file
            out.append(("Apply, as calibrated", _state(mine.given, request, mine.calibration)))
    queries = [(word, f"/?{entry.query}") for word, entry in out]
    if mine.recipe and not request.state.config:  # which no command holds
        changes = (
            ("Apply what makes it fit", "Write the files that fit", mine.recipe.remedy),
            ("Apply the better recipe", "Write the better files", mine.recipe.better),
        )
        for word, write, change in changes:
            if change:
                query = mine.plan.picked(change.command, change.changes).query
                queries += [(word, f"/?{query}"), (write, f"/launch?{query}&to={_target(mine)}")]
    return [
        Link(word=word, address=address)
        for word, address in queries
        if len(address) <= limits.MAX_QUERY_BYTES
    ]


def _target(mine: Mine) -> str:
    """The framework whose files are written: the recipe's, where it is a target of export."""
    kind = mine.recipe.kind if mine.recipe else ""
    return kind if kind in get_args(TargetName) else _WRITTEN


def _results(mine: Mine) -> list[File]:
    out = []
    if mine.calibration:
        says = "the calibration that these runs make, for --calibration and for the plan's form"
        out.append(File(_SAVE, mine.calibration, says))
    if mine.table:
        says = "the runs table with this run, for `dpplan validate`; drop it with the next log"
        out.append(File(mine.appended, mine.table, says))
    return out


def _command(mine: Mine | None, request: TabRequest) -> str:
    """The command that gives the same answer for these files."""
    if mine is None:
        return "dpplan check train.log --recipe train.sh --gpu h100 --gpus 64"
    rest = shlex.split(request.command)[2:]
    if not mine.logs:
        return shlex.join(["dpplan", "read", *mine.recipes, *rest, "--full"])
    recipes = [word for name in mine.recipes for word in ("--recipe", name)]
    saved = ["--save", _SAVE] if mine.calibration else []
    saved += ["--append", mine.appended] if mine.table else []
    return shlex.join(["dpplan", "check", *mine.logs, *recipes, *rest, *saved])


ANSWERS = Answers(_find, _view, _command, plan=lambda mine: mine.plan if mine else None)
