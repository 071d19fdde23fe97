"""Who is answered by the dashboard's server: hosts, origins, kinds of bodies, tokens, and the proxy
of the example for a team."""

from __future__ import annotations

import base64
import re

import pytest
import yaml
from command import ROOT
from fastapi.testclient import TestClient
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from planner.error import PlanError
from planner.specs.hosts import asked_host, host_name
from planner.specs.options.commands import ServeOptions
from web import limits
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
    for method in ("POST", "HEAD"):  # a form of another page is not a link
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
