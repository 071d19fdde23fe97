"""Commands made from the option table: a function over records of options becomes a typer command.

    def command(given: Given, own: SearchOptions, out: Output) -> Answer: ...

`given` are the options of a request by name: typed ones, then the ones of --scenario; other
parameters are records. Every command checks what it would write, answers, and ends the same way.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from planner import plugins
from planner.cli.finish import Answer, check_results, finish
from planner.cli.process import limited
from planner.cli.refusal import clear_errors
from planner.error import PlanError
from planner.inputs.files import remembered
from planner.specs.options import Given, NoNumber, Options, PerGpu, Row, flag, rows, taken
from planner.specs.options.mechanisms import mechanism_of
from planner.specs.options.own import ScenarioFile
from planner.specs.options.verbs import ALIKE

if TYPE_CHECKING:
    from planner.formats.plan import Planned

_NUMBERS = (int, float)
_MOST_SECONDS = 10.0  # of CPU time for launch files, as the server has it; they take 0.02
_WRITTEN = ("written", "folder")
_ASKS = ("estimate", "read")  # verbs whose answer is a range where launch files leave it undecided
# verbs of a step that a recipe may not have, and which have it
_WHOLE_STEPS = {"rl": "recipes of verl, OpenRLHF, NeMo-RL and TRL's GRPO and RLOO state"}
Typed = frozenset[str]  # names of the options of the request that are on the command line
Body = Callable[..., Answer | None]


def options_of(verb: str, body: Body) -> tuple[dict[str, Row], dict[str, Row]]:
    """Options of `dpplan VERB` by name: request options, and options of this verb only. Raises
    PlanError where a mechanism has an option that the verb has, too."""
    kinds = _kinds(body)
    shared = (*taken(Options, ALIKE.get(verb, verb)), *taken(ScenarioFile, verb))
    request = shared if "given" in kinds else ()
    makers = {row.name: kind for kind in kinds.values() for row in _rows_of(kind, verb)}
    specific = {row.name: row for kind in kinds.values() for row in _rows_of(kind, verb)}
    for row in request:
        if row.name in specific and (mechanism := mechanism_of(row.name)):
            raise plugins.option_twice(row.flag, mechanism, makers[row.name])
    return {row.name: row for row in request if row.name not in specific}, specific


def command_of(verb: str, body: Body) -> Callable[..., None]:
    """A typer command of `dpplan VERB` that asks for what the body's parameters are made of."""
    request, specific = options_of(verb, body)
    written = written_of(specific)

    def command(**typed: Any) -> None:
        values = {name: value for name, value in typed.items() if value not in (None, [])}
        # `--gpus --json` takes the flag for a number, and is to be refused as it asks for
        as_json = bool(values.get("json")) or "--json" in typed.values()
        with clear_errors(as_json), remembered():
            values, arguments = read_arguments(verb, body, values)
            check_results(written, {**arguments.get("given", {}), **values}, as_json)
            answer = body(**arguments)
            if answer is not None:
                finish(arguments["out"], written, values, answer)

    command.__doc__ = body.__doc__
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [_parameter(row, verb) for row in _in_order([*request.values(), *specific.values()])]
    )
    return command


def read_arguments(
    verb: str, body: Body, typed: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of `dpplan VERB` by name, numbers as such, and the arguments of its function. Raises
    PlanError."""
    from planner.specs.options.checked import read

    request, specific = options_of(verb, body)
    table = {**request, **specific}
    values = {name: _value(table[name], value) for name, value in typed.items()}
    arguments: dict[str, Any] = {}
    stated_for_verb: Mapping[str, Any] = {}  # by launch files, of this verb's own options
    for name, kind in sorted(_kinds(body).items(), key=lambda item: item[1] is not Given):
        if kind is Given:
            typed_here = {k: v for k, v in values.items() if k in request}
            arguments[name] = _given(typed_here, verb, request)
            stated_for_verb = arguments[name].by_verb.get(verb, {})
            if verb not in _ASKS and arguments[name].undecided:
                _refuse_undecided(arguments[name], values)
        elif kind == Typed:
            arguments[name] = values.keys() & request.keys()
        else:
            mine = {row.name for row in _rows_of(kind, verb)}
            stated = {k: v for k, v in stated_for_verb.items() if v is not None} | values
            _refuse_text({k: v for k, v in stated.items() if k in mine})
            arguments[name] = read(kind, {k: v for k, v in stated.items() if k in mine})
    return values, arguments


def _refuse_text(stated: Mapping[str, Any]) -> None:
    """Raise PlanError for options that launch files state as text where a number is meant."""
    for name, value in stated.items():
        if isinstance(value, NoNumber):
            remedy = f"is not a number that the file states: give {flag(name)}"
            raise PlanError(value.argument, value.value, remedy)


def written_of(specific: Mapping[str, Row]) -> dict[str, Row]:
    """Options of a verb that name a result."""
    return {name: row for name, row in specific.items() if row.says.file in _WRITTEN}


def _given(typed: dict[str, Any], verb: str, takes: Collection[str]) -> Given:
    """Options by precedence: command line, scenario file, recipe."""
    from planner.inputs.scenario_file import merge

    recipe = typed.pop("recipe", None)
    given = merge(typed)
    if not recipe:
        return given
    planned = recipe_of(tuple(recipe), given)
    if planned.refused:
        raise PlanError("--recipe", " ".join(recipe), planned.refused)
    if planned.options.by_verb.get(verb):
        _open_for(verb, planned, takes)
    elif verb in _WHOLE_STEPS:
        trains = planned.recipe.kinds[0]
        raise PlanError(
            "--recipe",
            " ".join(recipe),
            f"({trains}) states no step of `dpplan {verb}`, which {_WHOLE_STEPS[verb]}; ask"
            " `dpplan estimate --recipe` for its optimizer step, or give the step here by --model,"
            " --prompts, --responses and --response-max",
        )
    return planned.options


def _open_for(verb: str, planned: Planned, takes: Collection[str]) -> None:
    """Leave out of a recipe's request what follows in this verb from options of its own. takes:
    options of the request that the verb takes."""
    gpus = int(planned.options.get("gpus") or 1)
    stated = {
        name: value.of(gpus) if isinstance(value, PerGpu) else value
        for name, value in planned.options.by_verb[verb].items()
    }
    planned.options.by_verb = {**planned.options.by_verb, verb: stated}
    stated_for_verb = {name: value for name, value in stated.items() if name in takes}
    for name in planned.options.keys() - planned.typed.keys():  # a copy
        if name not in takes or stated_for_verb.get(name, name) is None:
            del planned.options[name]
    known = {name: value for name, value in stated_for_verb.items() if value is not None}
    planned.options.update({**known, **planned.typed})
    left = planned.options.undecided
    planned.options.undecided = {
        name: left[name] for name in left if name in takes and name not in stated_for_verb
    }


def _refuse_undecided(given: Given, values: dict[str, Any]) -> None:
    """Raise PlanError where launch files leave an option undecided that moves the answer by more
    than its band: `estimate` gives the range, other verbs a verdict that would rest on it."""
    from planner.inputs.options import read_options
    from planner.verbs.estimate import estimate
    from planner.views.undecided import question

    varied = {str(text).partition("=")[0].replace("-", "_") for text in values.get("vary") or ()}
    options = read_options({name: v for name, v in given.items() if name in rows(Options)})
    left = {name: entry for name, entry in given.undecided.items() if name not in varied}
    if not left:
        return
    moves = True  # also where it can't be estimated: no GPU is given, ...
    with suppress(PlanError):
        report = estimate(options.changed(undecided=left), brief=True)
        moves = report.undecided.moves if report.undecided else False
    if moves:
        named = question({name: entry.arguments for name, entry in left.items()})
        remedy = f"{named}: give it, or ask `dpplan estimate` for the range"
        raise PlanError("--recipe", " ".join(left), remedy)


def recipe_of(names: tuple[str, ...], given: Given) -> Planned:
    """Request from launch files or a row of a runs table, with options of the command line
    applied."""
    shown = " ".join(names)
    planned: Planned
    if any(".csv:" in name for name in names):
        planned = plugins.load("studies.validate.as_recipe", "--recipe", shown).planned(
            names, given
        )
    else:
        formats = plugins.load("formats.plan", "--recipe", shown)
        remedy = (
            f"takes more than {_MOST_SECONDS:g} s to read: give only the command, or its values"
        )
        with limited(_MOST_SECONDS, PlanError("FILE", shown, remedy)):
            planned = formats.planned(formats.texts(names), given)
    return planned


def _kinds(body: Body) -> dict[str, Any]:
    return {name: kind for name, kind in get_type_hints(body).items() if name != "return"}


def _rows_of(record: Any, verb: str) -> tuple[Row, ...]:
    """The options of a record that a verb takes; all of a record without VERBS."""
    if record in (Given, Typed):
        return ()
    return taken(record, verb) if record.VERBS else tuple(rows(record).values())


def _in_order(table: Sequence[Row]) -> list[Row]:
    """Words first, then options panel by panel."""
    panels = list(dict.fromkeys(row.group for row in table))
    return sorted(table, key=lambda row: (not row.says.argument, panels.index(row.group)))


def _value(row: Row, typed: Any) -> Any:
    """A number as a number; words are left as they were typed, so that an answer can say how they
    were read."""
    if row.kind not in _NUMBERS or row.takes_words or not isinstance(typed, str):
        return typed
    from planner.specs.options.checked import from_text

    try:
        return from_text(row, typed)
    except ValueError as error:
        raise PlanError(row.flag, typed, str(error)) from None


def _parameter(row: Row, verb: str) -> inspect.Parameter:
    """An option or argument of typer; None where it is not given, so that a record knows."""
    several = row.is_several or verb in {command.split()[0] for command in row.says.several}
    kind = list[str] if several else row.kind
    shown = f"<{kind.__name__}>" if kind in _NUMBERS else None
    if kind not in (bool, list[str], tuple[str, str]):
        kind = str
    panel = row.group.title
    if row.says.argument:
        note = typer.Argument(metavar=row.says.argument, help=row.help, show_default=False)
    else:
        spelled = row.flag
        if row.is_switch and rows(Options).get(row.name) == row:  # a scenario file may have set it
            spelled = f"{row.flag}/--no-{row.flag[2:]}"
        text = row.help if row.is_several or not several else f"{row.help}; may be given again"
        flags = (row.says.short, spelled) if row.says.short else (spelled,)
        note = typer.Option(
            *flags, help=text, rich_help_panel=panel, show_default=False, metavar=shown
        )
    return inspect.Parameter(
        row.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, note],
    )
