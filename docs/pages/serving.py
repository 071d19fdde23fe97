"""Block of SECURITY.md: the limits of the server, from the code that holds them."""

from __future__ import annotations

from pages.text import table
from web import limits


def _count(value: float) -> str:
    return f"{value:,.0f}"


def limits_of() -> str:
    """The limits of one request, of its work, of a connection, of all."""
    sizes = [
        ("GPUs of a request", _count(limits.MAX_GPUS), "422"),
        ("address, bytes", _count(limits.MAX_QUERY_BYTES), "414"),
        ("line and headers of a request, bytes", _count(limits.HEAD_BYTES), "431"),
        ("body, bytes", _count(limits.MAX_BODY_BYTES), "413"),
        ("files dropped on a page, bytes together", _count(limits.MAX_UPLOAD_BYTES), "413"),
        ("of them", _count(limits.MOST_FILES), "422"),
        ("requests with files at once", _count(limits.MOST_UPLOADS), "wait, then 429"),
        ("pasted model, calibration, bytes", _count(limits.MAX_CONFIG_BYTES), "422"),
        ("scenario file, bytes", _count(limits.MAX_SCENARIO_BYTES), "422"),
        ("layouts listed by a search", _count(limits.MAX_TOP), "422"),
        ("answer, bytes", _count(limits.MAX_ANSWER_BYTES), "422"),
    ]
    work = [
        ("seconds of an estimate", f"{limits.LIGHT_S:g}", "422, its process ends"),
        ("seconds of a search or sweep", f"{limits.HEAVY_S:g}", "422, its process ends"),
        ("memory of a worker, GiB", f"{limits.WORKER_BYTES / 2**30:g}", "422"),
        ("workers for estimates, and for searches", f"one per core, {limits.MOST_WORKERS}", "wait"),
        ("requests that wait for each kind", _count(limits.MOST_WAITING), "429"),
    ]
    owed = [
        ("seconds for the head of a request", f"{limits.HEAD_S:g}", "408, closed"),
        ("seconds for its body", f"{limits.BODY_S:g}", "408, closed"),
        ("seconds between two requests", f"{limits.IDLE_S:g}", "closed"),
        (f"seconds to take {_count(limits.SEND_BYTES)} bytes", f"{limits.SEND_S:g}", "closed"),
        ("untaken answers of all, bytes", _count(limits.UNSENT_BYTES), "the largest is closed"),
        ("connections", _count(limits.CONNECTIONS), "the longest silence makes room, else 503"),
        ("connections of one address", _count(limits.ADDRESS_CONNECTIONS), "likewise"),
        ("seconds to finish after the request to stop", f"{limits.CLOSING_S:g}", "503, or cut off"),
    ]
    return table(("limit", "at most", "beyond it"), [*sizes, *work, *owed])
