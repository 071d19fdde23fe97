"""Text with units in, base units inside, text out; every factor compared with pint."""

from __future__ import annotations

import math
import time

import pint
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import units
from planner.specs.where import constraint
from planner.units import (
    UnitError,
    parse,
    parse_context,
    parse_count,
    parse_whole,
    percent,
    show,
    span,
    unit_factor,
)

MAGNITUDES = st.floats(min_value=1e-9, max_value=1e24)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("3.35 TB/s", "B/s", 3.35e12),
        ("400 Gbit/s", "B/s", 50e9),
        ("80GB", "B", 80e9),
        ("80 GiB", "B", 80 * 2**30),
        ("1,024 MiB", "B", 2**30),
        ("1_000 B", "B", 1e3),
        ("  4.5 us ", "s", 4.5e-6),
        ("1.5e3 ms", "s", 1.5),
        ("2 min", "s", 120),
        ("3 days", "s", 3 * 86400),
        ("312 TFLOP/s", "FLOP/s", 312e12),
        ("2.10 USD/h", "USD/h", 2.10 / 3600),
        ("0.7 kW", "W", 700),
        ("85 %", "1", 0.85),
        ("100 GB/s/GPU", "B/s/GPU", 1e11),
        (".5 s", "s", 0.5),
        ("-3 s", "s", -3.0),
    ],
)
def test_parse(text: str, unit: str, value: float) -> None:
    assert parse(text, unit) == pytest.approx(value, rel=1e-15)


def test_a_bare_number_is_already_in_the_unit_asked_for() -> None:
    assert parse(5, "GB/s") == parse("5", "GB/s") == parse(5.0, "GB/s") == 5e9


def test_bits_are_an_eighth_of_bytes_and_binary_prefixes_are_larger() -> None:
    assert parse("8 Gbit/s", "B/s") == parse("1 GB/s", "B/s")
    assert parse("1 GiB", "B") / parse("1 GB", "B") == pytest.approx(1.073741824)
    assert parse("1 TiB", "B") == 1024 * parse("1 GiB", "B") == 1024**2 * parse("1 MiB", "B")


@pytest.mark.parametrize(
    ("text", "unit", "word"),
    [
        ("80 GB", "B/s", "B/s is needed"),
        ("80 GB/s", "B", "B is needed"),
        ("3 s", "B", "in s"),
        ("5 TFLOP", "FLOP/s", "in FLOP"),
        ("2 USD/kWh", "USD/h", "USD/s is needed"),
        ("50 %", "s", "in 1"),
    ],
)
def test_a_wrong_dimension_is_refused_by_name(text: str, unit: str, word: str) -> None:
    with pytest.raises(UnitError, match=word):
        parse(text, unit)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GB",
        "eighty GB",
        "80 gb",
        "80 Gb",
        "80 GB/",
        "80 / GB",
        "1 2 GB",
        "nan",
        "NaN GB",
        "inf",
        "-inf B",
        "1e400",
        "1e400 B",
        "1e9999",
        "--5 B",
        "5 GB per s",
        "0x10 B",
        "1,5 GB",
        "1,5000 B",
        ",5 B",
        "5 GB\x00",
        None,
        True,
        [],
        {"value": 1},
        b"1 B",
    ],
)
def test_malformed_or_not_finite(text: object) -> None:
    with pytest.raises(UnitError):
        parse(text, "B")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "number",
    [math.nan, math.inf, -math.inf, 10**400, -(10**5000)],
    ids=["nan", "inf", "-inf", "big", "huge"],
)
def test_numbers_that_are_not_finite(number: float) -> None:
    with pytest.raises(UnitError):
        parse(number, "B")
    with pytest.raises(UnitError):
        parse_count(number)


def test_an_unknown_unit_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnitError, match=r"unknown unit 'GbpS'.*Gbit/s") as result:
        parse("400 GbpS", "B/s")
    assert "FLOP" not in str(result.value), "units of other things are no help"


@pytest.mark.parametrize(
    ("unit", "value", "texts"),
    [
        ("USD/h", 2.5, ["$2.50", "2.50$", "USD 2.5", "2.5 USD", "2.50/h", "$2.50/h", "$2.50/hr"]),
        ("USD/h", 2.5, ["$2.50 per hour", "2.5 USD/GPU-hour", "US$2.50", "60 $/day"]),
        ("USD", 1.5e6, ["$1.5M", "1.5M USD", "1,500,000", "$1,500k", "1.5 million dollars"]),
        ("USD/kWh", 0.12, ["$0.12/kWh", "0.12", "120 USD/MWh"]),
        ("Gbit/s", 400, ["400Gb/s", "400 Gbps", "400gbps", "400Gbit/s", "400 Gbits/s", "50GB/s"]),
        ("Gbit/s", 400, ["50GBps", "50 GB/sec", "0.4 Tbps", "400,000 Mbps", "50 GB per second"]),
        ("years", 4, ["4y", "4 years", "4 yr", "48 months", "1461d"]),
        ("h", 1.5, ["90min", "1.5 hours", "5400 sec"]),
        ("GPU-hours", 48, ["48 gpu-h", "2 GPU days", "48 GPU hours"]),
        ("day", 30, ["30d", "30 days", "720h"]),
        ("W", 700, ["700w", "700 watts", "0.7kw"]),
        ("1", 0.05, ["5%", "5 percent", "0.05"]),
        ("TFLOP/s", 312, ["312 TFLOPS", "312 tflop/s", "0.312 PFLOP/s"]),
    ],
)
def test_spellings_of_the_field(unit: str, value: float, texts: list[str]) -> None:
    for text in texts:
        assert units.in_unit(parse(text, unit), unit) == pytest.approx(value, rel=1e-12), text


@pytest.mark.parametrize(
    ("text", "unit", "sentence"),
    [
        ("400 gb/s", "B/s", "Gbit/s or GB/s"),
        ("80 gb", "B", "GB"),
        ("2.5 EUR", "USD/h", "US dollars"),
        ("$ten", "USD", "US dollars"),
    ],
)
def test_what_may_mean_two_things_names_both(text: str, unit: str, sentence: str) -> None:
    with pytest.raises(UnitError, match=sentence):
        parse(text, unit)


def test_k_is_binary_in_a_context_decimal_in_a_count_and_refused_where_both_are_usual() -> None:
    assert [parse_context(t) for t in ("4k", "8K", "128k", "1M", "4096", "32k tokens")] == [
        4096,
        8192,
        131072,
        2**20,
        4096,
        32768,
    ]
    assert [parse_count(t) for t in ("128k", "2t", "300b tokens")] == [128e3, 2e12, 3e11]
    assert parse_whole("1,024") == 1024
    with pytest.raises(UnitError, match="16,000 or 16,384"):
        parse_whole("16k")


def test_reading_takes_time_in_proportion_to_the_length() -> None:
    started = time.process_time()
    for text in ("1" * 10**6, "1," * 10**6, "1" + " " * 10**6 + "x", "1e" + "1" * 10**6):
        with pytest.raises(UnitError, match="200 characters"):
            parse(text, "USD/h")
        units._NUMBER.match(text)
    for text in ("tp" + " " * 10**6 + "x", " or " * 10**5, "a" * 10**6, "tp = " + "1" * 10**4):
        with pytest.raises(ValueError, match=r"NAME OPERATOR VALUE|whole numbers"):
            constraint(text)
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("15T", 1.5e13),
        ("300B", 3e11),
        ("4M", 4e6),
        ("2 k", 2000),
        ("2K", 2000),
        ("2e12", 2e12),
        ("1.4T", 1.4e12),
        ("12,000", 12000),
        (7, 7),
        (2.5e9, 2.5e9),
    ],
)
def test_counts(text: str | float, value: float) -> None:
    assert parse_count(text) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["15 TB", "many", "", "1e400", "nan", "3 bit", "1,5T", True])
def test_counts_refused(text: object) -> None:
    with pytest.raises(UnitError):
        parse_count(text)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (2**30, "B", "1.00 GiB"),
        (80e9, "B", "74.5 GiB"),
        (80e9, "traffic", "80.0 GB"),
        (3.35e12, "B/s", "3.35 TB/s"),
        (1e-5, "s", "10.0 us"),
        (123.4, "s", "123 s"),
        (312e12, "FLOP/s", "312 TFLOP/s"),
        (70e9, "count", "70.0 B"),
        (12, "count", "12.0"),
        (0, "B", "0 B"),
        (-2e9, "traffic", "-2.00 GB"),
        (1234.0, "W", "1,234 W"),
        (0.5, "1", "0.500"),
        (math.nan, "B", "-"),
        (math.inf, "B/s", "no limit"),
        (0, "s", "0 s"),
        (-0.0, "days", "0 days"),
        (3.55e-15, "s", "0 s"),
        (-1e-13, "s", "0 s"),
        (4e-10, "s", "0.400 ns"),
        (0.02, "days", "28.8 min"),
        (81.25, "days", "81.2 days"),
        (204310.4, "USD", "204,310 USD"),
        (0.043, "USD", "0.0430 USD"),
        (3.9, "USD", "3.90 USD"),
        (2519880.0, "USD", "2.52 M USD"),
        (0.000663, "", "0.000663"),
    ],
)
def test_show(value: float, unit: str, text: str) -> None:
    assert show(value, unit) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"), [(1.5, "s", "+1.50 s"), (-1.5, "s", "-1.50 s"), (0.0, "s", "0 s")]
)
def test_a_change_has_its_sign(value: float, unit: str, text: str) -> None:
    assert show(value, unit, sign=True) == text


@pytest.mark.parametrize(
    ("share", "sign", "text"),
    [
        (0.0413, False, "4.1 %"),
        (0.0, False, "0 %"),
        (1e-5, False, "<0.1 %"),
        (46.369, True, "47x"),
        (1.65, True, "+165.0 %"),
        (-0.219, True, "-21.9 %"),
        (-1e-5, True, "0 %"),
        (47.0, False, "47x"),
        (None, False, "-"),
        (math.nan, True, "-"),
    ],
)
def test_percent(share: float | None, sign: bool, text: str) -> None:
    assert percent(share, sign=sign) == text


@pytest.mark.parametrize(
    ("low", "high", "unit", "text"),
    [
        (22.2, 41.8, "s", "22.2 .. 41.8 s"),
        (0.9, 1.2, "s", "900 ms .. 1.20 s"),
        (0.0, 0.0, "days", "0 .. 0 days"),
        (3.0, 4.5, "", "3 .. 4.50"),
        (None, 4.0, "s", "-"),
    ],
)
def test_span(low: float | None, high: float | None, unit: str, text: str) -> None:
    assert span(low, high, unit) == text


@pytest.mark.parametrize(
    ("shown", "read"),
    [
        ("B", "B"),
        ("traffic", "B"),
        ("B/s", "B/s"),
        ("FLOP", "FLOP"),
        ("FLOP/s", "FLOP/s"),
        ("s", "s"),
        ("W", "W"),
    ],
)
@given(value=MAGNITUDES)
def test_what_is_shown_can_be_read_back(shown: str, read: str, value: float) -> None:
    assert parse(show(value, shown, digits=15), read) == pytest.approx(value, rel=1e-13)


@given(value=MAGNITUDES)
def test_counts_round_trip(value: float) -> None:
    assert parse_count(show(value, "count", digits=15)) == pytest.approx(value, rel=1e-13)


@given(
    value=MAGNITUDES, unit=st.sampled_from(["GB/s", "Gbit/s", "GiB", "TFLOP/s", "ms", "USD/h", "%"])
)
def test_reading_is_linear_in_the_number(value: float, unit: str) -> None:
    base, factor = unit_factor(unit)
    assert parse(f"{value!r} {unit}", base) == pytest.approx(value * factor, rel=1e-14)


def test_every_factor_agrees_with_pint() -> None:
    registry: pint.UnitRegistry = pint.UnitRegistry()
    for name in ("FLOP", "USD", "token", "GPU", "param"):
        registry.define(f"{name} = [{name}]")
    registry.define("tokens = token")
    base = {"B": "byte", "s": "second", "W": "watt", "1": "dimensionless"}
    for word in [*units._ATOMS, "GB/s", "Gbit/s", "USD/h", "TFLOP/s", "GB/s/GPU", "tokens/day"]:
        dimension, factor = unit_factor(word)
        target = "/".join(base.get(part, part) for part in dimension.split("/"))
        target, known = target.replace("GPU s", "GPU*second"), word.replace("GPU-", "GPU*")
        theirs = registry.Quantity(1, "dimensionless" if word == "1" else known).to(target)
        assert factor == pytest.approx(theirs.magnitude, rel=1e-12), word
