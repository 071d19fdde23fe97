"""docs/formulas: every formula as the code knows it, a page per module, the rules, and the
schedules in closed form."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType

from pages.sheets import sheets
from pages.text import NOTICE, table

_SUFFIXES = (
    ("_flop_per_s", "FLOP/s"),
    ("_bytes_per_s", "B/s"),
    ("_per_gpu_per_s", "B/s"),
    ("_tokens_per_s", "tokens/s"),
    ("_parameters_per_s", "1/s"),
    ("_bytes", "B"),
    ("_tokens", "tokens"),
    ("_flop", "FLOP"),
    ("_frac", "share"),
    ("_s", "s"),
    ("_w", "W"),
)


def modules() -> list[ModuleType]:
    """All modules of planner.formulas; importing them fills planner.ledger.FORMULAS."""
    import planner.formulas

    names = sorted(m.name for m in pkgutil.iter_modules(planner.formulas.__path__))
    return [importlib.import_module(f"planner.formulas.{name}") for name in names]


def _input(parameter: inspect.Parameter) -> str:
    unit = next((unit for suffix, unit in _SUFFIXES if parameter.name.endswith(suffix)), "")
    default = "" if parameter.default is inspect.Parameter.empty else f" = {parameter.default:g}"
    return f"`{parameter.name}{default}`" + (f" ({unit})" if unit else "")


def _inputs(function: object) -> str:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    plain = [_input(p) for p in parameters if p.kind is not inspect.Parameter.KEYWORD_ONLY]
    named = [_input(p) for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]
    return ", ".join(plain) + ("; by name: " + ", ".join(named) if named else "")


def folder() -> dict[str, str]:
    """Pages of docs/formulas by name."""
    return sheets(_text(), "formulas")


def _text() -> str:
    from planner.formulas.rules import RULES
    from planner.ledger import FORMULAS
    from planner.schedules import BY_NAME

    names = modules()
    count = sum(f.module.startswith("formulas.") for f in FORMULAS.values())
    out = [
        NOTICE
        + f"# Formulas\n\nThe {count} formulas of the planner, as the code holds them. `dpplan"
        " estimate ... --explain` prints the same names, equations and sources with the numbers"
        " that went in and came out. Symbols and units are on the [notation](notation.md) page,"
        " the way the formulas are put together under [mechanisms](mechanisms/index.md).\n"
    ]
    for module in names:
        name = module.__name__.removeprefix("planner.")
        formulas = [f for f in FORMULAS.values() if f.module == name]
        if not formulas:
            continue
        title = name.removeprefix("formulas.").replace("_", " ").capitalize()
        out.append(
            f"## {title}\n\n{inspect.cleandoc(module.__doc__ or '')}\n\nIn"
            f" `planner/{name.replace('.', '/')}.py`.\n"
        )
        for f in formulas:
            out.append(
                f"### {f.name}\n\n{f.doc}\n\n```text\n{f.equation}\n```\n\n- unit: {f.unit}\n"
                f"- inputs: {_inputs(getattr(module, f.name))}\n- source: {f.source}\n"
            )
    out.append(
        "## Parameter counts\n\nCounts are exact integers, built leaf by leaf in"
        " `planner/formulas/params.py`: every trainable tensor with its size, the part of the model"
        " it lives in (a layer, the first or the last stage), and what divides it (tensor"
        " parallelism, expert parallelism, nothing). Memory, FLOP and traffic start from the same"
        " leaves.\n"
    )
    out.append(
        "## Rules\n\nWhat makes a layout impossible. The search masks with these, a wrong request"
        " quotes them, and `rejected` in the report counts by these names.\n\n"
        + table(["rule", "option to change"], [[rule.name, f"`{rule.field}`"] for rule in RULES])
    )
    rows = []
    for name, schedule in BY_NAME.items():
        rows.append(
            [
                f"`{name}`",
                " ".join((schedule.__doc__ or "").split("\n\n")[0].split()),
                inspect.getdoc(schedule.idle_s),
                inspect.getdoc(schedule.live_chunks),
            ]
        )
    out.append(
        "## Schedules\n\nEach schedule gives the seconds of a step that stay idle on p uniform"
        " stages, F, I and W the forward, input and weight gradient of one micro-batch, and the"
        " forward chunks whose activations a stage holds at its peak.\n\n"
        + table(["schedule", "what", "idle", "held"], rows)
    )
    return "\n".join(out)
