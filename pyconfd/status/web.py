"""What a browser needs of the status page: its files, HTML only for who asks for it, nothing twice that is the same."""

from functools import cache
from gzip import compress
from hashlib import blake2b
from http import HTTPStatus
from importlib.resources import files

TEXT = "/status.txt"
"""What ``/`` is for a program that asks for no HTML, as curl does."""

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere and nothing inline; the icon of the page is in its head."""

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript"}
_FILES = {
    "/": "index.html",
    "/page.css": "page.css",
    "/page.js": "page.js",
    "/uPlot.css": "uPlot.min.css",
    "/uPlot.js": "uPlot.iife.min.js",
}


_WORTH_PACKING = 16 * 1024


@cache
def page_file(path: str) -> tuple[str, bytes] | None:
    """Return the content type and the bytes of a file of the page; None for any other path."""
    name = _FILES.get(path)
    if name is None:
        return None
    body = files("pyconfd.status").joinpath("static", name).read_bytes()
    return f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8", body


def chosen(path: str, accept: str) -> str:
    """Return the path of what answers: ``/`` is HTML only where it is asked for."""
    return TEXT if path == "/" and "text/html" not in accept.lower() else path


def packed(body: bytes, accept_encoding: str) -> bytes | None:
    """Return ``body`` compressed, for who may be at the far end of a thin line; None where that is not worth it."""
    if len(body) < _WORTH_PACKING or "gzip" not in accept_encoding.lower():
        return None
    return compress(body, 1, mtime=0)


def etag_of(body: bytes) -> str:
    """Return what stands for these bytes."""
    return f'"{blake2b(body, digest_size=16).hexdigest()}"'


def is_known(code: HTTPStatus, etag: str, if_none_match: str) -> bool:
    """Return whether the client has this answer already, so that it gets 304 without a body."""
    known = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return code is HTTPStatus.OK and etag in known
