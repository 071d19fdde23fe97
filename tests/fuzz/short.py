"""The run of a fuzzer that is part of `./check`: few cases, the same ones everywhere."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings


def few(cases: int) -> settings:
    """Settings of a short run."""
    return settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
