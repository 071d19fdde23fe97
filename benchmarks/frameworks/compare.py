"""The planner's ledger against what was counted: errors by framework, and lines that differ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields

import numpy as np

from benchmarks.frameworks.ledger import ledger
from benchmarks.frameworks.setting import Counted, Row, Setting

LINES = ("parameters", "gradients", "states", "activations", "loss", "backward", "step", "peak")


_NEAR = 0.05


@dataclass(frozen=True)
class Difference:
    """A setting and the planner's error on every line, a share of the counted peak."""

    setting: Setting
    counted: Counted
    predicted: Counted

    def error(self, line: str) -> float:
        """Predicted less counted bytes of a line, over the counted peak."""
        return (getattr(self.predicted, line) - getattr(self.counted, line)) / self.counted.peak

    @property
    def family(self) -> str:
        return str(self.setting.config["model_type"])


def differences(rows: Iterable[Row]) -> list[Difference]:
    """Every row beside the ledger."""
    return [Difference(setting, counted, ledger(setting)[0]) for setting, counted, _ in rows]


def quantiles(errors: Sequence[float]) -> tuple[float, float, float]:
    """Median and 95th percentile of the absolute error, and bias."""
    values = np.array(errors)
    middle, high = np.quantile(np.abs(values), (0.5, 0.95))
    return float(middle), float(high), float(values.mean())


def near(pairs: Sequence[Difference], line: str) -> float:
    """Share of the settings with bytes on a line whose bytes are met within 5 %."""
    counted = [getattr(pair.counted, line) for pair in pairs]
    predicted = [getattr(pair.predicted, line) for pair in pairs]
    met = [abs(p / c - 1) < _NEAR for c, p in zip(counted, predicted, strict=True) if c]
    return sum(met) / len(met) if met else 1.0


def table(pairs: Sequence[Difference], groups: Sequence[str]) -> str:
    """Errors of the peak by group, and of every line, in percent; kept: share of the settings whose
    activations, where the loss begins, are met within 5 %."""
    lines = [
        f"{'':32s} {'n':>5s} {'median':>7s} {'p95':>7s} {'bias':>7s} {'worst':>8s} {'kept':>5s}"
    ]
    by: dict[str, list[Difference]] = {}
    for pair in pairs:
        known = vars(pair.setting) | {"family": pair.family}
        by.setdefault(" ".join(str(known[name]) for name in groups), []).append(pair)
    for name, several in sorted(by.items()):
        errors = [pair.error("peak") for pair in several]
        middle, high, bias = (100 * value for value in quantiles(errors))
        worst = 100 * max(errors, key=abs)
        lines.append(
            f"{name:32s} {len(several):5d} {middle:7.2f} {high:7.2f} {bias:+7.2f} {worst:+8.2f}"
            f" {100 * near(several, 'activations'):5.0f}"
        )
    for line in LINES:
        middle, high, bias = (100 * v for v in quantiles([p.error(line) for p in pairs]))
        lines.append(f"  line {line:25s} {len(pairs):5d} {middle:7.2f} {high:7.2f} {bias:+7.2f}")
    return "\n".join(lines)


def worst(pairs: Sequence[Difference], count: int) -> str:
    """The settings that differ most, with both columns in GiB."""
    out = []
    for pair in sorted(pairs, key=lambda pair: -abs(pair.error("peak")))[:count]:
        out.append(f"{100 * pair.error('peak'):+.2f} % {pair.setting}")
        for field in fields(Counted):
            counted, predicted = (
                getattr(pair.counted, field.name),
                getattr(pair.predicted, field.name),
            )
            out.append(f"    {field.name:12s} {counted / 2**30:9.3f} {predicted / 2**30:9.3f}")
    return "\n".join(out)
