"""Launch files to a request: typed options win; options without effect are dropped and reported."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.formats import recipe as formats
from planner.formats.megatron_bridge import recipes_in
from planner.formats.record import SQUARE, Stated, Used, patterns
from planner.formats.undecided import undecided
from planner.inputs import catalog
from planner.inputs.fine_tuning import FINE_TUNES
from planner.inputs.model import model_spec
from planner.inputs.options import read_options
from planner.inputs.scenario import resolve
from planner.inputs.secrets import scrubbed, scrubbing
from planner.specs.base import PlanError
from planner.specs.options import AS_IT_RUNS, Given, Options, Origin, over, refuse, rows

# what a plan cannot do without: where the files contradict themselves in these, that is the answer
_KEPT = frozenset(
    patterns(
        "model gpu gpus nodes cluster tp pp dp cp ep micro_batch global_batch seq_len precision"
        " stack pipeline_layout"
    )
)
_SIZE = ("gpus", "nodes")
# fine-tuning whose files start no more processes
_ALONE = Origin("default", "one GPU: the files name no number")


@dataclass(frozen=True)
class Planned:
    """A recipe as a request.

    options: of the files and those typed beside them; typed: the latter; missing: what neither says
    and an estimate needs; refused: why no estimate is possible, "" where one is or something is
    missing.
    """

    recipe: formats.Recipe
    options: Given
    typed: Given
    missing: tuple[str, ...] = ()
    refused: str = ""


def texts(names: tuple[str, ...]) -> dict[str, str]:
    """The texts of files by their names. Raises PlanError."""
    paths = {name: catalog.user_path(name, formats.FIELD) for name in names}
    texts_by_name = {name: _text(path) for name, path in paths.items()}
    short = {Path(name).name for name in names}
    return {
        Path(n).name if len(short) == len(names) else n: text for n, text in texts_by_name.items()
    }


def _text(path: Path) -> str:
    """The text of a file; for `FILE.py:NAME` the text of that recipe."""
    whole, _, part = str(path).partition(".py:")
    if not part:
        notebook = path.suffix == ".ipynb"
        most = formats.MOST_OF_NOTEBOOK if notebook else formats.MOST_BYTES
        return catalog.read_text(path, formats.FIELD, most)
    text = catalog.read_text(Path(f"{whole}.py"), formats.FIELD, formats.MOST_BYTES)
    try:
        recipes = recipes_in(text)
    except ValueError as error:
        raise PlanError(formats.FIELD, str(path), str(error)) from None
    if part not in recipes:
        remedy = f"has no recipe of this name; it has {', '.join(recipes) or 'none'}"
        raise PlanError(formats.FIELD, str(path), remedy)
    return recipes[part]


def planned(files: Mapping[str, str], given: Mapping[str, Any]) -> Planned:
    """The request of these files and of what is given beside them, which wins. An error, too,
    repeats no secret of the files."""
    with scrubbing((*files, *(value for value in given.values() if isinstance(value, str)))):
        return _planned(files, given)


def _planned(files: Mapping[str, str], given: Mapping[str, Any]) -> Planned:
    recipe = formats.read(files)
    typed = Given(given)
    return settled(recipe, _of_width(recipe, files, typed), typed)


def settled(recipe: formats.Recipe, given: Given, typed: Given) -> Planned:
    """The request of what a recipe says and of what is typed beside it: what neither states of
    kernels, overlap and dispatch is as the program has it. Raises PlanError where what is typed is
    wrong."""
    options = over(
        Given({"stack_defaults": True}, {"stack_defaults": AS_IT_RUNS}), over(given, typed)
    )
    for size, other in (_SIZE, _SIZE[::-1]):  # two ways to say one number
        if size in typed and other not in typed:
            options.pop(other, None)
    missing = [] if "model" in options else ["model"]
    missing += [] if "gpu" in options or "cluster" in options else ["gpu"]
    missing += [] if any(name in options for name in _SIZE) else ["gpus"]
    if missing == ["gpus"] and any(options.get(name) is not None for name in FINE_TUNES):
        options = over(Given({"gpus": 1}, {"gpus": _ALONE}), options)
        missing = []
    if missing:
        read_options({"model": "none", **typed})  # what is typed is right, whatever is missing
        planned = Planned(recipe, options, typed, tuple(missing))
    else:
        planned = _settled(recipe, options, typed)
    planned.options.undecided = undecided(planned.recipe, typed)
    planned.options.by_verb = recipe.by_verb
    planned.options.planned = planned
    return planned


def _of_width(recipe: formats.Recipe, files: Iterable[str], typed: Given) -> Given:
    """The options of a recipe, each with its place; buckets whose size follows from the hidden size
    of the model, once that is known."""
    options = dict(recipe.options)
    model = typed.get("model", options.get("model"))
    each = options.pop(SQUARE, None)
    if each is not None and model is not None and not options.get("dp_bucket"):
        with suppress(PlanError):  # reported where the model is read
            options["dp_bucket"] = float(each * model_spec(str(model))[0].hidden ** 2)
    whole = ", ".join(files)
    return Given(options, {name: _origin(recipe.stated.get(name), whole) for name in options})


def _origin(stated: Stated | None, files: str) -> Origin:
    """Place of an option in a recipe; files: the files that state it together."""
    if stated is None:
        return Origin("file", scrubbed(files))
    if not stated.place:
        return Origin("default", scrubbed(f"of the program of {files}: {stated.argument}"))
    return Origin("file", scrubbed(f"{stated.place.replace(', line ', ':')} {stated.argument}"))


def _settled(recipe: formats.Recipe, options: Given, typed: Given) -> Planned:
    """The request without what does not act in it, each with its reason."""
    flags = {row.flag: name for name, row in rows(Options).items()}
    arguments, notes = dict(recipe.arguments), list(recipe.notes)
    refused = ""
    while True:
        acts = False  # beside the other options; then it is the model or the stack that refuses
        try:
            options_read = read_options(options)
            refuse(options_read, "estimate")
            acts = True
            resolve(options_read)
            break
        except PlanError as error:
            name = flags.get(error.field.split(" ")[0], "")
            if name in typed or not name:
                raise
            if name not in options or name in _KEPT:
                refused = scrubbed(str(error))
                break
            del options[name]
            stated = recipe.stated.get(name) or recipe.stated[SQUARE]
            if acts or not stated.implied:
                notes.append(f"left out: {scrubbed(str(error))}")
                old = arguments.get(stated.argument)
                if old is not None and not stated.implied:
                    arguments[stated.argument] = Used(
                        old.value, "not understood", scrubbed(str(error))
                    )
    changed = replace(recipe, arguments=arguments, notes=tuple(notes))
    return Planned(changed, options, typed, (), refused)
