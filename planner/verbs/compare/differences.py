"""Answers side by side: every figure against the first answer, and the causes of the difference."""

from __future__ import annotations

from collections.abc import Sequence

from planner.specs.documents.compare import FIGURES, Change, Difference, Point


def difference(rows: Sequence[Point]) -> Difference:
    """Every answered row against the first that fits: figures as shares, seconds part by part.

    Seconds are per step if all steps have equally many tokens, else per million tokens. Parts sum
    to the whole difference.
    """
    answered = [row for row in rows if row.refused is None]
    first = next((row for row in answered if row.fits), answered[0])
    equal = len({row.tokens_per_step for row in answered}) == 1
    names = list(dict.fromkeys(name for row in answered for name in row.step.components))

    def seconds(row: Point) -> dict[str, float]:
        taken = {name: row.step.components.get(name, 0.0) for name in names}
        if equal:
            return taken
        return {name: value / row.tokens_per_step * 1e6 for name, value in taken.items()}

    base = seconds(first)
    changes = []
    for row in answered:
        parts = seconds(row)
        whole = sum(parts.values())
        changes.append(
            Change(
                label=row.label,
                change_frac={
                    figure.name: change(figure.of(row), figure.of(first))
                    for figure in FIGURES
                    if figure.heading
                },
                seconds=whole,
                difference_s=whole - sum(base.values()),
                components={name: parts[name] - base[name] for name in names},
            )
        )
    return Difference(first.label, "step" if equal else "million tokens", changes)


def change(value: float | None, base: float | None) -> float | None:
    """Value over base, minus one; None where one is not known, or where a share says nothing
    because memory is short."""
    return value / base - 1 if value is not None and base and value >= 0 < base else None
