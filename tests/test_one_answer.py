"""Verbs agree: for the same model, GPUs and defaults they give the same batch, layout, step,
memory, days and dollars as `dpplan estimate`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command import ROOT, argv, dpplan

from planner.search import answer, batched

SHAPE = ("--micro-batch", 4, "--dp", 4)
REQUESTS = {
    "default batch": ("llama-2-7b", "a100", 16, ("--stack", "pytorch-fsdp")),
    "a pipeline without NVLink": (
        "llama-2-13b",
        "rtx6000-ada",
        16,
        (*("--stack", "megatron-core", "--stack-defaults", "--recompute", "full"), *SHAPE),
    ),
}
TOKENS = ("--tokens", "100B")


def document_of(verb: str, name: str, *more: object, gpus: bool = True) -> Any:
    """The document of a verb for one of the requests."""
    model, gpu, count, options = REQUESTS[name]
    words = ["--model", model, "--gpu", gpu, *(("--gpus", count) if gpus else ()), *options]
    return dpplan(*verb.split(), *words, *more, "--json").json()


@cache
def estimated(name: str) -> Any:
    return document_of("estimate", name, *TOKENS, "--advice", 0)


def figures(report: Any) -> dict[str, float]:
    """The numbers of a report, of whatever verb."""
    layout, run = report["layout"], report.get("run") or {}
    values = {name: float(size) for name, size in layout.items() if isinstance(size, int)}
    values |= {"step": report["step"]["seconds"], "memory": report["memory"]["device_bytes"]}
    return values | {name: run[name] for name in ("days", "cost_usd") if run.get(name)}


def of_search(name: str) -> Any:
    return document_of("search", name, *TOKENS, "--top", 1)["top"][0]


def of_compare(name: str) -> Any:
    count = REQUESTS[name][2]
    pair = ("--vary", f"gpus={count},{2 * count}", "--jobs", 1)
    return document_of("compare", name, *TOKENS, *pair, gpus=False)["points"][0]


def of_batches(name: str) -> Any:
    rows = document_of("recommend batch", name, "--jobs", 1)["rows"]
    batch = estimated(name)["layout"]["global_batch"]
    return next(row for row in rows if row["global_batch"] == batch)


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("verb", [of_search, of_compare, of_batches])
def test_a_report_is_that_of_estimate(verb: Any, name: str) -> None:
    result, wanted = figures(verb(name)), figures(estimated(name))
    assert result == pytest.approx({key: wanted[key] for key in result}, rel=1e-9)


@pytest.mark.parametrize("name", REQUESTS)
def test_questions_asked_backwards_start_from_the_same_plan(name: str) -> None:
    estimate = estimated(name)
    count, step = estimate["cluster"]["gpus"], estimate["step"]["seconds"]
    most = ("--max-gpus", count, *TOKENS, "--jobs", 1)
    (kind,) = document_of("recommend cluster", name, *most, gpus=False)["types"]
    same = next(entry for entry in kind["tried"] if entry["gpus"] == count)
    assert same["step_seconds"] == pytest.approx(step)
    assert same["days"] == pytest.approx(estimate["run"]["days"])
    wires = document_of("recommend bandwidth", name, "--jobs", 1)
    assert wires["layout"] == estimate["layout"]
    assert wires["step"]["seconds"] == pytest.approx(step)
    assert document_of("recommend offload", name)["layout"] == estimate["layout"]
    sweep = ("--sweep", f"gpus={count}..{2 * count}", *TOKENS, "--jobs", 1)
    first = document_of("batch", name, *sweep, gpus=False)["regimes"]["strong"]["points"][0]
    assert first["step_seconds"] == pytest.approx(step)
    # in whole steps
    assert first["days"] == pytest.approx(estimate["run"]["days"], rel=1 / first["steps"])


@pytest.mark.parametrize("name", REQUESTS)
def test_a_schedule_takes_the_step_without_what_comes_after_it(name: str) -> None:
    """Timed action by action: within 5 % of the closed forms of the estimate, which add the fixed
    cost of a step and, beside what layers wait for, the reductions at its end."""
    estimate, timed = estimated(name), document_of("schedule", name)
    parts, step = estimate["step"]["components"], estimate["step"]["seconds"]
    least = step - parts["overhead"] - parts["data_parallel"]
    reduced_s = max(timed["durations"]["optimizer_s"])
    assert 0.95 * least <= timed["makespan_s"] - reduced_s <= 1.05 * step


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (answer, "estimate --model gpt2 --gpu a100 --gpus 4 --stack pytorch-fsdp"),
        (batched, "compare --model gpt2 --gpu a100 --vary gpus=2,4 --stack pytorch-fsdp --jobs 1"),
    ],
)
def test_a_request_is_searched_once_for_all_forms_of_its_answer(module: Any, words: str) -> None:
    module.kept.cache_clear()
    first = dpplan(*argv(words), "--json")
    searched = module.kept.cache_info().misses
    assert searched > 0
    second = dpplan(*argv(words), "--json")
    assert module.kept.cache_info().misses == searched
    module.kept.cache_clear()
    assert dpplan(*argv(words), "--json").stdout == second.stdout == first.stdout


def test_numbers_of_other_sources_are_other_requests(tmp_path: Path) -> None:
    """An answer says how sure its own numbers are, also where another file has equal ones."""
    file, measured = tmp_path / "gpu.toml", []
    text = (ROOT / "docs/examples/gpu.toml").read_text(encoding="utf-8")
    for kind in ("vendor", "measured"):
        file.write_text(text.replace('kind = "vendor"', f'kind = "{kind}"'), encoding="utf-8")
        report = dpplan("estimate", "--model", "gpt2", "--gpu", file, "--gpus", 2, "--json").json()
        measured.append(report["provenance"]["measured_frac"])
    assert measured[1] > measured[0]
