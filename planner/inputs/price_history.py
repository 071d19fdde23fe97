"""Prices that were fetched: one file of lists per day, kept so that a plan can be priced again."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from planner.inputs import catalog
from planner.inputs.readers import read_toml
from planner.specs.base import PlanError
from planner.specs.price import PriceFile, PriceList

FOLDER = "DPPLAN_PRICES"  # the environment variable with the folder of the files
_DAY = re.compile(r"20\d\d-\d\d-\d\d")


def folder() -> Path:
    """Folder of fetched prices: DPPLAN_PRICES, else the user's cache."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    cached = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(cached, "dpplan", "prices")


def days() -> tuple[str, ...]:
    """Days of which prices were fetched, the newest last."""
    try:
        names = [name.removesuffix(".toml") for name in os.listdir(folder())]
    except OSError:
        return ()
    return tuple(sorted(name for name in names if _DAY.fullmatch(name)))


def lists(day: str) -> tuple[PriceList, ...]:
    """The lists fetched on a day. Raises PlanError for a malformed file."""
    path = folder() / f"{day}.toml"
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError as error:
        raise _broken(path, f"cannot be read ({error.strerror})") from None


@cache
def _read(path: Path, changed_ns: int) -> tuple[PriceList, ...]:
    # not by `catalog`: a request over HTTP reads no file that it names, but this one is ours
    try:
        data = read_toml(path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise _broken(path, "is not UTF-8") from None
    except ValueError as error:
        raise _broken(path, str(error)) from None
    return catalog.build(PriceFile, data, "--price-day", path.name).list


def _broken(path: Path, fault: str) -> PlanError:
    return PlanError(
        "--price-day",
        path.name,
        f"the file of fetched prices {fault}: fetch again with dpplan prices --update, or take"
        " --price-day shipped",
    )


def written(day: str, fetched: Sequence[PriceList]) -> Path:
    """Keep the lists of a day, in place of an earlier fetch on that day. Raises
    PlanError where the folder cannot be written."""
    import tomli_w

    path = folder() / f"{day}.toml"
    text = tomli_w.dumps({"list": [_table(prices) for prices in fetched]})
    temporary = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text, "utf-8")
        os.replace(temporary, path)
    except OSError as error:
        raise PlanError(
            FOLDER,
            str(path.parent),
            f"fetched prices cannot be kept there ({error.strerror}): name another folder",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _table(prices: PriceList) -> dict[str, object]:
    usd = {gpu: f"{float(usd) * 3600:.6g} USD/h" for gpu, usd in prices.usd_per_gpu_hour.items()}
    return {
        "provider": prices.provider,
        "title": prices.title,
        "market": prices.market,
        "date": prices.date,
        "source": prices.source,
        "usd_per_gpu_hour": usd,
        "offers": prices.offers,
    }
