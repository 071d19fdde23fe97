"""Fits recover what made the data, noise is seen, and quiet samples decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from node_records import BANDWIDTH, RATE, node_records

from planner.calibrate import fit, fit_device, fit_links, quiet
from planner.calibrate.quiet import Probe, Sample


def test_fits_recover_the_curves_that_made_the_data() -> None:
    fits = fit_device.node(node_records(), ["fp32"], 1)
    assert fits.refused == {}
    products = fits.fits["products fp32"]
    assert products.median_error < 0.01
    assert products.held_out > 5
    assert products.held_out_median is not None
    assert products.held_out_median < 0.01
    assert products.outliers == ()
    attention = fits.fits["attention fp32"]
    assert attention.median_error < 0.01
    rate = fits.value("rate fp32", "rate")
    assert rate is not None
    # the curve's rate is what was measured, whatever the fit takes it as a share of
    assert rate * attention.numbers["attention_forward"].value == pytest.approx(
        0.5 * RATE, rel=0.02
    )
    assert attention.numbers["attention_half_sequence"].value == pytest.approx(120, rel=0.05)
    operators = fits.fits["operators fp32"].numbers
    assert operators["gated_forward"].value == pytest.approx(2e-9)
    assert operators["residual_backward"].value == pytest.approx(
        2.5 * 2e-9
    )  # five sums of gradients a layer, two counted
    assert operators["table"].value == pytest.approx(3e-10, rel=1e-3)
    assert operators["optimizer"].value == pytest.approx(9e-10)
    assert fits.value("memory", "bandwidth") == pytest.approx(BANDWIDTH)


def test_noise_widens_confidence_and_an_outlier_is_named() -> None:
    clean, noisy = (
        fit_device.node(node_records(noise=x), ["fp32"], 1).fits["products fp32"]
        for x in (0.0, 0.05)
    )
    assert noisy.numbers["gemm_efficiency"].error > clean.numbers["gemm_efficiency"].error
    assert noisy.median_error < 0.1
    records = node_records()
    records[4]["seconds"] *= 3
    result = fit_device.node(records, ["fp32"], 1).fits["products fp32"]
    assert len(result.outliers) == 1
    assert result.numbers["gemm_efficiency"].value == pytest.approx(
        clean.numbers["gemm_efficiency"].value, rel=0.05
    )


def test_a_fit_its_data_do_not_support_is_refused() -> None:
    few = [r for r in node_records() if r["kind"] != "gemm"] + [
        r for r in node_records() if r["kind"] == "gemm"
    ][:3]
    refused_fit = fit_device.node(few, ["fp32"], 1)
    assert "cases for 4 numbers" in refused_fit.refused["products fp32"]
    assert set(refused_fit.fits["products fp32"].numbers) == {
        "gemm_efficiency"
    }  # the middle rate, and no shape
    random = np.random.default_rng(1)
    wild = node_records()
    for r in wild:
        r["seconds"] *= float(np.exp(2 * random.standard_normal()))
    assert "misses half" in fit_device.node(wild, ["fp32"], 1).refused["products fp32"]
    assert "no copy" in fit_device.node([], ["fp32"], 1).refused["memory"]
    assert "bf16" in next(iter(fit_device.node(node_records(), ["bf16"], 1).refused))


def test_a_link_is_recovered_and_its_held_out_sizes_predicted() -> None:
    fits = fit_links.link(node_records(ranks=2), "pairs")
    assert fits.held_out_median is not None
    assert fits.held_out_median < 0.02
    assert fits.numbers["all_reduce_bandwidth"].value == pytest.approx(2e9, rel=0.05)
    assert fit_links.overlap(node_records(ranks=2)).numbers["slowdown"].value == pytest.approx(0.5)
    with pytest.raises(fit.Unsupported):
        fit_links.link(node_records(), "pairs")


def test_the_reference_is_the_speed_of_most_moments() -> None:
    steady = [0.0100 + 0.0001 * (i % 9) for i in range(60)]
    burst, load = [0.0085] * 20, [0.02 + 0.001 * i for i in range(40)]
    assert quiet.usual_probe_s(burst + steady + load) == pytest.approx(0.0104)
    assert quiet.usual_probe_s([0.01, 0.02]) == 0.01  # of equals the fastest
    assert quiet.usual_probe_s([0.3]) == 0.3


@given(st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=60))
def test_no_band_holds_more_probes_than_the_reference(probes: list[float]) -> None:
    usual = quiet.usual_probe_s(probes)
    assert min(probes) <= usual <= max(probes)
    most = max(sum(p <= x <= p * quiet.SLACK**2 for x in probes) for p in probes)
    assert sum(usual / quiet.SLACK**2 <= x <= usual * quiet.SLACK**2 for x in probes) >= most


@given(st.lists(st.tuples(st.floats(1e-6, 1e3), st.floats(1e-4, 1.0)), min_size=1, max_size=30))
def test_a_value_lies_inside_its_samples_or_below_when_scaled(
    samples: list[tuple[float, float]],
) -> None:
    best = min(p for _, p in samples)
    value = quiet.value_of([Sample(s, p, p) for s, p in samples], best)
    assert 0 < value.seconds <= max(s for s, _ in samples) * (1 + 1e-9)
    assert value.kept <= value.tried == len(samples)


def test_a_probe_waits_for_quiet_and_gives_up() -> None:
    times = iter([*[0.001] * 40, *[0.01] * 800])
    busy = Probe(lambda: __import__("time").sleep(next(times)))
    samples = busy.samples(lambda: 1.0, want=3, wait_s=0.05, most_s=0.1)
    assert samples
    assert not any(busy.quiet(s.probe_s) for s in samples)
    assert busy.disturbed_frac > 0.5
