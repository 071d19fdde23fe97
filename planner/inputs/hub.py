"""config.json of a model on the Hugging Face Hub: from its cache, else over the network, which is
tried for a moment before the client's own retries begin."""

from __future__ import annotations

import re
import threading
from pathlib import Path

from planner.specs.base import PlanError

FILE = "config.json"
_NAME = re.compile(r"\w[\w.-]{0,95}/\w[\w.-]{0,95}")
_REACH_S = (
    1.5  # timeout of name resolution and connection, beyond which the machine counts as offline
)
_ANSWER_S = 5.0  # within which the Hub must answer


def is_name(name: str) -> bool:
    """Whether a text reads as org/name, and as no file."""
    return _NAME.fullmatch(name) is not None and not name.endswith((".json", ".yaml", ".yml"))


def config_of(name: str, given: str, known: str) -> Path:
    """config.json of org/name.

    given: as it was typed; known: the name of this very model in the catalogue, "" where it is not
    there. Raises PlanError with what to install or do.
    """
    no_file = "" if ":" in given else "is not a file, and "
    url = f"https://huggingface.co/{name}/resolve/main/{FILE}"
    remedy = f"download {url} and give its path"
    if known:
        remedy += f", or take --model {known}, this very model in the catalogue"
    try:
        from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache
    except ImportError:
        raise PlanError(
            "--model",
            given,
            f"{no_file}reading it from the Hugging Face Hub needs huggingface_hub: install"
            f" dpplan[hub], or {remedy}",
        ) from None
    try:
        cached = try_to_load_from_cache(name, FILE)
    except ValueError as error:  # no name that the Hub gives
        raise PlanError("--model", given, f"is not a name of the Hub ({error})") from None
    if isinstance(cached, str):
        return Path(cached)
    if constants.HF_HUB_OFFLINE or not _is_reached(constants.ENDPOINT):
        why = (
            "HF_HUB_OFFLINE is set"
            if constants.HF_HUB_OFFLINE
            else "the Hugging Face Hub is not reached"
        )
        raise PlanError(
            "--model", given, f"{no_file}{why}, and its cache has no such model: {remedy}"
        )
    try:
        return Path(hf_hub_download(name, FILE, etag_timeout=_ANSWER_S))
    # permission, unknown repository, a broken connection: whatever the client raises is the user's
    # to read
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise PlanError("--model", given, f"cannot be fetched ({reason}): {remedy}") from None


def _is_reached(endpoint: str) -> bool:
    """Whether the server, or the proxy to it, opens a connection within a moment. Resolving a name
    knows no time limit, so it is waited for in a thread."""
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(endpoint)
    host = parts.hostname or ""
    proxy = getproxies().get(parts.scheme)
    if proxy and not proxy_bypass(host):
        parts = urlsplit(proxy if "//" in proxy else f"//{proxy}")
    address = (parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443))
    reached: list[bool] = []

    def connect() -> None:
        try:
            socket.create_connection(address, timeout=_REACH_S).close()
        except OSError:
            return
        reached.append(True)

    trial = threading.Thread(target=connect, daemon=True)
    trial.start()
    trial.join(_REACH_S)
    return bool(reached)
