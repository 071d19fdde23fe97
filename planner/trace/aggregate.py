"""Regions of several traces become blocks: operators by class, symbolic in batch and length.

Long: every class of operators is counted over the same traces, each in a few lines.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from planner.specs.parts.traced import copies_of
from planner.specs.polynomial import PER_TOKEN, Polynomial
from planner.trace import fit
from planner.trace.classes import ATTENTION, BATCHED, CONVOLUTION, FUSABLE, GEMM, Call
from planner.trace.divide import DIVIDED, EXPERTS, INPUT, ROUTED, TOKENS, WHOLE, Division
from planner.trace.fit import NotPolynomial, Powers, Size
from planner.trace.mixing import where_tokens_meet
from planner.trace.regions import COUNTED_BYTES, OUTSIDE, Recorded, Region

MOVED = (*FUSABLE, "gather", "scan")


class TraceError(ValueError):
    """Why a model cannot be traced, as one sentence."""


class Uneven(TraceError):
    """A count that the fitted powers do not give."""


class Differs(TraceError):
    """Other operators at another size."""


@dataclass(frozen=True)
class Block:
    """A block as a part of a model file, without its name."""

    path: str
    module: str
    part: dict[str, Any]
    backward_flop: Polynomial  # of products and convolutions, counted
    forward_flop: Polynomial

    def key(self) -> tuple[str, str]:
        """Equal for blocks that are written once."""
        return self.module, repr(self.part)


@dataclass(frozen=True)
class Fit:
    """Sizes at which the steps were recorded, and powers that are fitted."""

    sizes: tuple[Size, ...]
    powers: tuple[Powers, ...]

    def of(self, values: Sequence[int], says: Callable[[], str]) -> Polynomial:
        """The polynomial of a count. says: names the count in an error."""
        try:
            return fit.fitted(tuple(values), self.sizes, self.powers)
        except NotPolynomial as error:
            raise Uneven(f"{says()} is not polynomial in batch and length: {error}") from None


def blocks(
    steps: Sequence[Recorded], sizes: tuple[Size, ...], powers: tuple[Powers, ...]
) -> list[Block]:
    """Regions of steps at several sizes, as blocks."""
    fitting, first = Fit(sizes, powers), steps[0]
    for step, size in zip(steps, sizes, strict=True):
        if [x.name for x in step.regions] != [x.name for x in first.regions]:
            raise TraceError(f"other modules run at batch {size[0]}, length {size[1]}")
    out = []
    for i, region in enumerate(first.regions):
        regions = [step.regions[i] for step in steps]
        names = {name for name, owner in first.owner.items() if owner == i}
        out.append(_block(region, regions, fitting, names, first.division, i))
    return out


def _block(
    region: Region,
    regions: Sequence[Region],
    fitting: Fit,
    names: Collection[str],
    division: Division,
    at: int,
) -> Block:
    """A region. names: parameters that are counted with it; at: its place."""
    where = region.name or "outside of the blocks"
    sizes = fitting.sizes
    try:
        calls = [_matched(region, *pair) for pair in zip(regions, sizes, strict=True)]
    except TraceError:  # a loop over samples runs as many operators as there are samples
        regions = whole = [_merged(each) for each in regions]
        calls = [_matched(whole[0], *pair) for pair in zip(whole, sizes, strict=True)]
    numbers: list[tuple[Call, dict[str, Polynomial]]] = []
    for i, call in enumerate(calls[0]):
        columns = {
            name: fitting.of(
                [each[i].numbers[name] for each in calls],
                functools.partial(_says, name, call, where),
            )
            for name in call.numbers
        }
        numbers.append((call, columns))

    def of_region(name: str) -> Polynomial:
        return fitting.of([getattr(x, name) for x in regions], lambda: f"{name} of {where}")

    forward = [(call, sizes) for call, sizes in numbers if not call.backward]
    part: dict[str, Any] = {
        "parameters": region.parameters,
        "issued": sum(1 for call, _ in forward if call.kind != "fused"),
        "fused_issued": _fused([call for call, _ in forward]),
        "enters": of_region("enters"),
        "saved": of_region("saved"),
        "saved_bytes": of_region("saved_bytes"),
        "fused_saved": of_region("fused_saved"),
        "fused_saved_bytes": of_region("fused_saved_bytes"),
        "working": _elements(_working(numbers, fitting)),
        "gemms": _gemms(forward, names, _images(region.calls), lambda x: division.split(x, at)),
        "multiplied": _multiplied(forward, names),
        "attention": _attention(forward),
        "moves": _moves(numbers),
        "shares": _shares(regions, numbers, fitting, where),
    }
    part = {name: value for name, value in part.items() if value}
    mixing = where_tokens_meet(regions, sizes)[:_LONGEST]
    if mixing or any(part.get(name) for name in ("gemms", "multiplied", "attention")):
        part["mixing"] = mixing
    if region.name and region.undivided and (part.get("gemms") or part.get("attention")):
        part["undivided"] = region.undivided[:_LONGEST]
    if all(x.frozen_saved is not None for x in regions):
        part["frozen_saved"] = of_region("frozen_saved")
        if others := of_region("frozen_saved_bytes"):
            part["frozen_saved_bytes"] = others
    products = [(c, _flop(c, n)) for c, n in numbers if c.kind in (GEMM, BATCHED)]
    return Block(
        region.name,
        region.module,
        _written(part),
        fit.total([flop for call, flop in products if call.backward]),
        fit.total([flop for call, flop in products if not call.backward]),
    )


def _fused(calls: Sequence[Call]) -> int:
    """Kernels where each chain of operators is a single one."""
    kinds = [call.kind in FUSABLE for call in calls if call.kind != "fused"]
    return sum(not (chained and before) for before, chained in itertools.pairwise([False, *kinds]))


_LONGEST = 300  # characters of a sentence
_SAVED = ("saved", "saved_bytes")
_COUNTS = (*_SAVED, "fused_saved", "fused_saved_bytes")
_FROZEN = ("frozen_saved", "frozen_saved_bytes")


def _shares(
    regions: Sequence[Region],
    numbers: Sequence[tuple[Call, dict[str, Polynomial]]],
    fitting: Fit,
    where: str,
) -> list[dict[str, Any]]:
    """Rows of what ranks of tensor parallelism share: of saved tensors, and of the largest operator
    of backward."""
    rows: list[dict[str, Any]] = []
    largest = _working(numbers, fitting)
    for ranks in (DIVIDED, TOKENS, INPUT, ROUTED, EXPERTS):
        row: dict[str, Any] = {"ranks": ranks}
        for name in (*_COUNTS, *_FROZEN):
            values = [x.shares.get(ranks, Counter())[name] for x in regions]
            if any(values):
                row[name] = fitting.of(values, functools.partial("{} of {}".format, name, where))
        if largest is not None and largest[0].words.get("ranks") == ranks:
            row["working"] = _elements(largest)
        if len(row) > 1:
            rows.append(row)
    return rows


_SUMS = ("bytes", "again", "made", "m", "batch", "read")  # numbers of a call that grow with samples


def _merged(region: Region) -> Region:
    """Calls of one operator by one module with the same widths as one call: rows and bytes of all
    of them, and no chains, which such loops have others of at every size."""
    out: dict[tuple[Any, ...], Call] = {}
    for call in region.calls:
        if call.kind == "fused":
            continue
        numbers = call.numbers
        if call.backward and call.kind in (GEMM, BATCHED):  # only FLOP and bytes of these count
            rows = numbers["m"] * numbers["k"] * numbers["n"] * numbers.get("batch", 1)
            numbers = {x: numbers[x] for x in ("bytes", "made")} | {"m": rows, "k": 1, "n": 1}
        sums = [x for x in _SUMS if x in numbers and not (x == "m" and "batch" in numbers)]
        widths = tuple((name, value) for name, value in numbers.items() if name not in sums)
        words = call.words.get("weight"), call.words.get("ranks", WHOLE)
        key = call.operator, call.module, call.kind, call.backward, words, widths
        if (first := out.get(key)) is None:
            out[key] = replace(call, numbers=dict(numbers))
            continue
        for name in sums:
            first.numbers[name] += numbers[name]
    for back in (False, True):
        moved = Counter[str]()
        for call in out.values():
            if call.kind in FUSABLE and call.backward is back:
                moved[call.words.get("ranks", WHOLE)] += call.numbers["bytes"]
        for ranks, size in moved.items():
            fused = Call("fused", "", "fused", back, {"bytes": size}, {"ranks": ranks})
            out["fused", back, ranks] = fused
    shares = {
        ranks: Counter(
            {name: each[name] for name in (*_SAVED, *_FROZEN)}
            | {f"fused_{name}": each[name] for name in _SAVED}
        )
        for ranks, each in region.shares.items()
    }
    return replace(
        region,
        calls=[*out.values()],
        fused_saved=region.saved,
        fused_saved_bytes=region.saved_bytes,
        shares=shares,
    )


def _says(name: str, call: Call, where: str) -> str:
    """A number of a call, for an error."""
    return f"{name} of {call.operator} in {call.module or where}"


def _matched(first: Region, other: Region, size: Size) -> list[Call]:
    """Calls of the same region at another size, in the same order."""
    pairs = zip(first.calls, other.calls, strict=False)
    for mine, its in pairs:
        if (mine.operator, mine.module) != (its.operator, its.module):
            raise Differs(
                f"{mine.operator} of {mine.module or first.name or 'the model'} is"
                f" {its.operator} at batch {size[0]}, length {size[1]}: what runs depends on sizes"
            )
    if len(first.calls) != len(other.calls):
        raise Differs(
            f"{first.name or 'what is outside of the blocks'} runs {len(other.calls)} operators at"
            f" batch {size[0]}, length {size[1]}, and {len(first.calls)} at the first size: what"
            " runs depends on sizes"
        )
    return other.calls


def _flop(call: Call, n: dict[str, Polynomial]) -> Polynomial:
    sizes = [n["m"], n["k"], n["n"]] + ([n["batch"]] if "batch" in n else [])
    return fit.times(fit.product(*sizes), Fraction(2))


def _constant(polynomial: Polynomial) -> int | None:
    """Its value where it is a whole number of its names."""
    if all(i == j == 0 for i, j, _ in polynomial.terms):
        return int(sum((value for _, _, value in polynomial.terms), start=Fraction(0)))
    return None


def _images(calls: Sequence[Call]) -> set[str]:
    """Weights of convolutions over what needs no gradient: a model's input."""
    return {call.words["weight"] for call in calls if call.words.get("input_gradient") is False}


def _gemms(
    calls: Sequence[tuple[Call, dict[str, Polynomial]]],
    names: Collection[str],
    images: Collection[str],
    split: Callable[[str], str],
) -> list[dict[str, Any]]:
    """Products with weights and convolutions, those that are alike as one row."""
    counts: Counter[tuple[Any, ...]] = Counter()
    shared: Counter[tuple[Any, ...]] = Counter()
    seen: set[str] = set()
    for call, n in calls:
        if not _has_weight(call, n, names):
            continue
        weight = str(call.words.get("weight", ""))
        name = (weight.rpartition(".")[0] or call.module).rpartition(".")[2] or call.operator
        key = (
            name[:100],
            *(_constant(n[x]) for x in ("k", "n")),
            n["m"],
            _constant(n["groups"]),
            _constant(n["taps"]) if "taps" in n else 1,
            n.get("read"),
            weight not in images,
            split(weight),
            bool(call.words.get("routed")),
        )
        counts[key] += 1
        shared[key] += weight in seen or weight not in names
        seen.add(weight)
    rows = []
    for alike, count in counts.items():
        label, k, columns, m, groups, taps, read, gradient, divided, copies = alike
        row: dict[str, Any] = {"name": label, "k": k, "n": columns, "rows": m, "times": count}
        row |= {"groups": groups, "shared": shared[alike], "taps": taps, "read": read}
        row |= {"input_gradient": gradient, "split": divided}
        plain = {"rows": PER_TOKEN, "times": 1, "groups": 1, "shared": 0, "taps": 1, "read": None}
        if copies:
            row |= _experts(row)
        plain |= {"input_gradient": True, "split": "none", "routed": False, "looped": False}
        if read is not None and groups > 1:  # every group has all rows
            row["rows"] = fit.times(m, Fraction(groups))
        rows.append({x: v for x, v in row.items() if x not in plain or v != plain[x]})
    return rows


def _experts(row: dict[str, Any]) -> dict[str, Any]:
    """Keys of products over copies of tokens that a router sends to experts: one product for all
    experts, or one per expert."""
    if row["groups"] > 1:
        return {"routed": copies_of(row["rows"]) > 0}
    rows = fit.times(row["rows"], Fraction(row["times"]))
    if row["times"] == 1 or not copies_of(rows):
        return {}
    alike = {"rows": rows, "groups": row["times"], "times": 1, "shared": 0}
    return alike | {"routed": True, "looped": True}


def _has_weight(call: Call, n: dict[str, Polynomial], names: Collection[str]) -> bool:
    """Whether a product multiplies with a parameter of its region. A weight that is counted with
    another one is an operand as activations are."""
    if call.kind == CONVOLUTION and "taps" in n:
        return True
    constant = call.kind == GEMM and all(_constant(n[x]) for x in ("k", "n", "groups"))
    return constant and call.words.get("weight") in names


def _multiplied(
    calls: Sequence[tuple[Call, dict[str, Polynomial]]], names: Collection[str]
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for call, n in calls:
        if call.kind == BATCHED or (call.kind == GEMM and not _has_weight(call, n, names)):
            batch = n.get("batch") or n["groups"]
            row = {"batch": batch, "m": n["m"], "k": n["k"], "n": n["n"]}
            rows.append(row | ({"split": True} if call.words.get("ranks") == DIVIDED else {}))
        if call.kind == ATTENTION and _sequences(n) is None:  # the same for all samples
            pairs = {"batch": fit.product(n["batch"], n["heads"]), "m": n["queries"]}
            rows.append(pairs | {"k": n["head_dim"], "n": n["keys"]})
            rows.append(pairs | {"k": n["keys"], "n": n["value_dim"]})
    return rows


def _per_sample(count: Polynomial) -> Polynomial | None:
    """A count divided by the samples; None where it does not grow with them."""
    terms = tuple((i - 1, j, value) for i, j, value in count.terms)
    return None if any(i < 0 for i, _, _ in terms) else Polynomial(terms)


def _sequences(n: dict[str, Polynomial]) -> tuple[Polynomial, Polynomial] | None:
    """Sequences per sample of an attention, and the queries of each; None where neither grows with
    samples."""
    groups, queries = _per_sample(n["batch"]), _per_sample(n["queries"])
    if groups is not None:
        return groups, n["queries"]
    # the rows of all samples as one: of each against the keys of all
    return None if queries is None else (n["batch"], queries)


def _attention(calls: Sequence[tuple[Call, dict[str, Polynomial]]]) -> list[dict[str, Any]]:
    counts: Counter[tuple[Any, ...]] = Counter()
    for call, n in calls:
        if call.kind != ATTENTION:
            continue
        sequences = _sequences(n)
        if sequences is None:
            continue
        widths = [_constant(n[x]) for x in ("heads", "kv_heads", "head_dim", "value_dim")]
        if not all(widths):
            raise TraceError(f"heads of {call.module} grow with batch or length")
        mask, window = call.words["mask"], call.words["window"]
        split = call.words.get("ranks") == DIVIDED
        key = (*widths, mask, window, *sequences, n["keys"], split)
        counts[key] += 1
    names = (
        "heads",
        "kv_heads",
        "head_dim",
        "value_dim",
        "mask",
        "window",
        "groups",
        "queries",
        "keys",
        "split",
    )
    token, once = Polynomial(((0, 1, Fraction(1)),)), Polynomial(((0, 0, Fraction(1)),))
    plain = {"window": None, "groups": once, "queries": token, "keys": token, "times": 1}
    plain["split"] = False
    rows = []
    for key, count in counts.items():
        row = dict(zip(names, key, strict=True)) | {"times": count}
        if row["value_dim"] == row["head_dim"]:
            del row["value_dim"]
        rows.append({x: v for x, v in row.items() if x not in plain or v != plain[x]})
    return rows


def _moves(calls: Sequence[tuple[Call, dict[str, Polynomial]]]) -> list[dict[str, Any]]:
    """Operators bound by memory: bytes and kernels by class, and of chains as one kernel each.
    Beside them what products add of biases is free, and their sums backward are reductions."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    fused: dict[tuple[str, bool], list[Polynomial]] = {}
    again: dict[tuple[str, bool], list[Polynomial]] = {}
    for call, n in calls:
        ranks = call.words.get("ranks", WHOLE)
        if call.kind == "fused":
            fused.setdefault((ranks, call.backward), []).append(n["bytes"])
        if call.kind not in MOVED:
            continue
        row = rows.setdefault((call.kind, ranks), {"bytes": {}, "again": {}, "kernels": [0, 0]})
        row["bytes"].setdefault(call.backward, []).append(n["bytes"])
        if "again" in n:
            row["again"].setdefault(call.backward, []).append(n["again"])
            again.setdefault((ranks, call.backward), []).append(n["again"])
        row["kernels"][call.backward] += 1
    for ranks, _ in fused:  # of chains that read what others have
        if not any(kind in FUSABLE and its == ranks for kind, its in rows):
            rows["elementwise", ranks] = {"bytes": {}, "again": {}, "kernels": [0, 0]}
    out, none = [], Polynomial(())
    chained = {ranks: kind for kind, ranks in reversed(rows) if kind in FUSABLE}
    for (kind, ranks), row in rows.items():
        each = {back: fit.total(row["bytes"].get(back, [])) for back in (False, True)}
        compiled, first = each, chained.get(ranks) == kind
        if kind in FUSABLE:  # chains span classes: counted once, with the first
            compiled = {
                b: fit.total(fused.get((ranks, b), [])) if first else none for b in (False, True)
            }
        written = {
            "operators": kind,
            "ranks": "" if ranks == WHOLE else ranks,
            "forward": each[False],
            "backward": each[True],
            "fused_forward": compiled[False],
            "fused_backward": compiled[True],
            "again": fit.total(row["again"].get(False, [])),
            "again_backward": fit.total(row["again"].get(True, [])),
            "fused_again": fit.total(again.get((ranks, False), [])) if first else none,
            "fused_again_backward": fit.total(again.get((ranks, True), [])) if first else none,
            "kernels": row["kernels"][0],
            "kernels_backward": row["kernels"][1],
        }
        written = {name: value for name, value in written.items() if value}
        if len(written) > 1 + ("ranks" in written):
            out.append(written)
    return out


def _working(
    calls: Sequence[tuple[Call, dict[str, Polynomial]]], fitting: Fit
) -> tuple[Call, Polynomial] | None:
    """The operator of backward that reads and writes most at the largest size, and its bytes; of a
    block with experts without their weights, whose gradients are counted as for all models."""
    size = max(fitting.sizes)
    moved = [(c, n["bytes"]) for c, n in calls if c.backward and c.kind != "fused"]
    if any(c.words.get("routed") for c, _ in calls):
        moved = [(c, Polynomial(tuple(x for x in n.terms if x[:2] != (0, 0)))) for c, n in moved]
    if not moved:
        return None
    return max(moved, key=lambda x: float(x[1].at(float(size[0]), float(size[1]))))


def _elements(largest: tuple[Call, Polynomial] | None) -> Polynomial:
    if largest is None:
        return Polynomial(())
    return fit.times(largest[1], Fraction(1, COUNTED_BYTES))


def _written(value: Any) -> Any:
    """Polynomials as text."""
    if isinstance(value, Polynomial):
        return str(value)
    if isinstance(value, dict):
        return {name: _written(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_written(each) for each in value]
    return value


def is_empty(block: Block) -> bool:
    """Whether nothing of it is worth a part."""
    costs = ("parameters", "gemms", "multiplied", "attention", "moves", "saved", "saved_bytes")
    return block.path == OUTSIDE and not any(block.part.get(name) for name in costs)
