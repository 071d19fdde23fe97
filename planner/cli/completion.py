"""Completion of `dpplan` in shells: scripts that hold verbs, options and the words of their values,
so that a Tab starts no Python."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin

from planner import plugins
from planner.cli.group import COMMANDS, Commands, body_of
from planner.cli.made import options_of
from planner.specs.options import Row

Shell = Literal["bash", "zsh", "fish"]
Words = tuple[str, ...]
_TOP = {
    "--help": "Show this message and exit",
    "--version": "Print the version",
    "--completion": "Print the script that completes words in bash, zsh or fish",
}


class Verb(NamedTuple):
    """Words that may follow a verb: its flags with a sentence, the words of a flag's value, and the
    words of its first argument. A flag without a value has None."""

    says: str
    flags: dict[str, str]
    values: dict[str, Words | None]
    first: Words


def script(shell: Shell) -> str:
    """The script that a shell reads."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](verbs())


def verbs() -> dict[str, Verb]:
    """Every verb as its command takes it."""
    group, out, every = Commands(name="dpplan"), {}, dict[str, str]()
    for name in COMMANDS:
        request, own = options_of(name, body_of(name))
        table = {**request, **own}
        flags: dict[str, str] = {}
        values: dict[str, Words | None] = {}
        for one in group.get_command(None, name).params:
            row = table.get(one.name)
            for flag in (*one.opts, *one.secondary_opts):
                if flag.startswith("--"):
                    flags[flag] = _brief(getattr(one, "help", "") or "")
                    values[flag] = None if getattr(one, "is_flag", False) else _words(name, row)
        first = next((row for row in table.values() if row.says.argument), None)
        groups = {row.group.name: "" for row in table.values() if not row.says.argument}
        flags |= {"--help": _TOP["--help"], "--help-all": "Show every option and exit"}
        values |= {"--help": ("all", *groups), "--help-all": None}
        every |= groups
        out[name] = Verb(_brief(body_of(name).__doc__ or ""), flags, values, _words(name, first))
    out["help"] = Verb("Explain a command or a group of options", {}, {}, (*COMMANDS, *every))
    return out


def _brief(text: str) -> str:
    """The first clause, without what a shell would read."""
    first = re.split(r"[.:;] | \(", " ".join(text.split()))[0]
    return re.sub(r"[^\w /+%<=>,.-]", "", first.rstrip("."))


def _words(verb: str, row: Row | None) -> Words:
    """Words that a value is one of: choices, ids of the catalogue, lessons."""
    if row is None:
        return ()
    if verb == "learn" and row.says.argument:
        return tuple(plugins.load("lessons.learn", "learn").lessons())
    kinds = get_args(row.kind) if row.is_several else (row.kind,)
    choices = row.choices or next((get_args(k) for k in kinds if get_origin(k) is Literal), ())
    return tuple(map(str, choices)) or _catalogued(row.says.catalogue.partition("/")[0])


def _catalogued(kind: str) -> Words:
    from planner.inputs import catalog
    from planner.inputs.run import storages

    if kind == "storage":
        return tuple(one.id for one in storages())
    return tuple(catalog.ids(kind)) if kind else ()


def _alike(found: Mapping[str, Verb]) -> dict[tuple[str, Words], list[str]]:
    """Verbs by flag and the words of its value."""
    out: dict[tuple[str, Words], list[str]] = {}
    for name, verb in found.items():
        for flag, words in verb.values.items():
            if words is not None:
                out.setdefault((flag, words), []).append(name)
    return out


def _cases(found: Mapping[str, Verb]) -> Iterable[tuple[str, str]]:
    """(pattern of `verb flag`, words) of every value; without words it is a file or a number."""
    for (flag, words), names in _alike(found).items():
        yield "|".join(f'"{name} {flag}"' for name in names), " ".join(words)


def _bash(found: Mapping[str, Verb]) -> str:
    values = "\n".join(f'    {case}) words="{words}" ;;' for case, words in _cases(found))
    flags = "\n".join(
        f'      {name}) words="{" ".join(verb.flags)}" ;;' for name, verb in found.items()
    )
    first = "\n".join(
        f'      {name}) words="{" ".join(verb.first)}" ;;'
        for name, verb in found.items()
        if verb.first
    )
    return f"""# completion of dpplan for bash, made by `dpplan --completion bash`
_dpplan() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD - 1]}} words=
  local verb=${{COMP_WORDS[1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{" ".join([*found, *_TOP])}" -- "$cur"))
    return
  fi
  case "$verb $prev" in
{values}
    *) if [[ $cur == -* ]]; then case $verb in
{flags}
    esac; else case $verb in
{first}
    esac; fi ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _dpplan dpplan
"""


def _described(described: Mapping[str, str]) -> str:
    return " ".join(f"'{word}:{says}'" for word, says in described.items())


def _zsh(found: Mapping[str, Verb]) -> str:
    values = "\n".join(
        f"    {case}) {f'compadd -- {words}; ' if words else ''}_files; return ;;"
        for case, words in _cases(found)
    )
    flags = "\n".join(
        f"    {name}) list=({_described(verb.flags)}) ;;" for name, verb in found.items()
    )
    first = "\n".join(
        f"    {name}) compadd -- {' '.join(verb.first)} ;;"
        for name, verb in found.items()
        if verb.first
    )
    return f"""#compdef dpplan
# completion of dpplan for zsh, made by `dpplan --completion zsh`
_dpplan() {{
  local verb=${{words[2]}} prev=${{words[CURRENT - 1]}}
  local -a list
  if ((CURRENT == 2)); then
    list=({_described({name: verb.says for name, verb in found.items()})} {_described(_TOP)})
    _describe -o dpplan list
    return
  fi
  case "$verb $prev" in
{values}
  esac
  if [[ $PREFIX == -* ]]; then
    case $verb in
{flags}
    esac
    _describe -o option list
    return
  fi
  case $verb in
{first}
  esac
  _files
}}
if [[ $funcstack[1] == _dpplan ]]; then _dpplan "$@"; else compdef _dpplan dpplan; fi
"""


def _fish(found: Mapping[str, Verb]) -> str:
    lines = ["# completion of dpplan for fish, made by `dpplan --completion fish`"]
    top = "complete -c dpplan -n __fish_use_subcommand"
    lines += [f"{top} -f -a {name} -d '{verb.says}'" for name, verb in found.items()]
    lines += [f"{top} -l {flag[2:]} -d '{says}'" for flag, says in _TOP.items()]
    merged: dict[tuple[str, str, Any], list[str]] = {}
    for name, verb in found.items():
        if verb.first:
            of = f"complete -c dpplan -n '__fish_seen_subcommand_from {name}'"
            lines.append(f"{of} -a '{' '.join(verb.first)}'")
        for flag, says in verb.flags.items():
            merged.setdefault((flag, says, verb.values[flag]), []).append(name)
    for (flag, says, words), names in merged.items():
        taken = "" if words is None else f" -x -a '{' '.join(words)}'" if words else " -r"
        of = f"'__fish_seen_subcommand_from {' '.join(names)}'"
        lines.append(f"complete -c dpplan -n {of} -l {flag[2:]}{taken} -d '{says}'")
    return "\n".join(lines) + "\n"
