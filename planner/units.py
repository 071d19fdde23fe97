"""The one place that knows 1e9 from 2**30 and bits from bytes.

Text with a unit enters through `parse` and leaves through `show`; between them everything is a
plain float in base units: bytes, seconds, FLOP, watts, US dollars, tokens, and ratios of them.
"""

from __future__ import annotations

import math
import re

# symbol -> (dimension, factor to the base unit of that dimension)
_ATOMS: dict[str, tuple[str, float]] = {
    "B": ("B", 1.0),
    "kB": ("B", 1e3),
    "MB": ("B", 1e6),
    "GB": ("B", 1e9),
    "TB": ("B", 1e12),
    "PB": ("B", 1e15),
    "KiB": ("B", 2.0**10),
    "MiB": ("B", 2.0**20),
    "GiB": ("B", 2.0**30),
    "TiB": ("B", 2.0**40),
    "bit": ("B", 1 / 8),
    "kbit": ("B", 1e3 / 8),
    "Mbit": ("B", 1e6 / 8),
    "Gbit": ("B", 1e9 / 8),
    "Tbit": ("B", 1e12 / 8),
    "FLOP": ("FLOP", 1.0),
    "MFLOP": ("FLOP", 1e6),
    "GFLOP": ("FLOP", 1e9),
    "TFLOP": ("FLOP", 1e12),
    "PFLOP": ("FLOP", 1e15),
    "EFLOP": ("FLOP", 1e18),
    "s": ("s", 1.0),
    "ms": ("s", 1e-3),
    "us": ("s", 1e-6),
    "ns": ("s", 1e-9),
    "min": ("s", 60.0),
    "h": ("s", 3600.0),
    "day": ("s", 86400.0),
    "days": ("s", 86400.0),
    "week": ("s", 7 * 86400.0),
    "month": ("s", 365.25 / 12 * 86400.0),
    "years": ("s", 365.25 * 86400.0),
    "GPU-hours": ("GPU s", 3600.0),
    "GPU-days": ("GPU s", 86400.0),
    "W": ("W", 1.0),
    "kW": ("W", 1e3),
    "MW": ("W", 1e6),
    "J": ("J", 1.0),
    "kWh": ("J", 3.6e6),
    "MWh": ("J", 3.6e9),
    "GWh": ("J", 3.6e12),
    "USD": ("USD", 1.0),
    "g": ("kg", 1e-3),
    "kg": ("kg", 1.0),
    "t": ("kg", 1e3),
    "token": ("token", 1.0),
    "tokens": ("token", 1.0),
    "GPU": ("GPU", 1.0),
    "param": ("param", 1.0),
    "1": ("1", 1.0),
    "%": ("1", 0.01),
}

UNIT_WORDS = tuple(word for word in _ATOMS if word != "1")  # as they stand after a number

_HOUR = ("", "r", "our", "ours")
# other spellings of the same units, in lower case
_SPELLINGS = {
    **dict.fromkeys(("byte", "bytes"), "B"),
    **{word.lower(): word for word in ("KiB", "MiB", "GiB", "TiB")},
    **{f"{p}bit{end}".lower(): f"{p}bit" for p in ("", "k", "M", "G", "T") for end in ("", "s")},
    **{f"{p}flop".lower(): f"{p}FLOP" for p in ("", "M", "G", "T", "P", "E")},
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("us", "usec", "microsecond", "microseconds", "µs", "μs"), "us"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys((f"gpu{dash}h{end}" for dash in ("-", "") for end in _HOUR), "GPU-hours"),
    **dict.fromkeys((f"gpu{dash}day{end}" for dash in ("-", "") for end in ("", "s")), "GPU-days"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("wk", "week", "weeks"), "week"),
    **dict.fromkeys(("mo", "month", "months"), "month"),
    **dict.fromkeys(("y", "yr", "yrs", "year", "years"), "years"),
    **dict.fromkeys(("w", "watt", "watts"), "W"),
    **{word.lower(): word for word in ("kW", "kWh", "MWh", "GWh")},
    **dict.fromkeys(("usd", "dollar", "dollars"), "USD"),
    **dict.fromkeys(("percent", "pct"), "%"),
}

# "400 Gbps", "400Gb/s", "50 GBps": in a rate a small b is a bit, as networks are sold; "gb/s" may
# be either
_RATE = re.compile(r"([kKMGTmgt]?)(b|B)(?:ps|/s|/sec|/second)")
_FLOPS = re.compile(r"([gtpe]?flop)(?:s|/sec|ps)", re.IGNORECASE)

_MULTIPLIERS = {
    **dict.fromkeys(("k", "thousand"), 1e3),
    **dict.fromkeys(("m", "mn", "million"), 1e6),
    **dict.fromkeys(("g", "b", "bn", "billion"), 1e9),
    **dict.fromkeys(("t", "tn", "trillion"), 1e12),
}
# of a length in tokens k is 1,024: "a 128k context" is 131,072 tokens
_BINARY = {"k": 2.0**10, "ki": 2.0**10, "m": 2.0**20, "mi": 2.0**20}

MOST_CHARACTERS = 200  # of a number with its unit
_SHOWN = 40  # characters of it that an error quotes

# commas only between thousands: "1,5 GB" is refused, not read as 15 GB. Possessive throughout, so
# that reading takes time proportional to the length
_NUMBER = re.compile(
    r"([-+]?(?:\d{1,3}(?:,\d{3})++(?![\d,])|\d[\d_]*+|(?=\.\d))"
    r"(?:\.\d*+)?(?:[eE][-+]?\d{1,3}+(?!\d))?)",
    re.ASCII,  # digits of other scripts are refused
)
_OF_A_GPU = re.compile(r"^gpu[\s-]?(?=\w)", re.IGNORECASE)
_MONEY = re.compile(r"(?:us\s?)?\$|\b(?:usd|dollars?)\b", re.IGNORECASE)


class UnitError(ValueError):
    """Text that cannot be read as a number with a known unit, or a unit of the wrong dimension."""


def unit_factor(unit: str) -> tuple[str, float]:
    """Return (base unit, factor) of a unit such as "GB/s": ("B/s", 1e9). Raises UnitError for an
    unknown word."""
    parts = _spelled(unit).split("/")
    dimension: list[str] = []
    factor = 1.0
    for position, part in enumerate(parts):
        word = part if part in _ATOMS else _SPELLINGS.get(part.lower(), part)
        word = "kB" if word == "KB" else word  # "kb" may be bits
        if word not in _ATOMS:
            raise UnitError(f"unknown unit {part!r}" + f" in {unit!r}" * (len(parts) > 1))
        base, scale = _ATOMS[word]
        dimension.append(base)
        factor = factor * scale if position == 0 else factor / scale
    return "/".join(dimension), factor


def _spelled(unit: str) -> str:
    """A unit with "/" between its parts. Raises UnitError where bits or bytes is left open."""
    words = re.sub(r"\bper\b", "/", unit).replace(" ", "")
    if rate := _RATE.fullmatch(words):
        prefix, letter = rate.groups()
        if letter == "b" and prefix in ("m", "g", "t") and not words.endswith("ps"):
            large = prefix.upper()
            raise UnitError(f"{unit!r} may be bits or bytes: write {large}bit/s or {large}B/s")
        prefix = "k" if prefix == "K" else prefix.upper() if prefix in "mgt" else prefix
        return f"{prefix}{'bit' if letter == 'b' else 'B'}/s"
    if flops := _FLOPS.fullmatch(words):
        return f"{flops[1]}/s"
    return words


def parse(text: str | float | int, unit: str) -> float:
    """Read a number with its unit into base units of `unit`: parse("3.35 TB/s", "B/s") -> 3.35e12,
    parse("$2.50", "USD/h") -> 2.5 / 3600.

    A bare number is read as already being in `unit`; so is money without a "per". Raises UnitError
    when the text is malformed, not finite or of another dimension (for example GB where GB/s is
    meant).
    """
    wanted, wanted_factor = unit_factor(unit)
    sample = "a number such as 0.5" if unit == "1" else f"a number with a unit such as '1 {unit}'"
    if isinstance(text, bool) or not isinstance(text, str | float | int):
        raise UnitError(f"expected {sample}, got {text!r}")
    if not isinstance(text, str):
        value = _to_float(text) * wanted_factor
    elif wanted.split("/")[0] == "USD":
        value = _money(text, unit)
    else:
        value, word = _split(text, sample)
        value *= _factor(word, unit, text) if word else wanted_factor
    if not math.isfinite(value):
        raise UnitError(f"{_quoted(text)} is not a finite number")
    return value


def _factor(word: str, unit: str, text: str) -> float:
    """Factor of a unit to the base of the wanted one. Raises UnitError where the units measure
    different quantities."""
    wanted = unit_factor(unit)[0]
    try:
        dimension, factor = unit_factor(word)
    except UnitError as error:
        if "bits or bytes" in str(error):
            raise
        base, *per = wanted.split("/")
        known = [name for name, (kind, _) in _ATOMS.items() if kind == base and name != "1"]
        tail = "".join(f"/{part}" for part in per)
        raise UnitError(
            f"{error}; known here: {', '.join(name + tail for name in known)}"
        ) from None
    if dimension != wanted:
        raise UnitError(f"{_quoted(text)} is in {dimension}, but {wanted} is needed")
    return factor


def _money(text: str, unit: str) -> float:
    """Dollars, of which people write "$2.50", "2.50$/h", "USD 2.5", "$1.5M": in base units."""
    bare = _MONEY.sub("", text, count=1).strip()
    number, word = _split(bare, f"US dollars such as '1 {unit}'")
    amount, slash, per = word.partition("/")
    if not slash and amount.lower().startswith("per "):
        amount, slash, per = "", "/", amount[4:]
    amount = amount.strip().lower()
    if amount and amount not in _MULTIPLIERS:
        raise UnitError(f"{_quoted(text)} is not an amount of US dollars")
    number *= _MULTIPLIERS.get(amount, 1.0)
    each = _OF_A_GPU.sub("", per.strip())  # a price is per GPU in any case
    return number * _factor(f"USD/{each}" if slash else unit, unit, text)


def _split(text: str, expected: str) -> tuple[float, str]:
    """(the number that a text begins with, the word after it)."""
    stripped = text.strip()
    if len(stripped) > MOST_CHARACTERS:
        raise UnitError(f"is longer than the {MOST_CHARACTERS} characters of a number")
    match = _NUMBER.match(stripped)
    if not match:
        raise UnitError(f"expected {expected}, got {_quoted(text)}")
    return _plain(match[1]), stripped[match.end() :].strip()


def _plain(number: str) -> float:
    return float(number.replace(",", "").replace("_", ""))


def _quoted(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


def in_unit(value: float, unit: str) -> float:
    """A number of base units in another unit: in_unit(25e9, "Gbit/s") -> 200."""
    return value / unit_factor(unit)[1]


def in_base(text: str | float | int) -> float:
    """A number in the base unit of its own unit: in_base("90 us") -> 9e-5; a bare one as it is."""
    word = _split(text, "a number with its unit")[1] if isinstance(text, str) else ""
    return parse(text, word or "1")


def is_bare(text: str | float | int) -> bool:
    """Whether a number comes without its unit."""
    return not isinstance(text, str) or not _split(text, "a number")[1]


def parse_count(text: str | float | int) -> float:
    """Read a count that people write short: "15T" -> 1.5e13, "4M", "300b tokens", "2e12". k, M, B
    and T are decimal; B is billion here, never bytes."""
    return _counted(text, _MULTIPLIERS, "a count such as 300B, 15T or 2e12")


def parse_context(text: str | float | int) -> float:
    """Read a length in tokens: "128k" -> 131,072. k is 1,024 and M 1,048,576, as contexts are
    named."""
    return _counted(text, _BINARY, "tokens such as 4096, 32k or 1M")


def parse_whole(text: str | float | int) -> float:
    """Read a whole number that must not be rounded: "1,024" -> 1024. Raises UnitError for "16k",
    which may mean 16,000 or 16,384."""
    value = _counted(text, {"k": 1e3, "m": 1e6}, "a whole number")
    if isinstance(text, str) and text.strip()[-1:].lower() in ("k", "m"):
        binary = parse_context(text)
        raise UnitError(f"may be {value:,.0f} or {binary:,.0f}: write it in full")
    return value


def _counted(text: str | float | int, multipliers: dict[str, float], expected: str) -> float:
    if isinstance(text, bool) or not isinstance(text, str | float | int):
        raise UnitError(f"expected {expected}, got {text!r}")
    if isinstance(text, str):
        value, word = _split(text, expected)
        short = re.sub(r"\s*tok(?:en)?s?$", "", word, flags=re.IGNORECASE).lower()
        if short not in multipliers and short:
            raise UnitError(f"expected {expected}, got {_quoted(text)}")
        value *= multipliers.get(short, 1.0)
    else:
        value = _to_float(text)
    if not math.isfinite(value):
        raise UnitError(f"{_quoted(text)} is not a finite number")
    return value


def _to_float(number: float | int) -> float:
    try:
        return float(number)
    except OverflowError:
        raise UnitError("an integer of this many digits is not a finite number") from None


# quantity -> its words and sizes, the largest first; zero is written with the word of size 1
_STEPS = {
    "B": [("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0)],
    "traffic": [("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)],
    "B/s": [("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3), ("B/s", 1.0)],
    "FLOP": [
        ("EFLOP", 1e18),
        ("PFLOP", 1e15),
        ("TFLOP", 1e12),
        ("GFLOP", 1e9),
        ("MFLOP", 1e6),
        ("FLOP", 1.0),
    ],
    "FLOP/s": [
        ("EFLOP/s", 1e18),
        ("PFLOP/s", 1e15),
        ("TFLOP/s", 1e12),
        ("GFLOP/s", 1e9),
        ("FLOP/s", 1.0),
    ],
    "s": [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)],
    "days": [
        ("days", 1.0),
        ("h", 1 / 24),
        ("min", 1 / 1440),
        ("s", 1 / 86400),
        ("ms", 1e-3 / 86400),
    ],
    "kWh": [("GWh", 1e6), ("MWh", 1e3), ("kWh", 1.0)],
    "kg": [("t", 1e3), ("kg", 1.0), ("g", 1e-3)],
    "count": [("T", 1e12), ("B", 1e9), ("M", 1e6), ("K", 1e3), ("", 1.0)],
}
_LEAST_BEFORE = -5  # zeros before the digits; a smaller number has an exponent
_MILLIONS = 1e6  # dollars from which they are counted in millions
_CENTS = (0.1, 100.0)  # dollars that are written with cents
_AS_FACTOR = 2.0  # a change by more is written as a factor: 3.1x and not +212.3 %
_FACTOR_ONLY = 10.0  # a share above is written as a factor: 47x and not 4,700 %


def show(value: float | None, unit: str, digits: int = 3, sign: bool = False) -> str:
    """Write a base-unit number for people: show(2**30, "B") -> "1.00 GiB", show(3.35e12, "B/s") ->
    "3.35 TB/s", show(0.0, "s") -> "0 s".

    Memory ("B") is shown in binary units as nvidia-smi and torch do, "traffic" and rates in decimal
    ones. "days" go down to seconds. sign: write a plus sign, too. "-" for a missing number.
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "no limit" if value > 0 else "-"
    word, factor = _word(value, unit, digits)
    if unit == "USD" and abs(value) >= _MILLIONS:
        return f"{show(value, 'count', digits, sign)} USD"
    if unit.startswith("USD") and _CENTS[0] <= abs(value) < _CENTS[1]:
        return f"{value:{'+' if sign else ''}.2f} {unit}"
    whole = unit not in _STEPS and float(value).is_integer()  # a count of things
    number = f"{value:,.0f}" if whole else _significant(value / factor, digits)
    plus = "+" if sign and value > 0 and number != "0" else ""
    return f"{plus}{number} {word}".rstrip()


def span(low: float | None, high: float | None, unit: str) -> str:
    """Two ends in one unit: span(22.2, 41.8, "s") -> "22.2 .. 41.8 s"; "-" for no numbers."""
    if low is None or high is None:
        return "-"
    first, last = show(low, unit), show(high, unit)
    number, _, word = first.partition(" ")
    return f"{number if word and last.endswith(f' {word}') else first} .. {last}"


def _word(value: float, unit: str, digits: int) -> tuple[str, float]:
    """The word of a quantity that suits a number, and its size. What is below all digits of the
    smallest word is rounding: the word of size one, and a size that makes it zero."""
    steps = _STEPS.get(unit, [("" if unit == "1" else unit, 1.0)])
    for word, factor in steps:
        if abs(value) >= factor * 0.9995:
            return word, factor
    smallest, factor = steps[-1]
    if unit in _STEPS and abs(value) < factor * 10.0**-digits:
        return next(word for word, size in steps if size == 1.0), math.inf
    return smallest, factor


def percent(share: float | None, digits: int = 1, sign: bool = False) -> str:
    """Write a share for people: percent(0.0413) -> "4.1 %"; "-" where there is none.

    sign: a change: with the sign of a gain, too, and as a factor where it more than trebles:
    percent(46.4, sign=True) -> "47x". What is not zero is not written as zero: "<0.1 %".
    """
    if share is None or not math.isfinite(share):
        return "-"
    if sign and share >= _AS_FACTOR:
        return _times(share + 1)
    if share >= _FACTOR_ONLY:
        return _times(share)
    text = f"{100 * share:{'+' if sign else ''}.{digits}f}"
    if float(text) != 0:
        return f"{text} %"
    return "0 %" if share == 0 or sign or share < 0 else f"<{10.0**-digits:g} %"


def chance_text(chance: float) -> str:
    """A chance as text: "97 %"; never quite nothing or certain."""
    return f"{min(max(100 * chance, 1), 99):.0f} %"


def _times(factor: float) -> str:
    return f"{_significant(factor, 2)}x"


def _significant(value: float, digits: int) -> str:
    if value == 0:
        return "0"
    before = math.floor(math.log10(abs(value))) + 1
    if before < _LEAST_BEFORE:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - before)}f}"
