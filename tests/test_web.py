"""The HTTP endpoints give the documents of the command line, and name no file of the server."""

from __future__ import annotations

import pytest
from fastapi.testclient import TestClient

from planner import api
from web.app import MAX_GPUS, app

client = TestClient(app)
REQUEST = {"model": "llama-2-7b", "gpu": "a100", "gpus": "8", "zero": "3", "global_batch": "64"}


def test_estimate_is_the_same_document_as_the_library() -> None:
    answer = client.get("/api/estimate", params=REQUEST)
    assert answer.status_code == 200
    library = api.estimate(api.read_options({"model": "llama-2-7b", "gpu": "a100", "gpus": 8, "zero": 3, "global_batch": 64}))
    assert answer.json()["step"] == library["step"]
    assert answer.json()["memory"] == library["memory"]


def test_requirements_may_be_given_more_than_once() -> None:
    answer = client.get("/api/estimate", params={**REQUEST, "require": ["fits", "memory < 90%"], "advice": "0"}).json()
    assert [one["text"] for one in answer["requirements"]] == ["fits", "memory < 90%"]
    assert client.get("/api/estimate", params={**REQUEST, "require": "nothing"}).status_code == 422
    assert client.get("/api/estimate", params={**REQUEST, "host_link": "./a.toml"}).status_code == 422


def test_search_and_catalog() -> None:
    found = client.get("/api/search", params={**REQUEST, "top": "2"}).json()
    assert found["evaluated"] >= found["feasible"] > 0
    assert len(found["top"]) == 2
    assert any(entry["id"] == "rtx4090" for entry in client.get("/api/catalog/gpus").json())


def test_page_answers_without_scripts() -> None:
    page = client.get("/", params=REQUEST)
    assert page.status_code == 200
    assert "Llama 2 7B on 8 x NVIDIA A100" in page.text
    assert "<script" not in page.text


def test_text_from_the_address_is_escaped() -> None:
    page = client.get("/", params={"model": "<script>alert(1)</script>", "gpu": "a100"})
    assert "<script>alert" not in page.text


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"model": "/etc/passwd"}, "model"),
        ({"gpu": "./x.toml"}, "gpu"),
        ({"calibration": "x"}, "calibration"),
        ({"gpus": str(MAX_GPUS + 1)}, "gpus"),
        ({"tp": "3"}, "--tp"),
        ({"nonsense": "1"}, "nonsense"),
        ({"gpus": "many"}, "--gpus"),
    ],
)
def test_wrong_requests_are_named(changed: dict[str, str], field: str) -> None:
    answer = client.get("/api/estimate", params={**REQUEST, **changed})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
