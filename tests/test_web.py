"""The dashboard's server: the documents of the command line, exports that lead back, and pasted
files that are not kept."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl

from command import ROOT, argv, dpplan
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from web_pages import FIXED, REQUEST, Page, at

from planner import api
from planner.specs.document import plain
from planner.specs.options import rows
from web import run
from web.state import START

CONFIG = (ROOT / "tests" / "configs" / "llama-3.1-8b.json").read_text(encoding="utf-8")
CALIBRATION = (ROOT / "docs" / "examples" / "calibration.toml").read_text(encoding="utf-8")


def agree(client: TestClient, request: dict[str, str]) -> None:
    """The command line, the API, the library and the page say the same, to the last digit.

    The page has a default for the run's tokens, which the request leaves open."""
    words = [
        word for key, value in request.items() for word in (f"--{key.replace('_', '-')}", value)
    ]
    text = dpplan("estimate", *words, "--json")
    answer = client.get("/api/estimate", params=request)
    if text.status == 2:
        assert answer.status_code == 422, (request, text.stderr)
        error = text.json()["error"]
        assert answer.json()["field"] == error["field"]
        assert answer.json()["message"].endswith(error["remedy"])
        assert client.get("/", params=request).status_code == 422
        return
    document = text.json()
    assert answer.status_code == 200, answer.text
    assert answer.json() == document, request
    page = Page(client.get("/", params={"tokens": "", **request}).text)
    assert page.figures, request
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
            "stack": "megatron-core",
            "seq_len": "4096",
            "price": "2.5",
            "tokens": "300B",
        },
    )
    agree(client, {**REQUEST, "tp": "3"})


def test_the_page_answers_its_own_default_for_the_tokens_of_a_run(client: TestClient) -> None:
    """The page fills in tokens, as documented; its figures equal the figures for the same tokens
    typed."""
    left_out = {name: value for name, value in FIXED.items() if name != "tokens"}
    typed = {**left_out, "tokens": str(START["tokens"])}
    filled, text = (Page(client.get("/", params=request).text) for request in (left_out, typed))
    assert filled.figures == text.figures
    assert filled.figures["run.days"] == at(
        client.get("/api/estimate", params=typed).json(), "run.days"
    )
    assert client.get("/api/estimate", params=left_out).json()["run"]["days"] is None


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
        "stack": st.sampled_from(["megatron-core", "pytorch-fsdp"]),
    },
    optional={
        "zero": st.sampled_from(["0", "1", "3"]),
        "tokens": st.sampled_from(["1T", "20B"]),
        "price": st.sampled_from(["1.99", "0"]),
        "precision": st.sampled_from(["bf16", "fp16", "fp8"]),
    },
)


@settings(
    max_examples=6,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)
@given(request=SCENARIOS)
def test_they_agree_over_random_scenarios(client: TestClient, request: dict[str, str]) -> None:
    agree(client, request)


def test_posted_options_are_those_of_the_address(client: TestClient) -> None:
    typed = {key: int(value) if value.isdigit() else value for key, value in FIXED.items()}
    assert (
        client.post("/api/estimate", json=typed).json()
        == client.get("/api/estimate", params=FIXED).json()
    )
    document = client.post("/api/search", json={**typed, "top": 1}).json()
    assert document["evaluated"] >= document["feasible"] > 0


def test_the_other_documents_are_those_of_the_command_line(client: TestClient) -> None:
    result = client.get("/api/search", params={**REQUEST, "top": "2"}).json()
    document = dpplan(
        "search",
        *[w for k, v in REQUEST.items() for w in (f"--{k.replace('_', '-')}", v)],
        *argv("--top 2 --json"),
    ).json()
    assert {k: v for k, v in result.items() if k != "seconds"} == {
        k: v for k, v in document.items() if k != "seconds"
    }
    words: tuple[str, ...] = argv("--schedule zb-h1 --pp 4 --microbatches 8 --forward-s 1 --sends")
    values = {
        "schedule": "zb-h1",
        "pp": "4",
        "microbatches": "8",
        "forward_s": "1",
        "sends": "true",
    }
    assert (
        client.get("/api/schedule", params=values).json()
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
    steps = {"model": "qwen2.5-0.5b", "gpu": "h100", "gpus": "4", "generation_gpus": "2"}
    words = tuple(w for k, v in steps.items() for w in (f"--{k.replace('_', '-')}", v))
    assert client.get("/api/rl", params=steps).json() == dpplan("rl", *words, "--json").json()
    wrong = client.get("/api/rl", params={**steps, "framework": "none"})
    assert (wrong.status_code, wrong.json()["field"]) == (422, "--framework")
    for kind in client.get("/api/catalog").json():
        assert client.get(f"/api/catalog/{kind}").json() == plain(api.list_catalog(kind))


TOML = {"content-type": "application/toml"}  # as the page sends a chosen file


def test_exports_lead_back(client: TestClient) -> None:
    toml = client.get("/api/export", params={**FIXED, "to": "toml"}).text
    posted = client.post("/page/scenario", content=toml, headers=TOML)
    assert dict(parse_qsl(posted.json()["query"])) == FIXED
    as_json = json.dumps({k: int(v) if v.isdigit() else v for k, v in FIXED.items()})
    posted = client.post("/page/scenario", content=as_json, headers=TOML)
    assert dict(parse_qsl(posted.json()["query"])) == FIXED
    document = client.get("/api/export", params={**FIXED, "to": "json"})
    posted = client.post("/page/scenario", content=document.content, headers=TOML)
    assert dict(parse_qsl(posted.json()["query"])) == FIXED
    command = client.get("/api/export", params={**FIXED, "to": "command"}).text
    answer = dpplan(*command.split()[1:], "--json").json()
    assert answer == client.get("/api/export", params={**FIXED, "to": "json"}).json()
    table = client.get(
        "/api/export", params={**FIXED, "to": "csv", "chart": "step-time"}
    ).text.splitlines()
    assert table[0] == "part,time (s),share (share),hidden beside it (s)"
    assert float(table[-1].split(",")[1]) == answer["step"]["seconds"]
    recipe = client.get("/api/export", params={**FIXED, "to": "megatron"}).json()
    assert "--tensor-model-parallel-size" in recipe["files"][0]["text"]
    assert client.get("/api/export", params={**FIXED, "to": "model"}).status_code == 422
    assert client.get("/api/export", params={**FIXED, "to": "exe"}).status_code == 422
    for wrong in (b"a = [", b"{" * 5000, b"[1]", b'{"tp": {}}', b"x = 1"):
        assert client.post("/page/scenario", content=wrong, headers=TOML).status_code == 422


def test_a_pasted_model_is_read_from_memory(client: TestClient) -> None:
    values = {"config": CONFIG, "gpu": "h100-sxm5-80gb", "gpus": "8"}
    document = client.get("/api/estimate", params=values).json()
    words = (
        "--model",
        str(ROOT / "tests/configs/llama-3.1-8b.json"),
        "--gpu",
        "h100-sxm5-80gb",
        "--gpus",
        "8",
    )
    answer = dpplan("estimate", *words, "--json").json()
    assert document["step"] == answer["step"]
    assert document["memory"] == answer["memory"]
    assert document["model"]["source"] == "model.json"
    assert (
        client.post(
            "/api/estimate", json={**values, "gpus": 8, "config": json.loads(CONFIG)}
        ).json()
        == document
    )
    text = client.get("/", params=values).text
    assert "llama model of model.json" in text
    assert str(ROOT) not in text
    pasted = client.get("/api/export", params={**values, "to": "model"}).text
    assert json.loads(pasted) == json.loads(CONFIG)
    path = (ROOT / "docs" / "examples" / "model.toml").read_text(encoding="utf-8")
    assert client.get("/api/estimate", params={**values, "config": path}).status_code == 200


def test_a_pasted_calibration_moves_the_numbers(client: TestClient) -> None:
    values = {**REQUEST, "gpu": "rtx4090", "model": "gpt2"}
    before = client.get("/api/estimate", params=values).json()
    after = client.get("/api/estimate", params={**values, "calibration": CALIBRATION}).json()
    assert after["step"]["seconds"] > before["step"]["seconds"]
    assert after["provenance"]["measured_frac"] > before["provenance"]["measured_frac"]
    late = client.get("/page/late", params={**values, "calibration": CALIBRATION}).json()
    assert "kernels.gemm_efficiency" in late["rests"]
    assert "What the calibration changes" in late["rests"]
    wrong = client.get(
        "/api/estimate", params={**values, "gpu": "a100-sxm4-80gb", "calibration": CALIBRATION}
    )
    assert wrong.status_code == 422
    assert "was measured on rtx4090" in wrong.json()["message"]


def test_pasted_texts_are_not_kept() -> None:
    items = [("model", "gpt2"), ("gpu", "a100")]
    assert run._key("estimate", (items,)) is not None
    assert run._key("estimate", ([*items, ("calibration", "x = 1")],)) is None
    assert run._key("estimate", ([("config", CONFIG), ("gpu", "a100")],)) is None
    assert run._key("estimate", (b'{"model": "gpt2"}',)) is None


def test_requirements_and_conditions_may_be_given_more_than_once(client: TestClient) -> None:
    answer = client.get(
        "/api/estimate",
        params={**REQUEST, "require": ["fits", "memory < 90%"], "where": ["tp <= 2", "pp = 1"]},
    )
    document = answer.json()
    assert [requirement["text"] for requirement in document["requirements"]] == [
        "fits",
        "memory < 90%",
    ]
    assert (document["layout"]["tp"] <= 2, document["layout"]["pp"]) == (True, 1)
    assert client.get("/api/estimate", params={**REQUEST, "require": "nothing"}).status_code == 422
    assert (
        client.get("/api/estimate", params={**REQUEST, "host_link": "./a.toml"}).status_code == 422
    )
    page = client.get("/", params={**REQUEST, "require": ["fits", "memory < 90%"]})
    assert page.status_code == 200
