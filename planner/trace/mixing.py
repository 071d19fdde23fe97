"""Whether tokens of a sequence meet in a block outside of attention, so that ranks of context
parallelism cannot share its sequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from planner.trace.fit import Size
from planner.trace.regions import Region

_Act = tuple[str, str]  # an operator and its module


def where_tokens_meet(regions: Sequence[Region], sizes: Sequence[Size]) -> str:
    """The operator in which tokens meet, attention apart: the dimensions along which it acts grow
    with the length. Empty where there is none. Tokens of a fixed number may be joined to the
    sequence and cut off again, at one of its ends: a shift does either at another one."""
    ends = set[str]()
    for (name, module), calls in _acts(regions, sizes).items():
        for lengths in calls:
            end = _end(lengths)
            ends |= {end} - {""}
            if end == "both" or len(ends) > 1:
                inside = module.removeprefix(regions[0].name).strip(".")
                return f"{name} of {inside or 'the block'} acts along the tokens of a sequence"
    return ""


def _acts(
    regions: Sequence[Region], sizes: Sequence[Size]
) -> dict[_Act, list[list[tuple[int, ...]]]]:
    """Operators of a region, each call at the lengths of the first batch size."""
    out: dict[_Act, list[list[tuple[int, ...]]]] = {}
    batch = sizes[0][0]
    for i, region in enumerate(
        x for x, size in zip(regions, sizes, strict=True) if size[0] == batch
    ):
        counted = Counter[_Act]()
        for name, module, elements in region.along:
            calls = out.setdefault((name, module), [])
            at = counted[name, module]
            counted[name, module] += 1
            if at == len(calls):
                calls.append([()] * i)  # at other lengths there are fewer
            calls[at].append(elements)
        for act, calls in out.items():
            for each in calls[counted[act] :]:
                each.append(())
    return out


def _end(lengths: Sequence[tuple[int, ...]]) -> str:
    """The end of a sequence at which an operator joins or cuts tokens of a fixed number: "first" or
    "last"; empty where nothing grows with the length, "both" where tokens meet."""
    if len(set(lengths)) == 1:
        return ""
    if len({len(each) for each in lengths}) > 1 or len(lengths[0]) == 1:
        return "both"
    grows = [len(set(each)) > 1 for each in zip(*lengths, strict=True)]
    if sum(grows) > 1:
        return "both"
    at = grows.index(True)
    before, after = any(lengths[0][:at]), any(lengths[0][at + 1 :])
    return "both" if before and after else "first" if before else "last" if after else ""
