"""The group of all commands, each a module of its own: loaded on use."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import zip_longest
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption
from typer.exceptions import TyperException
from typer.main import get_command_from_info
from typer.models import CommandInfo

from planner import plugins
from planner.cli.made import Body, command_of, options_of
from planner.cli.refusal import refuse
from planner.error import PlanError
from planner.specs.options import Options, Row, foreign, rows, why_not
from planner.specs.options.own import WORK
from planner.specs.options.words import near

_INTERRUPTED = 130  # what typer makes of Ctrl-C
_HELP_WIDTH = 66  # characters beside the widest flag, at 100 columns
_BETWEEN = 2  # spaces between columns
# commands in the order of help; commands of other distributions follow
_ORDER = (
    "estimate search recommend export compare batch tune read rl schedule strategies allreduce"
    " batchnorm input list validate check learn calibrate schema serve mcp"
)
_NAMES = plugins.names("verbs")
COMMANDS = tuple(sorted(_NAMES, key=[*_ORDER.split(), *_NAMES].index))


def body_of(name: str) -> Body:
    """The function of a command. Raises PlanError for one that cannot be imported."""
    module = plugins.module_of("verbs", name)
    if module is None:
        raise PlanError("command", name, "belongs to a plug-in that cannot be imported")
    body: Body = module.command
    return body


class Commands(TyperGroup):
    """Loads a command on use. Unknown options end as any wrong request does: one sentence, one JSON
    document under --json, status 2."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        usable = cmd_name in COMMANDS and plugins.module_of("verbs", cmd_name) is not None
        return _command(cmd_name) if usable else None

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        words = spelled_help(sys.argv[1:] if args is None else args)
        if not standalone_mode or not words:
            return super().main(
                words, prog_name, complete_var, standalone_mode, windows_expand_args, **extra
            )
        try:
            status = super().main(
                words, prog_name, complete_var, False, windows_expand_args, **extra
            )
        except TyperException as error:
            option, sentence = _wrong_words(error, words)
            refuse(option, " ".join(words), sentence, "--json" in words, sentence)
            raise SystemExit(2) from None
        if status == _INTERRUPTED:
            raise KeyboardInterrupt
        raise SystemExit(status if isinstance(status, int) else 0)


def spelled_help(args: Sequence[str]) -> list[str]:
    """Words of a command with every way to ask for help as --help [GROUP]: `help GROUP` (of
    estimate), `help COMMAND [GROUP]`, --help-all."""
    words = list(args)
    if words[:1] == ["help"]:
        command, *group = words[1:] or [""]
        if command and command not in COMMANDS:
            command, group = "estimate", words[1:]
        words = [word for word in (command, "--help", *group) if word]
    at = words.index("--help-all") if "--help-all" in words else len(words)
    return [*words[:at], "--help", "all"] if words[at:] else words


def _wrong_words(error: TyperException, words: Sequence[str]) -> tuple[str, str]:
    """(error, sentence about it) for unknown options and unknown commands."""
    known = words[0] in COMMANDS
    command = f"dpplan {words[0]}" if known else "dpplan"
    named = getattr(error, "option_name", None)
    param = getattr(error, "param", None)
    option = named or (param.opts[0] if param else "command")
    sentence = f"{error.format_message().rstrip('.')}; see `{command} --help`"
    if named and hasattr(error, "possibilities"):  # an option that the command does not have
        row = next((row for row in rows(Options).values() if row.flag == named), None)
        if row is not None and known:
            return option, f"{option}: {why_not(row, words[0])}"
        if other := foreign.answer(named):
            return option, f"{option}: is not an option of `{command}`; it {other}"
    elif not named and not param and not words[0].startswith("-") and not known:
        if part := plugins.part_of(words[0]):
            return "command", f"command: {words[0]!r} - {plugins.why_absent(part)}"
        meant = foreign.COMMANDS.get(words[0].lower())
        hint = f"did you mean `dpplan {meant}`? " if meant else near(words[0], COMMANDS)
        return "command", f"command: {words[0]!r} - unknown; {hint}see `dpplan --help`"
    return option, sentence


@cache
def _command(name: str) -> Any:
    info = CommandInfo(name=name, cls=Panels, callback=command_of(name, body_of(name)))
    return get_command_from_info(info, pretty_exceptions_short=True, rich_markup_mode=None)


_TWICE = {
    "gpu": "is given twice; two kinds in one box or cluster are --gpu with --other-gpu and"
    " --other-share, such as 50%, and all keep to the slower and the smaller"
}


class Panels(TyperCommand):
    """Help in groups: in short the common options and the verb's own, in full `--help GROUP` and
    `--help all`. An option that takes one value is given once."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _, _, order = self.make_parser(ctx).parse_args(args=list(args))
        for parameter in (parameter for parameter in order if isinstance(parameter, TyperOption)):
            repeats = parameter.multiple or (
                parameter.is_flag and not parameter.secondary_opts
            )  # says the same again
            if not repeats and order.count(parameter) > 1:
                why = _TWICE.get(parameter.name or "", "is given twice; give it once")
                raise typer.BadParameter(why, ctx=ctx, param=parameter)
        if self.get_help_option(ctx) in order:
            at = next(i for i, word in enumerate(args) if word in ctx.help_option_names)
            ctx.meta["group"] = "".join(args[at + 1 : at + 2])
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get("group", "all") in ("", "all"):
            super().format_help(ctx, formatter)
        else:
            self.format_options(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        request, specific = options_of(str(self.name), body_of(str(self.name)))
        table = {**request, **specific}
        flags = [row for row in table.values() if not row.says.argument]
        groups = {row.group.name: row.group.title for row in flags}
        counts = Counter(row.group.name for row in flags)
        chosen = self._chosen(ctx, ("all", *groups))
        short = bool(request) and not chosen
        panels: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            row, record = table.get(str(param.name)), param.get_help_record(ctx)
            title = "Arguments" if row and row.says.argument else row.group.title if row else "Help"
            if record is None or (chosen and chosen != "all" and title != groups[chosen]):
                continue
            if short and row and not row.says.argument:
                seldom = not row.says.brief if row.name in request else row.says.form == "folded"
                if row.group == WORK or seldom:
                    continue
                title = "Common options" if row.name in request else title
                record = record[0], _brief(row)
            if not short or row:
                panels.setdefault(title, []).append(record)
        for title, records in panels.items():
            with formatter.section(title):
                formatter.write_dl(records)
        if short:
            records = [(name, f"{title} ({counts[name]})") for name, title in groups.items()]
            records.append(("all", f"Every group ({len(flags)})"))
            with formatter.section(f"All options by group (dpplan help {self.name} GROUP)"):
                for line in _side_by_side(records, formatter.width - formatter.current_indent):
                    formatter.write(" " * formatter.current_indent + line + "\n")

    def _chosen(self, ctx: Any, groups: Sequence[str]) -> str:
        """The group that --help asks for: one of groups, "" without one."""
        word: str = ctx.meta.get("group", "")
        if word and word not in groups:
            message = f"unknown group {word!r}; {near(word, groups)}groups: {', '.join(groups)}"
            raise typer.BadParameter(message, ctx=ctx, param=self.get_help_option(ctx))
        return word


def _side_by_side(records: Sequence[tuple[str, str]], width: int) -> list[str]:
    """Names with their explanations, in two columns where these fit, read downwards."""
    longest = max(len(name) for name, _ in records)
    cells = [f"{name:{longest}}  {text}" for name, text in records]
    across = max(map(len, cells)) + _BETWEEN
    if across + max(map(len, cells)) > width:
        return cells
    half = (len(cells) + 1) // 2
    pairs = zip_longest(cells[:half], cells[half:], fillvalue="")
    return [f"{left:{across}}{right}".rstrip() for left, right in pairs]


def _brief(row: Row) -> str:
    """Help of an option on one line, with its default if that fits."""
    default = f" [default: {row.unset}]" if row.unset else ""
    return row.brief + (default if len(row.brief + default) <= _HELP_WIDTH else "")
