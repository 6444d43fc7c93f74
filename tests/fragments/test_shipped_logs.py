"""What the variables of the access log choose, in the text and on a real haproxy."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.fragments import directory
from pyconfd.model.rendering import Rendering
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import HAPROXY, context_of, render_shipped, write_rendering

ITEMS: dict[str, Any] = {"proto": "http", "key": "shop", "namespace": "demo", "name": "shop", "endpoints": []}
LEFT_OUT = (
    "http-response set-log-level silent if { status 100:499 } { var(txn.virtual_host),concat(|,txn.route),map_str("
)
SAMPLED = "http-response set-log-level silent if { status lt 400 } { rand(100) ge "


def rendered(folder: Path, **variables: Any) -> Rendering:
    options = RenderOptions(str(folder / "files"), variables={"runtime_socket": str(folder / "s"), **variables})
    domains = {"shop.example.com": ITEMS, "db.example.com": {**ITEMS, "proto": "tcp", "key": "db", "listen_port": 5432}}
    return Renderer(read_fragments(directory()), options).render(context_of(domains), curdate="").rendering


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@pytest.mark.parametrize(
    ("variables", "there", "absent"),
    [
        (
            {},
            ['"path":%{+Q}[var(txn.path),', '"object":"Service/demo/shop"'],
            ["logged_path", SAMPLED, "option httplog", "access-log-off.map"],
        ),
        ({"log_format": "json"}, ['"path":%{+Q}[var(txn.path),'], ["option httplog", "option tcplog"]),
        ({"log_format": "text"}, ["    option httplog\n", "    option tcplog\n"], ["log-format", "backend-objects"]),
        ({"log_query": True}, ["set-var(txn.logged_path) pathq", "[var(txn.logged_path),"], ["[var(txn.path),"]),
        ({"log_query": "true"}, ["set-var(txn.logged_path) pathq"], []),
        ({"log_query": "false"}, [], ["logged_path"]),
        ({"log_percent": 5}, [f"{SAMPLED}5 }}\n"], []),
        ({"log_percent": 0}, [f"{SAMPLED}0 }}\n"], []),
        ({"log_percent": 100}, [], [SAMPLED]),
        ({"log_percent": "most"}, [], [SAMPLED]),
    ],
)
def test_what_is_logged(tmp_path: Path, variables: dict[str, Any], there: Sequence[str], absent: Sequence[str]) -> None:
    rendering = rendered(tmp_path, **variables)
    write_rendering(rendering, tmp_path / "haproxy.cfg")
    assert [each for each in there if each not in rendering.text] == []
    assert [each for each in absent if each in rendering.text] == []
    checked = subprocess.run([HAPROXY, "-c", "-f", str(tmp_path / "haproxy.cfg")], capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("domain", "key"),
    [("shop.example.com", "shop.example.com|be-shop"), ("*.shop.example.com", ".shop.example.com|be-shop")],
)
def test_who_leaves_requests_out_has_a_line_in_its_own_backend(tmp_path: Path, domain: str, key: str) -> None:
    others = {f"{name}.example.org": {**ITEMS, "key": name, "name": name} for name in ("before", "later")}
    was, now = (
        render_shipped({**others, domain: {**ITEMS, "unlogged": unlogged}}, {"runtime_socket": "/run/s"}, str(tmp_path))
        for unlogged in (False, True)
    )
    line = f"    {LEFT_OUT}{tmp_path}/maps/access-log-off.map) -m found }}\n"
    assert now.text == was.text.replace(
        "\nbackend be-shop from http-service\n    mode http\n",
        f"\nbackend be-shop from http-service\n    mode http\n{line}",
    )
    (file,) = (each for each in now.files if each not in was.files)
    assert (Path(file.path).name, file.content) == ("access-log-off.map", f"{key} 1\n")


def test_another_format_is_an_error_that_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(RejectedInput, match=r"client.j2 line \d+: a dict has no 'jsn'") as refused:
        rendered(tmp_path, log_format="jsn")
    assert "json" in refused.value.problems[0].remedy
