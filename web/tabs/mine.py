"""My run: recipe and log dropped together; what `read` and `check` say of them, the calibration and
the row of a runs table as files to take along."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner import formats
from planner.formats.plan import planned
from planner.inputs.logs.programs import titles
from planner.specs.base import PlanError
from planner.specs.documents.check import Check
from planner.specs.documents.read import Read
from planner.specs.options import Given, flag
from planner.units import show, span
from planner.verbs import check, read
from planner.verbs.check.sort import is_runs_table, recipes_of
from planner.views.check import check_blocks
from planner.views.read import read_blocks
from planner.views.view import Block
from web import limits
from web.state import State, marks_of, of_mapping
from web.tabs.base import Asked, Found, Mark, Result, Tab, Table

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


def _show(found: Mine | None, asked: Asked) -> Found:
    if found is None:
        return _empty()
    mark, verdict = _verdict(found)
    document = found.checked
    blocks = [*(check_blocks(document) if document else ())]
    blocks += read_blocks(found.recipe, full=True) if found.recipe else []
    return Found(
        title=", ".join((*found.logs, *found.recipes)),
        verdict=verdict,
        command=_command(found, asked),
        mark=mark,
        parts=tuple(Table(one, folded=len(one.rows) > _LONG) for one in blocks),
        links=_links(found, asked),
        results=_results(found),
        notes=tuple(found.notes),
        plan=found.plan,
    )


def _empty() -> Found:
    """What there is to be dropped."""
    recipes = ", ".join(one.title for one in formats.formats())
    return Found(
        title="What is read",
        verdict="Nothing is dropped yet",
        command="dpplan check train.log --recipe train.sh --gpu h100 --gpus 64",
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


def _verdict(found: Mine) -> tuple[Mark, str]:
    """The colour and the sentence of the answer: what went wrong first."""
    checked, recipe = found.checked, found.recipe
    short = [said for one in checked.files for said in one.shortages] if checked else []
    if short:
        return "no", f"Memory ran out: {short[0].why}"
    if checked and (a := check.compared(checked)):
        said = (
            f"{a.verdict.capitalize()}: {show(a.measured_s, 's')} measured,"
            f" {show(a.predicted_s, 's')} predicted ({span(a.low, a.high, 's')})"
        )
        return "yes" if a.verdict == check.INSIDE else "maybe", said
    if recipe and recipe.refused:
        return "no", f"No estimate: {recipe.refused}"
    if recipe and recipe.missing:
        flags = " and ".join(flag(name) for name in recipe.missing)
        return "maybe", f"The files do not say {flags}: choose it above and read them again"
    if recipe and recipe.estimate:
        r, change = recipe.estimate, recipe.remedy or recipe.better
        said = "it fits" if recipe.out_of_memory is None else recipe.out_of_memory.says
        then = f"; {change.change} takes {show(change.step_seconds, 's')}" if change else ""
        return (
            "yes" if r.memory.fits else "no",
            f"{show(r.step.seconds, 's')} per step: {said}{then}",
        )
    return "maybe", _UNPLANNED if not found.plan else "Read, without a step time to compare"


_UNPLANNED = "Read; drop the recipe beside it, or choose model and GPU above, to compare it"


def _links(found: Mine, asked: Asked) -> tuple[tuple[str, str], ...]:
    """The plan on the page of plans, as it is and with what was learned."""
    if found.plan is None:
        return ()
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
    return tuple((word, f"/?{one}") for word, one in queries if len(one) <= limits.MAX_QUERY_BYTES)


_BETTER = "Apply the better recipe"


def _results(found: Mine) -> tuple[Result, ...]:
    out = []
    if found.calibration:
        says = "the calibration that these runs make, for --calibration and for the plan's form"
        out.append(Result(_SAVE, found.calibration, says))
    if found.table:
        says = "the runs table with this run, for `dpplan validate`; drop it with the next log"
        out.append(Result(found.appended, found.table, says))
    return tuple(out)


def _command(found: Mine, asked: Asked) -> str:
    """The command that says the same of these files."""
    rest = shlex.split(asked.command)[2:]
    if not found.logs:
        return shlex.join(["dpplan", "read", *found.recipes, *rest, "--full"])
    recipes = [word for name in found.recipes for word in ("--recipe", name)]
    saved = ["--save", _SAVE] if found.calibration else []
    saved += ["--append", found.appended] if found.table else []
    return shlex.join(["dpplan", "check", *found.logs, *recipes, *rest, *saved])


TAB = Tab(
    path="/run",
    name="My run",
    title="My run",
    lead=(
        "Drop the launch script and the log of a run: what was planned, what came of it, what would"
        " explain the difference, and a calibration of your cluster. The files are read in memory,"
        " and never stored."
    ),
    ask="Read and check",
    verb="check",
    shown=("model", "gpu", "gpus", "stack"),
    folded=(
        "gpus_per_node",
        "precision",
        "seq_len",
        "global_batch",
        "micro_batch",
        "tp",
        "pp",
        "cp",
        "ep",
        "zero",
        "recompute",
    ),
    files="Files of the run: scripts, configurations, logs, traces",
    find=_find,
    show=_show,
    model=None,
)
