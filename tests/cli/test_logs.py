"""Which requests ``pyconfd logs`` prints, and how."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pyconfd.app.request_lines import line_of
from pyconfd.cli.commands import logs
from pyconfd.cli.commands.logs import wanted_by
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.status import Status
from pyconfd.status.document import StatusFile
from tests.cli.invoking import invoke
from tests.model.test_logged import REQUEST, logged

REFUSED = "the server refused or closed the connection while HAProxy connected to the server"
NOTHING_SAID: dict[str, Any] = {"host": None, "route": None, "status": None, "slower_than": None}


@pytest.mark.parametrize(
    ("asked", "request_", "is_wanted"),
    [
        ({}, {}, True),
        ({"host": "Shop.example.com"}, {}, True),
        ({"host": "other.example.com"}, {}, False),
        ({"host": "db.example.com"}, {"sni": "db.example.com"}, True),
        ({"route": ("Ingress", "shop", "cart")}, {}, True),
        ({"route": ("Ingress", "shop", "other")}, {}, False),
        ({"route": ("Ingress", "shop", "cart")}, {"object": ""}, False),
        ({"route": ("ingress", "shop", "cart")}, {}, True),
        ({"route": ("Ingress", "shop", "b")}, {"object": "Ingress/shop/a,b"}, True),
        ({"route": ("Ingress", "shop", "car")}, {}, False),
        ({"route": ("Ingress", "other", "cart")}, {}, False),
        ({"route": ("HTTPRoute", "shop", "cart")}, {}, False),
        ({"route": ("HTTPRoute", "shop", "cart")}, {"object": "", "backend": "gw_http_shop_cart_0"}, True),
        ({"status": "2"}, {}, True),
        ({"status": "5"}, {}, False),
        ({"status": "404"}, {"status": 404}, True),
        ({"status": "404"}, {"status": 403}, False),
        ({"slower_than": 0.006}, {}, False),
        ({"slower_than": 0.005}, {}, True),
        ({"status": "2", "host": "other.example.com"}, {}, False),
    ],
)
def test_a_request_is_wanted_if_it_is_all_that_was_asked_for(
    asked: dict[str, Any], request_: dict[str, Any], is_wanted: bool
) -> None:
    assert wanted_by(**{**NOTHING_SAID, **asked})(logged(**request_)) is is_wanted


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({}, "200  6 ms  GET shop.example.com/cart  from 192.0.2.7  by Ingress shop/cart  to cart-1"),
        (
            {"status": 503, "path": "/", "end": "SC", "server": "10.0.0.1:80", "object": ""},
            f"503  6 ms  GET shop.example.com/  from 192.0.2.7  at f  to 10.0.0.1:80  ({REFUSED})",
        ),
        (
            {"status": 404, "end": "LR", "object": "", "path": "/", "backend": "", "server": "<NOSRV>"},
            "404  6 ms  GET shop.example.com/  from 192.0.2.7  at f: no object has it  (HAProxy answered it itself)",
        ),
        (
            {"method": "", "host": "", "path": "", "status": 0, "sni": "db.example.com"},
            "---  6 ms  TCP db.example.com  from 192.0.2.7  by Ingress shop/cart  to cart-1",
        ),
    ],
)
def test_a_line_says_what_was_asked_for_who_decided_and_why_it_ended(more: dict[str, Any], line: str) -> None:
    assert line_of(logged(**more)).partition("  ")[2] == line


@pytest.mark.parametrize(("options", "shown", "said"), [((), 1, False), (("--host", "other.example.com"), 0, True)])
def test_where_no_request_matches_it_is_said_what_is_not_here(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], shown: int, said: bool
) -> None:
    monkeypatch.setattr(logs, "_socket", lambda _: "socket")
    monkeypatch.setattr(logs, "lines", lambda _: iter([json.dumps(REQUEST).encode()]))
    done = invoke("logs", *options)
    assert (done.exit_code, len(done.stdout.splitlines())) == (0, shown), done.stderr
    assert ("no request matches" in done.stderr, "pyconfd.io/access-log" in done.stderr) == (said, said)


def test_an_object_that_is_left_out_is_named_where_none_of_its_requests_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_socket", lambda _: "socket")
    monkeypatch.setattr(logs, "lines", lambda _: iter(()))
    now, reason = time.time(), RefusalReason.NAME_TAKEN
    objects = (ObjectRef("Ingress", "shop", name) for name in "ab")
    refused = tuple(Refusal(ref, "spec", "", reason, f"{ref.name} is taken") for ref in objects)
    status = Status(now, "0", os.getpid(), started_at=now, heartbeat_at=now, refused=refused)
    StatusFile(tmp_path).write(status)
    of_daemon = {"PYCONFD_RUNTIME_DIR": str(tmp_path), "PYCONFD_STATUS_LISTEN": ""}
    done = invoke("logs", "--route", "ingress/shop/a", **of_daemon)
    assert done.exit_code == 0
    assert ("Ingress shop/a: a is taken" in done.stderr, "b is taken" in done.stderr) == (True, False)


def test_what_a_stranger_wrote_cannot_move_the_cursor_or_begin_a_line() -> None:
    shown = line_of(logged(path="/\x1b[2J\n09:00:00  200", host="a\u202e.example.com"))
    assert "\x1b" not in shown
    assert "\n" not in shown
    assert "\u202e" not in shown
