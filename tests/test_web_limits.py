"""Refusals and limits of the dashboard's server; it serves no file of its disk."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient
from web_pages import REQUEST

from planner.specs.options import rows
from planner.specs.options.commands import ServeOptions
from web import limits, static_files

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model": "/etc/passwd"}, "model"),
        ({"model": "../planner/models/gpt2.toml"}, "model"),
        ({"model": "hf:org/name"}, "model"),
        ({"gpu": "./x.toml"}, "gpu"),
        ({"stack": "x.toml"}, "stack"),
        ({"cluster": "C:\\x.toml"}, "cluster"),
        ({"inter_node": "/dev/zero.toml"}, "inter_node"),
        ({"config": "{}", "model": "gpt2"}, "config"),
        ({"config": "{" * 3000, "model": ""}, "--model model.json"),
        ({"config": '{"a":' * 2000 + "1" + "}" * 2000, "model": ""}, "--model model.json"),
        ({"calibration": "gpu = ["}, "--calibration"),
        ({"gpus": "100000"}, "--gpus"),
        ({"gpus": "9" * 30}, "--gpus"),
        ({"tp": "1000000000"}, "--tp"),
        ({"tp": "-1"}, "--tp"),
        ({"seq_len": "99999999999"}, "--seq-len"),
        ({"top": "1000"}, "--top"),
        ({"tp": "3"}, "--tp"),
        ({"nonsense": "1"}, "nonsense"),
        ({"gpus": "many"}, "--gpus"),
        ({"model": "gpt\x00"}, "model"),
        ({"tokens": "1e400"}, "--tokens"),
        ({"grad_accum": "1000000", "global_batch": "", "gpus": "4096"}, "--global-batch"),
        ({"where": "tp <= " + "9" * 400}, "--where"),
        ({"where": "recompute = block:" + "9" * 400}, "--where"),
        ({"where": "recompute = block:²"}, "--where"),
    ],
)
def test_wrong_requests_are_named(client: TestClient, changed: dict[str, str], field: str) -> None:
    answer = client.get("/api/estimate", params={**REQUEST, **changed})
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"] == field
    assert len(answer.text) < 2000


def test_an_option_given_twice_is_refused(client: TestClient) -> None:
    assert client.get("/api/estimate?model=gpt2&gpu=a100&gpu=h100").json()["field"] == "gpu"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"x" * (limits.MAX_BODY_BYTES + 1), 413),
        (b"[" * 100_000, 422),
        (b'{"a":' * 50_000, 422),
        (b"\xff\xfe", 422),
        (b"", 422),
        (b"[]", 422),
        (b"null", 422),
        (b'{"model": ["gpt2"]}', 422),
        (b'{"model": "gpt2", "model": "gpt2"}', 422),
        (b'{"model": "gpt2", "gpu": "a100", "tp": 1e400}', 422),
        (b'{"model": "gpt2", "gpu": "a100", "config": {"a": 1}}', 422),
    ],
)
def test_bodies_are_limited(client: TestClient, content: bytes, status: int) -> None:
    answer = client.post("/api/estimate", content=content, headers=JSON)
    assert answer.status_code == status
    assert set(answer.json()) == {"field", "value", "message"}


@pytest.mark.parametrize(
    "content",
    [
        rb'{"model": "\ud800", "gpu": "h100"}',
        rb'{"\udfff": "gpt2", "gpu": "h100"}',
        rb'{"model": "gpt2", "where": ["\ud800"]}',
        rb'{"config": {"model_type": "\ud800"}}',
        rb'{"model": "gpt2", "calibration": "\ud800"}',
    ],
)
def test_half_a_surrogate_pair_is_a_wrong_request(client: TestClient, content: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/api/estimate", content=content, headers=headers)
    assert answer.status_code == 400, answer.text
    assert set(answer.json()) == {"field", "value", "message"}
    assert client.post("/api/search", content=content, headers=headers).status_code == 400


def test_half_a_surrogate_pair_in_an_address_is_a_wrong_request(client: TestClient) -> None:
    for path in ("/", "/api/estimate"):
        assert client.get(f"{path}?model=%ED%A0%80&gpu=h100").status_code == 400
    for content, status in (
        (b'{"model": "\\ud800"}', 400),
        (b'model = "\xed\xa0\x80"', 400),
        (b'model = "\\ud800"', 422),  # which TOML has no such escape for
    ):
        answer = client.post(
            "/page/scenario", content=content, headers={"content-type": "application/toml"}
        )
        assert answer.status_code == status, content


def test_half_a_surrogate_pair_in_a_pasted_config_is_a_wrong_config(client: TestClient) -> None:
    content = rb'{"config": "{\"model_type\": \"\\ud800\"}", "gpu": "h100"}'
    headers = {"content-type": "application/json"}
    assert client.post("/api/estimate", content=content, headers=headers).status_code == 422


def test_more_options_than_there_are_is_refused(client: TestClient) -> None:
    many = "&".join(f"a{i}=1" for i in range(limits.MOST_PAIRS + 1))
    for path in ("/", "/api/estimate", "/api/compare", "/export", "/page/form"):
        answer = client.get(f"{path}?{many}")
        assert answer.status_code == 422
        assert "more than" in answer.text
    assert client.get("/api/compare", params={"a": many, "b": many}).json()["field"] == "a"
    repeated = "&".join(["model=gpt2", "gpu=h100", *["tp=nonsense"] * 250])
    assert client.get(f"/?{repeated}").status_code == 422


def test_a_scenario_of_one_endless_key_is_refused_at_once(client: TestClient) -> None:
    started = time.monotonic()
    answer = client.post(
        "/page/scenario",
        content="a." * (limits.MAX_SCENARIO_BYTES // 2),
        headers={"content-type": "application/toml"},
    )
    assert answer.status_code == 422
    assert "nested deeper" in answer.json()["message"]
    assert time.monotonic() - started < 5


def test_a_body_without_a_length_is_limited_too(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert client.post("/api/estimate", content=parts(), headers=JSON).status_code == 413


def test_a_long_address_is_refused(client: TestClient) -> None:
    answer = client.get("/api/estimate", params={"config": "x" * limits.MAX_QUERY_BYTES})
    assert answer.status_code == 414
    assert answer.json()["field"] == "request"


def test_a_search_of_absurd_size_ends(client: TestClient) -> None:
    values = {
        "model": "gpt3-175b",
        "gpu": "h100-sxm5-80gb",
        "gpus": "65520",
        "gpus_per_node": "1",
        "global_batch": "1000000000",
    }
    started = time.monotonic()
    answer = client.get("/api/search", params=values)
    assert answer.status_code in (200, 422)
    assert time.monotonic() - started < 3 * limits.HEAVY_S
    schedule = {"schedule": "zb-2p", "pp": "100000", "microbatches": "1000000"}
    assert client.get("/api/schedule", params=schedule).status_code == 422


def test_static_files_are_those_of_the_folder(client: TestClient) -> None:
    for name in static_files.files():
        answer = client.get(static_files.url(name))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert (
            client.get(
                f"/static/{name}", headers={"if-none-match": answer.headers["etag"]}
            ).status_code
            == 304
        )
    script = client.get("/static/app.js").text
    assert not re.search(r'from "\./[\w-]+\.js"', script)  # each module with its tag
    for name in (
        "../app.py",
        "..%2fapp.py",
        "%2e%2e/app.py",
        "vendor/plotly-LICENSE.txt",
        "nothing.js",
        "/etc/passwd",
        "vendor",
    ):
        assert client.get(f"/static/{name}").status_code == 404, name


def test_plotly_is_the_published_bundle() -> None:
    import hashlib

    folder = static_files.FOLDER / "vendor"
    stated = dict(
        re.findall(
            r"^(\S+): (.+)$", (folder / "SOURCE.txt").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    assert (
        hashlib.sha256((folder / "plotly-cartesian.min.js").read_bytes()).hexdigest()
        == stated["sha256"]
    )
    assert "MIT" in (folder / "plotly-LICENSE.txt").read_text(encoding="utf-8")


def test_every_answer_has_the_headers_of_a_strict_page(client: TestClient) -> None:
    for path in (
        "/",
        "/api/catalog",
        "/static/app.js",
        "/nothing",
        "/api/estimate",
        f"/?{'x' * limits.MAX_QUERY_BYTES}",
    ):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_the_server_listens_on_this_machine_alone_by_default() -> None:
    assert rows(ServeOptions)["host"].default == "127.0.0.1"


@pytest.mark.parametrize("path", ["/", "/page/form", "/api/estimate"])
def test_what_is_long_goes_out_packed(client: TestClient, path: str) -> None:
    """At most a third of itself, the same once unpacked, and plain where the other end
    asks for that."""
    with client.stream("GET", path, params=REQUEST) as answer:
        raw = sum(len(piece) for piece in answer.iter_raw())
    assert answer.headers["content-encoding"] == "gzip"
    plain = client.get(path, params=REQUEST, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert raw < len(plain.content) / 3
