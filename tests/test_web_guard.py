"""Who is answered by the dashboard's server, for how long a client may owe something, and how the
server starts and ends.

Long: connections of every kind share one server that runs inside the test.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

import pytest
import uvicorn
import yaml
from browser import free_port
from command import ROOT
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from planner.cli.commands.serve import bound, command
from planner.error import PlanError
from planner.specs.hosts import asked_host, host_name
from planner.specs.options.commands import ServeOptions
from web import limits, server
from web.app import create
from web.guard import HEADERS, UPLOADS, Guard, Served

JSON = {"content-type": "application/json"}
TOKEN = "0123456789abcdef0123"


async def behind(scope: Scope, receive: Receive, send: Send) -> None:
    """An ASGI application that answers with the request's method and body size."""
    body = (await receive())["body"]
    await PlainTextResponse(f"{scope['method']} {len(body)}")(scope, receive, send)


def guarded(host: str = "http://localhost:8321", **served: object) -> TestClient:
    return TestClient(Guard(behind, Served(**served)), host)  # type: ignore[arg-type]


def is_strict(headers: object) -> bool:
    """Whether an answer has the headers of the page."""
    given = {k.lower(): v for k, v in dict(headers).items()}  # type: ignore[call-overload]
    return all(given.get(k.decode()) == v.decode() for k, v in HEADERS)


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1", 200),
        ("127.0.0.1:8321", 200),
        ("127.8.8.8", 200),
        ("[::1]:8321", 200),
        ("plan.example.org", 200),
        ("Plan.Example.ORG.:443", 200),
        ("[fd00::0:7]", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("plan.example.org.evil.example", 421),
        ("10.0.0.1", 421),
        ("127.0.0.1.nip.io", 421),
        ("[::2]", 421),
        ("", 400),
        ("*", 400),
        ("localhost@evil.example", 400),
        ("localhost:", 400),
        ("localhost:80:80", 400),
        ("[::1", 400),
        ("localhost, evil.example", 400),
        ("x" * 300, 400),
    ],
)
def test_only_names_that_the_server_was_told_are_answered(host: str, status: int) -> None:
    client = guarded(hosts=frozenset(map(host_name, ("plan.example.org", "fd00::7"))))
    answer = client.get("/", headers={"host": host})
    assert answer.status_code == status
    assert is_strict(answer.headers)
    if status != 200:
        assert answer.json()["field"] == "Host"


def test_a_request_has_one_host() -> None:
    two = [("host", "localhost"), ("host", "evil.example")]
    assert guarded().get("/", headers=two).status_code == 400


@pytest.mark.parametrize("text", ["*", "", "http://x", "x:80", "x/", "a b", "-x", "é", "x..y"])
def test_what_is_no_name_is_no_allowed_host(text: str) -> None:
    with pytest.raises(PlanError, match="--allow-host"):
        ServeOptions(allow_host=(text,))
    with pytest.raises(ValueError):
        asked_host(text if text != "x:80" else "x:")


LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS", "HEAD", "PUT"])
@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost:8322"},
        {"origin": "http://localhost"},
        {"origin": "http://127.0.0.1:8321"},
        {"origin": "http://localhost:8321.evil.example"},
        {"origin": "file://localhost:8321"},
        {"origin": "http://["},
        {"origin": ""},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "same-origin, cross-site"},
        {"sec-fetch-site": "SAME"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.example"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"},
        {**LINK, "sec-fetch-dest": "iframe"},
        {**LINK, "origin": "https://evil.example"},
    ],
)
def test_pages_of_others_are_refused(method: str, headers: dict[str, str]) -> None:
    answer = guarded().request(method, "/api/estimate", headers={**JSON, **headers})
    assert answer.status_code == 403
    assert is_strict(answer.headers)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_an_answer_alone_may_stand_in_a_frame_and_no_page() -> None:
    client, frame = guarded(), {**LINK, "sec-fetch-dest": "iframe"}
    for query, status in (("embed=1", 200), ("", 403), ("embed=0", 403)):
        answer = client.get(f"/?{query}", headers=frame)
        assert answer.status_code == status, query
        framed = "x-frame-options" not in answer.headers
        assert framed == (status == 200)
        assert ("frame-ancestors" in answer.headers["content-security-policy"]) != framed
    assert client.post("/?embed=1", headers=frame).status_code == 403


def test_links_from_elsewhere_and_this_page_are_answered() -> None:
    client = guarded()
    for headers in (
        {},  # curl
        LINK,
        {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},  # typed, or a bookmark
        {"sec-fetch-site": "same-origin", "origin": "http://localhost:8321"},
        {"sec-fetch-site": "same-origin", "origin": "null"},
    ):
        assert client.get("/", headers=headers).status_code == 200, headers
    for method in ("POST", "HEAD"):  # a form of another page is no link
        assert client.request(method, "/", headers={**JSON, **LINK}).status_code == 403
    behind_tls = guarded("http://plan.example.org", hosts=frozenset({"plan.example.org"}))
    for origin, status in (("https://plan.example.org", 200), ("https://plan.example.org:8", 403)):
        assert behind_tls.post("/", headers={**JSON, "origin": origin}).status_code == status


@pytest.mark.parametrize(
    ("path", "kind", "status"),
    [
        ("/api/estimate", "application/json", 200),
        ("/api/estimate", "Application/JSON; charset=utf-8", 200),
        ("/api/estimate", "text/plain", 415),
        ("/api/estimate", "text/plain; application/json", 415),
        ("/api/estimate", "application/x-www-form-urlencoded", 415),
        ("/api/estimate", "multipart/form-data", 415),
        ("/api/estimate", "", 415),
        ("/page/scenario", "application/toml", 200),
        ("/page/scenario", "text/plain", 415),
    ],
)
def test_bodies_are_of_a_kind_that_no_page_sends_unasked(path: str, kind: str, status: int) -> None:
    answer = guarded().post(path, content="{}", headers={"content-type": kind} if kind else {})
    assert answer.status_code == status


def test_a_token_is_the_password_of_any_user() -> None:
    client = guarded(token=TOKEN)

    def status_with(given: str | None) -> int:
        answer = client.get("/", headers={} if given is None else {"authorization": given})
        assert TOKEN not in answer.text + str(answer.headers)
        if answer.status_code == 401:
            assert answer.headers["www-authenticate"].startswith("Basic ")
        return answer.status_code

    def basic(text: str) -> str:
        return "Basic " + base64.b64encode(text.encode()).decode()

    assert [status_with(basic(f"{user}:{TOKEN}")) for user in ("", "me", "é")] == [200] * 3
    wrong = (None, "", "Basic", "Basic ?", f"Bearer {TOKEN}", basic(TOKEN), basic(f":{TOKEN}x"))
    assert [status_with(entry) for entry in (*wrong, basic(":"), basic(":é"))] == [401] * 9
    assert TOKEN not in repr(Served(token=TOKEN))


def test_a_fault_is_answered_as_strictly_as_a_page() -> None:
    result = create()

    @result.get("/api/fault")
    @result.get("/fault")
    def fault() -> None:
        raise RuntimeError("secret of the server")

    client = TestClient(result, "http://localhost", raise_server_exceptions=False)
    for path, kind in (("/api/fault", "application/json"), ("/fault", "text/html")):
        answer = client.get(path)
        assert answer.status_code == 500
        assert answer.headers["content-type"].startswith(kind)
        assert is_strict(answer.headers)
        assert "secret" not in answer.text
    assert client.get("/api/fault").json()["message"]


# --- connections ---------------------------------------------------------------------------------

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
    """Of a broken body, or a broken request after a whole one, no traceback is logged."""
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
    config = server.configured(behind)
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


TEAM = ROOT / "docs" / "examples" / "team"


def test_the_proxy_of_the_team_example_lets_through_what_the_server_reads() -> None:
    """nginx reads sizes in k and seconds as written; its limits are never above the server's."""
    text = (TEAM / "nginx.conf").read_text()
    findall = dict(re.findall(r"^ *(\w+) ([^;]+);", text, re.MULTILINE))
    sizes = [int(size) for size in re.findall(r"client_max_body_size (\d+);", text)]
    assert sizes == [limits.MAX_BODY_BYTES, limits.MAX_UPLOAD_BYTES]
    assert re.findall(r"location = (\S+)", text) == list(UPLOADS)
    assert findall["large_client_header_buffers"] == f"4 {limits.HEAD_BYTES // 1024}k"
    assert float(findall["proxy_read_timeout"].removesuffix("s")) > 2 * limits.HEAVY_S
    assert float(findall["client_header_timeout"].removesuffix("s")) <= limits.HEAD_S
    assert float(findall["keepalive_timeout"].removesuffix("s")) <= limits.IDLE_S
    assert int(findall["limit_conn"].split()[1]) < limits.ADDRESS_CONNECTIONS  # all are the proxy's


def test_the_compose_file_of_the_team_example_starts_what_is_there() -> None:
    services = yaml.safe_load((TEAM / "compose.yaml").read_text())["services"]
    inner, proxy = services["dpplan"], services["proxy"]
    assert (TEAM / inner["build"]["context"] / inner["build"]["dockerfile"]).samefile(
        TEAM / "Dockerfile"
    )
    words = [re.sub(r"\$\{.*\}", "plan.example.org", word) for word in inner["command"]]
    given = dict(zip(words[1::2], words[2::2], strict=True))
    options = ServeOptions(host=given["--host"], allow_host=(given["--allow-host"],))
    assert words[0] == "serve"
    assert inner["expose"] == [str(options.port)]
    assert "ports" not in inner  # the proxy alone reaches it
    assert f"dpplan:{options.port}" in (TEAM / "nginx.conf").read_text()
    mounted = [volume.split(":")[0] for volume in proxy["volumes"]]
    assert mounted == ["./nginx.conf", "./tls", "./users"]
    for entry in (inner, proxy):
        assert entry["read_only"] is True
        assert entry["cap_drop"] == ["ALL"]
        assert entry["security_opt"] == ["no-new-privileges:true"]
        assert {"cpus", "mem_limit", "pids_limit"} <= set(entry)
    assert "volumes" not in inner
    assert "cap_add" not in inner
    asks = inner["healthcheck"]["test"]
    assert asks[:3] == ["CMD", "python", "-c"]
    path = asks[3].partition(f"localhost:{options.port}")[2].partition("'")[0]
    assert path in create().openapi()["paths"]


# --- start and end -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"host": ""}, "--host"),
        ({"host": "0.0.0.0"}, "--host"),
        ({"host": "::"}, "--host"),
        ({"host": "192.0.2.1", "allow_host": ("x",)}, "--host"),  # of no machine: RFC 5737
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
