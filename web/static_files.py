"""Files of the page: read once, compressed once, named by their content. A name that is not in the
folder is not found."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from planner import plugins, views

FOLDER = Path(__file__).parent / "static"
_SHARED = Path(views.__file__).parent / "templates" / "picture.css"  # of reports, too
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_SUFFIXES = (".js", ".css", ".svg")
_IMPORT = re.compile(rb"""((?:from|import)\s*\(?)"(\./[\w./-]+\.js)\"""")


@dataclass(frozen=True)
class File:
    """One file as it is sent."""

    content: bytes
    packed: bytes
    kind: str
    tag: str


@cache
def files() -> dict[str, File]:
    """Every file by its name below web/static, of the page and of the parts. Modules name each
    other with their tags: new and old never mix."""
    contents = {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for folder in (FOLDER, *plugins.folders("web/static"))
        for p in sorted(folder.rglob("*"))
        if p.suffix in _SUFFIXES
    }
    contents[_SHARED.name] = _SHARED.read_bytes()
    digest = hashlib.sha256(
        b"".join(contents[name] for name in sorted(contents) if not name.startswith("vendor/"))
    ).hexdigest()[:12]
    out = {}
    for name, content in contents.items():
        if name.endswith(".js") and "/" not in name:
            content = _IMPORT.sub(
                lambda m: m[1] + b'"' + m[2] + b"?v=" + digest.encode() + b'"', content
            )
        tag = hashlib.sha256(content).hexdigest()[:12] if name.startswith("vendor/") else digest
        kind = (
            _TYPES.get(Path(name).suffix)
            or mimetypes.guess_type(name)[0]
            or "application/octet-stream"
        )
        out[name] = File(content, gzip.compress(content, 6, mtime=0), f"{kind}; charset=utf-8", tag)
    return out


def url(name: str) -> str:
    """Address of a file, with the tag of its content."""
    return f"/static/{name}?v={files()[name].tag}"


def response(request: Request, name: str) -> Response:
    """The file, compressed where the browser takes it; 404 for anything else."""
    file = files().get(name)
    if file is None:
        return Response("no such file", status_code=404, media_type="text/plain")
    headers = {"ETag": f'"{file.tag}"', "Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
    if request.query_params.get("v") == file.tag:
        headers["Cache-Control"] = "public, max-age=31536000, immutable"
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            file.packed, headers={**headers, "Content-Encoding": "gzip"}, media_type=file.kind
        )
    return Response(file.content, headers=headers, media_type=file.kind)
