"""Files dropped on the dashboard: sorted into recipes and logs, answered as the commands do, with
results to take along; what a form may not send."""

from __future__ import annotations

import gzip
import pickle
import re
import shlex
from html import unescape
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import pytest
import sample_logs as samples
from command import ROOT, dpplan
from fastapi.testclient import TestClient
from starlette.datastructures import Headers

from planner.inputs import calibration, catalog
from planner.specs.base import PlanError
from planner.studies.validate.rows import read_tables
from planner.units import show
from web import limits, upload
from web.guard import UPLOADS
from web.state import Malformed
from web.tabs import TABS, Tab

EXAMPLES = ROOT / "docs" / "examples"
SCRIPT, LOG = ((EXAMPLES / name).read_bytes() for name in ("train.sh", "train.log"))
CLUSTER = {"gpu": "h100-sxm5-80gb", "gpus": "64"}


def form(*parts: tuple[str, str, bytes]) -> bytes:
    """A posted form of (field, file, content)."""
    text = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%s"%s\r\n\r\n%s\r\n'
        % (name.encode(), b'; filename="%s"' % file.encode() if name == "files" else b"", content)
        for name, file, content in parts
    )
    return text + b"--b--\r\n"


def ask(
    client: TestClient, files: dict[str, bytes], **given: str
) -> tuple[str, dict[str, str], str]:
    """The verdict, results by the name of their file, and the page."""
    answer = client.post("/run", files=[("files", file) for file in files.items()], data=given)
    assert answer.status_code == 200, re.findall(r'role="alert"[^>]*>(.*?)<', answer.text)
    verdict = re.search(r'verdict-line">(.*?)</p>', answer.text)
    links = re.findall(r'download="([^"]*)" href="data:[^,"]*,([^"]*)"', answer.text)
    assert verdict
    return unescape(verdict[1]), {name: unquote(text) for name, text in links}, answer.text


def linked(page: str, word: str) -> str:
    """Query of a link by its word, without options that only the page has."""
    match = re.search(rf'href="([^"]*)">{word}', page)
    assert match, word
    pairs = parse_qsl(urlsplit(unescape(match[1])).query)
    return urlencode([pair for pair in pairs if pair[0] != "to"])


def test_a_form_is_taken_apart() -> None:
    kind = 'multipart/form-data; boundary="b"'
    binary = bytes(range(256)) + b"\r\n--c\r\n"
    result = upload.posted(
        form(
            ("gpu", "", b"h100"),
            ("files", "C:\\runs\\a.log", binary),
            ("files", "../b/a.log", b"two"),
            ("files", "", b""),
            ("text", "", b"  \r\n"),
        ),
        kind,
    )
    assert result.pairs == [("gpu", "h100")]
    assert result.files == {"a.log": binary, "a.log (2)": b"two"}
    for text, name in {
        b'{"zero_optimization": {}}': "pasted.json",
        b"# of torchtitan\n[model]\nname = 1": "pasted.toml",
        b"---\nmodel_name: x\n": "pasted.yaml",
        b"torchrun a.py --x 1\n": "pasted.txt",
    }.items():
        for entry in (text, text.replace(b"\n", b"\r\n"), b"\n" * 90_000 + text):
            assert list(upload.posted(form(("text", "", entry)), kind).files) == [name]
    many = form(*(("files", f"{i}", b"x") for i in range(limits.MOST_FILES + 1)))
    for body, sentence in (
        (many, "at most"),
        (form(("gpu", "", b"\xff")), "UTF-8"),
        (b"--b\r\n\r\nx\r\n--b--\r\n", "without a name"),
        (b"--b\r\nContent", "does not end"),
        (b"", "does not end"),
    ):
        with pytest.raises(PlanError, match=sentence):
            upload.posted(body, kind)
    with pytest.raises(Malformed, match="boundary"):
        upload.posted(b"", "multipart/form-data")


def test_recipe_and_log_are_what_the_commands_say(client: TestClient, tmp_path: Path) -> None:
    files = {"train.sh": SCRIPT, "train.log": LOG}
    verdict, results, page = ask(client, files, **CLUSTER)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    command = re.search(r'<pre class="command">dpplan (.*?)</pre>', page)
    assert command
    words = [
        str(tmp_path / word) if re.search(r"\.(sh|log|toml|csv)$", word) else word
        for word in shlex.split(unescape(command[1]))
    ]
    document = dpplan(*words, "--json").json()["against"]
    assert verdict.startswith(document["verdict"].capitalize())
    assert show(document["measured_s"], "s") in verdict
    assert set(results) == {"my-cluster.toml", "my-runs.csv"}
    for name, text in results.items():
        assert text.splitlines() == (tmp_path / name).read_text().splitlines()
    # what `read` says stands beside it, and leads to the plan
    assert re.search(
        r"\d+ arguments: \d+ read, \d+ implied, \d+ irrelevant, 0 not understood", page
    )
    opened = linked(page, "Open on the page of plans")
    assert dict(parse_qsl(opened))["tp"] == "2"
    learned = linked(page, "Apply, as calibrated")
    moved = client.get(f"/api/estimate?{learned}").json()["step"]["seconds"]
    assert abs(moved - document["measured_s"]) < abs(
        document["predicted_s"] - document["measured_s"]
    )
    # the next log, dropped with the table of before, is one row more
    typed = {"model": "llama-3-8b", "tp": "2", **CLUSTER}
    table = results["my-runs.csv"].encode()
    _, again, _ = ask(client, {"runs.csv": table, "train.log": LOG}, **typed)
    with catalog.only_given({"runs.csv": again["runs.csv"]}):
        assert len(read_tables([Path("runs.csv")])) == 2
    with catalog.only_given(again):
        assert calibration.read_calibration("my-cluster.toml").gpu == CLUSTER["gpu"]


def test_a_script_alone_leads_to_a_better_one(client: TestClient) -> None:
    first = (EXAMPLES / "first.sh").read_bytes()
    verdict, _, page = ask(client, {"first.sh": first}, **CLUSTER)
    better = re.fullmatch(r"([\d.]+ s) per step: it fits; (.+) takes ([\d.]+ s)", verdict)
    assert better
    here, led = (
        client.get(f"/api/estimate?{linked(page, word)}").json()
        for word in ("Open on the page of plans", "Apply the better recipe")
    )
    assert show(here["step"]["seconds"], "s") == better[1]
    assert show(led["step"]["seconds"], "s") == better[3]
    assert led["step"]["seconds"] < here["step"]["seconds"]
    for change in better[2].split(", "):
        name, value = change.split(" ")
        assert str(led["layout"][name]) == value != str(here["layout"][name])


def test_what_is_left_open_is_asked_for(client: TestClient) -> None:
    verdict, results, _ = ask(client, {"train.sh": SCRIPT})
    assert "do not say --gpu" in verdict
    assert results == {}
    # one GPU, the default, wins over the GPUs of the script
    assert ask(client, {"train.sh": SCRIPT}, gpu="h100", gpus="1")[0].startswith("NO ESTIMATE")
    verdict, results, _ = ask(client, {"train.log": LOG}, gpu="h100")
    assert "drop the recipe beside it" in verdict
    assert results == {}
    verdict, results, _ = ask(client, {"a.log": samples.OUT_OF_MEMORY.encode()})
    assert verdict.startswith("Memory ran out: 4.00 GiB were requested")
    wrong = client.post("/run", files=[("files", ("a.txt", b"hello"))])
    assert wrong.status_code == 422
    assert "holds no step of a log" in wrong.text
    wrong = client.post("/run", files=[("files", ("train.sh", SCRIPT))], data={"gpus": "x"})
    assert wrong.status_code == 422
    assert "valid integer" in wrong.text.split('data-field="gpus"')[1].split("data-field")[0]


def test_recordings_are_no_text(client: TestClient) -> None:
    trace = gzip.compress(samples.trace().encode())
    kept = pickle.dumps(samples.snapshot())
    files = [("files", ("trace.json.gz", trace)), ("files", ("memory.pickle", kept))]
    page = client.post("/run", files=files).text
    for words in ("Kernels of a step", "Memory by component", "Memory ran out"):
        assert words in page


def test_forms_with_files_have_limits_of_their_own(client: TestClient) -> None:
    assert tuple(tab.path for tab in TABS if isinstance(tab, Tab) and tab.files) == UPLOADS
    large = client.post("/run", files=[("files", ("a.log", b"x" * limits.MAX_UPLOAD_BYTES))])
    assert large.status_code == 413
    assert "dpplan check FILE" in large.text
    assert large.headers["content-type"].startswith("text/html")
    for headers, status in (
        ({"content-type": "application/json"}, 415),
        ({"content-type": "multipart/form-data; boundary=b", "origin": "https://a.org"}, 403),
        ({"content-type": "multipart/form-data; boundary=b"}, 422),
    ):
        body = form(("files", "a.log", b"hello"))
        assert client.post("/run", content=body, headers=headers).status_code == status, headers
    assert Headers(headers=dict(client.get("/run").headers))["cache-control"] == "no-store"
