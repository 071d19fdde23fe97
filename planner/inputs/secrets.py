"""Parts of a file that no answer repeats: keys, tokens, passwords, and paths of private files."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from planner.error import PlanError

HIDDEN = "(not shown)"
# names whose values are secrets, whatever these look like
_NAMES = (
    r"secret|passw|passphrase|credential|private[-_]?key|api[-_]?key|access[-_]?key"
    r"|(?:^|[-_. ])(?:token|key|auth|auth[-_]token|pass|pwd)$"
)
_SECRET = re.compile(_NAMES, re.IGNORECASE)
# texts that are secrets under any name: tokens by the letters that their services begin them with,
# long hexadecimal numbers, what signs a request, what stands before the @ of an address
_LOOKS = re.compile(
    r"""(?<![A-Za-z0-9])(?:hf_|sk[-_]|[pr]k_|gh[opsur]_|github_pat_|glpat-|xox[a-z]-|wandb_|npm_
        |pypi-|AKIA|ASIA|AIza|ya29\.|eyJ)[\w.-]{8,}
    |[A-Fa-f0-9]{32,}
    |(?<=://)[^\s/@]{1,200}@
    |\b(?:Bearer|Basic)\s+[\w.~+/=-]{8,}
    |-----BEGIN[A-Z ]{0,40}PRIVATE\ KEY.*
    """,
    re.VERBOSE | re.DOTALL,
)
# NAME=secret, my_name: secret and --name secret in the middle of a text
_NAMED = re.compile(r"(?<![\w.-])([\w.-]++)(\s*+[=:]\s*+|\s++)")
_VALUE = re.compile(r"\"[^\"]*+\"?|'[^']*+'?|[^\s\"';&|)]++")
_PATH = re.compile(r"(?:~[\w.-]*|(?<![\w.:/-])|(?<=file:/)|\b[A-Za-z]:)[/\\][^\s\"'`;|)(,]*[/\\\w]")


def is_secret(name: str) -> bool:
    """Whether the values under a name are secrets."""
    return bool(_SECRET.search(name))


def scrubbed(text: str) -> str:
    """A sentence about a file, without the secrets and the folders that it quotes."""
    text = _LOOKS.sub(HIDDEN, _without_values(text))
    return _PATH.sub(HIDDEN, text)


def _without_values(text: str) -> str:
    """A text without what names of secrets are set to; a colon behind a plain word is a
    sentence's."""
    out, at = [], 0
    for assigned in _NAMED.finditer(text):
        name, sign = assigned.groups()
        sets = "=" in sign or name.startswith("-") or (":" in sign and not name.isalpha())
        if not sets or assigned.end() < at or not is_secret(name):
            continue
        if value := _VALUE.match(text, assigned.end()):
            out += [text[at : value.start()], HIDDEN]
            at = value.end()
    return "".join([*out, text[at:]])


@contextmanager
def scrubbing(names: Collection[str]) -> Iterator[None]:
    """Inside the block no error repeats the content of files with these names."""
    try:
        yield
    except PlanError as error:
        field, value, remedy = error.field, error.value, error.remedy
        raise PlanError(scrubbed(field), _shown(value, names), _around(remedy, names)) from None


def _shown(value: Any, names: Collection[str]) -> Any:
    return scrubbed(value) if isinstance(value, str) and value not in names else value


def _around(text: str, names: Collection[str]) -> str:
    """A sentence without secrets, the paths in it as they were typed."""
    typed = "|".join(re.escape(part) for part in names if "/" in part or "\\" in part)
    parts = re.split(f"({typed})", text) if typed else [text]
    return "".join(part if i % 2 else scrubbed(part) for i, part in enumerate(parts))
