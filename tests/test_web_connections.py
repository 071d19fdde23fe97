"""Connections of the dashboard's server: how long a client may owe something, how many may be open,
and how the server starts and ends."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
from browser import free_port
from command import ROOT
from starlette.types import Receive, Scope, Send

from planner.cli.commands.serve import bound, command
from planner.error import PlanError
from planner.specs.options.commands import ServeOptions
from web import limits, server
from web.guard import HEADERS, Guard, Served

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
LARGE = b"x" * 8_000_000
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def large(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers /large with much, /slow after a second, and everything else with little."""
    await receive()
    if scope["path"] == "/slow":
        await asyncio.sleep(1)
    body = LARGE if scope["path"] == "/large" else b"little"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def with_server(talk: Callable[[Callable[[bytes], Awaitable[Stream]]], Awaitable[None]]) -> None:
    """Run `talk` beside a server as `dpplan serve` runs it; it gets what connects and sends."""

    async def both() -> None:
        sockets = bound("127.0.0.1", port := free_port())
        running = uvicorn.Server(server.configured(Guard(large, Served())))
        task = asyncio.create_task(running._serve(sockets))  # without its handlers of signals

        async def connect(sent: bytes) -> Stream:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(sent)
            await writer.drain()
            return reader, writer

        try:
            await talk(connect)
        finally:
            running.should_exit = True
            await task

    asyncio.run(asyncio.wait_for(both(), 60))


async def ends(stream: Stream) -> bytes:
    """Bytes of a connection until the server closes it."""
    try:
        return await asyncio.wait_for(stream[0].read(), 10)
    except ConnectionError:
        return b""


async def answered(connect: Callable[[bytes], Awaitable[Stream]]) -> bool:
    return b"little" in await ends(await connect(HEAD + b"Connection: close\r\n\r\n"))


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SILENT = {
    "nothing": (b"", b""),
    "part of a head": (HEAD, b"408"),
    "a head and nothing of its body": (POST + b"Content-Length: 9\r\n\r\n", b"408"),
    "part of a chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nab", b"408"),
    "one request": (HEAD + b"\r\n", b"200"),
    "a request whose answer is not taken": (b"GET /large" + HEAD[5:] + b"\r\n", b""),
}


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HEAD_S": 0.4, "IDLE_S": 0.4, "BODY_S": 0.4, "SEND_S": 0.4}.items():
        monkeypatch.setattr(limits, name, value)


@pytest.mark.usefixtures("hasty")
def test_every_silence_ends() -> None:
    async def talk(connect: Callable[[bytes], Awaitable[Stream]]) -> None:
        values = {name: await connect(sent) for name, (sent, _) in SILENT.items()}
        drips = [await connect(sent) for name, (sent, _) in SILENT.items() if " head" in name]
        for _ in range(12):  # a byte now and then is silence too
            await asyncio.sleep(0.1)
            for _, writer in drips:
                writer.write(b"x")
        for name, stream in values.items():
            text = await ends(stream)
            assert SILENT[name][1] in text[:20], name
            assert len(text) < len(LARGE), name
        for stream in drips:
            await ends(stream)
        assert await answered(connect)

    with_server(talk)


@pytest.mark.parametrize("name", SILENT)
def test_silent_clients_keep_nobody_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ADDRESS_CONNECTIONS", 8)

    async def talk(connect: Callable[[bytes], Awaitable[Stream]]) -> None:
        items = []
        for _ in range(20):
            items.append(await connect(SILENT[name][0]))
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert await answered(connect)
        for _, writer in items:
            writer.transport.abort()

    with_server(talk)


def test_where_all_are_being_answered_the_next_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CONNECTIONS", 3)

    async def talk(connect: Callable[[bytes], Awaitable[Stream]]) -> None:
        slow = [await connect(b"GET /slow" + HEAD[5:] + b"\r\n") for _ in range(3)]
        await asyncio.sleep(0.2)
        text = await ends(await connect(HEAD + b"\r\n"))
        assert text.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after" in text
        for name, value in HEADERS:
            assert name + b": " + value in text
        for reader, _ in slow:
            assert b"200" in await reader.readline()

    with_server(talk)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"BAD\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),  # TLS
        (HEAD + b"Host: localhost\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"400"),
        (HEAD + b"X: " + b"x" * limits.HEAD_BYTES, b"431"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
    ],
)
def test_what_is_no_request_is_answered_strictly(sent: bytes, status: bytes) -> None:
    async def talk(connect: Callable[[bytes], Awaitable[Stream]]) -> None:
        text = await ends(await connect(sent))
        assert text.split(b" ")[1] == status
        assert all(name + b": " + value in text for name, value in HEADERS)
        assert await answered(connect)

    with_server(talk)


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE"])
@pytest.mark.parametrize("host", [b"localhost", b"evil"])  # which is refused before its body
@pytest.mark.parametrize(
    "rest",
    [
        b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"Content-Length: 1\r\n\r\naGARBAGE\r\n\r\n",
        b"\r\nGARBAGE\r\n\r\n",
    ],
)
def test_a_broken_request_is_answered_once_and_not_a_fault_in_the_log(
    method: bytes, host: bytes, rest: bytes
) -> None:
    """A broken body, or a broken request after a whole one, leaves no traceback in the log."""
    faults: list[str] = []
    noted = logging.Handler()
    noted.emit = lambda record: faults.append(record.getMessage())  # type: ignore[method-assign]

    async def talk(connect: Callable[[bytes], Awaitable[Stream]]) -> None:
        logging.getLogger("uvicorn.error").addHandler(noted)
        text = await ends(await connect(method + HEAD[3:].replace(b"localhost", host) + rest))
        assert text.count(b"HTTP/1.1 4") == 1
        assert await answered(connect)

    try:
        with_server(talk)
    finally:
        logging.getLogger("uvicorn.error").removeHandler(noted)
    assert faults == []


def test_an_address_that_is_forwarded_is_not_believed() -> None:
    config = server.configured(large)
    assert not config.proxy_headers


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::9", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", ""),
    ],
)
def test_the_limit_of_an_address_holds_for_its_network(address: str, source: str) -> None:
    assert server.source_of(address) == source


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"host": ""}, "--host"),
        ({"host": "0.0.0.0"}, "--host"),
        ({"host": "::"}, "--host"),
        (
            {"host": "192.0.2.1", "allow_host": ("x",)},
            "--host",
        ),  # assigned to documentation: RFC 5737
        ({"host": "nowhere.invalid", "allow_host": ("x",)}, "--host"),
        ({"port": 0}, "--port"),
        ({"port": 65536}, "--port"),
        ({"token_file": "/nonexistent"}, "--token-file"),
    ],
)
def test_what_cannot_be_served_is_a_wrong_request(
    options: dict[str, object], field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(PlanError) as error:
        command(ServeOptions(**options))  # type: ignore[arg-type]
    assert error.value.field == field
    assert "serves" not in capsys.readouterr().err  # nothing is announced


def test_a_weak_token_is_refused_and_never_shown(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    weak = f"{tmp_path}/token"
    with open(weak, "w") as file:
        file.write("secret")
    with pytest.raises(PlanError, match="--token-file") as error:
        command(ServeOptions(token_file=weak))
    assert "secret" not in str(error.value)
    monkeypatch.setenv("DPPLAN_TOKEN", "secret")
    with pytest.raises(PlanError, match="DPPLAN_TOKEN") as error:
        command(ServeOptions())
    assert "secret" not in str(error.value)
    assert "DPPLAN_TOKEN" not in os.environ


def test_a_used_port_is_a_wrong_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PlanError, match="in use") as error:
            bound("127.0.0.1", port)
        assert (error.value.field, error.value.value) == ("--port", port)


def test_ctrl_c_ends_it_with_open_streams() -> None:
    port = free_port()
    code = "from planner.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", str(port)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert f":{port}/" in process.stderr.readline().decode()
    with socket.create_connection(("127.0.0.1", port), 5) as half:
        half.sendall(HEAD)
        with socket.create_connection(("127.0.0.1", port), 5) as stream:
            stream.sendall(b"GET /api/search?model=gpt2&gpu=a100&gpus=4096" + HEAD[5:] + b"\r\n")
            time.sleep(0.5)
            os.killpg(process.pid, signal.SIGINT)  # as a terminal does
            assert process.wait(limits.CLOSING_S + 20) == 0
    assert b"Traceback" not in process.stderr.read()
