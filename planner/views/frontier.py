"""Cost against time: every choice with its bands, those that another beats in both dimmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from planner.units import show
from planner.views.chart import Chart
from planner.views.figures import CYCLE, FROM_ZERO, axis, figure, line, markers, note

_FAINT = 0.35  # of a choice that another beats in time and money
_MOST_LABELS = 8  # choices from which those that another beats have none
# units of the axis, how many are a day, and the days from which each is used
_UNITS = (("days", 1.0, 2.0), ("hours", 24.0, 0.1), ("minutes", 1440.0, 0.0))

Ends = tuple[float | None, float | None]
Size = tuple[str, float, float]  # label, days, USD


@dataclass(frozen=True)
class Offer:
    """A choice in days and USD. kind: its color; label: beside its mark; days_band, usd_band: ends
    of the 80 % bands; says: on pointing at it; thin: few or poor runs validate it; sizes: other
    numbers of GPUs of the same kind, (label, days, USD)."""

    kind: str
    label: str
    days: float
    usd: float
    days_band: Ends
    usd_band: Ends
    says: str
    command: str
    thin: bool = False
    sizes: Sequence[Size] = ()

    def is_beaten(self, others: Sequence[Offer]) -> bool:
        """Whether another choice takes no more days and no more money, and less of one."""
        mine = (self.days, self.usd)
        return any(
            o.days <= mine[0] and o.usd <= mine[1] and (o.days, o.usd) != mine for o in others
        )


def frontier(name: str, title: str, offers: Sequence[Offer], subject: str) -> Chart | None:
    """Cost against time of what has both; subject: meaning of a mark, for the caption."""
    if not offers:
        return None
    longest = max(offer.days for offer in offers)
    unit, per_day = next((u, p) for u, p, least in _UNITS if longest >= least)
    kinds = list(dict.fromkeys(offer.kind for offer in offers))
    colors = {kind: CYCLE[i % len(CYCLE)] for i, kind in enumerate(kinds)}
    data, shown = [], set[str]()
    for offer in offers:
        color, x = colors[offer.kind], offer.days * per_day
        if offer.sizes:
            sizes = _unbeaten(offer.sizes)
            along = [(days * per_day, usd) for _, days, usd in sizes]
            texts = [
                f"{offer.kind}, {label}: {show(days, 'days')}, {show(usd, 'USD')}"
                for label, days, usd in sizes
            ]
            xs, ys = [at for at, _ in along], [usd for _, usd in along]
            data.append(line("", xs, ys, color, texts, "dot", "circle", showlegend=False))
        data.append(
            markers(
                offer.kind,
                [x],
                [offer.usd],
                color,
                [offer.says],
                size=12,
                symbol="circle-open" if offer.thin else "circle",
                opacity=_FAINT if offer.is_beaten(offers) else 1.0,
                showlegend=offer.kind not in shown,
                error_x=_band(x, offer.days_band, per_day),
                error_y=_band(offer.usd, offer.usd_band, 1.0),
                customdata=[offer.command],
            )
        )
        shown.add(offer.kind)
    notes = [
        note(o.label, o.days * per_day, o.usd, xanchor="left", xshift=9, yshift=9)
        for o in offers
        if len(offers) <= _MOST_LABELS or not o.is_beaten(offers)
    ]
    thin = " Hollow: few or poor validated runs." if any(o.thin for o in offers) else ""
    meaning = (
        " Dotted: its other sizes that are faster or cheaper."
        if any(o.sizes for o in offers)
        else ""
    )
    return Chart(
        name,
        title,
        "",
        figure(data, axis(unit, FROM_ZERO), axis("USD", FROM_ZERO), annotations=notes),
        caption=f"{subject}; the lines are the 80 % bands. Faint: another takes no more time and no"
        f" more money.{meaning}{thin}",
    )


def _unbeaten(sizes: Sequence[Size]) -> list[Size]:
    """Sizes of which no other is both as fast and as cheap, the fastest first: one line without
    turns back."""
    out: list[Size] = []
    for size in sorted(sizes, key=lambda size: size[1:]):
        if not out or size[2] < out[-1][2]:
            out.append(size)
    return out


def _band(value: float, ends: Ends, scale: float) -> dict[str, object]:
    """plotly's bar of an error."""
    low, high = (value if end is None else end * scale for end in ends)
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - value],
        "arrayminus": [value - low],
    }
