"""Checks that every request passes: whom it is for, who sent it, its size; the headers of a strict
page, and one shape of refusal.

It is the outermost part of the application, so that answers of every other part carry its headers,
answers to unforeseen faults too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.specs.documents.error import Problem
from planner.specs.hosts import asked_host, is_loopback
from web import limits

# styles inline: plotly sets them on what it draws; scripts never
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    " blob:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
EMBED = "embed"  # in an address: only the answer, which pages of others may show in a frame
HEADERS = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
FRAMED = [
    (name, value.replace(b" frame-ancestors 'none'", b""))
    for name, value in HEADERS
    if name != b"x-frame-options"
]

# what a body may be, by path; a page of another origin can send neither without being asked first
# but a form, which says whose page it is on
UPLOADS = ("/run",)  # forms with files
_KINDS = {
    "/page/scenario": ("application/toml", "application/json"),
    **dict.fromkeys(UPLOADS, ("multipart/form-data",)),
}
_JSON = ("application/json",)
_BASIC = "Basic"
_PORTS = {"http": ":80", "https": ":443"}


@dataclass(frozen=True)
class Served:
    """Settings of the server: names beside this machine's that it answers to, the token that it
    requires, if any, and whether it works out its first page before somebody opens it."""

    hosts: frozenset[str] = frozenset()
    token: str | None = field(default=None, repr=False)
    prepares: bool = False


class Refused(NamedTuple):
    """An answer that no part behind the guard has seen the request for."""

    status: int
    field: str
    value: object
    remedy: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def problem(field: str, value: object, remedy: str) -> Problem:
    """The document of a wrong request."""
    shown = None if value is None else str(value)[:200]
    return Problem(field, shown, str(PlanError(field, shown, remedy)))


async def refuse(send: Send, why: Refused) -> None:
    """Send a refusal, and close the connection: what else was sent is not read."""
    body = to_json(problem(why.field, why.value, why.remedy)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
        *why.headers,
    ]
    await send({"type": "http.response.start", "status": why.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Guard:
    """Refuses what is not for this server, comes from another page, or is too large, before
    anything reads it; and adds the headers of a strict page."""

    def __init__(self, app: ASGIApp, served: Served) -> None:
        self.app, self.served = app, served
        self._uploads = asyncio.Semaphore(limits.MOST_UPLOADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        started = False
        framed = _is_framed(scope)

        async def send_with(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                added = FRAMED if framed else HEADERS
                message = {**message, "headers": [*message.get("headers", []), *added]}
            await send(message)

        headers = Headers(scope=scope)
        why = next(filter(None, (check(scope, headers, self.served) for check in _CHECKS)), None)
        if why is not None:
            await refuse(send_with, why)
            return
        try:
            if _is_upload(scope):
                await self._upload(scope, receive, send_with)
            else:
                await self._pass(scope, receive, send_with, limits.MAX_BODY_BYTES)
        except asyncio.CancelledError:  # the server ends; half an answer is cut off by it
            if not started:
                await refuse(send_with, _ENDING)

    async def _pass(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        """The request as the application sees it: with its whole body."""
        body = await _read(receive, most, _MUCH * most if _is_upload(scope) else most)
        if body is _TOO_LARGE and _is_upload(scope):
            scope, body = {**scope, "state": {**scope.get("state", {}), TOO_LARGE: True}}, b""
        if isinstance(body, Refused):
            await refuse(send, body)
        elif body is not None:
            await self.app(scope, _replayed(body, receive), send)

    async def _upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One with files, of which a few are held in memory at once."""
        try:
            async with asyncio.timeout(limits.BODY_S):
                await self._uploads.acquire()
        except TimeoutError:
            await refuse(send, _BUSY)
            return
        try:
            await self._pass(scope, receive, send, limits.MAX_UPLOAD_BYTES)
        finally:
            self._uploads.release()


TOO_LARGE = "too_large"  # of the state of a request: its files were more than are read


def _is_upload(scope: Scope) -> bool:
    return scope["method"] == "POST" and scope["path"] in UPLOADS


async def _read(receive: Receive, most: int, until: int) -> bytes | Refused | None:
    """The whole body; None where the sender went away. Here, so that nothing behind waits for one
    that never ends.

    until: bytes up to which one that is too large is taken nevertheless: browsers show no answer
    that comes before the end.
    """
    parts = []
    size = 0
    try:
        async with asyncio.timeout(limits.BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    parts.clear()
                if size > until or (size > most and not message.get("more_body")):
                    return _TOO_LARGE
                if not message.get("more_body"):
                    return b"".join(parts)
    except TimeoutError:
        return Refused(408, "request", None, f"did not arrive within {limits.BODY_S:g} s")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, then what comes after it."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


_MUCH = 20  # times the size read of a form, beyond which the rest is not received
_BUSY = Refused(
    429, "request", None, "as many files as are taken at once are being read; try again"
)
_TOO_LARGE = Refused(
    413, "request", None, f"is larger than the {limits.MAX_BODY_BYTES:,} bytes that are read"
)


_ENDING = Refused(503, "server", None, "is being ended; try again later")


def _of_size(scope: Scope, headers: Headers, _: Served) -> Refused | None:
    """Addresses and stated bodies that are too long, or no text."""
    query = scope.get("query_string", b"")
    if len(query) > limits.MAX_QUERY_BYTES:
        remedy = f"the address is longer than {limits.MAX_QUERY_BYTES:,} bytes; post it instead"
        return Refused(414, "request", None, remedy)
    if query.count(b"&") >= limits.MOST_PAIRS:  # before anything takes it apart
        return Refused(422, "request", None, f"has more than {limits.MOST_PAIRS} options")
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        return Refused(400, "request", None, "the address is not UTF-8 text")
    length = headers.get("content-length", "0")
    if _is_upload(scope) and length.isdigit():
        return None  # its page says how much is too much
    return None if length.isdigit() and int(length) <= limits.MAX_BODY_BYTES else _TOO_LARGE


def _for_this_server(_: Scope, headers: Headers, served: Served) -> Refused | None:
    """Refuse host names that the server does not answer to: a page of DNS rebinding has one."""
    given = headers.getlist("host")
    if len(given) != 1:
        return Refused(400, "Host", None, f"is given {len(given)} times; give it once")
    try:
        name = asked_host(given[0])
    except ValueError as error:
        return Refused(400, "Host", given[0], str(error))
    if is_loopback(name) or name in served.hosts:
        return None
    remedy = f"is not a name of this server; start it with --allow-host {name[:100]}"
    return Refused(421, "Host", given[0], remedy)


def _of_this_page(scope: Scope, headers: Headers, _: Served) -> Refused | None:
    """Requests that a page of another origin makes. Its links may lead here, and nothing else."""
    sites = headers.getlist("sec-fetch-site")
    if not set(sites) <= {"same-origin", "none"} and not _is_link(scope, headers):
        remedy = "asks from another site's page; open this server's own page"
        return Refused(403, "Sec-Fetch-Site", ", ".join(sites), remedy)
    for origin in headers.getlist("origin"):
        hidden = origin == "null" and sites == ["same-origin"]  # as Referrer-Policy says
        if not hidden and not _is_same(origin, headers["host"]):
            remedy = "is another site's page; open this server's own page"
            return Refused(403, "Origin", origin, remedy)
    return None


def _is_framed(scope: Scope) -> bool:
    """Whether only an answer is requested, for a frame of another page."""
    pairs = scope.get("query_string", b"").split(b"&")
    return scope["method"] == "GET" and f"{EMBED}=1".encode() in pairs


def _is_link(scope: Scope, headers: Headers) -> bool:
    """Whether a person follows a link in a window of its own, or a page shows an answer in a frame
    (https://www.w3.org/TR/fetch-metadata/)."""
    places = ("document", "iframe") if _is_framed(scope) else ("document",)
    return (
        scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest", "document") in places
    )


def _is_same(origin: str, host: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    port = _PORTS.get(parts.scheme)
    if port is None:
        return False
    return parts.netloc.lower().removesuffix(port) == host.lower().removesuffix(port)


def _with_token(__: Scope, headers: Headers, served: Served) -> Refused | None:
    """Requests without the token, where the server has one: the password of Basic authentication
    (RFC 7617), which browsers ask for, with any user."""
    if served.token is None:
        return None
    kind, _, packed = headers.get("authorization", "").partition(" ")
    try:
        given = base64.b64decode(packed.strip(), validate=True).partition(b":")[2]
    except (binascii.Error, ValueError):
        given = b""
    if kind.lower() == _BASIC.lower() and hmac.compare_digest(given, served.token.encode()):
        return None
    remedy = "must be Basic, with the server's token as the password of any user"
    asks = (b"www-authenticate", f'{_BASIC} realm="dpplan", charset="UTF-8"'.encode())
    return Refused(401, "Authorization", None, remedy, (asks,))


def _of_kind(scope: Scope, headers: Headers, _: Served) -> Refused | None:
    """Posted bodies of a media type that any page may send without being asked."""
    if scope["method"] != "POST":
        return None
    given = headers.get("content-type", "")
    kinds = _KINDS.get(scope["path"], _JSON)
    if given.partition(";")[0].strip().lower() in kinds:
        return None
    return Refused(415, "Content-Type", given or None, f"must be {' or '.join(kinds)}")


_CHECKS: tuple[Callable[[Scope, Headers, Served], Refused | None], ...] = (
    _for_this_server,
    _of_this_page,
    _with_token,
    _of_size,
    _of_kind,
)
