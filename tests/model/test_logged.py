"""What a line of the access log says."""

import json
from typing import Any

import pytest

from pyconfd.model.logged import AskedFor, LoggedRequest, UnreadableLine, asked_for, parse

REQUEST: dict[str, Any] = {
    "time": 1795856913.292, "client": "192.0.2.7", "client_port": 59344, "method": "GET", "host": "shop.example.com",
    "path": "/cart", "version": "HTTP/1.1",
    "status": 200, "bytes": 56, "idle_ms": 0, "request_ms": 0, "queue_ms": 1, "connect_ms": 2,
    "response_ms": 3, "total_ms": 6, "retries": "+1", "end": "--", "id": "1", "tls": "TLSv1.3", "sni": "",
    "listener": "f", "object": "Ingress/shop/cart", "backend": "b",
    "server": "cart-1:10.0.0.1:80",
}  # fmt: skip


def logged(**more: Any) -> LoggedRequest:
    found = parse(json.dumps({**REQUEST, **more}).encode())
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("--", ""),
        ("LR", "HAProxy answered it itself"),
        ("PR", "HAProxy refused it"),
        ("CD", "the client closed the connection while data went to and fro"),
        ("SC", "the server refused or closed the connection while HAProxy connected to the server"),
        ("sH", "the server sent nothing in time before the response began"),
        ("cR", "the client sent nothing in time before the request was complete"),
        ("sQ", "the server sent nothing in time while it waited for a free server"),
        ("D-", "the server went down"),
        ("", ""),
        ("??", ""),
    ],
)
def test_why_it_ended_is_said_in_words(end: str, why: str) -> None:
    assert logged(end=end).why == why


def test_a_request_without_a_server_was_refused_by_none() -> None:
    assert logged(end="SC", server="<NOSRV>").why == "no server took it: the backend has none that is up"
    assert logged(end="sQ", server="<NOSRV>").why.startswith("the server sent nothing in time")


@pytest.mark.parametrize(
    ("server", "pod"),
    [
        ("cart-1:10.0.0.1:80", "cart-1"),
        ("cart-1:fd00::1:80", "cart-1"),
        ("10.0.0.1:80", ""),
        ("_:fd00::1:80", ""),
        ("<NOSRV>", ""),
        ("", ""),
    ],
)
def test_the_name_of_a_server_says_which_pod_it_is(server: str, pod: str) -> None:
    assert logged(server=server).pod == pod


def test_a_connection_has_no_request() -> None:
    line = {name: value for name, value in REQUEST.items() if name not in {"method", "host", "path", "status", "id"}}
    found = parse(json.dumps({**line, "object": ""}).encode())
    assert found is not None
    assert (found.method, found.status, found.object) == ("", 0, "")


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"Server be/s is DOWN", b'{"time": 1}', b'{"time":"\xff"}'])
def test_what_is_no_line_of_the_shipped_fragments_is_left_out(line: bytes) -> None:
    assert parse(line) is None


_TEXT = (
    b"192.0.2.7:1234 [29/Nov/2026:06:20:20.123] {listener} b/s:10.1.1.1:80 0/0/0/1/1 200 123 - - ---- 1/1/0/0/0 0/0 "
)


def text(listener: bytes, request: bytes) -> bytes:
    return _TEXT.replace(b"{listener}", listener) + b'"' + request + b'"'


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (json.dumps(REQUEST).encode(), ("f", "GET", "shop.example.com", "/cart", "TLSv1.3", "", "b")),
        (
            b"Nov 29 06:20:20 lb haproxy[7]: " + json.dumps({**REQUEST, "path": "/\x1b["}).encode(),
            ("f", "GET", "shop.example.com", "/\x1b[", "TLSv1.3", "", "b"),
        ),
        (b'{"listener": "tcp", "client": "192.0.2.7"}', ("tcp", "", "", "", "", "", "")),
        (
            text(b"https-terminate~", b"GET https://Shop.example.com.:8443/a?b={c} HTTP/2.0"),
            ("https-terminate", "GET", "shop.example.com", "/a?b={c}", "TLS", "shop.example.com", "b"),
        ),
        (text(b"http-in", b"GET http://[2001:db8::1] HTTP/2.0"), ("http-in", "GET", "[2001:db8::1]", "/", "", "", "b")),
        (text(b"http-in", b"GET http://a?b HTTP/2.0"), ("http-in", "GET", "a", "/?b", "", "", "b")),
    ],
)
def test_what_a_line_asked_for(line: bytes, asked: tuple[str, ...]) -> None:
    found = asked_for(line)
    assert isinstance(found, AskedFor)
    assert (found.listener, found.method, found.host, found.path, found.tls, found.sni, found.backend) == asked


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"", "neither JSON"),
        (b"\x1b]0;title\x07 {", "not a line of the shipped log format"),
        (b"{" * 60_000, "not a line of the shipped log format"),
        (b'{"listener": "f", "path": "\xff"}', "not a line of the shipped log format"),
        (b'{"listener": 7}', "not a line of the shipped log format"),
        (b'{"time": 1}', "not a line of the shipped log format"),
        (text(b"http-in", b"GET /cart HTTP/1.1"), "no host"),
        (text(b"http-in", b"<BADREQ>"), "no host"),
        (json.dumps({**REQUEST, "path": "/" + 1023 * "a"}).encode(), "may be cut"),
        (json.dumps({**REQUEST, "path": "/" + 512 * "\u00e9"}).encode(), "may be cut"),
    ],
)
def test_a_line_that_does_not_say_what_was_asked_for(line: bytes, why: str) -> None:
    with pytest.raises(UnreadableLine, match=why):
        asked_for(line)
