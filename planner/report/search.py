"""The result of a search as a document, and as a CSV file with one layout per line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from msgspec import structs

from planner.estimate import Estimates, Outline, uneven
from planner.estimate.run import busy_s, cost_usd, step_energy_j
from planner.formulas.divisors import divisors
from planner.inputs import tables
from planner.inputs.degrees import longest_context
from planner.ledger import first
from planner.report import layout as report
from planner.search import Candidates, Found, order, pareto, ranked, spent, timed
from planner.search.choose import spanning
from planner.search.pick import software_of
from planner.search.room import room, together
from planner.search.space import MOST_DIVISORS, MOST_SIMULATED_STAGES, STEP, left_out_schedules
from planner.specs.capabilities import CAPABILITIES, has, values
from planner.specs.document import extended
from planner.specs.documents.estimate import PerToken, Ranked
from planner.specs.documents.search import FrontPoint, Pair, Shortfall
from planner.specs.layout import Layout
from planner.specs.options import LAYOUT, Objective, Options, flag
from planner.specs.plan import Plan

NEEDS_PRICE = ("cost", "tokens-per-dollar")
_CSV_ROWS = 4096  # layouts that are evaluated in full at once
_KWH = 3.6e6  # J


def top(options: Options, searches: Sequence[Found], assumptions: Sequence[str]) -> list[Ranked]:
    """The best layouts in full, with what a million tokens cost."""
    lines = best_of(searches, options.top, options.objective)
    whole = report.reports(options, lines, assumptions)
    return [
        extended(
            Ranked,
            whole_answer,
            per_token=per_token(e, row),
            software=software(e.plan, e.table.layout(row)),
        )
        for (e, row), whole_answer in zip(lines, whole, strict=True)
    ]


def front(options: Options, evaluated: Sequence[Outline]) -> list[FrontPoint]:
    """Layouts that fit and that no other beats in both time and memory, fastest first."""
    return [front_point(options, e, row) for e, row in _front(evaluated)]


def front_point(options: Options, estimates: Estimates, row: int) -> FrontPoint:
    """One layout with its cost."""
    cost = structs.asdict(per_token(estimates, row))
    return extended(FrontPoint, report.line(options, estimates, row), **cost)


def by_tp_pp(options: Options, evaluated: Sequence[Outline]) -> list[Pair]:
    """The fastest layout that fits for each tp and pp, all else searched."""
    layouts: dict[tuple[int, int], int] = {}
    least: dict[tuple[int, int], float] = {}
    fastest: dict[tuple[int, int], tuple[float, Outline, int]] = {}
    for e in evaluated:
        tp, pp = (e.space.outer[name][e.space.row] for name in ("tp", "pp"))
        seconds = timed(e).seconds / e.plan.training.global_batch
        degrees = np.unique(np.stack([tp, pp]), axis=1).T.astype(int)
        for a, b in degrees.tolist():
            here = np.flatnonzero((tp == a) & (pp == b))
            layouts[a, b] = layouts.get((a, b), 0) + len(here)
            least[a, b] = min(least.get((a, b), np.inf), float(e.memory.device[here].min()))
            fitting = here[e.fits[here]]
            if len(fitting):
                row = int(fitting[seconds[fitting].argmin()])
                line = float(seconds[row]), e, row
                fastest[a, b] = min(fastest.get((a, b), line), line, key=lambda entry: entry[0])
    full = _full([(e, row) for _, e, row in fastest.values()])
    points = {
        pair: front_point(options, e, row) for pair, (e, row) in zip(fastest, full, strict=True)
    }
    return [Pair(*pair, layouts[pair], points.get(pair), least[pair]) for pair in sorted(layouts)]


def not_searched(options: Options, searches: Sequence[Found]) -> list[str]:
    """Sentences on options that a request leaves open and no search tries."""
    plans = [search.plan for search in searches]
    stacks = list(dict.fromkeys(plan.stack.id for plan in plans))
    out = [*_layouts_not_searched(options, plans), *_on_request(options, plans)]
    if options.stack is not None:
        out.append(f"stacks other than {options.stack} (leave --stack out)")
    else:
        out.append(f"stacks other than {', '.join(stacks)} (--stack)")
    if options.stack_defaults:
        out.append("kernels, overlap and dispatch other than the stack's (--stack-defaults)")
    elif all(search.plan.free for search in searches if search.estimates is not None):
        out.append("kernels, overlap and dispatch, since the layout is stated whole")
    return out


def _layouts_not_searched(options: Options, plans: Sequence[Plan]) -> list[str]:
    """Sentences on degrees, recompute, offloading, nodes, graphs and the allocator."""
    given, first = options.given(), plans[0]
    length, ranks = first.training.seq_len, longest_context(first.training.seq_len)
    several = any(values(plan.stack, "cp") for plan in plans) and length > 1
    simulated = sorted({name for plan in plans for name in left_out_schedules(plan)})
    parts = divisors(first.training.global_batch)
    offloads = any(len(values(plan.stack, "offload")) > 1 for plan in plans)
    splits = [choice.value for plan in plans for choice in plan.free if choice.option == "etp"]
    sentences = {
        f"context parallelism of more than {ranks:,} ranks (--cp)": (
            options.cp is None and several and ranks < min(options.gpus, length)
        ),
        f"some of the {len(parts):,} micro-batches that divide the global batch of"
        f" {first.training.global_batch:,}: those that are tried grow by {STEP:g} times at least"
        " (--micro-batch; --global-batch of fewer divisors)": (
            options.micro_batch is None
            and options.grad_accum is None
            and len(parts) > MOST_DIVISORS
        ),
        "sets of recomputed modules other than those of recipes (--recompute)": (
            options.recompute is None
            and any(has(plan.stack, "recompute", "modules") for plan in plans)
        ),
        f"schedules {', '.join(simulated)} of more than {MOST_SIMULATED_STAGES} stages"
        " (--schedule)": bool(simulated),
        "offloading (--search-offload)": (
            options.offload is None and not options.search_offload and offloads
        ),
        f"experts split over more than {max(splits, default=1)} ranks (--etp)": (
            bool(splits) and max(splits) < options.gpus
        ),
        "nodes left idle (--allow-idle)": not options.allow_idle and first.cluster.nodes > 1,
        "CUDA graphs that hold experts, whose shapes differ (--cuda-graphs)": (
            "cuda_graphs" not in given
            and first.model.routed is not None
            and any(has(plan.stack, "cuda_graphs", "full") for plan in plans)
        ),
        "expandable segments of PyTorch's allocator, on whose savings measured runs disagree"
        " (--expandable-segments)": (
            options.expandable_segments is None
            and any(plan.could_expand_segments for plan in plans)
        ),
    }
    return [sentence for sentence, applies in sentences.items() if applies]


def _on_request(options: Options, plans: Sequence[Plan]) -> list[str]:
    """Capabilities that stacks have beside those that a search tries with them."""
    left = {
        f"{flag(entry.option)} {word} ({plan.stack.id})".replace(" on ", " ")
        for plan in plans
        for entry in CAPABILITIES
        for word in entry.on_request(plan.stack)
        if entry.option in LAYOUT and getattr(options, entry.option) is None
    }
    return [f"what stacks run on request only: {', '.join(sorted(left))}"] if left else []


def software(plan: Plan, layout: Layout) -> dict[str, str]:
    """The free options of the stack that a search has chosen for a layout, by name."""
    return {choice.option: str(choice.value) for choice in software_of(plan, layout)}


def rejections(searches: Sequence[Found]) -> dict[str, int]:
    """Layouts by the first condition or rule that they break, memory last."""
    counts: dict[str, int] = {}
    for search in searches:
        reasons = dict(search.rejected)
        if search.estimates is not None:
            reasons["does not fit host memory"] = int((~search.estimates.host_fits).sum())
            drives = search.estimates.host_fits & ~search.estimates.drive_fits
            reasons["does not fit NVMe drives"] = int(drives.sum())
            reasons["does not fit memory"] = int(
                (~search.estimates.fits & search.estimates.host_fits & ~drives).sum()
            )
        for reason, count in reasons.items():
            if count:
                counts[reason] = counts.get(reason, 0) + count
    return counts


def shortfall(evaluated: Sequence[Outline]) -> Shortfall | None:
    """Missing bytes of the nearest and of the median layout that does not fit the GPU's memory."""
    short = [
        e.memory.device[~e.fits & e.host_fits & e.drive_fits] - e.plan.usable_bytes
        for e in evaluated
    ]
    missing = np.concatenate(short) if short else np.zeros(0)
    if not len(missing):
        return None
    return Shortfall(float(missing.min()), float(np.median(missing)))


def best_of(
    searches: Sequence[Found], count: int, objective: Objective
) -> list[tuple[Estimates, int]]:
    """The best layouts over all plans, best first, each with its row in a table of full
    estimates."""
    lines = [
        (search.estimates, int(row))
        for search in searches
        if search.estimates is not None
        for row in ranked(search.estimates, count, objective=objective)
    ]
    if not lines:
        return []
    rows = [np.array([row]) for _, row in lines]
    each = [room(e, at) for (e, _), at in zip(lines, rows, strict=True)]
    candidates = Candidates(
        np.array([spent(e, objective)[row] / e.plan.training.global_batch for e, row in lines]),
        np.array([timed(e).components["recompute"][row] for e, row in lines]),
        np.array([e.memory.device[row] for e, row in lines]),
        np.arange(len(lines)),
        np.array([spanning(e, at)[0] for (e, _), at in zip(lines, rows, strict=True)]),
        together(each),
    )
    chosen = order(candidates, count, objective)
    return _full([lines[i] for i in chosen])


def _front(evaluated: Sequence[Outline]) -> list[tuple[Estimates, int]]:
    """Layouts that fit and that no other beats in both time and memory, fastest first, over all
    plans."""
    lines: list[tuple[Outline, int]] = []
    for e in evaluated:
        usable = np.flatnonzero(e.fits)
        lines += [
            (e, int(row))
            for row in usable[pareto(timed(e).seconds[usable], e.memory.device[usable])]
        ]
    kept = pareto(
        np.array([timed(e).seconds[row] / e.plan.training.global_batch for e, row in lines]),
        np.array([e.memory.device[row] for e, row in lines]),
    )
    return _full([lines[i] for i in kept])


def _full(lines: Sequence[tuple[Outline, int]]) -> list[tuple[Estimates, int]]:
    """The layouts evaluated in full: one table per plan."""
    out: list[tuple[Estimates, int] | None] = [None] * len(lines)
    for outline in {id(e): e for e, _ in lines}.values():
        places = [i for i, (e, _) in enumerate(lines) if e is outline]
        for place, line in zip(places, outline.some([lines[i][1] for i in places]), strict=True):
            out[place] = line
    return [line for line in out if line is not None]


def per_token(estimates: Estimates, row: int) -> PerToken:
    """Cost of a million tokens with this layout: US dollars and energy at the plug; and tokens per
    dollar."""
    plan, step_seconds = estimates.plan, float(estimates.time.seconds[row])
    length = first(uneven.row_tokens(plan, estimates.table.pick([row])))
    tokens = plan.training.global_batch * length
    energy = step_energy_j(plan, estimates.time.seconds, busy_s(estimates.time))[row]
    machines, electricity = cost_usd(plan, plan.gpus * step_seconds, float(energy))
    dollars = None if machines is None else (machines + electricity) / tokens
    return PerToken(
        usd_per_million_tokens=None if dollars is None else 1e6 * dollars,
        kwh_per_million_tokens=1e6 * float(energy) / _KWH / tokens,
        tokens_per_usd=1 / dollars if dollars else None,
    )


def csv_text(searches: Sequence[Found], tick: Callable[[float], None] | None = None) -> str:
    """One line per layout that fits (per evaluated layout where none does), fastest first within a
    stack, with its components."""
    some_fit = any(
        search.estimates is not None and search.estimates.fits.any() for search in searches
    )
    chosen = [
        (e, rows[np.argsort(e.time.seconds[rows], kind="stable")])
        for e in (search.estimates for search in searches)
        if e is not None
        and len(rows := np.flatnonzero(e.fits) if some_fit else np.arange(e.space.count))
    ]
    count = sum(len(rows) for _, rows in chosen)
    header: list[str] = []
    lines: list[list[dict[str, Any]]] = []
    done = 0
    for names, entries in _entries(chosen):
        header += [name for name in names if name not in header]
        lines.append(entries)
        done += len(entries)
        if tick is not None:
            tick(done / max(count, 1))
    return tables.csv_text(
        header,
        ([entry.get(name, "0") for name in header] for entries in lines for entry in entries),
    )


def _entries(
    chosen: Sequence[tuple[Outline, Any]],
) -> Iterator[tuple[list[str], list[dict[str, Any]]]]:
    """(names, rows) of a few thousand layouts at a time."""
    for outline, rows in chosen:
        for start in range(0, len(rows), _CSV_ROWS):
            e = outline.full(rows[start : start + _CSV_ROWS])
            size = len(e.time.seconds)
            columns: dict[str, Any] = {
                "step_seconds": e.time.seconds,
                "device_bytes": e.memory.device,
                "host_bytes": e.memory.host,
                **{f"seconds_{name}": leaf for name, leaf in e.time.components.items()},
                **{f"bytes_{name}": leaf for name, leaf in e.memory.components.items()},
            }
            numbers = {
                name: [f"{value:.6g}" for value in np.broadcast_to(leaf, size).tolist()]
                for name, leaf in columns.items()
            }
            entries = [
                {
                    "stack": e.plan.stack.id,
                    "fits": bool(e.fits[i]),
                    **e.table.layout(i).model_dump(),
                    **{name: column[i] for name, column in numbers.items()},
                }
                for i in range(size)
            ]
            yield list(entries[0]), entries
