"""Launch files as one recipe: what each format reads of them, joined."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any

from planner import plugins
from planner.formats.others import NO_SHELL, refusal
from planner.formats.record import RL, STEPS, Answer, Format, Stated, Used, Value
from planner.formats.shape import model_of
from planner.formats.shell import script, starts
from planner.formats.skypilot import Task, task_of
from planner.formats.target import Target
from planner.formats.trainer_script import without_outputs
from planner.inputs.secrets import HIDDEN, is_secret, scrubbed
from planner.specs.base import PlanError
from planner.specs.options import Options, rows
from planner.specs.options.checked import from_text

FIELD = "FILE"
MOST_OF_NOTEBOOK = 20_000_000  # whose pictures are left out before it is read
MOST_BYTES = 500_000  # of one file; the longest launch script of those that are public has 60,000
MOST_FILES = 20
_PATH = re.compile(r"[/\\~]")
_PLAIN_PATH = re.compile(r"[\w.-]+/[\w.-]+")  # org/name of a hub, which says what is trained


class Unusable(PlanError):
    """A file that states no training that is read: beside others it is left out, and said."""

    def __init__(self, name: str, remedy: str, says: str = "") -> None:
        super().__init__(FIELD, name, remedy)
        self.says = says or remedy


@dataclass(frozen=True)
class Recipe:
    """Contents of launch files: the plan in our options, and every argument.

    kinds: ids of the formats that read a part, the format with most arguments first. stated: what
    says an option, by its name. notes: sentences on how the files were read, beside single
    arguments.
    values: the arguments of each format as they were parsed. by_verb: what the files say for one
    verb, by its name.
    """

    kinds: tuple[str, ...]
    options: Mapping[str, Any]
    arguments: Mapping[str, Used]
    stated: Mapping[str, Stated]
    notes: tuple[str, ...] = ()
    values: Mapping[Format, Mapping[str, Value]] = field(default_factory=dict, repr=False)
    by_verb: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@cache
def formats() -> tuple[Format, ...]:
    """Every format: the modules of this folder that declare one, and formats of other
    distributions. Raises PlanError where two have one id."""
    return tuple(_owners())


@cache
def _owners() -> dict[Format, str]:
    """Every format with the distribution that has it."""
    owners: dict[str, str] = {}
    out: dict[Format, str] = {}
    for name, module in _modules():
        if hasattr(module, "FORMAT"):
            out[module.FORMAT] = plugins.owner("formats", name)
            plugins.refuse_twice("formats", module.FORMAT.kind, owners, out[module.FORMAT])
    return out


@cache
def targets() -> tuple[Target, ...]:
    """Every framework whose files are written: the modules of this folder that declare some, in the
    order of their words for --to."""
    listed = [
        target
        for _, module in _modules()
        for target in (*getattr(module, "TARGETS", ()), getattr(module, "TARGET", None))
        if target is not None
    ]
    return tuple(sorted(listed, key=lambda target: str(target.kind)))


def _modules() -> Iterable[tuple[str, ModuleType]]:
    return plugins.loaded("formats").items()


def target(kind: str) -> Target:
    """The framework of a word for --to and --for."""
    return next(target for target in targets() if target.kind == kind)


def request(options: Options) -> Options:
    """A request limited by --for: layouts and options that files of a framework say."""
    return options if options.for_target is None else target(options.for_target).request(options)


def knows(files: Mapping[str, str]) -> bool:
    """Whether some format has a part of any of these texts."""
    return any(form.detect(name, text) for name, text in files.items() for form in formats())


def read(files: Mapping[str, str]) -> Recipe:
    """The recipe of these texts, by file name. Raises PlanError for a broken text, an unknown
    format, or two that contradict each other."""
    if len(files) > MOST_FILES:
        raise PlanError(FIELD, len(files), f"are more than {MOST_FILES} files")
    values: dict[Format, dict[str, Value]] = {}
    unused: dict[str, Unusable] = {}
    for name, text in files.items():
        try:
            by_form = parts(name, text)
        except Unusable as error:
            unused[name] = error
            continue
        for form, part in by_form.items():
            into = values.setdefault(form, {})
            for argument, value in part.items():
                placed = replace(value, file=value.file or name)
                _agree(argument, into.get(argument), placed)
                into[argument] = placed
    if unused and not values:
        raise next(iter(unused.values()))
    recipe = joined(values)
    left = tuple(f"{scrubbed(name)} is not used: it {why.says}" for name, why in unused.items())
    several = (_several(name, text) for name, text in files.items() if name not in unused)
    return replace(recipe, notes=(*left, *recipe.notes, *filter(None, several)))


def _several(name: str, text: str) -> str:
    """Which command of a script is read, where several start a program; "" of any other text."""
    if name.endswith(NO_SHELL):
        return ""
    try:
        likely = starts(script(text).commands)
    except ValueError:
        return ""
    if not likely[1:]:
        return ""
    lines = ", ".join(str(command.words[0].line) for command in likely[1:])
    return (
        f"{len(likely)} commands of {scrubbed(name)} start a program: read is the one with most"
        f" arguments, line {likely[0].words[0].line}, and not line {lines}"
    )


def joined(values: Mapping[Format, Mapping[str, Value]]) -> Recipe:
    """The recipe of parsed arguments, by format. Raises PlanError where two contradict each
    other."""
    answers = {form: _counted(_answer(form, value)) for form, value in values.items()}
    order = sorted(answers, key=lambda form: -len(values[form]))
    options = _joined([answers[form].options for form in order], "--{}")
    by_verb = {RL: _of_verb(options, RL)}
    _run(options)
    shape = _joined([answers[form].model for form in order], "{} of the model")
    named = options.get("model")
    model, notes = model_of(
        {name: stated.value for name, stated in shape.items()}, named and named.value
    )
    plain = {name: stated.value for name, stated in options.items() if name != "model"}
    plan = {name: value for name, value in plain.items() if value is not None} | model
    kinds = tuple(form.kind for form in order)
    used = _arguments({form.kind: answers[form] for form in order})
    sentences = (*notes, *(note for form in order for note in answers[form].notes))
    return Recipe(kinds, plan, used, options, tuple(map(scrubbed, sentences)), values, by_verb)


def _of_verb(options: dict[str, Stated], verb: str) -> dict[str, Any]:
    """Take out what is stated for one verb only."""
    names = [name for name in options if name.startswith(f"{verb}.")]
    return {name.partition(".")[2]: options.pop(name).value for name in names}


def _answer(form: Format, values: Mapping[str, Value]) -> Answer:
    try:
        return form.read(values)
    except PlanError:
        raise
    except ValueError as error:
        place = next((value.file for value in values.values() if value.file), form.title)
        raise PlanError(FIELD, place, str(error)) from None


def _counted(answer: Answer) -> Answer:
    """The answer without texts where an option is a number: they state nothing."""
    table = rows(Options)
    for name, stated in list(answer.options.items()):
        row = table.get(name)
        if row is None or row.kind not in (bool, int, float) or isinstance(stated.value, _PLAIN):
            continue
        try:
            from_text(row, str(stated.value))
        except ValueError as error:
            del answer.options[name]
            value = answer.values.get(stated.argument)
            why = f"{stated.value!r} {error}"
            answer.arguments[stated.argument] = Used(value and value.value, "not understood", why)
    return answer


_PLAIN = (bool, int, float, type(None))


def _run(options: dict[str, Stated]) -> None:
    """The tokens of a run of this many steps, where the files say all that is in a step."""
    steps = options.pop(STEPS, None)
    known = [options.get(name) for name in ("micro_batch", "grad_accum", "gpus", "seq_len")]
    if steps is None or "tokens" in options:
        return
    product = steps.value
    for factor in known:
        if factor is None or factor.value is None:
            return
        product *= factor.value
    shared = [options[name].value or 1 for name in ("tp", "pp", "cp") if name in options]
    options["tokens"] = replace(steps, value=product // math.prod(shared))


def parts(name: str, text: str) -> dict[Format, Mapping[str, Value]]:
    """The arguments of each format that a text has a part of."""
    if name.endswith(".ipynb") and MOST_BYTES < len(text) <= MOST_OF_NOTEBOOK:
        with suppress(ValueError, RecursionError):
            text = without_outputs(text)
    if len(text) > MOST_BYTES:
        raise PlanError(FIELD, name, f"is larger than the {MOST_BYTES:,} characters that are read")
    try:
        if (task := task_of(name, text)) is not None:
            return _of_task(name, task)
        detected = [form for form in formats() if form.detect(name, text)]
        # another distribution may read a program that has no reader here
        shipped = all(_owners()[form] == plugins.OURS for form in detected)
        if detected and shipped and (why := refusal(name, text)):
            raise Unusable(name, why)
        by_form = {form: form.parse(text) for form in _reading(name, detected)}
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError(FIELD, name, str(error)) from None
    if not any(by_form.values()):
        if why := refusal(name, text):
            raise Unusable(name, why)
        known = ", ".join(form.title for form in formats())
        raise Unusable(
            name,
            f"is an unsupported file type; supported: {known} (scenarios of dpplan: --scenario;"
            " a row of a runs table: FILE.csv:RUN)",
            "is not a kind of file that is read",
        )
    return {form: values for form, values in by_form.items() if values}


def _reading(name: str, detected: list[Format]) -> list[Format]:
    """The formats that read a text, among the detected ones: beside a format of the whole text only
    the launcher, in a script."""
    if not any(form.whole for form in detected):
        return detected
    script = not name.endswith(NO_SHELL)
    return [form for form in detected if form.whole or (script and form.kind == "launcher")]


def _of_task(name: str, task: Task) -> dict[Format, Mapping[str, Value]]:
    """Arguments of what a task of SkyPilot runs, beside the nodes and GPUs that it is given."""
    script = f"{name.rpartition('.')[0]}.sh"
    try:
        by_form = parts(script, task.script)
    except Unusable:
        if not task.given or refusal(script, task.script):
            raise
        by_form = {}
    launcher = next(form for form in formats() if form.kind == "launcher")
    return by_form | {launcher: {**by_form.get(launcher, {}), **task.given}}


def _agree(name: str, old: Value | None, new: Value) -> None:
    """Raise PlanError where two files give one argument two values."""
    if old is not None and old.value != new.value:
        shown, other = shown_value(name, old.value), shown_value(name, new.value)
        remedy = f"({new.place}) is {shown!r} in {old.place}; leave one of them out"
        raise PlanError(name, other, remedy)


def _joined(parts: list[dict[str, Stated]], called: str) -> dict[str, Stated]:
    """Options of all formats: a stated one wins over an implied one, and both over a program's
    default."""
    out: dict[str, Stated] = {}
    for part in parts:
        for name, stated in part.items():
            old = out.get(name)
            if old is None or old.weight < stated.weight:
                out[name] = stated
            elif not stated.implied and not old.implied and old.value != stated.value:
                raise PlanError(
                    called.format(name.replace("_", "-")),
                    stated.value,
                    f"by {stated.argument} ({stated.place}), and {old.value} by {old.argument}"
                    f" ({old.place}); leave one of them out",
                )
    return out


def _arguments(answers: Mapping[str, Answer]) -> dict[str, Used]:
    """Every argument by name, with its kind before it where two formats have the same."""
    out: dict[str, Used] = {}
    for kind, answer in answers.items():
        for name, used in answer.arguments.items():
            value = shown_value(name, used.value, used.use == "read")
            shown, called = replace(used, value=value, note=scrubbed(used.note)), scrubbed(name)
            out[f"{kind}: {called}" if called in out else called] = shown
    return out


_NAMES_MODEL = re.compile(r"(?:model|tokenizer|base|teacher|pretrain)[\w.-]*$", re.I)


def shown_value(name: str, value: Any, read: bool = False) -> Any:
    """A value as an answer may repeat it: no secret, no path. What was read is a number, a word or
    the public name of a model."""
    if isinstance(value, list):
        return [shown_value(name, item, read) for item in value]
    if not isinstance(value, str):
        return HIDDEN if is_secret(name) and not isinstance(value, bool | None) else value
    secret = is_secret(name) or scrubbed(value) != value
    hub = read or _NAMES_MODEL.search(name)
    path = _PATH.search(value) and not (hub and _PLAIN_PATH.fullmatch(value))
    return HIDDEN if secret or path else value
