"""Blocks of the page on advice: offloading against recompute on several machines, and what can be
required."""

from __future__ import annotations

from pages.text import table

# one node each: model, GPU, GPUs, stack, ZeRO stage, micro-batch; Megatron-Core copies beside the
# computation, FSDP in turn
_CASES = (
    ("llama-2-7b", "rtx4090", 8, "pytorch-fsdp", 3, 1),
    ("llama-2-7b", "a100", 8, "pytorch-fsdp", 3, 1),
    ("llama-2-7b", "a100", 8, "megatron-core", 1, 1),
    ("llama-2-7b", "h100", 8, "megatron-core", 1, 1),
    ("llama-2-7b", "gh200", 8, "megatron-core", 1, 1),
    ("llama-2-7b", "a100", 8, "deepspeed", 2, 1),
)
_NOTHING_S = 1e-6  # what is rounding


def offload() -> str:
    """Seconds that recompute and offloading over several links add to one step, evaluated."""
    from planner import api
    from planner.units import show

    rows = []
    for model, gpu, gpus, stack, zero, micro in _CASES:
        options = api.Options(
            model=model,
            gpu=gpu,
            gpus=gpus,
            stack=stack,
            zero=zero,
            micro_batch=micro,
            tp=1,
            pp=1,
            cp=1,
            recompute="none",
            advice=0,
        )
        comparison = api.explain(options)[0].offload
        start = comparison.choices[0].step_seconds - comparison.choices[0].step_change_s
        by_what: dict[str, dict[str, str]] = {}
        saved: dict[str, str] = {}
        for choice in comparison.choices:
            links = by_what.setdefault(choice.what, {})
            added = choice.step_change_s
            links[choice.link or comparison.link] = (
                f"+{show(added, 's')}" if added > _NOTHING_S else "0 s"
            )
            saved[choice.what] = show(choice.bytes_saved, "B")
        for label, links in by_what.items():
            each = [links.get(name, "") for name in ("pcie3", "pcie4", "pcie5", "nvlink-c2c")]
            each = [
                f"**{text}**" if text and name == comparison.link else text
                for name, text in zip(("pcie3", "pcie4", "pcie5", "nvlink-c2c"), each, strict=True)
            ]
            rows.append(
                [f"{gpus} x {gpu}", stack, f"{show(start, 's')}", label, saved[label], *each]
            )
    header = [
        "GPUs",
        "stack",
        ">step with neither",
        "what",
        ">memory saved",
        ">PCIe 3",
        ">PCIe 4",
        ">PCIe 5",
        ">NVLink-C2C",
    ]
    return (
        f"{_CASES[0][0]}, one sequence per micro-batch; bold: the host link of this GPU.\n\n"
        + table(header, rows)
    )


def requirements() -> str:
    """Quantities of `--require`."""
    from planner.report.require import QUANTITIES

    rows = [["`fits`", "", "", "device and host memory suffice"]]
    for name, q in QUANTITIES.items():
        unit = "share" if q.unit == "1" else q.unit
        rows.append(
            [
                f"`{name}`",
                unit + (" or %" if q.whole is not None else ""),
                "yes" if q.has_band else "",
                q.meaning,
            ]
        )
    return table(["quantity", "unit", ".low, .high", "meaning"], rows)
