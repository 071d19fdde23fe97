"""Fixtures of several files."""

from __future__ import annotations

import functools
import gc
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import clock
import pytest

# processes that tests start compile the package once, not each
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# shipped prices, whatever this machine has fetched
os.environ["DPPLAN_PRICES"] = os.devnull

import planner  # noqa: F401, E402  (before numpy, whose threads it counts)
from planner.search import answer, batched  # noqa: E402
from planner.verbs import workers  # noqa: E402

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

# torch's threads, where two processes of tests share two cores, wait for each other
os.environ.setdefault("OMP_NUM_THREADS", "1")

# tests share the cores already: verbs start processes where asked to alone (tests/test_dealt.py)
workers._MOST_PROCESSES = 1


def keep_searches() -> None:
    """Forget the searches so far; tests ask for one request in many forms, one after the other."""
    answer.kept = functools.lru_cache(maxsize=32)(answer.kept.__wrapped__)
    batched.kept = functools.lru_cache(maxsize=32)(batched.kept.__wrapped__)


keep_searches()
KEPT = answer.kept, batched.kept

# first, so that at the end no process is alone with them
LONGEST = (
    "test_web_browser.py",
    "test_tune.py",
    "test_extending.py",
    "test_left_out.py",
    "test_advice.py",
    "test_every_option.py",
    "test_calibrate_ranks.py",
    "test_documents.py",
    "test_software.py",
    "test_vary_every_option.py",
    "test_trace.py",
    "test_memory_oracle.py",
    "test_own_options.py",
    "test_learn.py",
    "test_plugins.py",
    "test_recommend.py",
    "test_batched.py",
    "test_search.py",
    "test_mechanisms.py",
    "test_dask.py",
    "test_house.py",
    "test_docs.py",
    "test_commands.py",
    "test_run_commands.py",
    "test_crossval.py",
    "test_capabilities.py",
    "test_questions.py",
    "test_search_command.py",
    "test_recommend_sizes.py",
    "test_screen.py",
    "test_prune.py",
    "test_frameworks.py",
    "test_export.py",
    "test_laws_memory.py",
    "test_laws.py",
    "test_scenario_files.py",
)

# the developer's loop, `pytest -m core`: laws, cases worked by hand, one request per verb
CORE = (
    "test_composition.py",
    "test_core_verbs.py",
    "test_memory_formulas.py",
    "test_collectives.py",
    "test_flops.py",
    "test_replicas.py",
    "test_inference.py",
    "test_offload.py",
    "test_stragglers.py",
    "test_overlap.py",
    "test_compression.py",
    "test_clip.py",
    "test_laws.py",
    "test_adapters.py",
    "test_attention.py",
    "test_critical_batch.py",
    "test_factored.py",
    "test_memory_stages.py",
    "test_mtp.py",
    "test_optimizers.py",
    "test_reinforcement.py",
    "test_strategies.py",
)
# of these files what takes longest
NOT_CORE = (
    "test_every_layer_is_on_a_stage",
    "test_longest_contexts_that_unsloth_publishes_take_most_of_their_card",
    "test_newton_schulz_is_what_torch_counts",
    "test_states_are_those_of_torch",
    "test_the_best_group_is_that_of_the_ledger",
    "test_the_stages_that_are_looked_at_have_the_worst",
)

# of the processor of an ordinary machine: a limit against endless work
SECONDS = 10.0
MANY = 6  # times as long for a property, which asks many times


gc.disable()  # thousands of tests are collected, of which nothing is garbage


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Other files are not even imported for `-m core`."""
    alone = config.option.markexpr == "core" and collection_path.suffix == ".py"
    return True if alone and collection_path.name not in CORE else None


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {name: i for i, name in enumerate(LONGEST)}
    for item in items:
        if item.path.name in CORE and item.name not in NOT_CORE:
            item.add_marker(pytest.mark.core)
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A test that replaces something has searches of its own."""
    if "monkeypatch" in getattr(item, "fixturenames", ()):
        keep_searches()


def pytest_runtest_teardown() -> None:
    answer.kept, batched.kept = KEPT


@pytest.fixture
def within_seconds_and_nothing_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test that takes long or leaves a file in the folder where it runs."""
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    started = time.process_time()
    yield
    times = MANY if request.node.get_closest_marker("hypothesis") else 1
    assert clock.ordinary_seconds(time.process_time() - started, SECONDS * times) < SECONDS * times
    assert os.listdir(here) == []


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """A client of the dashboard's server, which is loaded only by tests that use it."""
    from fastapi.testclient import TestClient

    from web.app import app

    with TestClient(app, "http://localhost", raise_server_exceptions=False) as result:
        yield result
