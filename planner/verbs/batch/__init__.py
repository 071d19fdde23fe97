"""The verb `batch`: time to a target against the number of GPUs, where more of them need a larger
batch to be busy."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from planner.formulas import critical_batch as formulas
from planner.formulas import scaling as ratios
from planner.formulas.params import active_parameter_count, parameter_count
from planner.inputs.model import model_spec
from planner.inputs.options import number, read_options
from planner.report.layout import SCHEMA_VERSION, Report
from planner.show.text import layout_text
from planner.specs.base import PlanError
from planner.specs.components import class_of
from planner.specs.model import ModelSpec
from planner.specs.options import Options, refuse
from planner.specs.options.own import BatchOptions
from planner.verbs.batch.critical import LARGEST_TOKENS, PUBLISHED, Critical, Target, read
from planner.verbs.compare import scaling
from planner.verbs.compare.dimensions import swept
from planner.verbs.requests import Point, Progress, answer, common_batch, document

REGIMES = {
    "strong": "batch kept (strong scaling)",
    "weak": "batch grown with the GPUs (weak scaling)",
    "best": "batch with the shortest time to the target, from the kept one to the grown one",
}
_COUNTS = 7  # of GPUs where no sweep is given: each twice the one before
_MOST_COUNTS = 100  # each with as many batches as it has doublings
_SPREAD = (0.25, 1.0, 4.0)  # times the critical batch: laws and measurements differ by such factors
_COMPUTE = ("compute", "memory bandwidth", "launch")
_DAY_S = 86400.0
_FEWEST = 3  # points of Amdahl's fit
_SHOWN = 0.005  # factors nearer to one are left out of the sentence


@dataclass(frozen=True)
class _Run:
    """A number of GPUs with a batch: what the run takes to the target, and its document."""

    gpus: int
    batch: int
    steps: int
    tokens: int
    found: Report

    @property
    def fits(self) -> bool:
        return bool(self.found.get("memory", {}).get("fits"))


def batch(
    asked: BatchOptions, given: Mapping[str, Any], progress: Progress | None = None
) -> Report:
    """Steps, tokens, days and cost to the target at every number of GPUs, with the batch kept,
    grown, and best.

    given: options of the request; its tokens are those that the run takes with the reference batch.
    Raises PlanError where the request is wrong or nothing can be answered.
    """
    options, counts = _checked(asked, given)
    model, _ = model_spec(options.model)
    seq_len = options.seq_len or model.max_positions
    first = options.global_batch or common_batch(seq_len, counts[:1])
    target = _target(asked, options, model, seq_len, first)
    runs = _runs(options, counts, first, seq_len, target, asked.jobs or 1, progress)
    if all(one.found["refused"] is not None for one in runs):
        raise PlanError(
            "batch",
            None,
            f"none of the {len(runs)} requests can be answered; the first:"
            f" {runs[0].found['refused']}",
        )
    regimes = {name: _curve(name, runs, target, target, asked.stop_below) for name in REGIMES}
    gpu = next(one.found["cluster"]["gpu_title"] for one in runs if one.found["refused"] is None)
    return {
        "schema_version": SCHEMA_VERSION,
        "model": {
            "name": model.name,
            "title": model.title or model.name,
            "parameters": parameter_count(model),
        },
        "gpu_title": gpu,
        "seq_len": seq_len,
        "reference": {
            "global_batch": asked.reference_batch or first,
            "tokens_per_step": target.reference_tokens,
            "tokens": target.tokens,
            "steps": target.steps(target.reference_tokens),
        },
        "critical_batch": {
            "tokens": target.critical.tokens,
            "sequences": target.critical.tokens / seq_len,
            "source": target.critical.source,
            "measured": target.critical.measured,
            "loss_nats": target.critical.loss_nats,
        },
        "least": {"tokens": target.least_tokens, "steps": target.least_steps},
        "stop_below": asked.stop_below,
        "regimes": regimes,
        "batches": _batches(asked, options, runs, target, seq_len),
        "learning_rate": _rule(asked, options),
        "sensitivity": [_moved(runs, target, factor, asked.stop_below) for factor in _SPREAD],
        "published": [dict(one) for one in PUBLISHED],
        "notes": _notes(asked, options, runs, target, seq_len, first),
    }


# ------------------------------------------------------------------------------------------------ t


def _checked(asked: BatchOptions, given: Mapping[str, Any]) -> tuple[Options, list[int]]:
    """The options, and the numbers of GPUs in ascending order."""
    options = read_options(given)
    refuse(options, "batch")
    if options.tokens is None:
        raise PlanError(
            "--tokens",
            None,
            "is needed: the tokens with which the run reaches its target at the reference batch, "
            "such as 2T",
        )
    if asked.sweep is None:
        return options, [n for k in range(_COUNTS) if (n := options.gpus * 2**k) <= 1_000_000]
    if given.get("gpus") is not None:
        raise PlanError("--gpus", options.gpus, "and --sweep both say how many; give one")
    dimension = swept(asked.sweep)
    if dimension.name != "gpus":
        raise PlanError("--sweep", dimension.name, "must be gpus here, as in --sweep gpus=64..4096")
    counts = sorted(int(value.update["gpus"]) for value in dimension.values)
    if not 2 <= len(counts) <= _MOST_COUNTS:
        raise PlanError(
            "--sweep", asked.sweep, f"must name from 2 to {_MOST_COUNTS} numbers of GPUs"
        )
    return options, counts


def _target(
    asked: BatchOptions, options: Options, model: ModelSpec, seq_len: int, first: int
) -> Target:
    tokens = number(options, "tokens")
    assert tokens is not None
    critical = read(
        asked, seq_len=seq_len, parameters=float(active_parameter_count(model)), tokens=tokens
    )
    reference = float((asked.reference_batch or first) * seq_len)
    if reference > tokens:
        raise PlanError(
            "--tokens",
            options.tokens,
            f"are fewer than the {reference:,.0f} of one step; give those of the whole run",
        )
    return Target(critical, reference, tokens)


def batches_of(first_batch: int, first_gpus: int, gpus: int) -> list[int]:
    """Batches from that of the first count to the one grown in proportion: doublings, and the grown
    one last."""
    grown, rest = divmod(first_batch * gpus, first_gpus)
    if rest:
        raise PlanError(
            "--global-batch",
            first_batch,
            f"of {first_gpus} GPUs is no whole batch on {gpus}; give a multiple of "
            f"{first_gpus // math.gcd(gpus, first_gpus)}",
        )
    between = [first_batch * 2**k for k in range((grown // first_batch).bit_length())]
    return [*(one for one in between if one < grown), grown]


def _runs(
    options: Options,
    counts: Sequence[int],
    first: int,
    seq_len: int,
    target: Target,
    jobs: int,
    progress: Progress | None,
) -> list[_Run]:
    """Every count with every batch, each evaluated as `dpplan estimate` would with the tokens that
    its batch needs."""
    asked = []
    for gpus in counts:
        for size in batches_of(first, counts[0], gpus):
            steps = math.ceil(target.steps(float(size * seq_len)) * (1 - 1e-12))
            asked.append((gpus, size, steps, steps * size * seq_len))
    requests = [
        options.changed(gpus=gpus, global_batch=size, tokens=tokens)
        for gpus, size, _, tokens in asked
    ]
    points: list[Point] = answer(requests, jobs=jobs, progress=progress)
    return [_Run(*line, document(point)) for line, point in zip(asked, points, strict=True)]


# ------------------------------------------------------------------------------------------------ c


def _chosen(name: str, runs: Sequence[_Run], stretch: Mapping[int, float]) -> list[_Run]:
    """One run per number of GPUs, as the regime has it. stretch: days of a batch are so many times
    those of its run."""
    out = []
    for gpus in dict.fromkeys(one.gpus for one in runs):
        own = [one for one in runs if one.gpus == gpus]  # batches ascending
        if name == "best":
            fitting = [one for one in own if one.fits]
            own = (
                [min(fitting, key=lambda one: one.found["run"]["days"] * stretch[one.batch])]
                if fitting
                else own
            )
        out.append(own[0] if name == "strong" else own[-1])
    return out


def _curve(
    name: str, runs: Sequence[_Run], base: Target, target: Target, stop_below: float
) -> Report:
    """A regime followed over the GPUs. base: the target that the runs were evaluated for, from
    which `target` may differ."""
    per_step = {one.batch: one.tokens / one.steps for one in runs}
    stretch = {
        size: target.tokens_with(tokens) / base.tokens_with(tokens)
        for size, tokens in per_step.items()
    }
    points = [
        _point(one, per_step[one.batch], stretch[one.batch], target)
        for one in _chosen(name, runs, stretch)
    ]
    fitting = [p for p in points if p["fits"]]
    out: Report = {
        "title": REGIMES[name],
        "points": points,
        "pays_until": None,
        "stops_at": None,
        "critical_crossed_at": None,
        "accumulation_gone_at": None,
        "floor_days": None,
        "amdahl": None,
        "why": None,
    }
    if not fitting:
        return out
    scaling.follow(points, "useful_tokens_per_s")
    first = fitting[0]
    for p in fitting:
        p["gpu_time_factors"] = gpu_time_factors(first, p)
    out["pays_until"], out["stops_at"] = scaling.pays(points, stop_below)
    out["critical_crossed_at"] = next((p["value"] for p in fitting if p["of_critical"] > 1), None)
    out["accumulation_gone_at"] = next(
        (p["value"] for p in fitting if p["layout"]["grad_accum"] == 1), None
    )
    if name == "strong" and len(fitting) >= _FEWEST:
        out["amdahl"] = scaling.amdahl([(p["value"], p["step_seconds"]) for p in fitting])
    if name == "weak":
        free = min(
            p["step_seconds"] - p["exposed_s"] for p in fitting
        )  # more GPUs may have a faster layout
        out["floor_days"] = target.least_steps * free / max(p["goodput"] for p in fitting) / _DAY_S
    at = next(p for p in fitting if p["value"] == (out["stops_at"] or fitting[-1]["value"]))
    out["why"] = _why(first, at, out["stops_at"] is not None, stop_below)
    return out


def _point(one: _Run, tokens_per_step: float, stretch: float, target: Target) -> Report:
    out: Report = {
        "value": one.gpus,
        "global_batch": one.batch,
        "tokens_per_step": tokens_per_step,
        "of_critical": tokens_per_step / target.critical.tokens,
        "steps": one.steps * stretch,
        "tokens": one.tokens * stretch,
        "fits": one.fits,
        "command": one.found["command"],
    }
    if not one.fits:
        return out | {"why": one.found["refused"] or "does not fit"}
    step, run, layout = one.found["step"], one.found["run"], one.found["layout"]
    classes: dict[str, float] = {}
    for name, seconds in step["components"].items():
        classes[class_of(name)] = classes.get(class_of(name), 0.0) + seconds
    hidden = sum(
        seconds for name, seconds in step["hidden"].items() if class_of(name) == "communication"
    )
    exposed, compute = (
        classes.get("communication", 0.0),
        sum(classes.get(name, 0.0) for name in _COMPUTE),
    )
    days = run["days"] * stretch
    return out | {
        "step_seconds": step["seconds"],
        "tokens_per_s": one.found["throughput"]["tokens_per_s"],
        "days": days,
        "cost_usd": None if run["cost_usd"] is None else run["cost_usd"] * stretch,
        "goodput": run["goodput"],
        "useful_tokens_per_s": target.least_tokens / (days * _DAY_S),
        "exposed_s": exposed,
        "exposed_frac": exposed / step["seconds"],
        "communication_ratio": float(ratios.communication_ratio(exposed, hidden, compute)),
        "bottleneck": step["bottleneck"],
        "gpu_seconds_per_token": {
            name.replace(" ", "_"): one.gpus * seconds / tokens_per_step
            for name, seconds in classes.items()
        },
        "smallest_batch": int(formulas.global_batch(layout["micro_batch"], 1, layout["dp"])),
        "layout": layout,
        "stack": one.found["stack"],
    }


def gpu_time_factors(first: Report, here: Report) -> dict[str, float]:
    """GPU-time to the target over that at the first point, as factors whose product is the whole:
    one over the efficiency.

    tokens: the batch needs more of them; failures: less of the time advances the run; the others
    are parts of the step, whose GPU-seconds per token changed. Parts share the change of the step
    by the logarithmic mean, so that no order matters.
    """
    before, after = first["gpu_seconds_per_token"], here["gpu_seconds_per_token"]
    mean = float(ratios.log_mean_s(sum(after.values()), sum(before.values())))
    parts = {
        name: math.exp((after.get(name, 0.0) - before.get(name, 0.0)) / mean)
        for name in {**before, **after}
    }
    return {
        "tokens": here["tokens"] / first["tokens"],
        **parts,
        "failures": first["goodput"] / here["goodput"],
    }


def _why(first: Report, here: Report, stops: bool, stop_below: float) -> Report:
    """What makes GPU-time to the target grow from the first point to this one, the largest factor
    first."""
    factors = dict(sorted(here["gpu_time_factors"].items(), key=lambda x: -x[1]))
    main = next(iter(factors))
    whole = 1 / here["efficiency"]
    share = f"{100 * stop_below:g} % of one at {first['value']:,}"
    brings = (
        f"at {here['value']:,} GPUs an added one brings less than"
        if stops
        else (f"up to {here['value']:,} GPUs an added one brings at least")
    )
    named = [
        f"{_NAMES.get(name, name.replace('_', ' '))} x {factor:.2f}"
        for name, factor in factors.items()
        if abs(factor - 1) >= _SHOWN
    ]
    of = (
        f", at {here['of_critical']:.2g} critical batches a step"
        if factors["tokens"] >= 1 + _SHOWN
        else ""
    )
    made = f" ({', '.join(named)}{of})" if named else ""
    sentence = f"{brings} {share}: GPU-time to the target is {whole:.2f} times as much{made}"
    return {
        "at": here["value"],
        "stops": stops,
        "gpu_time_factor": whole,
        "factors": factors,
        "main": main,
        "sentence": sentence,
    }


_NAMES = {"tokens": "more tokens for the larger batch", "communication": "exposed communication"}


def _moved(runs: Sequence[_Run], base: Target, factor: float, stop_below: float) -> Report:
    """What becomes of the answer at the largest number of GPUs, were the critical batch so many
    times as large."""
    target = base.scaled(factor)
    out: Report = {"factor": factor, "critical_tokens": target.critical.tokens}
    for name in ("weak", "best"):
        curve = _curve(name, runs, base, target, stop_below)
        last = next((p for p in reversed(curve["points"]) if p["fits"]), None)
        out[name] = {
            "pays_until": curve["pays_until"],
            **{
                key: None if last is None else last[key]
                for key in ("value", "global_batch", "days", "cost_usd", "efficiency")
            },
        }
    return out


# ------------------------------------------------------------------------------------------------ b


def _rule(asked: BatchOptions, options: Options) -> Report:
    """The learning rate that the batches below start from, and which rule is for this optimizer."""
    linear = options.optimizer.startswith("sgd")
    return {
        "reference": asked.learning_rate,
        "rule": "linear" if linear else "root",
        "source": (
            "Goyal et al. 2017, arXiv 1706.02677: SGD"
            if linear
            else "Malladi et al. 2022, arXiv 2205.10287: Adam, RMSprop"
        ),
        "warmup_tokens": number(asked, "warmup"),
    }


def _batches(
    asked: BatchOptions, options: Options, runs: Sequence[_Run], target: Target, seq_len: int
) -> list[Report]:
    """Each batch once: its steps and tokens to the target, and learning rates by the rules, from 1
    where none is given."""
    warmup = _rule(asked, options)["warmup_tokens"]
    rate, out = asked.learning_rate or 1.0, []
    for one in sorted({run.batch: run for run in runs}.values(), key=lambda run: run.batch):
        tokens = float(one.batch * seq_len)
        at = (rate, tokens, target.reference_tokens)
        out.append(
            {
                "global_batch": one.batch,
                "tokens_per_step": tokens,
                "of_critical": tokens / target.critical.tokens,
                "steps": one.steps,
                "tokens": one.tokens,
                "tokens_factor": one.tokens / target.tokens,
                "least_tokens_factor": one.tokens / target.least_tokens,
                "least_steps_factor": one.steps / target.least_steps,
                "rates": {
                    "linear": float(formulas.linear_rate(*at)),
                    "root": float(formulas.root_rate(*at)),
                    "saturating": float(formulas.saturating_rate(*at, target.critical.tokens)),
                },
                "warmup_steps": None if warmup is None else math.ceil(warmup / tokens),
                "warmup_frac": None if warmup is None else warmup / one.tokens,
            }
        )
    return out


def _notes(
    asked: BatchOptions,
    options: Options,
    runs: Sequence[_Run],
    target: Target,
    seq_len: int,
    first: int,
) -> list[str]:
    critical: Critical = target.critical
    out = [
        f"critical batch {critical.tokens:,.0f} tokens: {critical.source}",
        (
            f"the run reaches its target with {target.tokens:,.0f} tokens in batches of"
            f" {target.reference_tokens:,.0f} (--tokens,"
            f" {'--reference-batch' if asked.reference_batch else '--global-batch'}); other batches"
            " by (S / S_min - 1) (E / E_min - 1) = 1 with rates tuned for each"
        ),
    ]
    if options.global_batch is None:
        out.append(
            f"global batch {first:,} sequences at the first count, near 4 Mi tokens (set"
            " --global-batch)"
        )
    largest = max(one.batch for one in runs) * seq_len
    if largest > LARGEST_TOKENS:
        out.append(
            f"the largest batch, {largest:,} tokens, is beyond the {LARGEST_TOKENS:,} of"
            " DeepSeek-V3, the largest of a language model among the published ones listed here"
            " (--json)"
        )
    return out


# ------------------------------------------------------------------------------------------------ f

_COLUMNS = (
    "value",
    "global_batch",
    "tokens_per_step",
    "of_critical",
    "steps",
    "tokens",
    "step_seconds",
    "days",
    "cost_usd",
    "goodput",
    "speed_up",
    "efficiency",
    "marginal_frac",
    "communication_ratio",
    "exposed_frac",
    "bottleneck",
)


def csv_text(out: Report) -> str:
    """One line per regime and number of GPUs: figures, factors of GPU-time, layout, and the command
    that asks for it alone."""
    points = [(name, p) for name, curve in out["regimes"].items() for p in curve["points"]]
    factors = list(
        dict.fromkeys(name for _, p in points if p["fits"] for name in p["gpu_time_factors"])
    )
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    header = ["gpus" if name == "value" else name for name in _COLUMNS]
    writer.writerow(
        [
            "regime",
            "fits",
            "why",
            *header,
            *(f"factor_{name}" for name in factors),
            "stack",
            "layout",
            "command",
        ]
    )
    for name, p in points:
        cells = ["" if (value := p.get(key)) is None else value for key in _COLUMNS]
        shares = [p["gpu_time_factors"].get(one, 1.0) if p["fits"] else "" for one in factors]
        where = [p["stack"], layout_text(p["layout"])] if p["fits"] else ["", ""]
        writer.writerow([name, p["fits"], p.get("why", ""), *cells, *shares, *where, p["command"]])
    return buffer.getvalue()
