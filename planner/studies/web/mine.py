"""My run: recipe and log dropped together; what `read` and `check` say of them, the calibration and
the row of a runs table as files to take along."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.formats import recipe as formats
from planner.formats.documents.read import Read
from planner.formats.plan import planned
from planner.formats.verbs import read
from planner.formats.views.read import view as read_view
from planner.specs.base import PlanError
from planner.specs.options import Given
from planner.studies import check
from planner.studies.check.sort import is_runs_table, recipes_of
from planner.studies.documents.check import Check
from planner.studies.logs.programs import titles
from planner.studies.views.check import view as check_view
from planner.views.view import Block, File, Link, View
from web import limits
from web.state import State, marks_of, of_mapping
from web.tabs.base import Answers, Asked

_SAVE, _APPEND = "my-cluster.toml", "my-runs.csv"
_FIELD = "FILE"
_LONG = 30  # rows from which a table is folded


@dataclass(frozen=True)
class Mine:
    """What the files say. plan: of the recipe or of the fields, as the page has it; given: the same
    as options, empty where none is possible; calibration, table: results as texts; notes: why one
    of those is not there."""

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


def _find(asked: Asked) -> Mine | None:
    if not asked.files:
        return None
    recipes = recipes_of(asked.files, _FIELD)
    logs = tuple(name for name in asked.files if name not in recipes)
    given, document = asked.given, None
    if recipes:
        plan = planned(recipes, given)
        is_whole = not plan.missing and not plan.refused
        given = plan.options if is_whole else Given({})
        state = _state(given, asked) if is_whole else None  # within the limits of a page
        document = read.answer(plan)
    elif "model" in given:
        state = _state(given, asked)
    else:
        given, state = Given({}), None
    found = Mine(logs, tuple(recipes), document, state, given)
    return _checked(found, asked.files) if logs else found


def _state(given: Given, asked: Asked, calibration: str | None = None) -> State:
    """A plan as the page has it, with what was pasted. Raises PlanError beyond its limits."""
    config = asked.state.config
    texts = {"config": config, "calibration": calibration or asked.state.calibration}
    instead = ("calibration", "model") if config else ("calibration",)
    options = {n: v for n, v in given.items() if n not in instead}
    return of_mapping({**options, **texts}, marks_of(given))


def _checked(found: Mine, files: Mapping[str, bytes]) -> Mine:
    """With what the logs say, and every result that they allow; a runs table among them is the one
    that the run is added to."""
    tables = [name for name in found.logs if is_runs_table(files[name])]
    appended = (*tables, _APPEND)[0]
    answer = check.with_results(found.logs, found.given, _SAVE, appended)
    learned = answer.document.learned
    return replace(
        found,
        checked=answer.document,
        calibration=learned.calibration if learned else "",
        appended=appended,
        table=answer.table or "",
        notes=answer.document.notes if found.plan else [],
    )


def _view(found: Mine | None, asked: Asked) -> View:
    """What the log says, then what the recipe says."""
    if found is None:
        return _empty()
    views = [check_view(found.checked)] if found.checked else []
    views += [read_view(found.recipe, full=True)] if found.recipe else []
    blocks = [part for one in views for part in one.parts if isinstance(part, Block)]
    first = views[0] if views else View("", _UNPLANNED, "maybe")
    unplanned = found.checked is not None and found.plan is None and first.mark == "maybe"
    return View(
        ", ".join((*found.logs, *found.recipes)),
        _UNPLANNED if unplanned else first.verdict,
        first.mark,
        parts=[replace(one, folded=len(one.rows) > _LONG) for one in blocks],
        links=_links(found, asked),
        files=_results(found),
        notes=found.notes,
    )


def _empty() -> View:
    """What there is to be dropped."""
    recipes = ", ".join(one.title for one in formats.formats())
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


def _links(found: Mine, asked: Asked) -> list[Link]:
    """The plan on the page of plans, as it is and with what was learned."""
    if found.plan is None:
        return []
    out = [("Apply to the plan", found.plan)]
    if found.calibration:
        with contextlib.suppress(PlanError):  # longer than a page takes: there is the file
            out.append(("Apply, as calibrated", _state(found.given, asked, found.calibration)))
    queries = [(word, one.query) for word, one in out]
    if found.recipe and not asked.state.config:  # which no command holds
        changes = (("Apply what makes it fit", found.recipe.remedy), (_BETTER, found.recipe.better))
        queries += [
            (word, found.plan.picked(one.command, one.changes).query)
            for word, one in changes
            if one
        ]
    return [
        Link(word=word, address=f"/?{one}")
        for word, one in queries
        if len(one) <= limits.MAX_QUERY_BYTES
    ]


_BETTER = "Apply the better recipe"


def _results(found: Mine) -> list[File]:
    out = []
    if found.calibration:
        says = "the calibration that these runs make, for --calibration and for the plan's form"
        out.append(File(_SAVE, found.calibration, says))
    if found.table:
        says = "the runs table with this run, for `dpplan validate`; drop it with the next log"
        out.append(File(found.appended, found.table, says))
    return out


def _command(found: Mine | None, asked: Asked) -> str:
    """The command that says the same of these files."""
    if found is None:
        return "dpplan check train.log --recipe train.sh --gpu h100 --gpus 64"
    rest = shlex.split(asked.command)[2:]
    if not found.logs:
        return shlex.join(["dpplan", "read", *found.recipes, *rest, "--full"])
    recipes = [word for name in found.recipes for word in ("--recipe", name)]
    saved = ["--save", _SAVE] if found.calibration else []
    saved += ["--append", found.appended] if found.table else []
    return shlex.join(["dpplan", "check", *found.logs, *recipes, *rest, *saved])


ANSWERS = Answers(_find, _view, _command, plan=lambda found: found.plan if found else None)
