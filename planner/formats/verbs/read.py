"""The verb `read`: files of another program as a request, every argument accounted for, what the
estimate says of it, and what to change in the files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Any

from msgspec import structs

from planner import advise, plugins
from planner.advise.changes import difference
from planner.formats import edits
from planner.formats.documents.read import Edit, OutOfMemory, Read, ReadArgument, Recipe, Term
from planner.formats.options import ReadOptions
from planner.formats.plan import Planned, planned
from planner.formats.target import PlanToWrite, Target
from planner.formats.verbs.export import nodes_of, plan_of, same
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.search.pick import of_command
from planner.specs.base import PlanError
from planner.specs.document import SCHEMA_VERSION, extended
from planner.specs.documents.advice import Advice
from planner.specs.documents.estimate import Estimate
from planner.specs.options import LAYOUT, Options, flag, rows
from planner.units import show
from planner.verbs.estimate import answered, taken

_USES = ("read", "implied", "irrelevant", "not understood")
_TERMS = 4  # parts of the memory that are named
_TYPED = "typed beside the files"


def read(files: Mapping[str, str], given: Mapping[str, Any]) -> Read:
    """The plan of these texts, by file name, and its estimate.

    given: options beside them, which win. Raises PlanError for a broken file or an unknown format,
    for two that contradict each other, and for a wrong option.
    """
    return answer(planned(files, given))


def answer(planned: Planned) -> Read:
    """The document of a plan."""
    recipe, refused = planned.recipe, planned.refused
    report: Estimate | None = None
    remedy = better = None
    if not planned.missing and not refused:
        try:
            report, remedy, better = _planned(planned, read_options(planned.options))
        except PlanError as error:  # no layout is possible: an answer
            refused = str(error)
    left = planned.options.undecided
    used = {
        name: ReadArgument(value=argument.value, use=argument.use, note=argument.note)
        for name, argument in recipe.arguments.items()
    }
    counts = Counter[str](used_argument.use for used_argument in used.values())
    return Read(
        schema_version=SCHEMA_VERSION,
        kind=recipe.kinds[0],
        kinds=list(recipe.kinds),
        options=dict(planned.options),
        arguments=used,
        counts={use: counts[use] for use in _USES},
        notes=list(recipe.notes),
        undecided={name: list(entry.arguments) for name, entry in left.items()},
        possible=report.undecided.possible if report and report.undecided else [],
        missing=list(planned.missing),
        refused=refused or None,
        estimate=report,
        out_of_memory=None if report is None else _out_of_memory(report),
        remedy=remedy,
        better=better,
        command=None if report is None else report.command,
    )


def appended(document: Read, settings: ReadOptions) -> str:
    """The runs table that `--append` names with a row of the recipe, whose result is empty. Raises
    PlanError where the files allow no estimate."""
    row = plugins.load("studies.check.row", "--append", settings.append)
    if document.estimate is None:
        why = document.refused or f"the files do not say {' and '.join(document.missing)}"
        raise PlanError("--append", settings.append, f"has no row of this recipe: {why}")
    options = read_options(document.options)
    estimates = taken(options).estimates
    name = PurePath(settings.files[0])
    cells = row.row_of(options, estimates, None, {}, name.stem, oom=False)
    cells |= {"source": "dpplan read", "source_ref": name.name}
    table: str = row.appended(settings.append or "", cells)
    return table


def _planned(planned: Planned, options: Options) -> tuple[Estimate, Recipe | None, Recipe | None]:
    """The estimate, the cheapest change that makes it fit, and the best layout."""
    report, searched = answered(options)
    if options.advice == 0:
        return report, None, None
    before = _plan_to_write(of_command(options, report.pick))
    target = edits.target_of(planned.recipe, before)
    stacks = target.stacks if target else (report.stack.id,)
    others = {} if target is None or report.memory.fits else _stacks(planned, target, before)
    better = advise.best_layout(resolve(options), searched.chosen, searched.row, others)
    remedy = None
    if not report.memory.fits:
        fitting = [change for change in report.advice if change.fits]
        of_stack = [change for change in fitting if change.stack in (report.stack.id, *stacks)]
        remedy = next(iter(of_stack), better) or next(iter(fitting), None)
    words = in_files(planned, options, report)

    def recipe(change: Advice | None) -> Recipe | None:
        return None if change is None else words(change)

    return report, recipe(remedy), recipe(better)


def in_files(planned: Planned, options: Options, report: Estimate) -> Callable[[Advice], Recipe]:
    """Changes of a plan that was read from files, as edits of these files."""
    before = _plan_to_write(of_command(options, report.pick))
    target = edits.target_of(planned.recipe, before)

    def recipe(change: Advice) -> Recipe:
        after = _plan_to_write(of_command(options, change.pick))
        text = edits.edited(planned.recipe, target, before, after, same)
        return extended(
            Recipe,
            change,
            change=_words(report, change),
            edits=[
                *(
                    Edit(edit.name, edit.kind, edit.place, edit.before, edit.after)
                    for edit in text.edits
                ),
                *(
                    Edit(flag(name), "", _TYPED, value, after.get(name))
                    for name, value in planned.typed.items()
                    if before.get(name) != after.get(name)
                ),
            ],
            unsaid=dict(text.unsaid),
        )

    return recipe


def _stacks(planned: Planned, target: Target, before: PlanToWrite) -> dict[str, dict[str, Any]]:
    """The request on the other stacks of a target: a trainer that shards keeps states in other
    types."""
    was = planned.recipe.options
    read_as = {
        stack: edits.on_stack(planned.recipe, target, before, stack) for stack in target.stacks
    }
    out = {}
    for stack, options in read_as.items():
        names = {*was, *options} & rows(Options).keys() - planned.typed.keys()
        update = {n: options.get(n) for n in names if options.get(n) != was.get(n)}
        if before.get("stack") != stack == options.get("stack"):
            out[stack] = update
    return out


def _words(report: Estimate, change: Advice) -> str:
    """A change in words; of a search for a layout what differs in the layout that it found."""
    searched = change.kind == "search" and set(change.changes) <= {*LAYOUT}
    return difference(report.layout, change.layout) if searched else change.change


def _plan_to_write(pick: Options) -> PlanToWrite:
    """A pick as what writes files takes it."""
    estimates = taken(pick).estimates
    return PlanToWrite(
        plan_of(pick, estimates, deals=False),
        estimates.plan.model,
        *nodes_of(estimates.plan.cluster.gpus, estimates.plan.cluster.gpus_per_node),
    )


def _out_of_memory(report: Estimate) -> OutOfMemory | None:
    m = report.memory
    if m.fits:
        return None
    listed_terms = terms(report)
    missing = max(0.0, -m.headroom_bytes)
    listed = ", ".join(
        f"{term.name.replace('_', ' ')} {show(term.bytes, 'B')}" for term in listed_terms
    )
    short = (
        f"{show(missing, 'B')} more than the {show(m.capacity_bytes, 'B')} that a GPU has"
        if missing
        else "the GPU has room enough, and the memory of its host or the drives have not"
    )
    where = f"pipeline stage {m.worst_stage} of {report.layout.pp}" if report.layout.pp > 1 else ""
    at = f", fullest in the phase {m.worst_phase}{f' on {where}' if where else ''}"
    says = f"needs {show(m.device_bytes, 'B')} per GPU, {short}{at}: {listed}"
    return OutOfMemory(missing, m.worst_stage, m.worst_phase, listed_terms, says)


def terms(report: Estimate) -> list[Term]:
    """The largest parts of the memory of the fullest GPU."""
    m = report.memory
    parts = {**m.components, **structs.asdict(m.outside)}
    largest = sorted(parts.items(), key=lambda pair: -pair[1])[:_TERMS]
    return [Term(name, size, size / m.device_bytes) for name, size in largest if size > 0]
