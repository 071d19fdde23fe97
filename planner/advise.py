"""What to change: candidate requests for a plan that does not fit or is slow. Each is evaluated before it is called advice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.specs.options import LAYOUT_OPTIONS, Options, flag

_MAX_GPUS = 1_000_000
_FEW = 3  # fixed options that are freed one by one although the plan fits


@dataclass(frozen=True)
class Change:
    """A request that differs from the user's in `update`."""

    text: str
    update: dict[str, Any]


def fixed_layout(options: Options) -> list[str]:
    """Layout options that the user fixed."""
    return [name for name in LAYOUT_OPTIONS if getattr(options, name) is not None]


def candidates(options: Options, fits: bool) -> list[Change]:
    """Changes worth evaluating: free what was fixed; where nothing fits, also save memory or add GPUs."""
    fixed = fixed_layout(options)
    changes = []
    if len(fixed) > 1:
        changes.append(Change("leave out all layout options (search them)", dict.fromkeys(fixed)))
    if not fits or len(fixed) <= _FEW:  # each is a search of its own
        changes += [Change(f"leave out {flag(name)} (search it)", {name: None}) for name in fixed]
    if fits:
        return changes
    if options.recompute not in (None, "full"):
        changes.append(Change("recompute full", {"recompute": "full"}))
    if options.offload is None:
        alone = {**dict.fromkeys(("tp", "pp", "vpp", "cp", "ep", "schedule", "sequence_parallel", "stack")), "zero": 3}
        changes.append(Change("ZeRO-3, optimizer offloaded to host memory", {**alone, "offload": "optimizer"}))
        changes.append(Change("ZeRO-3, optimizer and parameters offloaded to host memory", {**alone, "offload": "params"}))
    changes += [
        Change(f"{factor}x the GPUs ({options.gpus * factor:,})", {"gpus": options.gpus * factor, "global_batch": None})
        for factor in (2, 4, 8, 16, 64, 256)
        if options.gpus * factor <= _MAX_GPUS
    ]
    return changes


def command_line(options: Options, verb: str = "estimate") -> str:
    """The command that asks for these options."""
    words = ["dpplan", verb]
    for name in type(options).model_fields:
        value = getattr(options, name)
        default = type(options).model_fields[name].default
        if value is None or value == default:
            continue
        if isinstance(value, bool):
            words.append(flag(name) if value else "--no-" + name.replace("_", "-"))
        else:
            for one in value if isinstance(value, tuple) else (value,):
                text = str(one)
                words += [flag(name), f"'{text}'" if " " in text else text]
    return " ".join(words)
