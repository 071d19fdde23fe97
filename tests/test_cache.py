"""The last cache of a GPU: kernels whose tensors fit it do not go to memory."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.formulas.kernels import cached_bytes_per_s


def test_what_fits_the_last_cache_does_not_go_to_memory() -> None:
    """100 MB of cache: 20 MB in it, 60 MB in memory, 37.5 MB half and half."""
    rates = {"cache_bytes": 1e8, "cache_bytes_per_s": 4e12, "memory_bytes_per_s": 1e12}
    small, half, large = cached_bytes_per_s(np.array([2e7, 3.75e7, 6e7]), **rates)
    assert (small, large) == (4e12, 1e12)
    assert half == pytest.approx(1 / (0.5 / 1e12 + 0.5 / 4e12))
    assert cached_bytes_per_s(1e3, **{**rates, "cache_bytes": 0.0}) == 1e12


@given(st.floats(1e3, 1e9), st.floats(1.0, 3.0))
def test_a_larger_tensor_is_never_faster(working: float, times: float) -> None:
    rates = {"cache_bytes": 1e8, "cache_bytes_per_s": 4e12, "memory_bytes_per_s": 1e12}
    first, second = (w / cached_bytes_per_s(w, **rates) for w in (working, times * working))
    assert second >= first
