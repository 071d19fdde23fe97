"""`dpplan recommend`: which cluster, how much bandwidth, how large a batch, how large a model,
recompute or swap."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from planner.cli.options import with_request_options

_LIMITS, _OUT = "Limits", "Output"


def command(
    given: dict[str, Any],
    question: Annotated[
        str,
        typer.Argument(
            metavar="[cluster|bandwidth|batch|model|offload]",
            help=(
                "cluster: smallest, cheapest, fastest that trains the model within the limits;"
                " bandwidth: per GPU, that makes "
                "communication free; batch: that saturates this cluster; model: the largest that"
                " fits it; offload: recompute a "
                "layer's activations or swap them, over which link"
            ),
        ),
    ] = "cluster",
    days: Annotated[
        float | None,
        typer.Option("--days", help="The run ends within so many days", rich_help_panel=_LIMITS),
    ] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            "--budget", help="It costs at most so many US dollars", rich_help_panel=_LIMITS
        ),
    ] = None,
    max_gpus: Annotated[
        int | None,
        typer.Option(
            "--max-gpus", help="It takes at most so many GPUs (16384)", rich_help_panel=_LIMITS
        ),
    ] = None,
    power_kw: Annotated[
        float | None,
        typer.Option(
            "--power-kw",
            help="It draws at most so many kW at the plug, cooling included",
            rich_help_panel=_LIMITS,
        ),
    ] = None,
    sure: Annotated[
        bool,
        typer.Option(
            "--sure",
            help="Days and dollars hold at the slow end of the 80 % band",
            rich_help_panel=_LIMITS,
        ),
    ] = False,
    goal: Annotated[
        str,
        typer.Option(
            "--goal",
            help="Of each kind of GPU the cheapest, smallest or fastest",
            rich_help_panel=_LIMITS,
        ),
    ] = "cheapest",
    model_out: Annotated[
        str | None,
        typer.Option(
            "--model-out", help="Write the scaled model to this TOML (model)", rich_help_panel=_OUT
        ),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option("--jobs", help="Processes; default: cores of this machine")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout")] = False,
    plain: Annotated[bool, typer.Option("--plain", help="ASCII tables, as when piped")] = False,
) -> None:
    """Ask backwards: the cluster for a model, the bandwidth, batch or host link for a cluster, the
    model for a cluster.

    Exit status: 0 answered, 3 nothing is within the limits or fits, 2 the request is wrong, 130
    interrupted.
    """
    from planner.cli.scenario import check_results, clear_errors, merge, print_json, write_text

    with clear_errors(as_json):
        from planner.cli.progress import processes, progress
        from planner.specs.base import PlanError
        from planner.verbs import recommend

        own = {
            "--days": days,
            "--budget": budget,
            "--max-gpus": max_gpus,
            "--power-kw": power_kw,
            "--sure": sure or None,
            "--goal": None if goal == "cheapest" else goal,
            "--model-out": model_out,
        }
        _check(question, own)
        check_results(
            {"--model-out": model_out}, {k: v for k, v in given.items() if not isinstance(v, list)}
        )
        merged = merge(given)
        kinds = {name: _several(merged.pop(name, None)) for name in ("gpu", "cluster")}
        limits, many = recommend.Limits(days, budget, max_gpus, power_kw, sure), processes(jobs)
        if many < 1:
            raise PlanError("--jobs", jobs, "must be 1 or more")
        texts = {}
        with progress("requests", plain) as tick:
            if question == "cluster":
                out = recommend.cluster(
                    limits,
                    merged,
                    kinds["gpu"],
                    kinds["cluster"],
                    goal=goal,
                    jobs=many,
                    progress=tick,
                )
            else:
                for name, values in kinds.items():
                    if len(values) > 1:
                        raise PlanError(
                            f"--{name}",
                            ", ".join(values),
                            f"must be one kind for recommend {question}",
                        )
                    merged.update({name: values[0]} if values else {})
                if question == "offload":
                    out = recommend.offload(merged)
                elif question == "model":
                    out = recommend.largest(limits, merged, jobs=many, progress=tick)
                else:
                    ask = recommend.bandwidth if question == "bandwidth" else recommend.batch
                    out = ask(merged, jobs=many, progress=tick)
            if model_out is not None:
                if not out["family"] or not out["family"]["shape"]:
                    raise PlanError(
                        "--model-out",
                        model_out,
                        "has nothing to hold: no scaled model fits, or no --model was given",
                    )
                texts["--model-out"] = model_out, recommend.model_toml(out["family"]["shape"])
        for option, (name, text) in texts.items():
            write_text(name, option, text)
        if as_json:
            print_json(out)
        else:
            from planner.show.recommend import recommend_blocks
            from planner.show.text import show_blocks

            show_blocks(recommend_blocks(out), plain)
        raise SystemExit(0 if recommend.answered(out) else 3)


# options of its own that each question has; others are refused rather than left without effect
_OWN = {
    "cluster": ("--days", "--budget", "--max-gpus", "--power-kw", "--sure", "--goal"),
    "bandwidth": (),
    "batch": (),
    "offload": (),
    "model": ("--days", "--budget", "--sure", "--model-out"),
}


def _check(question: str, own: dict[str, Any]) -> None:
    from planner.specs.base import PlanError

    if question not in _OWN:
        raise PlanError("recommend", question, f"must be one of {', '.join(_OWN)}")
    for option, value in own.items():
        if value is not None and option not in _OWN[question]:
            raise PlanError(option, value, f"does not belong to recommend {question}; leave it out")


def _several(value: Any) -> list[str]:
    """--gpu and --cluster may be given again, in a scenario file they are one word."""
    if value is None:
        return []
    return [str(x) for x in value] if isinstance(value, list) else [str(value)]


command = with_request_options(command, several=("gpu", "cluster"))
