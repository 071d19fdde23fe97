"""View of `dpplan recommend offload`: recompute or swap a layer."""

from __future__ import annotations

from planner.specs.documents.plan import describe
from planner.specs.documents.recommend import SwapOrRecompute
from planner.units import show
from planner.views.view import Block, Command


def swap_blocks(document: SwapOrRecompute) -> list[Block]:
    return [_layer(document), _links(document), _lengths(document), _bounds(document)]


def _layer(document: SwapOrRecompute) -> Block:
    layer = document.layer
    return Block(
        f"Recompute or swap a layer of {document.model.title} on {document.gpu}",
        text=[
            (
                f"layout      {describe(document.layout)}  [{document.stack}],"
                f" {document.seq_len:,} tokens per sequence"
            ),
            *_swap_verdict(document),
            (
                f"a layer     keeps {show(layer.kept_bytes, 'B')} for backward,"
                f" {show(layer.recompute_kept_bytes, 'B')} where it is recomputed"
            ),
            (
                f"            forward {show(layer.forward_s, 's')}, backward"
                f" {show(layer.backward_s, 's')}, to run forward again"
                f" {show(layer.recompute_s, 's')}"
            ),
            (
                f"break-even  above {show(layer.break_even_bytes_per_s, 'B/s')} per GPU and"
                " direction swapping costs less than recompute, from"
                f" {show(layer.hidden_bytes_per_s, 'B/s')} on nothing"
            ),
        ],
    )


def _swap_verdict(document: SwapOrRecompute) -> list[str]:
    """Times of whole steps, and choices that the rules forbid."""
    steps = " against ".join(
        f"{show(choice.step_seconds, 's')} with {choice.what}"
        f"{'' if choice.fits else ' (does not fit)'}"
        for choice in sorted(document.choices, key=lambda choice: choice.step_seconds)
    )
    verdict = document.verdict or "neither fits"
    lines = [f"verdict     {verdict}: a step takes {steps}"] if steps else []
    if document.refused is not None:
        lines.append(f"no swap     {document.refused}")
    elif document.verdict not in (None, _cheaper_layer(document)):
        lines.append(
            f"            a layer by itself is cheaper to {_cheaper_layer(document)}: a step waits"
            " for more"
        )
    return [*lines, *(Command(f"            {choice.command}") for choice in document.choices)]


def _cheaper_layer(document: SwapOrRecompute) -> str:
    """What costs less for one layer over the node's own link."""
    return next(link.cheaper for link in document.links if link.id == document.host_link)


def _links(document: SwapOrRecompute) -> Block:
    return Block(
        "By link to host memory",
        text=[
            "per GPU with all GPUs of the host copying; adds: beside the same layer, whose"
            " collectives take"
            f" {show(document.layer.forward_shared_s + document.layer.backward_shared_s, 's')} of"
            " this node's link"
        ],
        header=[
            *("link", "per GPU|B/s", "copy|s", "hidden|s", "swap adds|s", "in turn|s"),
            *("recompute adds|s", "cheaper"),
        ],
        rows=[
            [
                link.id + (" (this node)" if link.id == document.host_link else ""),
                *(link.bytes_per_s, link.copy_s, link.hidden_s),
                *(link.out_exposed_s + link.back_exposed_s, link.in_turn_s, link.recompute_s),
                link.cheaper,
            ]
            for link in document.links
        ],
        order="this node's first",
        drop=("in turn", "copy", "hidden"),
    )


def _lengths(document: SwapOrRecompute) -> Block:
    return Block(
        "By sequence length",
        header=[
            *("tokens|,", "kept|B", "recompute|s", "break-even|B/s", "hides from|B/s"),
            *(link.id for link in document.links),
        ],
        rows=[
            [
                *(row.seq_len, row.kept_bytes, row.recompute_s, row.break_even_bytes_per_s),
                *(row.hidden_bytes_per_s, *(link.cheaper for link in row.links)),
            ]
            for row in document.lengths
        ],
        order="shortest first",
        drop=("hides from", "break-even", *(link.id for link in reversed(document.links[1:]))),
    )


def _bounds(document: SwapOrRecompute) -> Block:
    return Block(
        "What ZeRO-Infinity's equations ask for",
        text=[
            "bandwidth of all ranks that share it, for a share of the achievable matrix rate;"
            " nothing overlaps (arXiv 2104.07857)"
        ],
        header=[
            *("what moves", "FLOP per byte|number", "ranks|,"),
            *(f"{need.share_frac:.0%}|B/s" for need in document.bounds[0].needed),
            "this link gives|%",
        ],
        rows=[
            [
                *(bound.what, bound.flop_per_byte, bound.ranks),
                *(need.bytes_per_s for need in bound.needed),
                bound.efficiency_frac,
            ]
            for bound in document.bounds
        ],
        order="as in the paper",
    )
