"""Bytes at random to a real server: whatever arrives is answered as the API says, or refused, and
the next is answered as before."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from browser import served
from hypothesis import given
from hypothesis import strategies as st

from fuzz import values
from fuzz.case import Took
from fuzz.short import few
from fuzz.test_markup import Page
from planner.specs.options import Options, rows
from web.app import app
from web.guard import HEADERS

WAIT_S = 60.0  # for an answer, on a machine that is busy: the server's own limits are shorter
MOST_SERVER_BYTES = 4 * 10**9  # of the server and its workers together
TOO_LONG = b"takes longer than"  # what a busy machine answers
_QUIET_S = 0.1  # without a byte: the server waits for more, or is done
_LOOK = 50  # cases between two looks at the server's memory

_ANSWERS = [
    *("/", "/explain", "/export", "/compare", "/reference", "/panel/roofline", "/openapi.json"),
    *("/page/view", "/page/late", "/page/form", "/page/panel/roofline", "/page/scenario"),
    *app.openapi()["paths"],
]
PATHS = [
    *_ANSWERS * 3,
    *("/panel/x", "/static/app.js", "/static/../app.py", "/static/%2e%2e/%2e%2e/etc/passwd"),
    *("//", "/api", "/api/", "*", "http://evil.example/", "/\xff"),
]


@dataclass(frozen=True)
class Case:
    """Bytes to send, in pieces; whether the sender then closes its side; whether they form one
    whole request, which must get an answer."""

    parts: tuple[bytes, ...]
    closes: bool = False
    answered: bool = False

    def __repr__(self) -> str:
        return f"{[part[:1500] for part in self.parts]} {self.closes=} {self.answered=}"

    def to_json(self) -> dict[str, Any]:
        parts = [base64.b64encode(part).decode() for part in self.parts]
        return {"parts": parts, "closes": self.closes, "answered": self.answered}

    @classmethod
    def of_json(cls, values: dict[str, Any]) -> Case:
        parts = tuple(map(base64.b64decode, values["parts"]))
        return cls(parts, values["closes"], values["answered"])


def _queries() -> st.SearchStrategy[str]:
    table = rows(Options)
    pair = st.sampled_from(sorted(table)).flatmap(
        lambda name: values.text_of(table[name]).map(lambda text: f"{name}={_percent(text)}")
    )
    odd = st.sampled_from(
        ("%", "%zz", "%00=%00", "model=%ED%A0%80", "a=1&a=2", "=", "&&&", "gpus=8&gpus=8", "%FF=1")
    ) | st.builds(lambda text: f"config={_percent(text)}", values.hostile())
    more = st.just("") | st.lists(pair | pair | odd, max_size=3).map("&".join)
    whole = "model=gpt2&gpu=a100&gpus=8&tp=1&pp=1&micro_batch=1&recompute=none&global_batch=64"
    return st.builds(
        lambda base, rest: f"{base}&{rest}" if rest else base, st.sampled_from((whole, "")), more
    )


def _percent(text: str) -> str:
    return quote(text.encode("utf-8", "surrogatepass"))[:100_000]


_BODIES = st.dictionaries(
    st.sampled_from([*rows(Options), "config", "calibration", "x"]), values.anything(), max_size=3
).map(
    lambda document: json.dumps({"model": "gpt2", "gpu": "a100"} | document).encode()
) | st.sampled_from(
    (b"", b"[]", b"{", b'{"a":' * 20_000, b"\xff\xfe", b"model = 'gpt2'", b"a.a." * 9_000, b"null")
)
_HEADERS = st.sampled_from(
    (
        b"Origin: https://evil.example",
        b"Origin: null",
        b"Sec-Fetch-Site: cross-site",
        b"Content-Type: text/plain",
        b"Content-Type: application/json; charset=\xff",
        b"Host: evil.example",
        b"Accept-Encoding: gzip, br;q=0",
        b"Range: bytes=0-1,5-",
        b'If-None-Match: "' + b"x" * 1000 + b'"',
        b"X: " + b"y" * 70_000,
        b"Expect: 100-continue",
        b"Connection: upgrade\r\nUpgrade: websocket",
        b"Connection: close",
        b"Content-Length: -1",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 5\r\nContent-Length: 6",
        b"Transfer-Encoding: chunked, gzip",
        b"Cookie: \x01\x02",
        b" folded: no",
        b"no colon",
        b"X-Forwarded-For: 1.2.3.4",
        b"\xff\xfe: \xff",
    )
)


_PLAIN = ("GET", "GET", "GET", "POST", "POST", "OPTIONS", "DELETE", "PUT")
_ODD = ("HEAD", "get", "\x00", "GET\x20", "CONNECT", "A" * 9_000)
_SIZES = (b"-1", b"zz", b"f" * 20, b"5;x=" + b"y" * 100, b"")
_ENDS = (b"0\r\n\r\n", b"0\r\nA: b\r\n\r\n", b"")


@st.composite
def _requests(draw: st.DrawFn, odd: bool) -> bytes:
    """One request; odd: perhaps not well-formed."""
    method = draw(st.sampled_from(_PLAIN + _ODD * odd))
    path, query = draw(st.sampled_from(PATHS)), draw(_queries())
    target = f"{path}?{query}" if query else path
    version = draw(st.sampled_from(("HTTP/1.1",) * 8 + ("HTTP/1.0", "HTTP/9.9", "") * odd))
    lines = [f"{method} {target} {version}".encode("latin-1", "replace")]
    if not odd or draw(st.sampled_from((True, True, True, False))):
        lines.append(b"Host: 127.0.0.1")
    lines += draw(st.lists(_HEADERS, max_size=2)) if odd else ()
    body = draw(_BODIES) if method == "POST" else b""
    if body:
        lines.append(draw(st.sampled_from((b"Content-Type: application/json", b"X: y"))))
        if not odd or draw(st.booleans()):
            lines.append(b"Content-Length: %d" % len(body))
        else:
            lines.append(b"Transfer-Encoding: chunked")
            size = draw(st.sampled_from((b"%x" % len(body), *_SIZES)))
            body = size + b"\r\n" + body + b"\r\n" + draw(st.sampled_from(_ENDS))
    return b"\r\n".join([*lines, b"", body])


@st.composite
def connections(draw: st.DrawFn) -> Case:
    """Bytes of one connection: one request or several in a row, truncated or corrupted."""
    if draw(st.booleans()):
        sent = draw(_requests(odd=False))
        at = draw(st.integers(0, len(sent)))
        return Case((sent[:at], sent[at:]), answered=True)
    sent = b"".join(draw(st.lists(_requests(odd=True), min_size=1, max_size=3)))
    how = draw(st.sampled_from(("whole", "cut", "put", "split", "line")))
    at = draw(st.integers(0, len(sent)))
    if how == "cut":
        sent = sent[:at]
    elif how == "put":
        put = draw(st.binary(max_size=6) | st.sampled_from((b"\r\n", b"\n", b"\x00")))
        sent = sent[:at] + put + sent[at:]
    elif how == "line":
        sent = sent.replace(b"\r\n", draw(st.sampled_from((b"\n", b"\r", b"\r\r\n"))))
    parts = (sent[:at], sent[at:]) if how == "split" else (sent,)
    return Case(parts, closes=draw(st.booleans()))


ADDRESS: list[tuple[str, int]] = []
CASES, CASE, TOOK = connections(), Case, Took()


def fuzz(case: Case) -> None:
    began = time.monotonic()
    received = exchanged(case)
    seconds = time.monotonic() - began
    if b"HEAD " not in b"".join(case.parts):  # whose answers have no body
        with contextlib.suppress(*([] if case.answered else [Cut])):
            for status, headers, body in answers(received):
                TOOK.add(f"{status // 100}xx", seconds if case.answered else 0.0)
                checked(status, headers, body)
    elif received:
        assert received.startswith(b"HTTP/1.1 "), received[:100]
    if case.answered:
        assert received, "is not answered"
    if sum(TOOK.more.values()) % _LOOK == 0:
        alive()


def exchanged(case: Case) -> bytes:
    """Bytes received until the server closes the connection or pauses."""
    received = b""
    with (
        socket.create_connection(ADDRESS[0], timeout=WAIT_S) as first,
        contextlib.suppress(OSError),  # the server has closed what it would not read
    ):
        for part in case.parts:
            first.sendall(part)
        if case.closes:
            first.shutdown(socket.SHUT_WR)
        while True:
            first.settimeout(WAIT_S if case.answered and not _is_whole(received) else _QUIET_S)
            more = first.recv(1 << 20)
            if not more:
                break
            received += more
    return received


def _is_whole(received: bytes) -> bool:
    """Whether there is an answer to its end."""
    try:
        return bool(list(answers(received)))
    except Cut:
        return False


class Cut(Exception):
    """An answer without its end."""


def answers(received: bytes) -> Iterator[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of each answer. Raises Cut at one that goes on."""
    while received:
        head, result, rest = received.partition(b"\r\n\r\n")
        if not result:
            raise Cut
        first, *lines = head.decode("latin-1").split("\r\n")
        status = re.fullmatch(r"HTTP/1\.1 (\d{3}) ?.*", first)
        assert status, first[:200]
        pairs = (line.split(": ", 1) for line in lines)
        headers = {name.lower(): value for name, value in pairs}
        body, received = _body(headers, rest)
        if int(status[1]) >= 200:
            yield int(status[1]), headers, body


def _body(headers: dict[str, str], rest: bytes) -> tuple[bytes, bytes]:
    """(body, what comes after it)."""
    if headers.get("transfer-encoding") != "chunked":
        size = int(headers.get("content-length", 0))
        if len(rest) < size:
            raise Cut
        return rest[:size], rest[size:]
    body = b""
    while True:
        size_text, result, rest = rest.partition(b"\r\n")
        if not result or len(rest) < (size := int(size_text, 16)) + 2:
            raise Cut
        body, rest = body + rest[:size], rest[size + 2 :]
        if not size:
            return body, rest


def checked(status: int, headers: dict[str, str], body: bytes) -> None:
    """Raise AssertionError where an answer breaks a promise of the server."""
    assert status < 500 or status == 503, f"status {status}: {body[:300]!r}"
    for name, value in HEADERS:
        assert headers.get(name.decode()) == value.decode(), f"{status} without {name.decode()}"
    kind = headers.get("content-type", "")
    if kind.startswith("application/json"):
        document = json.loads(body, parse_constant=_no_number)
        if status >= 400:
            assert document.get("field"), f"{status} names no field: {body[:300]!r}"
            assert document.get("message"), f"{status} says nothing: {body[:300]!r}"
    elif status >= 400 and body:
        assert kind.startswith("text/"), f"{status} as {kind}"
        assert b"Traceback" not in body
    if kind.startswith("text/html"):
        Page(body.decode())


def _no_number(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def alive() -> None:
    """The server answers another, and has not grown."""
    line = b"GET /api/estimate?model=gpt2&gpu=a100&gpus=8 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    received = exchanged(Case((line,), answered=True))
    is_answered = received.startswith(b"HTTP/1.1 200") or TOO_LONG in received
    assert is_answered, f"the next hears {received[:100]!r}"
    size = sum(resident(pid) for pid in children(os.getpid()))
    TOOK.add("looks at its memory", 0.0, size)
    assert size < MOST_SERVER_BYTES, f"server and workers hold {size / 1e9:.1f} GB"


def children(pid: int) -> Iterator[int]:
    """Processes below one, at any depth (proc(5))."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                yield child
                yield from children(child)


def resident(pid: int) -> int:
    """Bytes of a process that no other shares, 0 where it has gone."""
    with contextlib.suppress(OSError, ValueError):
        pages, shared = map(int, Path(f"/proc/{pid}/statm").read_text().split()[1:3])
        return (pages - shared) * os.sysconf("SC_PAGE_SIZE")
    return 0


@contextmanager
def ready() -> Iterator[None]:
    """A server on a free port."""
    with served() as address:
        parts = urlsplit(address)
        ADDRESS[:] = [(str(parts.hostname), int(parts.port or 0))]
        try:
            yield
        finally:
            ADDRESS.clear()


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[None]:
    with ready():
        yield


@few(25)
@given(case=CASES)
def test_any_bytes_are_answered_as_the_api_says(case: Case) -> None:
    fuzz(case)


def test_the_server_answers_afterwards() -> None:
    alive()
