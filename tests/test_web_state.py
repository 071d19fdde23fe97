"""The address holds the whole scenario with its origins, on every tab, and no default overrules."""

from __future__ import annotations

import json
import random
import re
from html import unescape
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from command import dpplan
from fastapi import Request
from fastapi.testclient import TestClient

from planner.specs.options import Origin
from web import run, state, view
from web.tabs import TABS, Tab
from web.tabs.form import form
from web.tabs.navigation import navigation
from web.tabs.strip import chips

# what a person typed, some of it taken by few verbs: with a file's values beside it
TYPED = {"price": "2.0", "stack": "torchtitan", "tp": "8", "nic_bandwidth": "100 Gbit/s"}
OF_FILE = {"model": "llama-3-70b", "gpus": "32", "gpus_per_node": "4"}
GIVEN = {
    **OF_FILE,
    **TYPED,
    "gpu": "h100-sxm5-80gb",
    **{f"from.{name}": f"file|train.sh:3 --{name}|{value}" for name, value in OF_FILE.items()},
}
SMALL = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "8", "price": "2.0", "tp": "2"}
PICKED = Origin("search", "picked")
SCRIPT = """torchrun --nnodes 4 --nproc-per-node 8 pretrain_gpt.py \\
  --tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer \\
  --num-layers 80 --hidden-size 8192 --num-attention-heads 64 --ffn-hidden-size 28672 --swiglu \\
  --group-query-attention --num-query-groups 8 --vocab-size 128256 --seq-length 8192 \\
  --normalization RMSNorm --position-embedding-type rope --untie-embeddings-and-output-weights \\
  --disable-bias-linear --max-position-embeddings 8192 --micro-batch-size 1 \\
  --global-batch-size 256 --bf16
"""


def bar(text: str) -> dict[str, dict[str, str]]:
    """The request of each link in the bar of tabs, by path."""
    matches = re.findall(r'<a(?: class="lens")? href="([^"]*)" data-path="([^"]*)"', text)
    return {path: dict(parse_qsl(urlsplit(unescape(to)).query)) for to, path in matches}


def plain(text: str) -> str:
    return " ".join(unescape(re.sub("<[^>]*>", " ", text)).split())


def test_an_address_reads_back_with_its_origins() -> None:
    read = state.of_pairs(GIVEN.items())
    assert read.options.origin("gpus") == Origin("file", "train.sh:3 --gpus")
    assert read.is_typed("tp")
    again = state.of_pairs(read.pairs)
    assert (again.query, again.options.origins) == (read.query, read.options.origins)
    assert dict(read.pairs) == GIVEN
    chosen = state.of_pairs({**GIVEN, "gpus": "64"}.items())
    over = "train.sh:3 --gpus says 32"
    assert chosen.options.origin("gpus") == Origin("typed", over=over)
    assert chosen.query == state.of_pairs(chosen.pairs).query
    changed = read.changed(gpus=16)
    assert changed.is_typed("gpus")
    assert changed.options.origin("model") == read.options.origin("model")


@pytest.mark.parametrize("mark", ["32", "guess|train.sh:3|32", "file||32"])
def test_a_mark_that_is_none_is_refused(mark: str) -> None:
    with pytest.raises(state.api.PlanError, match=r"from\.gpus"):
        state.of_pairs([("model", "gpt2"), ("gpus", "32"), ("from.gpus", mark)])


def test_a_default_of_the_page_is_recognised_and_left_behind() -> None:
    pairs = state.filled([("gpus", "128")], state.PAGE)
    read = state.of_pairs(pairs)
    assert (read.options.gpus, read.options.model) == (128, "llama-3-8b")
    assert read.is_typed("gpus")
    assert not read.is_typed("model")
    assert state.stated(pairs) == [("gpus", "128")]
    # a form without a script sends every field: the changed one is not a default any more
    sent = [(name, "70" if name == "gpus" else text) for name, text in state.filled([], state.PAGE)]
    assert state.stated(sent) == [("gpus", "70")]
    assert state.filled([("tokens", "")], state.PAGE[3:]) == [("tokens", "")]
    named = [("config", "{}"), ("cluster", "dgx"), ("nodes", "2"), ("tokens", "1B")]
    assert state.filled(named, state.PAGE) == named


def test_whatever_a_page_fills_in_is_marked_as_its_default(client: TestClient) -> None:
    for typed in ([], [("tokens", "2T")], [("price", "2.0")], [("gpu", "h200")]):
        pages = [state.filled(typed, state.PAGE)]
        pages += [tab.with_defaults(typed) for tab in TABS if isinstance(tab, Tab)]
        for pairs in pages:
            assert state.stated(pairs) == typed
            marks = {name: mark for name, mark in pairs if name.startswith(state.MARK)}
            for name, text in pairs:
                if (name, text) not in typed and name not in marks:
                    assert marks[state.MARK + name].startswith(state.DEFAULT), (name, text)
    wrong = client.get("/", params={"tp": "x", **GIVEN, "tokens": ""} | {"tp": "x"})
    assert wrong.status_code == 422
    kept = dict(re.findall(r'name="from\.(\w+)" value="([^"]*)"', wrong.text))
    assert {name: mark.partition("|")[0] for name, mark in kept.items()} == dict.fromkeys(
        OF_FILE, "file"
    )
    wrong = client.get("/", params={"tp": "x"})
    kept = dict(re.findall(r'name="from\.(\w+)" value="([^"]*)"', wrong.text))
    assert kept == {name: f"{state.DEFAULT}{value}" for name, value in state.PAGE}


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages of tabs come without the answer of their verb, which may take ten seconds: the bar of
    tabs is made of the address before it is there. Answers are tested in test_web_pages.py."""
    page = json.dumps({"ok": True, "form": "", "answer": "", "charts": []}).encode()
    wanted = run.answer

    async def answer(request: Request, name: str, *arguments: Any, **more: Any) -> bytes:
        return page if name == "tab" else await wanted(request, name, *arguments, **more)

    monkeypatch.setattr(run, "answer", answer)


@pytest.mark.usefixtures("unanswered")
def test_what_is_given_survives_every_tab(client: TestClient) -> None:
    """By the links of the pages, from the plan to each tab and back."""
    links = bar(client.get("/", params=GIVEN).text)
    carried = [tab for tab in TABS if tab.carried]
    assert set(links) == {tab.path for tab in carried}
    for tab in carried:
        assert links[tab.path] == GIVEN, tab.path
        target = bar(client.get(tab.path, params=links[tab.path]).text)
        assert target["/"] == GIVEN, tab.path


@pytest.mark.usefixtures("unanswered")
def test_no_tab_takes_its_own_defaults_along(client: TestClient) -> None:
    for tab in TABS:
        assert bar(client.get(tab.path).text) == {t.path: {} for t in TABS if t.carried}, tab.path


def test_every_layout_that_the_page_offers_answers_its_number() -> None:
    """Advice, the best of each family, the layout taken: what is clicked is what was shown."""
    values = {"model": "gpt2", "gpu": "a100-sxm4-80gb", "gpus": "8", "advice": "99", "tokens": "1B"}
    here = state.of_pairs(values.items())
    report = state.api.estimate(here.options)
    shown, late, to = view.answer(report, here), view.late(report), view.addressed(here)
    best, fastest = late["families"]
    families = [alternative for alternative in report.alternatives if alternative.family]
    top = [alternative for alternative in report.alternatives if alternative.rank]
    rows = zip(report.advice, late["advice"][0].links, strict=True)
    steps = [(link, row.step_seconds) for row, link in rows]
    for alternatives, block in ((families, best), (top, fastest)):
        pairs = zip(alternatives, block.links, strict=True)
        steps += [(link, row.step_seconds) for row, link in pairs]
    targets = [(link and to(link), step_s) for link, step_s in steps]
    offered = [
        (shown["fixed"], report.step.seconds),
        *((target and target.removeprefix("/?"), step_s) for target, step_s in targets),
    ]
    assert {advice.kind for advice in report.advice} == {"keep", "search"}
    for query, step_s in offered:
        if query is None:  # of a family of which nothing fits
            continue
        target = state.of_pairs(parse_qsl(query))
        estimate = state.api.estimate(target.options, brief=True)
        assert estimate.step.seconds == pytest.approx(step_s, rel=1e-12), query
        assert target.is_typed("model")
    assert state.of_pairs(parse_qsl(shown["fixed"])).options.origin("tp") == PICKED


def test_another_verb_searches_again_what_the_search_had_filled_in(client: TestClient) -> None:
    """A layout that was clicked is given to no other verb as if a person had chosen it."""
    chosen = {**SMALL, "pp": "1", "stack": "megatron-core", "gpus": "8"}
    filled = {"zero": "1", "micro_batch": "4", "global_batch": "32"}
    address = {**chosen, **filled, **{f"from.{n}": f"search|picked|{v}" for n, v in filled.items()}}
    assert bar(client.get("/", params=address).text)["/batch"] == address  # and back, unchanged
    limits = {"days": "30", "tokens": "10B", "max_gpus": "16"}
    pages = {
        "/recommend": client.get("/recommend", params={**address, **limits}),
        "/schedule": client.get("/schedule", params={**address, "pp": "2"}),
    }
    for path, answer in pages.items():
        assert answer.status_code == 200, plain(answer.text)
        command = re.search(r'<pre class="command">dpplan (.*?)</pre>', answer.text)
        assert command
        kept = {name for name in filled if f"--{name.replace('_', '-')} " in command[1]}
        again = re.search(r"Searched again here[^<]*", answer.text)
        text = set(re.findall(r"--([\w-]+)", again[0])) if again else set[str]()
        assert "--tp 2" in command[1]
        free = path == "/recommend"
        assert kept == (set() if free else set(filled)), (path, command[1])
        assert text == ({name.replace("_", "-") for name in filled} if free else set())
    assert "No cluster" not in pages["/recommend"].text
    nothing = {**chosen, "cp": "1", "global_batch": "2", **limits}
    assert (
        "No cluster was tried: no number of whole nodes of 8 GPUs goes with --tp 2, --pp 1, --cp 1,"
        " --global-batch 2; change --tp or --pp or --cp or --global-batch<"
    ) in client.get("/recommend", params=nothing).text
    changed = state.of_pairs({**address, "micro_batch": "2"}.items())
    assert (changed.is_typed("micro_batch"), changed.conflicts) == (True, [])


def test_what_a_verb_does_not_take_is_said(client: TestClient) -> None:
    for path, unused in {
        "/allreduce": {"price", "tp", "model"},
        "/strategies": {"price", "tp"},
        "/input": {"price", "tp", "model", "gpu"},
        "/schedule": {"price"},  # tokens, which the page fills in, are not an input of the user
    }.items():
        address = {**SMALL, "pp": "2"} if path == "/schedule" else SMALL
        match = re.search(r"Not used here: ([^<]*)<", client.get(path, params=address).text)
        result = set(re.findall(r"--([\w-]+)", match[1])) if match else set()
        assert result == unused, path


@pytest.mark.parametrize("path", ["/sweep", "/batch", "/strategies", "/tune", "/rl"])
def test_a_tab_answers_as_the_command_of_the_same_scenario(client: TestClient, path: str) -> None:
    tab = next(tab for tab in TABS if tab.path == path)
    assert isinstance(tab, Tab)
    taken, left = tab.split(list(SMALL.items()))
    response = {
        "/tune": {"method": "full", "seq_len": "512"},
        "/rl": {"response_length": "256"},  # gpt2 has positions for 1,024 tokens
    }.get(path, {})
    text = client.get(path, params={**SMALL, **response}).text
    command = re.search(r'<pre class="command">dpplan (.*?)</pre>', text)
    assert command, plain(text)[-500:]
    for name, value in taken:
        words = unescape(command[1])
        assert f"--{name.replace('_', '-')} {value}" in words or name == "gpus", (path, words)
    assert {name for name, _ in left} <= {"price", "tp", "gpus"}


def test_the_sweep_has_the_step_of_the_plan(client: TestClient) -> None:
    """The case of a price, a stack, a degree and a network that were lost between tabs."""
    given = {**GIVEN, "over": "seq_len", "values": "4096,8192"}
    words = ["--" + n.replace("_", "-") + "=" + v for n, v in {**OF_FILE, **TYPED}.items()]
    items = [*words, "--gpu", "h100-sxm5-80gb", "--seq-len", "8192", "--json"]
    answer = dpplan("estimate", *items).json()
    step, rate = answer["step"]["seconds"], answer["throughput"]["tokens_per_s_per_gpu"]
    plan = client.get("/", params={**GIVEN, "seq_len": "8192"}).text
    seconds = re.search(
        r'data-key="step.seconds".*?<data class="value" value="([^"]*)"', plan, re.S
    )
    assert seconds
    assert float(seconds[1]) == pytest.approx(step)
    shown = plain(client.get("/sweep", params=given).text)
    assert re.search(rf" 8,192 Apply [^A-Z]* {rate:.0f} ", shown)


def dropped(client: TestClient, **typed: str) -> str:
    files = {"files": ("train.sh", SCRIPT.encode(), "text/plain")}
    answer = client.post("/run", data=typed, files=files)
    assert answer.status_code == 200, plain(answer.text)
    return answer.text


def test_a_file_wins_over_defaults_and_asks_about_what_was_typed(client: TestClient) -> None:
    carried = bar(client.get("/").text)["/run"]
    text = dropped(client, **carried, gpu="h100")
    assert "--model llama-3-70b --" in plain(text)
    assert "needs 102 GiB per GPU" in plain(text)
    assert "you chose" not in text
    apply = bar(text)["/"]
    assert (apply["gpus"], apply["from.gpus"].split("|")[0]) == ("32", "file")
    assert apply["gpu"] == "h100"
    assert "from.gpu" not in apply
    assert apply["from.pp"].startswith("default|of the program of train.sh")

    request = dropped(
        client, **bar(client.get("/", params={"gpus": "64"}).text)["/run"], gpu="h100"
    )
    assert "32 for --gpus, you chose 64" in plain(request)
    take, keep = (
        dict(parse_qsl(urlsplit(unescape(to)).query))
        for to in re.findall(r'<p class="problem conflict".*?</p>', request, re.S)
        for to in re.findall(r'href="([^"]*)"', to)
    )
    assert (take["gpus"], keep["gpus"]) == ("32", "64")
    assert "from.gpus" in take
    assert "from.gpus" not in keep
    for query in (take, keep):
        assert "you chose" not in client.get("/", params=query).text
    still = bar(request)["/"]
    assert "you chose 64" in plain(client.get("/", params=still).text)


def test_a_file_that_was_read_gives_way_to_the_next(client: TestClient) -> None:
    marked = bar(dropped(client, gpu="h100"))["/run"]
    other = SCRIPT.replace("--nnodes 4", "--nnodes 2")
    files = {"files": ("other.sh", other.encode(), "text/plain")}
    again = bar(client.post("/run", data=marked, files=files).text)["/"]
    assert (again["gpus"], again["tp"]) == ("16", "8")
    assert again["from.gpus"].startswith("file|other.sh")


def test_an_address_of_the_page_is_not_an_address_of_the_api(client: TestClient) -> None:
    """The API fills nothing in."""
    answer: Any = client.get(f"/api/estimate?{urlencode({'gpus': 64})}")
    assert answer.status_code == 422


TABS_WALKED = [tab for tab in TABS if isinstance(tab, Tab) and not tab.files]
# what a person types, on whichever page has a field for it
WORDS = {
    "model": ("gpt2", "llama-2-7b"),
    "gpu": ("a100-sxm4-80gb", "h100-sxm5-80gb"),
    "gpus": ("16", "24"),
    "tokens": ("10B", "2T"),
    "price": ("2.00", "1.25"),
    "tp": ("2", "4"),
    "stack": ("torchtitan", "megatron-core"),
    "gpus_per_node": ("4", "8"),
    "nic_bandwidth": ("100 Gbit/s", "200 Gbit/s"),
    "seq_len": ("2048", "4096"),
    "global_batch": ("64", "256"),
    "market": ("spot", "on-demand"),
    "precision": ("bf16", "fp8"),
}


@pytest.mark.parametrize("seed", range(40))
def test_a_walk_over_tabs_loses_nothing_that_was_typed(seed: int) -> None:
    """Tabs are visited in any order, their forms sent with values typed into fields: the plan's
    request at the end has the last typed value of every option, and nothing else."""
    rng = random.Random(seed)
    first = rng.choice(("model", "gpu", "gpus"))
    chosen = {first: WORDS[first][0]}
    pairs: list[tuple[str, str]] = list(chosen.items())
    for _ in range(8):
        tab = rng.choice(TABS_WALKED)
        links = {entry["path"]: entry["href"] for entry in navigation(tab.path, pairs)["tabs"]}
        shown = tab.with_defaults(parse_qsl(urlsplit(links[tab.path]).query))
        drawn = form(tab, shown, None)
        fields = [*drawn["shown"], *drawn["folded"]]
        fields += [entry for group in drawn["rest"] for entry in group["fields"]]
        sent = [(f["name"], v) for f in fields for v in f.get("values", [f["value"]])]
        sent += [*drawn["kept"], *drawn["pasted"].items()]
        typed = {f["name"] for f in fields if f["kind"] != "several"} & WORDS.keys()
        before = dict(sent)
        for name in rng.sample(sorted(typed), k=min(2, len(typed))):
            word = rng.choice(WORDS[name])
            if word == before[name] and name not in chosen:
                continue  # a default of the page is left as it is
            chosen[name] = word
            sent = [pair for pair in sent if pair[0] != name] + [(name, chosen[name])]
        pairs = tab.with_defaults([pair for pair in sent if pair[1]])
    back = navigation(TABS_WALKED[-1].path, pairs)["tabs"][0]["href"]
    plan = dict(parse_qsl(urlsplit(back).query))
    assert {name: plan.get(name) for name in chosen} == chosen
    requested = state.of_pairs(state.filled([*plan.items()], state.PAGE)).given
    typed_in = state.of_pairs(state.filled([*chosen.items()], state.PAGE)).given
    assert requested == typed_in  # so that the figures match the command with the typed options
    shown_there = {chip.label for chip in chips("/", [*plan.items()]) if chip.kind == "typed"}
    assert len(shown_there) == len(chosen)


def test_one_gpu_stays_one_on_a_page_with_another_default() -> None:
    """A link without a number of GPUs gets the page's 64."""
    alone = state.of_mapping({"model": "gpt2", "gpu": "a100", "gpus": 1})
    assert ("gpus", "1") in alone.pairs
    picked = alone.picked("dpplan estimate --model gpt2 --gpu rtx4090 --micro-batch 2")
    assert dict(picked.pairs)["gpus"] == "1"
