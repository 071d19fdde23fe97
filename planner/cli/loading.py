"""`dpplan input` and `dpplan batchnorm`: loading at a stated rate, and synchronised batch norm."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_input_options, with_link_options


@with_input_options
def load(
    given: dict[str, Any],
    samples_per_s: Annotated[
        float, typer.Option("--samples-per-s", help="Samples that all GPUs consume per second")
    ],
    batch: Annotated[int, typer.Option("--batch", help="Samples of one GPU and step")] = 1,
    gpus: Annotated[int, typer.Option("--gpus", help="GPUs, one replica of the model each")] = 1,
    gpus_per_node: Annotated[int, typer.Option("--gpus-per-node", help="GPUs per node")] = 8,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Size storage, workers and host memory for a rate of samples; models of tokens: the same
    options of `dpplan estimate`.

    Exit status: 0 loading keeps up, 3 the step waits for it, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner.verbs import loading as feeding

        found = feeding.input_answer(given, samples_per_s, batch, gpus, gpus_per_node)
        if as_json:
            print_json(found)
        else:
            from planner.show.conditions import input_block
            from planner.show.text import show_blocks

            show_blocks(
                [input_block(found["input"], f"Input of {gpus} GPUs, batches of {batch} each")],
                plain,
            )
        raise SystemExit(0 if found["input"]["bound"] is None else 3)


@with_link_options
def batch_norm(
    given: dict[str, Any],
    channels: Annotated[
        str | None,
        typer.Option(
            "--channels",
            help="Channels of each batch norm, such as 64,256x3 (default: those of ResNet-50)",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Bytes and time of synchronised batch norm in one training step.

    Exit status: 0 answered, 2 the request is wrong.
    """
    from planner.cli.scenario import clear_errors, print_json

    with clear_errors(as_json):
        from planner.verbs import loading as feeding

        found = feeding.batch_norm_answer(given, channels)
        if as_json:
            print_json(found)
            return
        from planner.show.conditions import batch_norm_blocks
        from planner.show.text import show_blocks

        show_blocks(batch_norm_blocks(found), plain)
