"""The sessions of servers, as the socket shows them."""

from pathlib import Path

import pytest

from pyconfd.haproxy.runtime.servers_now import ALL_SESSIONS, sessions_now, stat_questions
from pyconfd.haproxy.runtime.sockets import ask
from tests.world.haproxy import HaproxyProcess, configuration, free_port

BACKENDS = "".join(f"backend {name}\n    server s1 127.0.0.1:1\n" for name in ("1", "2", "1a", "shop", "_own"))


@pytest.mark.parametrize(
    ("backends", "expected"),
    [
        (["shop", "_own"], ["show stat shop 4 -1", "show stat _own 4 -1"]),
        (["shop", "1a"], [ALL_SESSIONS]),
        (["-1"], [ALL_SESSIONS]),
        ([], []),
    ],
)
def test_a_name_that_looks_like_a_number_is_never_asked_for(backends: list[str], expected: list[str]) -> None:
    assert stat_questions(backends) == expected


def test_what_is_no_table_is_an_error_and_no_such_backend_is_nothing() -> None:
    assert list(sessions_now("No such proxy.\n")) == []
    for answer in ("", "Permission denied\n"):
        with pytest.raises(ValueError, match=answer.strip() or "empty"):
            list(sessions_now(answer))


@pytest.mark.haproxy
def test_each_backend_has_its_own_servers(tmp_path: Path) -> None:
    """``show stat 1a`` is answered with the proxy number 1."""
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        lines = f"stats socket {haproxy.stats_socket} mode 600 level admin"
        haproxy.conf.write_text(configuration(free_port(), extra=BACKENDS, global_lines=lines))
        haproxy.start()
        for names in (["1"], ["2"], ["1a"], ["shop"], ["_own"], ["shop", "2"]):
            answers = [ask(haproxy.stats_socket, question) for question in stat_questions(names)]
            found = dict(pair for answer in answers for pair in sessions_now(answer))
            assert {(name, "s1"): 0 for name in names}.items() <= found.items()
