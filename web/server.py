"""The application behind uvicorn, with deadlines and a limit on connections, which uvicorn lacks.

uvicorn ends a connection that is silent between two requests, and no other: one that never sends a
request, or a byte of it per second, or that does not read its answer, stays for ever
(https://github.com/Kludex/uvicorn/issues/157). Here each has a deadline. Where all places are
taken, the connection that has owed something longest makes room: silent connections keep no other
out.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import signal
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from planner.specs.document import to_json
from web import limits
from web.app import create
from web.guard import HEADERS, Refused, Served, problem, refuse
from web.work import start_forkserver

_IPV6_NETWORK = 64  # bits of the addresses that one customer of a provider has


def run(sockets: list[socket.socket], hosts: frozenset[str], token: str | None) -> None:
    """Serve until SIGINT, SIGTERM or SIGHUP."""
    running = uvicorn.Server(configured(create(Served(hosts, token, prepares=True))))
    if hasattr(signal, "SIGHUP"):  # uvicorn itself ends on the other two
        signal.signal(signal.SIGHUP, running.handle_exit)
    start_forkserver()
    with contextlib.suppress(KeyboardInterrupt):  # the signal again, once all has ended
        running.run(sockets=sockets)


def configured(app: ASGIApp) -> uvicorn.Config:
    """uvicorn as this server runs it."""
    return uvicorn.Config(
        app,
        http=Connection,
        ws="none",
        log_level="error",  # a line for every wrong request would be the sender's to write
        access_log=False,
        server_header=False,
        proxy_headers=False,  # who sends X-Forwarded-For is not who is believed
        timeout_keep_alive=limits.IDLE_S,
        timeout_graceful_shutdown=limits.CLOSING_S,
        h11_max_incomplete_event_size=limits.HEAD_BYTES,
    )


class Connection(H11Protocol):
    """A connection with deadlines: for the head of a request, and for taking an answer. The body
    has its own in web/guard.py."""

    source = ""  # whose it is, for the limit of one address
    silent_since: float | None = None  # when it began to owe something; None while it is answered
    _stage = ""
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.source = source_of(self.client[0] if self.client else "")
        if not make_room(self):
            self.app = _full
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._due(0.0, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._look()

    def send_400_response(self, msg: str) -> None:
        if len(self.conn.trailing_data[0]) > limits.HEAD_BYTES:
            remedy = f"its head is longer than {limits.HEAD_BYTES:,} bytes; post it instead"
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, remedy)
        else:
            self._refuse(HTTPStatus.BAD_REQUEST, "is not valid HTTP")

    @property
    def unsent(self) -> int:
        """Bytes of answers that wait to be taken."""
        return self.transport.get_write_buffer_size()

    def _look(self) -> None:
        """Set the deadline of the stage that the connection has come to."""
        stage = self._stage_now()
        if stage == self._stage:
            return
        self._stage = stage
        self.silent_since = None if stage == "busy" else self.loop.time()
        if stage == "taking":
            self._watch_answer()
        else:
            self._due(limits.HEAD_S, self._too_late if stage in ("new", "head") else None)

    def _stage_now(self) -> str:
        """The client's next step: a first byte (new), the rest of a head or body, the rest of an
        answer to be taken, the next request (idle, which uvicorn ends); or nothing (busy)."""
        if self.transport.is_closing() or self.flow.write_paused:
            return "taking"
        if self.conn.their_state is h11.SEND_BODY:
            return "body"
        if self.conn.their_state is not h11.IDLE:
            return "busy"
        if self.conn.trailing_data[0]:
            return "head"
        return "idle" if self.cycle else "new"

    def _due(self, seconds: float, then: Callable[[], None] | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if then is None else self.loop.call_later(seconds, then)

    def _too_late(self) -> None:
        if self._stage == "new":
            self.transport.abort()
        else:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, f"did not arrive within {limits.HEAD_S:g} s")
            self._look()

    def _refuse(self, status: HTTPStatus, remedy: str) -> None:
        """An answer to what never became a request."""
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        body = to_json(problem("request", None, remedy)).encode()
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
            *HEADERS,
        ]
        # a request whose body is broken: of one that was answered nothing is left to refuse
        broken = None if self.cycle is None or self.cycle.response_complete else self.cycle
        is_head = broken is not None and broken.scope["method"] == "HEAD"  # answered without a body
        events: list[Any] = [
            h11.Response(status_code=status, headers=headers, reason=status.phrase),
            *([] if is_head else [h11.Data(data=body)]),
            h11.EndOfMessage(),
        ]
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()
        if broken is not None:  # the application must not answer it again
            broken.disconnected = True
            broken.message_event.set()

    def _watch_answer(self) -> None:
        """While an answer waits to be taken: enough of it must be in time, and all answers together
        must not fill the memory."""
        before = self.unsent
        waiting = [
            connection for connection in self.connections if isinstance(connection, Connection)
        ]
        if sum(connection.unsent for connection in waiting) > limits.UNSENT_BYTES:
            max(waiting, key=lambda connection: connection.unsent).transport.abort()

        def look_again() -> None:
            if self.unsent > max(0, before - limits.SEND_BYTES):
                self.transport.abort()
            else:
                self._watch_answer()

        self._due(limits.SEND_S, look_again)


def make_room(new: Connection) -> bool:
    """Close the connection that has kept the server waiting longest where all places are taken;
    False where all others are being answered."""
    others = [
        connection
        for connection in new.connections
        if isinstance(connection, Connection)
        and connection is not new
        and not connection.transport.is_closing()
    ]
    crowd = [connection for connection in others if connection.source == new.source]
    if len(crowd) < limits.ADDRESS_CONNECTIONS:
        crowd = others
        if len(others) < limits.CONNECTIONS:
            return True
    silent = [
        (connection.silent_since, id(connection), connection)
        for connection in crowd
        if connection.silent_since is not None
    ]
    if silent:
        min(silent)[2].transport.abort()
    return bool(silent)


def source_of(address: str) -> str:
    """Whose an address is: IPv6 addresses by their network, IPv4 ones each for itself."""
    try:
        ip_address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(ip_address, ipaddress.IPv4Address):
        return str(ip_address)
    if ip_address.ipv4_mapped is not None:
        return str(ip_address.ipv4_mapped)
    return str(ipaddress.ip_network((ip_address, _IPV6_NETWORK), strict=False))


async def _full(_: Scope, __: Receive, send: Send) -> None:
    """The answer to a connection beyond the limit."""
    remedy = "all connections are in use; try again in a moment"
    await refuse(send, Refused(503, "server", None, remedy, ((b"retry-after", b"5"), *HEADERS)))
