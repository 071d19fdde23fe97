"""Names of hosts as an address bar has them: names that a server answers to, and the name in a
request."""

from __future__ import annotations

import ipaddress
import re

_LABELS = re.compile(r"[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]*[a-z0-9_])?)*")
_LONGEST = 253  # characters of a name: RFC 1035, section 2.3.4, as text
_WITH_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:\[\]]*)(:\d{1,5})?")


def host_name(text: str) -> str:
    """A name or an IP address in one spelling, without port. Raises ValueError with a sentence."""
    bare = text[1:-1] if text[:1] == "[" and text[-1:] == "]" else text
    if ":" in bare:
        try:
            return ipaddress.IPv6Address(bare).compressed
        except ValueError:
            pass
    name = bare.lower().removesuffix(".")
    if len(name) > _LONGEST or not _LABELS.fullmatch(name):
        raise ValueError(
            "is not a name of a host; give one name or IP address, without scheme, port or *"
        )
    return name


def is_loopback(name: str) -> bool:
    """Whether a name, as `host_name` has it, is the loopback: RFC 6761, section 6.3."""
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def asked_host(header: str) -> str:
    """The host of a Host header, without its port. Raises ValueError with a sentence."""
    match = _WITH_PORT.fullmatch(header)
    if match is None:
        raise ValueError("is not a name of a host with or without a port")
    return host_name(match["host"])
