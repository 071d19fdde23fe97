"""Every English sentence of the page, by key. Sentences of the planner (rules, help) comes
from the planner."""

from __future__ import annotations

TEXTS: dict[str, str] = {
    "title": "dpplan",
    "tagline": "Does it train, how fast, for how much, and why",
    "skip_inputs": "Skip to the inputs",
    "skip_answer": "Skip to the answer",
    "inputs": "Inputs",
    "answer": "Answer",
    "pictures": "Pictures",
    "estimate": "Estimate",
    "reset": "Start again",
    "theme": "Theme",
    "theme_auto": "Theme: as the system",
    "theme_light": "Theme: light",
    "theme_dark": "Theme: dark",
    "print": "Print",
    "share": "Copy link",
    "shared": "Link copied",
    "compare": "Compare",
    "compare_add": "Add to comparison",
    "compare_open": "Compare {count}",
    "compare_clear": "Clear",
    "compare_full": "Four scenarios are the most; clear the comparison first",
    "compare_title": "Scenarios side by side",
    "compare_none": (
        "Nothing to compare yet. Add scenarios on the first page, or give each as a, b, c, d in the"
        " address."
    ),
    "compare_base": "the first",
    "back": "Back to the estimate",
    "export": "Export",
    "export_title": "Take it along",
    "export_command": "Command with the same options",
    "export_toml": "Scenario file for --scenario",
    "export_json": "JSON document",
    "export_csv": "Tables as CSV",
    "export_model": "The pasted model",
    "export_calibration": "The calibration",
    "export_html": (
        "Print this page, or make a page that opens without a network: {command} --html report.html"
    ),
    "copy": "Copy",
    "copied": "Copied",
    "download": "Download",
    "explain": "Explain",
    "explain_title": "Where the numbers come from",
    "explain_lead": (
        "Every formula with what went in and out, for this layout. Open a line for its equation and"
        " source."
    ),
    "explain_machine": "Numbers of the machine",
    "explain_number": "How this number is made",
    "close": "Close",
    "save": "Save scenario",
    "saved": "Saved scenarios",
    "saved_none": "None saved in this browser",
    "saved_name": "Name of the scenario",
    "saved_load": "Load",
    "saved_delete": "Delete",
    "scenario_file": "Load a scenario file",
    "scenarios": "Scenarios",
    "model": "Model",
    "group_calibration": "Calibration",
    "config": "Paste a config.json or a model TOML",
    "config_hint": "It stays in the address of this page and is never stored.",
    "config_file": "Or choose a file",
    "config_chosen": "the pasted model",
    "calibration": "Paste a calibration file",
    "calibration_hint": "From dpplan calibrate, or written by hand. Never stored.",
    "calibration_title": "What the calibration changes",
    "calibration_step": "Step time without it {before}, with it {after}.",
    "clear_text": "Clear",
    "auto": "auto",
    "auto_is": "auto ({value})",
    "usual": "usual",
    "more": "More",
    "yes": "yes",
    "no": "no",
    "not_possible": "not possible",
    "fits": "It fits",
    "may_not_fit": "It may not fit",
    "probably_does_not_fit": "It probably does not fit",
    "does_not_fit": "It does not fit",
    "family_not_fits": "does not fit",
    "fits_detail": "{used} of {capacity} per GPU, {free} free, chance to fit {chance}",
    "short_detail": "{used} needed, {capacity} there: {short} short, chance to fit {chance}",
    "tighter": (
        "{faster} faster at more risk (memory left free: 0%): {layout}, chance to fit {chance}"
    ),
    "chance_basis": "Chance to fit: {basis}.",
    "host_short": "Host memory is short: {need} per GPU is more than the node has",
    "nvme_short": "NVMe drives are short: {need} per GPU is more than the node has",
    "card_step": "Step",
    "card_band": "80 % band {low} to {high}",
    "card_tokens": "Throughput",
    "card_per_gpu": "{value} tokens/s per GPU",
    "card_mfu": "MFU",
    "card_hfu": "HFU {value}; causal FLOP",
    "card_memory": "Memory per GPU",
    "card_worst": "fullest: stage {stage}, {phase}",
    "card_days": "Training time",
    "card_days_sub": "{tokens} tokens, goodput {goodput}",
    "card_days_none": "set the tokens of the run",
    "card_cost": "Cost",
    "card_cost_sub": "{usd} USD per GPU-hour, {source}",
    "price": "price of a GPU-hour",
    "prices_differ": "These amounts are of different kinds of price; set the market or the price to"
    " compare like with like.",
    "card_cost_none": "{why}; set one",
    "card_energy": "Energy",
    "layout": "Layout",
    "parameters": "parameters",
    "with": "on",
    "band_basis": "Band: {basis}.",
    "convention": "MFU counts {convention}.",
    "advice": "What to change, what brings most first",
    "advice_wait": "Looking for changes that help …",
    "advice_none": "No single change tried makes it at least 1 % faster.",
    "advice_none_fits": "No change tried makes it fit.",
    "advice_apply": "Apply",
    "advice_step": "step {step} ({change})",
    "advice_fits_step": "fits, step {step}",
    "advice_saved": "saves {bytes} per GPU",
    "advice_more": "takes {bytes} more per GPU",
    "advice_link": "Show them",
    "families": "Best of each family, from replicas to the most divided",
    "family": "family",
    "memory": "memory",
    "why_not": "layout, or why not",
    "stack": "stack",
    "use": "Use",
    "rests": "What this rests on",
    "rests_share": (
        "The step time depends {measured} on measured, {vendor} on vendor and {assumed} on assumed"
        " numbers."
    ),
    "assumptions": "Assumptions",
    "communication": "Communication per step, longest first",
    "table": "Table",
    "chart_png": "PNG",
    "chart_svg": "SVG",
    "chart_csv": "CSV",
    "chart_download": "Download {title} as {kind}",
    "chart_compute": "Compute this chart",
    "chart_wait": "Computing …",
    "chart_stage": "Stage",
    "chart_of": "Chart: {title}",
    "chart_select": "Fix",
    "chart_no_script": "Charts are drawn with JavaScript; the table has the same numbers.",
    "error": "This cannot be answered",
    "error_back": "Change an input, or go back.",
    "busy": "The server is busy: too many requests wait. Try again in a moment.",
    "fault": "The server failed on this request: a fault of its own. Its log says more.",
    "unstarted": (
        "The server could not start a worker process: its machine may be out of memory or"
        " processes. Try again later."
    ),
    "ended": (
        "The worker process of this request was ended from outside, as a machine does that is out"
        " of memory. Try again in a moment."
    ),
    "updating": "Updating",
    "ready": "Up to date: {step}, {verdict}",
    "offline": "The server does not answer. Is dpplan serve still running?",
    "api": "API",
    "foot": (
        "The same numbers as dpplan estimate, from the same functions. Nothing is sent anywhere but"
        " to this server."
    ),
    "panel_pareto": "Time against memory of all layouts",
    "panel_scaling": "Scaling over GPUs",
    "panel_roofline": "Roofline of this layout",
    "panel_schedule": "Pipeline schedule",
    "panel_crossover": "All-reduce by message size",
    "panel_measured": "Predicted against measured",
    "api_title": "The API",
    "api_lead": (
        "Public, the same documents as --json on the command line. The schema is at /openapi.json."
    ),
}


def text(key: str, **values: object) -> str:
    """A sentence with its values."""
    return TEXTS[key].format(**values) if values else TEXTS[key]
