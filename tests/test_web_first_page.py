"""The page without an address is worked out before somebody opens it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi.testclient import TestClient

from web import page_routes, run, tasks
from web.app import create


def test_what_the_first_page_asks_for_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page has the same tasks and arguments, so that it finds the kept answers."""
    requested: list[tuple[str, str]] = []

    async def answered(name: str, *arguments: Any) -> bytes:
        requested.append((name, repr(arguments)))
        return b"{}" if name == "late" else bytes(getattr(tasks, name)(*arguments))

    async def of_page(request: object, name: str, *arguments: Any, **_: object) -> bytes:
        return await answered(name, *arguments)

    monkeypatch.setattr(run, "prepared", answered)
    monkeypatch.setattr(run, "answer", of_page)
    asyncio.run(page_routes.prepare())
    prepared, requested[:] = sorted(requested), []
    with TestClient(create(), "http://127.0.0.1") as client:
        assert client.get("/").status_code == 200
    assert sorted(requested) == prepared
    assert {name for name, _ in prepared} == {"what_if", "inputs", "late"}
