"""`dpplan mcp` by the protocol's own client: tools, resources, sizes, and wrong arguments."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Coroutine
from typing import Any

import anyio
import jsonschema
import pytest
from command import ROOT, argv, dpplan
from mcp import Client, MCPError, StdioServerParameters

from planner.agents import digest, tools
from planner.agents.server import server
from planner.specs.names import KINDS

SMALL = {"model": "gpt2", "gpu": "a100", "gpus": 2, "stack": "pytorch-ddp"}
SERVE = ["-c", "from planner.cli import main; main()", "mcp"]
SCRIPT = "docs/examples/train.sh"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("estimate", {**SMALL, "tokens": "1B"}),
    ("explain", SMALL),
    ("find_cluster", {**SMALL, "gpus": None, "tokens": "10B", "days": 30, "max_gpus": 8}),
    ("tune", {"model": "gpt2", "gpu": "a100", "seq_len": 512, "method": "lora"}),
    ("rl", {"model": "gpt2", "gpu": "a100", "gpus": 2, "response_length": 200}),
    ("read_recipe", {"files": [SCRIPT], "gpu": "h100", "gpus": 64}),
    (
        "check_log",
        {"logs": ["docs/examples/train.log"], "recipe": SCRIPT, "gpu": "h100", "gpus": 64},
    ),
    ("list", {"kind": "gpus"}),
    ("list", {"kind": "models", "like": "llama-3.1"}),
    ("list", {}),
]


async def call(client: Client, name: str, given: dict[str, Any]) -> tuple[str, bool]:
    result = await client.call_tool(name, given)
    (content,) = result.content
    return content.text, bool(result.is_error)  # type: ignore[union-attr]


def ask(name: str, given: dict[str, Any], files: bool = True) -> tuple[str, bool]:
    """A call in this process."""

    async def asking() -> tuple[str, bool]:
        async with Client(server(files)) as client:
            return await call(client, name, given)

    return run(asking())


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def waited() -> Any:
        return await work

    return anyio.run(waited)


@pytest.mark.parametrize(("name", "given"), CALLS)
def test_an_answer_is_short_and_names_its_command(name: str, given: dict[str, Any]) -> None:
    text, wrong = ask(name, given)
    assert not wrong, text
    assert 40 < len(text.encode()) <= digest.MOST <= 1024
    if name == "list":
        return
    (repeat,) = (line for line in text.splitlines() if line.startswith("repeat: "))
    command = argv(repeat.removeprefix("repeat: "))
    assert command[0] == "dpplan"
    again = dpplan(*command[1:])
    assert again.status in (0, 3), again.stderr
    words = " ".join(again.stdout.split())
    for part in text.splitlines()[0].split(": "):
        assert part in words


def test_an_estimate_says_its_band_and_what_it_assumes() -> None:
    text, _ = ask("estimate", {**SMALL, "tokens": "1B"})
    assert "80 % band" in text
    for label in ("band: ", "defaults: ", "memory ", "run ", "cost "):
        assert f"\n{label}" in text, text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({**SMALL, "model": "gpt-22"}, ["--model", "gpt-22"]),
        ({**SMALL, "gpus": "many"}, ["--gpus", "many"]),
        ({**SMALL, "precision": "fp7"}, ["--precision", "fp7"]),
        ({**SMALL, "global-batch": "7.5"}, ["--global-batch", "7.5"]),
        ({"gpu": "a100"}, []),
    ],
)
def test_a_wrong_argument_is_the_sentence_that_a_person_gets(
    given: dict[str, Any], words: list[str]
) -> None:
    text, wrong = ask("estimate", given)
    typed = {name: value for name, value in given.items() if SMALL.get(name) == value}
    flags = [f"--{name}={value}" for name, value in typed.items()]
    assert wrong
    assert dpplan("estimate", *flags, *words).stderr == f"error: {text}\n"


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("estimat", {}, "did you mean estimate?"),
        ("estimate", {**SMALL, "gpu_count": 3}, "is not an option; it is --gpus here"),
        ("estimate", {**SMALL, "html": "page.html"}, "names a file"),
        ("estimate", {**SMALL, "sweep": "gpus=1,2"}, "is not an option; "),
        ("find_cluster", {**SMALL, "question": "model"}, "is not an argument here"),
        ("read_recipe", {"files": ["absent.sh"]}, "absent.sh"),
        ("list", {"kind": "planets"}, "must be "),
    ],
)
def test_what_is_no_argument_is_refused(name: str, given: dict[str, Any], sentence: str) -> None:
    text, wrong = ask(name, given)
    assert wrong
    assert sentence in text
    assert "\n" not in text
    assert "Traceback" not in text


def test_over_http_no_file_is_opened() -> None:
    offered = tools.tools(files=False)
    assert offered.keys() == tools.tools(files=True).keys() - {"read_recipe", "check_log"}
    for given in ({"recipe": SCRIPT}, {"model": "config.json"}, {"calibration": "node.toml"}):
        text, wrong = ask("estimate", {**SMALL, **given}, files=False)
        assert wrong
        assert "names a file" in text


def test_schemas_are_small_and_valid() -> None:
    sizes = {}
    for name, tool in tools.tools(files=True).items():
        schema = tools.input_schema(tool, True)
        jsonschema.Draft202012Validator.check_schema(schema)
        sizes[name] = len(json.dumps(schema))
    for name, given in CALLS:
        values = {key: value for key, value in given.items() if value is not None}
        jsonschema.validate(values, tools.input_schema(tools.tools(True)[name], True))
    assert max(sizes.values()) < 5000, sizes
    assert sum(sizes.values()) < 21_000, sizes


def test_resources_are_the_catalogue_and_the_options() -> None:
    async def reading() -> None:
        async with Client(server()) as client:
            uris = {resource.uri for resource in (await client.list_resources()).resources}
            assert {f"dpplan://catalogue/{kind}" for kind in KINDS} <= uris
            for uri in uris:
                (contents,) = (await client.read_resource(uri)).contents
                assert json.loads(contents.text), uri  # type: ignore[union-attr]
            with pytest.raises(MCPError, match="did you mean dpplan://catalogue/gpus"):
                await client.read_resource("dpplan://catalogue/gpu")

    run(reading())


def test_over_stdin_and_stdout() -> None:
    async def asking() -> None:
        started = StdioServerParameters(
            command=sys.executable, args=SERVE, env={**os.environ}, cwd=ROOT
        )
        async with Client(started) as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == [*tools.tools(files=True)]
            text, wrong = await call(client, "estimate", SMALL)
            assert not wrong
            assert text.startswith("GPT-2")
            text, wrong = await call(client, "estimate", {**SMALL, "gpu": "a1000"})
            assert wrong
            assert "did you mean" in text

    run(asking())


def test_over_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    serving = subprocess.Popen(
        [sys.executable, *SERVE, "--port", str(port)], stderr=subprocess.PIPE, text=True
    )

    async def asking() -> tuple[str, bool]:
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            return await call(client, "list", {"kind": "gpus", "like": "h100"})

    try:
        assert serving.stderr is not None
        assert f"http://127.0.0.1:{port}/mcp" in serving.stderr.readline()
        for _ in range(50):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        text, wrong = run(asking())
        assert not wrong
        assert "h100-sxm5-80gb" in text
    finally:
        serving.terminate()
        serving.communicate(timeout=20)
