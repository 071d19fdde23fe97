"""`dpplan serve`: the planner over HTTP."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec

from planner.error import PlanError
from planner.specs.hosts import host_name, is_loopback
from planner.specs.options.commands import ServeOptions

_TOKEN = "DPPLAN_TOKEN"
_TOKEN_CHARACTERS = 16  # at least, so that it cannot be guessed
_BACKLOG = 512  # connections that wait to be taken
_WHY = {
    errno.EADDRINUSE: ("--port", "is in use; name another, or end what listens there"),
    errno.EACCES: ("--port", "is not permitted to this user; name one above 1023"),
    errno.EADDRNOTAVAIL: ("--host", "is not an address of this machine"),
}


def command(options: ServeOptions) -> None:
    """Serve the dashboard and the JSON API on this machine."""
    for name in ("fastapi", "uvicorn"):
        if find_spec(name) is None:
            raise PlanError("serve", name, "is not installed; install dpplan[web]")
    token = _token(options.token_file)
    _check_names(options)
    sockets = bound(options.host, options.port)
    server = import_module("web.server")  # by name: it stands on a floor above
    near = _is_near(options.host)
    name = options.host if near else options.allow_host[0]
    shown = f"[{name}]" if ":" in name else name
    print(f"dpplan serves http://{shown}:{options.port}/ (Ctrl+C ends it)", file=sys.stderr)
    if not near:
        asks = "asks for its token" if token else "has no password"
        print(f"others on the network can reach it: it {asks}, and stores nothing", file=sys.stderr)
    server.run(sockets, frozenset(options.allow_host), token)


def _check_names(options: ServeOptions) -> None:
    """Beyond this machine a server must know its names, or any page could have one made for it."""
    if not options.allow_host and not _is_near(options.host):
        raise PlanError(
            "--host",
            options.host,
            "is reached from other machines: name with --allow-host each name or IP address that"
            " their browsers have in the address bar",
        )


def _is_near(host: str) -> bool:
    try:
        return is_loopback(host_name(host))
    except ValueError:
        return False


def bound(host: str, port: int) -> list[socket.socket]:
    """Sockets that listen on every address of a host. Raises PlanError."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise PlanError("--host", host, "is not an address or name that resolves here") from None
    sockets: list[socket.socket] = []
    failed: list[OSError] = []
    for family, address in dict.fromkeys(
        (address_info[0], address_info[4]) for address_info in addresses
    ):
        try:
            sockets.append(socket.create_server(address, family=family, backlog=_BACKLOG))
        except OSError as error:
            failed.append(error)
    # a machine without IPv6 has localhost twice and one of them only
    serious = [error for error in failed if error.errno in (errno.EADDRINUSE, errno.EACCES)]
    if serious or not sockets:
        for bound_socket in sockets:
            bound_socket.close()
        raise _refused([*serious, *failed], host, port)
    return sockets


def _refused(failed: Iterable[OSError], host: str, port: int) -> PlanError:
    error = next(iter(failed))
    option, remedy = _WHY.get(
        error.errno or 0, ("--host", f"cannot be listened on: {os.strerror(error.errno or 0)}")
    )
    return PlanError(option, port if option == "--port" else host, remedy)


def _token(path: str | None) -> str | None:
    """The token of --token-file, else of the environment, from where the workers shall not have it.
    It is in no message. Raises PlanError."""
    given = os.environ.pop(_TOKEN, None)
    where, value = ("--token-file", path) if path is not None else (_TOKEN, None)
    if path is not None:
        from planner.inputs.catalog import read_text, user_path

        given = read_text(user_path(path, where), where)
    if given is None:
        return None
    token = given.strip()
    if len(token) < _TOKEN_CHARACTERS or not token.isascii() or not token.isprintable():
        raise PlanError(
            where,
            value,
            f"must hold {_TOKEN_CHARACTERS} or more printable ASCII characters, such as"
            " `openssl rand -hex 32` prints",
        )
    return token
