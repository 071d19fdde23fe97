"""The dashboard's server: the documents of the command line, complete pages, limits, and nothing of
the server's disk."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

import pytest
from command import ROOT, dpplan
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner import api
from planner.specs.document import plain
from planner.specs.options import rows
from planner.specs.options.commands import ServeOptions
from web import limits, state, static_files, tasks
from web.app import app
from web.render import streamed

REQUEST = {
    "model": "llama-2-7b",
    "gpu": "a100-sxm4-80gb",
    "gpus": "8",
    "zero": "3",
    "global_batch": "64",
}
FIXED = {
    **REQUEST,
    "tp": "2",
    "pp": "1",
    "zero": "1",
    "micro_batch": "1",
    "recompute": "selective",
    "stack": "megatron-core",
    "tokens": "1T",
}
CONFIG = (ROOT / "tests" / "configs" / "llama-3.1-8b.json").read_text(encoding="utf-8")
CALIBRATION = (ROOT / "docs" / "examples" / "calibration.toml").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(app, raise_server_exceptions=False) as made:
        yield made


class Page(HTMLParser):
    """Numbers with their full value, links, scripts and what else a page holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.figures: dict[str, float] = {}
        self.links: dict[str, str] = {}
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._key = self._href = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "a":
            self._key, self._href = str(found.get("data-key") or ""), str(found.get("href") or "")
            self.links[str(found.get("aria-label") or self._href)] = self._href
        if tag == "data" and self._key and found.get("value"):
            self.figures[self._key] = float(str(found["value"]))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a":
            self._key = ""


def at(document: dict[str, Any], path: str) -> Any:
    for part in path.split("."):
        document = document[part]
    return document


# --------------------------------------------------------------------------------------------------


def agree(client: TestClient, asked: dict[str, str]) -> None:
    """The command line, the API, the library and the page say the same, to the last digit."""
    words = [word for key, value in asked.items() for word in (f"--{key.replace('_', '-')}", value)]
    said = dpplan("estimate", *words, "--json")
    answer = client.get("/api/estimate", params=asked)
    if said.status == 2:
        assert answer.status_code == 422, (asked, said.stderr)
        error = said.json()["error"]
        assert answer.json()["field"] == error["field"]
        assert answer.json()["message"].endswith(error["remedy"])
        assert client.get("/", params=asked).status_code == 422
        return
    document = said.json()
    assert answer.status_code == 200, answer.text
    assert answer.json() == document, asked
    page = Page(client.get("/", params=asked).text)
    assert page.figures, asked
    for key, value in page.figures.items():
        assert value == at(document, key), key


def test_command_line_api_and_page_agree(client: TestClient) -> None:
    agree(client, FIXED)
    agree(
        client,
        {
            "model": "mixtral-8x7b",
            "gpu": "h100-sxm5-80gb",
            "gpus": "16",
            "price": "2.5",
            "tokens": "300B",
        },
    )
    agree(client, {**REQUEST, "tp": "3"})


SCENARIOS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(
            ["gpt2", "llama-2-7b", "llama-3-8b", "qwen2.5-0.5b", "mixtral-8x7b"]
        ),
        "gpu": st.sampled_from(["a100-sxm4-80gb", "h100-sxm5-80gb", "rtx4090", "mi300x-192gb"]),
        "gpus": st.sampled_from(["1", "4", "8", "16", "24"]),
        "tp": st.sampled_from(["1", "2", "4", "3"]),
        "pp": st.sampled_from(["1", "2"]),
        "micro_batch": st.sampled_from(["1", "2"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "global_batch": st.sampled_from(["48", "64"]),
        "seq_len": st.sampled_from(["1024", "2048"]),
    },
    optional={
        "zero": st.sampled_from(["0", "1", "3"]),
        "tokens": st.sampled_from(["1T", "20B"]),
        "price": st.sampled_from(["1.99", "0"]),
        "precision": st.sampled_from(["bf16", "fp16", "fp8"]),
        "stack": st.sampled_from(["megatron-core", "pytorch-fsdp"]),
    },
)


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(asked=SCENARIOS)
def test_they_agree_over_random_scenarios(client: TestClient, asked: dict[str, str]) -> None:
    agree(client, asked)


def test_posted_options_are_those_of_the_address(client: TestClient) -> None:
    typed = {key: int(value) if value.isdigit() else value for key, value in FIXED.items()}
    assert (
        client.post("/api/estimate", json=typed).json()
        == client.get("/api/estimate", params=FIXED).json()
    )
    found = client.post("/api/search", json={**typed, "top": 1}).json()
    assert found["evaluated"] >= found["feasible"] > 0


def test_the_other_documents_are_those_of_the_command_line(client: TestClient) -> None:
    found = client.get("/api/search", params={**REQUEST, "top": "2"}).json()
    said = dpplan(
        "search",
        *[w for k, v in REQUEST.items() for w in (f"--{k.replace('_', '-')}", v)],
        "--top",
        "2",
        "--json",
    ).json()
    assert {k: v for k, v in found.items() if k != "seconds"} == {
        k: v for k, v in said.items() if k != "seconds"
    }
    words = (
        "--schedule",
        "zb-h1",
        "--pp",
        "4",
        "--microbatches",
        "8",
        "--forward-s",
        "1",
        "--sends",
    )
    asked = {"schedule": "zb-h1", "pp": "4", "microbatches": "8", "forward_s": "1", "sends": "true"}
    assert (
        client.get("/api/schedule", params=asked).json()
        == dpplan("schedule", *words, "--json").json()
    )
    table = rows(api.Options)
    of_model = {k: v for k, v in FIXED.items() if "schedule" in table[k].verbs}
    of_model |= {"pp": "2", "dp": "2"}
    words = tuple(w for k, v in of_model.items() for w in (f"--{k.replace('_', '-')}", v))
    assert (
        client.get("/api/schedule", params=of_model).json()
        == dpplan("schedule", *words, "--json").json()
    )
    for kind in client.get("/api/catalog").json():
        assert client.get(f"/api/catalog/{kind}").json() == plain(api.list_catalog(kind))


# --------------------------------------------------------------------------------------------------


def test_the_page_is_complete_without_a_script(client: TestClient) -> None:
    answer = client.get("/", params={**FIXED, "wait": "1"})
    assert answer.status_code == 200
    text = answer.text
    assert "Llama 2 7B on 8 x NVIDIA A100" in text
    assert "What to change" in text
    assert '<p class="muted">Looking' not in text
    assert "on measured" in text  # what it rests on
    for name in ("memory-stages", "memory-phases", "step-time"):
        assert f'id="chart-{name}"' in text
    assert text.count("<table") >= 5
    page = Page(text)
    names = {
        str(attributes.get("name"))
        for tag, attributes in page.tags
        if tag in ("select", "input", "textarea")
    }
    assert (
        set(rows(api.Options)) - {"top", "advice", "objective"} <= names
    )  # these shape the output only
    assert (
        dict(parse_qsl(next(str(a["data-query"]) for _, a in page.tags if "data-query" in a)))
        == FIXED
    )


def test_the_answer_is_sent_while_the_rest_is_worked_on() -> None:
    async def sent() -> list[str]:
        ready = asyncio.Event()

        async def late() -> dict[str, str]:
            await ready.wait()
            return {"advice": "<p>change it</p>", "rests": "<p>on numbers</p>"}

        async def form() -> str:
            return "<input>"

        shown: dict[str, Any] = {"title": "", "query": "", "fixed": "", "answer": "<p>fits</p>"}
        shown |= {"charts": [], "panels": (), "own_layout": (), "boot": {}}
        pieces = streamed("page.html", url=static_files.url, late=late, form=form, **shown)
        found = [await anext(pieces)]
        ready.set()
        return [*found, *[piece async for piece in pieces]]

    first, *others = asyncio.run(sent())
    assert "<p>fits</p>" in first
    assert "change it" not in first
    rest = "".join(others)
    assert rest.index("<p>change it</p>") < rest.index("<p>on numbers</p>") < rest.index("<input>")
    assert 'data-ready="yes"' in rest
    assert "<!--" not in first + rest


def test_illegal_values_are_shown_with_their_reason(client: TestClient) -> None:
    text = client.get("/", params={**FIXED, "wait": "1"}).text
    found = re.findall(
        r'<option value="([^"]+)" data-label="[^"]*" data-reason="([^"]+)" disabled>(.*?)</option>',
        text,
    )
    assert found
    assert all(label.endswith(f" – {reason}") for _, reason, label in found)
    assert any(value == "8" and "does not divide the GPUs" in reason for value, reason, _ in found)


def test_nothing_on_a_page_comes_from_elsewhere(client: TestClient) -> None:
    for path in (
        "/",
        "/reference",
        "/compare",
        f"/explain?{urlencode(FIXED)}",
        f"/export?{urlencode(FIXED)}",
    ):
        page = Page(client.get(path).text)
        asked = [
            str(v)
            for _, a in page.tags
            for k, v in a.items()
            if k in ("src", "href", "action", "data", "srcset")
        ]
        assert asked
        assert all(address.startswith(("/", "#")) for address in asked), path
        assert not [
            tag
            for tag, a in page.tags
            if tag == "script" and not a.get("src") and a.get("type") != "application/json"
        ]
        assert not [a for _, a in page.tags if any(name.startswith("on") for name in a)]


def test_a_wrong_request_keeps_its_form(client: TestClient) -> None:
    answer = client.get("/", params={**REQUEST, "tp": "3"})
    assert answer.status_code == 422
    assert "take divisors of it" in answer.text
    assert '<option value="llama-2-7b" data-label="Llama 2 7B" selected>' in answer.text
    assert client.get("/", params={**REQUEST, "nonsense": "1"}).status_code == 422


def test_text_from_the_address_is_escaped(client: TestClient) -> None:
    evil = "<script>alert(1)</script>"
    for path in ("/", "/explain", "/export", "/panel/pareto"):
        for changed in ({"model": evil}, {"price": evil}, {evil: "1"}, {"config": evil}):
            text = client.get(path, params={**REQUEST, **changed}).text
            assert "<script>alert" not in text
    names = {"a": urlencode(FIXED), "b": urlencode(REQUEST), "a_name": evil}
    answer = client.get("/compare", params=names)
    assert answer.status_code == 200
    assert "<script>alert" not in answer.text


def test_panels_compare_explain_and_export_are_pages_too(client: TestClient) -> None:
    for name in tasks.PANELS:
        answer = client.get(f"/panel/{name}", params={**FIXED, "pp": "2", "dp": "2"})
        assert answer.status_code == 200, name
        assert "<table" in answer.text
    assert client.get("/panel/nothing", params=FIXED).status_code == 422
    other = {**FIXED, "gpu": "h100-sxm5-80gb"}
    answer = client.get(
        "/compare", params={"a": urlencode(FIXED), "b": urlencode(other), "b_name": "on Hopper"}
    )
    assert "on Hopper" in answer.text
    compared = client.get(
        "/api/compare", params={"a": urlencode(FIXED), "b": urlencode(other)}
    ).json()
    steps = next(row for row in compared["figures"] if row["key"] == "step")
    assert steps["values"] == [
        client.get("/api/estimate", params=p).json()["step"]["seconds"] for p in (FIXED, other)
    ]
    assert client.get("/api/compare", params={"a": urlencode(FIXED)}).status_code == 422
    assert "utilisation" in client.get("/explain", params=FIXED).text
    document = client.get("/api/explain", params=FIXED).json()
    assert {part["key"] for part in document["parts"]} == {"time", "memory", "rates"}


def test_advice_leads_to_what_it_promises(client: TestClient) -> None:
    asked = {"model": "llama-2-7b", "gpu": "rtx4090", "gpus": "2", "seq_len": "2048"}
    document = client.get("/api/estimate", params=asked).json()
    assert not document["memory"]["fits"]
    late = client.get("/page/late", params=asked).json()
    links = [
        href for label, href in Page(late["advice"]).links.items() if label.startswith("Apply: ")
    ]
    assert len(links) == len(document["advice"]) > 2
    for link, entry in list(zip(links, document["advice"], strict=True))[:3]:
        led = client.get(f"/api/estimate{link[1:]}").json()
        assert led["memory"]["fits"]
        assert led["step"]["seconds"] == pytest.approx(entry["step_seconds"], rel=1e-12)


def test_a_query_reads_back_as_its_state() -> None:
    asked = state.of_mapping(
        {
            "model": "gpt2",
            "gpu": "a100",
            "gpus": 8,
            "flash_attention": False,
            "sequence_parallel": True,
            "tp": 2,
            "clock": 0.5,
            "power_limit": "250 W",
            "tokens": "1T",
            "price": 1.5,
            "nic_bandwidth": "200 Gbit/s",
        }
    )
    assert state.of_pairs(parse_qsl(asked.query)).query == asked.query


# --------------------------------------------------------------------------------------------------


def test_exports_lead_back(client: TestClient) -> None:
    toml = client.get("/api/export", params={**FIXED, "to": "toml"}).text
    posted = client.post("/page/scenario", content=toml)
    assert dict(parse_qsl(posted.json()["query"])) == FIXED
    as_json = json.dumps({k: int(v) if v.isdigit() else v for k, v in FIXED.items()})
    assert dict(parse_qsl(client.post("/page/scenario", content=as_json).json()["query"])) == FIXED
    command = client.get("/api/export", params={**FIXED, "to": "command"}).text
    said = dpplan(*command.split()[1:], "--json").json()
    assert said == client.get("/api/export", params={**FIXED, "to": "json"}).json()
    table = client.get(
        "/api/export", params={**FIXED, "to": "csv", "chart": "step-time"}
    ).text.splitlines()
    assert table[0] == "part,time (s),share (share),hidden beside it (s)"
    assert float(table[-1].split(",")[1]) == said["step"]["seconds"]
    assert client.get("/api/export", params={**FIXED, "to": "model"}).status_code == 422
    assert client.get("/api/export", params={**FIXED, "to": "exe"}).status_code == 422
    for wrong in (b"\xff", b"a = [", b"{" * 5000, b"[1]", b'{"tp": {}}', b"x = 1"):
        assert client.post("/page/scenario", content=wrong).status_code == 422


def test_a_pasted_model_is_read_from_memory(client: TestClient) -> None:
    asked = {"config": CONFIG, "gpu": "h100-sxm5-80gb", "gpus": "8"}
    document = client.get("/api/estimate", params=asked).json()
    words = (
        "--model",
        str(ROOT / "tests/configs/llama-3.1-8b.json"),
        "--gpu",
        "h100-sxm5-80gb",
        "--gpus",
        "8",
    )
    said = dpplan("estimate", *words, "--json").json()
    assert document["step"] == said["step"]
    assert document["memory"] == said["memory"]
    assert document["model"]["source"] == "model.json"
    assert (
        client.post("/api/estimate", json={**asked, "gpus": 8, "config": json.loads(CONFIG)}).json()
        == document
    )
    text = client.get("/", params=asked).text
    assert "llama model of model.json" in text
    assert str(ROOT) not in text
    pasted = client.get("/api/export", params={**asked, "to": "model"}).text
    assert json.loads(pasted) == json.loads(CONFIG)
    own = (ROOT / "docs" / "examples" / "model.toml").read_text(encoding="utf-8")
    assert client.get("/api/estimate", params={**asked, "config": own}).status_code == 200


def test_a_pasted_calibration_moves_the_numbers(client: TestClient) -> None:
    asked = {**REQUEST, "gpu": "rtx4090", "model": "gpt2"}
    before = client.get("/api/estimate", params=asked).json()
    after = client.get("/api/estimate", params={**asked, "calibration": CALIBRATION}).json()
    assert after["step"]["seconds"] > before["step"]["seconds"]
    assert after["provenance"]["measured_frac"] > before["provenance"]["measured_frac"]
    late = client.get("/page/late", params={**asked, "calibration": CALIBRATION}).json()
    assert "kernels.gemm_efficiency" in late["rests"]
    assert "What the calibration changes" in late["rests"]
    wrong = client.get(
        "/api/estimate", params={**asked, "gpu": "a100-sxm4-80gb", "calibration": CALIBRATION}
    )
    assert wrong.status_code == 422
    assert "was measured on rtx4090" in wrong.json()["message"]


def test_pasted_texts_are_not_kept() -> None:
    assert state.of_mapping({"model": "gpt2", "gpu": "a100"}).is_shared
    assert not state.of_mapping({"config": CONFIG, "gpu": "a100"}).is_shared
    assert not state.of_mapping({"model": "gpt2", "gpu": "a100", "calibration": "x = 1"}).is_shared


# --------------------------------------------------------------------------------------------------


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
    answer = client.post("/api/estimate", content=content)
    assert answer.status_code == status
    assert set(answer.json()) == {"field", "value", "message"}


def test_a_body_without_a_length_is_limited_too(client: TestClient) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 10_000

    assert client.post("/api/estimate", content=parts()).status_code == 413


def test_a_long_address_is_refused(client: TestClient) -> None:
    answer = client.get("/api/estimate", params={"config": "x" * limits.MAX_QUERY_BYTES})
    assert answer.status_code == 414
    assert answer.json()["field"] == "request"


def test_a_search_of_absurd_size_ends(client: TestClient) -> None:
    asked = {
        "model": "gpt3-175b",
        "gpu": "h100-sxm5-80gb",
        "gpus": "65520",
        "gpus_per_node": "1",
        "global_batch": "1000000000",
    }
    started = time.monotonic()
    answer = client.get("/api/search", params=asked)
    assert answer.status_code in (200, 422)
    assert time.monotonic() - started < 3 * limits.HEAVY_S
    schedule = {"schedule": "zb-2p", "pp": "100000", "microbatches": "1000000"}
    assert client.get("/api/schedule", params=schedule).status_code == 422


# --------------------------------------------------------------------------------------------- file


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


def test_an_address_quotes_as_browsers_do(client: TestClient) -> None:
    plain = "&".join(
        f"{k}={quote(v, safe='')}" for k, v in {**FIXED, "power_limit": "300 W"}.items()
    )
    assert (
        client.get(f"/api/estimate?{plain}").json()
        == client.get("/api/estimate", params={**FIXED, "power_limit": "300 W"}).json()
    )


def test_requirements_and_conditions_may_be_given_more_than_once(client: TestClient) -> None:
    answer = client.get(
        "/api/estimate",
        params={**REQUEST, "require": ["fits", "memory < 90%"], "where": ["tp <= 2", "pp = 1"]},
    )
    document = answer.json()
    assert [one["text"] for one in document["requirements"]] == ["fits", "memory < 90%"]
    assert (document["layout"]["tp"] <= 2, document["layout"]["pp"]) == (True, 1)
    assert client.get("/api/estimate", params={**REQUEST, "require": "nothing"}).status_code == 422
    assert (
        client.get("/api/estimate", params={**REQUEST, "host_link": "./a.toml"}).status_code == 422
    )
    page = client.get("/", params={**REQUEST, "require": ["fits", "memory < 90%"]})
    assert page.status_code == 200
