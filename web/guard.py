"""What every request passes: sizes, headers, and one shape of error."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from planner.specs.base import PlanError
from planner.specs.document import to_json
from planner.specs.documents.error import Problem
from web import limits

# styles inline: plotly sets them on what it draws; scripts never
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
    " blob:; connect-src 'self'; font-src 'self'; form-action 'self'; base-uri 'none';"
    " frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
HEADERS = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]


def problem(field: str, value: object, remedy: str) -> Problem:
    """The document of a wrong request."""
    shown = None if value is None else str(value)[:200]
    return Problem(field, shown, str(PlanError(field, shown, remedy)))


class Guard:
    """Refuses what is too large before anything reads it, and adds the headers of a strict page."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *HEADERS]}
            await send(message)

        if len(scope.get("query_string", b"")) > limits.MAX_QUERY_BYTES:
            await _refuse(
                send_with,
                414,
                "request",
                f"the address is longer than {limits.MAX_QUERY_BYTES:,} bytes; post it instead",
            )
            return
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limits.MAX_BODY_BYTES:
            await _refuse(
                send_with,
                413,
                "request",
                f"is larger than the {limits.MAX_BODY_BYTES:,} bytes that are read",
            )
            return
        seen = 0

        async def receive_some() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b"")) if message["type"] == "http.request" else 0
            if seen > limits.MAX_BODY_BYTES:
                raise TooLarge
            return message

        try:
            await self.app(scope, receive_some, send_with)
        except TooLarge:
            await _refuse(
                send_with,
                413,
                "request",
                f"is larger than the {limits.MAX_BODY_BYTES:,} bytes that are read",
            )


class TooLarge(Exception):
    """A body that states no length and does not end."""


async def _refuse(send: Send, status: int, field: str, remedy: str) -> None:
    body = to_json(problem(field, None, remedy)).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
