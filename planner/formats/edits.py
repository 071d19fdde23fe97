"""Edits of the files of a recipe that turn it into another plan, in their own arguments.

Arguments that map one to one are changed in place. For the rest, both plans are written by the
target of the recipe's format, and the differences are the edits. The edited arguments are read
back: edits without effect are dropped, and options that the format cannot express are listed under
our names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.formats import recipe as formats
from planner.formats.record import Format, Value
from planner.formats.target import SHARDED, PlanToWrite, Target

_COMMAND = "edited.sh"  # under which arguments of a command line are parsed
_OFF = (None, False, 0, 1, "none")  # values of an option that is off
# what does nothing where a plan has no word for it: ranks and stages are then not divided so
_IDLE = ("schedule", "sequence_parallel", "placement")
_KEPT = ("gpus", "global_batch")  # what stays as it was, and must still be said

Values = Mapping[Format, Mapping[str, Value]]
Same = Callable[[str, Any, Mapping[str, Any], PlanToWrite], bool]


@dataclass(frozen=True)
class Edit:
    """One argument to change. kind: of the format that has it; name: as its files spell it; place:
    where it stands, "" where it is new; before: None where it is new; after: None where it is to be
    left out."""

    kind: str
    name: str
    place: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Edited:
    """The edits that bring a plan, and options of it that the files have no word for."""

    edits: tuple[Edit, ...]
    unsaid: Mapping[str, Any]


def target_of(recipe: formats.Recipe, request: PlanToWrite) -> Target | None:
    """The target that writes most of the kinds of files that a recipe has."""
    kinds = {_words(form) for form, values in recipe.values.items() if form.writable(values)}
    able = [target for target in formats.targets() if target.kind in kinds]

    def cover(target: Target) -> int:
        written = {_words(form) for form in _written(target, request)}
        return len(written & kinds) - len(written - kinds)

    return max(able, key=cover, default=None)


def edited(
    recipe: formats.Recipe,
    target: Target | None,
    before: PlanToWrite,
    after: PlanToWrite,
    same: Same,
) -> Edited:
    """How to edit a recipe of the plan `before` to one of the plan `after`. same: whether an option
    of a plan came back as it went."""
    if target is None or (target.deals and "pipeline_layout" not in recipe.options):
        before, after = (_without_split(plan) for plan in (before, after))
    names = {*before.options, *after.options}
    changed = {n: after.get(n) for n in sorted(names) if before.get(n) != after.get(n)}
    kept = {name: before.get(name) for name in _KEPT}
    lost = _unsaid(recipe.values, kept, before, same)  # what is typed beside the files
    wanted = {n: after.get(n) for n in _KEPT if n not in lost} | changed

    def unsaid(values: Values) -> dict[str, Any]:
        return _unsaid(values, wanted, after, same)

    values = {form: dict(values) for form, values in recipe.values.items()}
    _by_table(values, recipe, changed)
    left = unsaid(values)
    if left and target is not None:
        old, new = _written(target, before), _written(target, after)
        whole = {
            form: {name: value.value for name, value in values.items()}
            for form, values in new.items()
        }
        # the whole where the file says it otherwise
        for written_otherwise in (_differences(old, new), whole):
            _by_writing(values, written_otherwise)
            for option in changed.keys() & unsaid(values).keys():
                _leave_out(values, recipe, option, written_otherwise)
            if not unsaid(values):
                break
        _by_own_arguments(values, unsaid)
        left = unsaid(values)
        _prune(values, recipe.values, left, unsaid)
    return Edited(tuple(_edits(recipe.values, values)), left)


def on_stack(
    recipe: formats.Recipe, target: Target, before: PlanToWrite, stack: str
) -> Mapping[str, Any]:
    """The options of a recipe that a target writes for another stack, with all states sharded."""
    after = replace(before, options={**before.options, "stack": stack, "zero": SHARDED})
    values = {form: dict(values) for form, values in recipe.values.items()}
    _by_writing(values, _differences(_written(target, before), _written(target, after)))
    return formats.joined(values).options


def _without_split(request: PlanToWrite) -> PlanToWrite:
    """A plan for a program that deals its layers out to stages by itself."""
    kept = {name: option for name, option in request.options.items() if name != "pipeline_layout"}
    return replace(request, options=kept)


def _words(form: Format) -> str:
    """The kind of target that writes the arguments of a format."""
    return form.written_as or form.kind


def _by_table(
    values: dict[Format, dict[str, Value]], recipe: formats.Recipe, changed: Mapping[str, Any]
) -> None:
    """Change what states an option one to one where it stands."""
    for option, value in changed.items():
        stated = recipe.stated.get(option)
        if stated is None or value is None:
            continue
        for form, entry in values.items():
            names = {name: row for row in form.table for name in (row.name, *row.also)}
            row = names.get(stated.argument)
            if stated.argument in entry and row is not None and row.option == option:
                theirs = row.theirs(value)
                if theirs is not None:
                    _put(entry, stated.argument, theirs)


def _by_own_arguments(
    values: dict[Format, dict[str, Value]], unsaid: Callable[[Values], dict[str, Any]]
) -> None:
    """Add arguments of the recipe's own formats for what a target has no word for, where the files
    then say it: a fork has arguments that the program it stems from lacks."""
    for option, value in unsaid(values).items():
        listed = [(value, row) for form, value in values.items() for row in form.table]
        for stated, row in listed if value is not None else ():
            theirs = row.theirs(value) if row.option == option and row.name not in stated else None
            if theirs is None:
                continue
            stated[row.name] = Value(theirs)
            if option not in unsaid(values):
                break
            del stated[row.name]


def _by_writing(
    values: dict[Format, dict[str, Value]], written_values: Mapping[Format, Mapping[str, Any]]
) -> None:
    """Put in what a target writes otherwise."""
    for written, differ in written_values.items():
        into = next((form for form in values if _words(form) == _words(written)), written)
        for name, value in differ.items():
            _put(values.setdefault(into, {}), name, value)


def _leave_out(
    values: dict[Format, dict[str, Value]],
    recipe: formats.Recipe,
    option: str,
    written_values: Mapping[Format, Mapping[str, Any]],
) -> None:
    """Leave out what states an option otherwise, unless it has just been written."""
    stated = recipe.stated.get(option)
    kept = {name for differ in written_values.values() for name, value in differ.items() if value}
    if stated is not None and stated.argument not in kept:
        for stated_values in values.values():
            stated_values.pop(stated.argument, None)


def _prune(
    values: dict[Format, dict[str, Value]],
    before: Values,
    left: Mapping[str, Any],
    unsaid: Callable[[Values], dict[str, Any]],
) -> None:
    """Take out new arguments without which the files say as much."""
    for form, stated in values.items():
        for name in [name for name in stated if name not in before.get(form, {})]:
            value = stated.pop(name)
            if unsaid(values) != left:
                stated[name] = value


def _written(target: Target, request: PlanToWrite) -> dict[Format, Mapping[str, Value]]:
    """The arguments of the files that a target writes for a plan, by their format."""
    texts = dict(target.write(request, ()))
    if listed := target.arguments(request):
        program = target.starts(request) if target.starts else target.program
        texts[_COMMAND] = " \\\n".join([f"torchrun {program}", *listed])
    out: dict[Format, Mapping[str, Value]] = {}
    for name, text in texts.items():
        for form, part in formats.parts(name, text).items():
            if form.kind != "launcher":
                out[form] = {**out.get(form, {}), **part}
    return out


def _differences(before: Values, after: Values) -> dict[Format, dict[str, Any]]:
    """Arguments with the values that they get; None for those that go."""
    out: dict[Format, dict[str, Any]] = {}
    for form in {**before, **after}:
        old, new = before.get(form, {}), after.get(form, {})
        values = {n: new[n].value if n in new else None for n in {**old, **new}}
        out[form] = {n: v for n, v in values.items() if n not in old or old[n].value != v}
    return out


def _put(into: dict[str, Value], name: str, value: Any) -> None:
    if value is None:
        into.pop(name, None)
    else:
        old = into.get(name, Value(None))
        into[name] = Value(value, old.line, (), old.file)


def _unsaid(
    values: Values, wanted: Mapping[str, Any], after: PlanToWrite, same: Same
) -> dict[str, Any]:
    """Options that the edited arguments do not say."""
    back = formats.joined({form: value for form, value in values.items() if value}).options
    whole, out = after.replicas * after.get("cp", 1), {}
    for name, value in wanted.items():
        value_back = back.get(name)
        if value is None:
            is_said = (
                value_back in _OFF
                or name in _IDLE
                or (name == "shard_group" and value_back == whole)
            )
        else:
            is_said = same(name, value, back, after) or (value_back is None and value in _OFF)
        if not is_said:
            out[name] = value
    return out


def _edits(before: Values, after: Values) -> list[Edit]:
    out = []
    for form, new in after.items():
        old = before.get(form, {})
        for name in {**old, **new}:
            was, now = (values[name] if name in values else Value(None) for values in (old, new))
            if was.value != now.value or (name in old) != (name in new):
                shown = formats.shown_value(name, was.value, True)
                out.append(Edit(form.kind, form.spelled(name), was.place, shown, now.value))
    return sorted(out, key=lambda edit: (not edit.place, edit.kind, edit.name))
