"""Each folder of tests/golden/domains holds a context and what the shipped fragments make of it.

``PYCONFD_UPDATE_GOLDEN=1 pytest tests/fragments`` writes them again; read the difference before you commit it.
"""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.fragments import directory
from pyconfd.model.rendering import order_differs
from pyconfd.render.filters import identifier
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import GOLDEN, HAPROXY, Endpoint, read_context, render_shipped, write_rendering

SHIPPED = (
    "00-runtime.tmpl",
    "01-defaults.conf",
    "02-http.tmpl",
    "03-https.tmpl",
    "04-tcp.tmpl",
    "05-stats.tmpl",
    "06-peers.tmpl",
    "07-ingress.tmpl",
    "08-auth.tmpl",
    "08-gateway.tmpl",
    "08-rules.tmpl",
    "09-loadbalancer.tmpl",
    "10-spares.tmpl",
)
FILES_DIR = "/etc/haproxy/generated/files"
CASES = sorted(path.name for path in GOLDEN.iterdir())
UPDATE = "PYCONFD_UPDATE_GOLDEN" in os.environ
needs_haproxy = pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    folder = GOLDEN / case
    rendering = render_shipped(*read_context(folder / "context.json"), FILES_DIR)
    given_files = {"haproxy.cfg": rendering.text}
    given_files |= {file.path.removeprefix(f"{FILES_DIR}/"): file.content for file in rendering.files}
    if UPDATE:
        for name, content in given_files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
    expected = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and path.name != "context.json"
    }
    assert given_files == expected


@pytest.mark.haproxy
@needs_haproxy
@pytest.mark.parametrize("flags", [[], ["-W"]])
@pytest.mark.parametrize("case", CASES)
def test_haproxy_takes_every_golden_case_without_a_warning(case: str, flags: list[str], tmp_path: Path) -> None:
    rendering = render_shipped(*read_context(GOLDEN / case / "context.json"), str(tmp_path))
    write_rendering(rendering, tmp_path / "haproxy.cfg")
    command = [HAPROXY, *flags, "-c", "-f", str(tmp_path / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Warning" not in done.stdout


def test_the_shipped_set_is_complete_and_in_order() -> None:
    fragments = read_fragments(directory())
    names = [fragment.name for fragment in fragments.fragments]
    assert names == list(SHIPPED)
    assert not order_differs(names)


def test_no_credentials_are_shipped_and_statistics_stay_on_loopback() -> None:
    text = render_shipped({}, {}, FILES_DIR).text
    assert "auth" not in text
    assert "stats admin" not in text
    assert "    bind 127.0.0.1:8404\n" in text


def test_a_reload_does_not_cut_idle_connections() -> None:
    assert "option idle-close-on-response" in (Path(directory()) / "01-defaults.conf").read_text()


domain_names = st.from_regex(r"(\*\.)?[a-z]{1,3}(\.[a-z]{1,3}){1,2}", fullmatch=True)
endpoints = st.lists(
    st.builds(
        Endpoint,
        pod=st.sampled_from(["", "pod-1", "pod-2"]),
        node=st.just(""),
        zone=st.just(""),
        address=st.ip_addresses().map(str),
        port=st.integers(1, 65535),
        family=st.just(""),
        state=st.sampled_from(["ready", "draining"]),
    ),
    max_size=4,
)


@st.composite
def services(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    names = sorted(draw(st.lists(domain_names, max_size=5, unique=True)))
    return {
        domain: {
            "proto": draw(st.sampled_from(["http", "https", "redis", "mqtt"])),
            "port": 80,
            "ips": [],
            "name": "name",
            "namespace": "demo",
            "domain": domain,
            "ports": [],
            "below_foreign": draw(st.booleans()),
            "listen_port": draw(st.none() | st.just(20000 + number)),
            "endpoints": draw(endpoints),
            "key": identifier(domain),
        }
        for number, domain in enumerate(names)
    }


@given(services(), st.randoms(use_true_random=False))
def test_shuffled_endpoints_give_the_same_bytes(domains: dict[str, dict[str, Any]], random: Any) -> None:
    expected = render_shipped(domains, {}, FILES_DIR)
    for items in domains.values():
        random.shuffle(items["endpoints"])
    assert render_shipped(domains, {}, FILES_DIR) == expected


@pytest.mark.haproxy
@needs_haproxy
@given(services())
@settings(max_examples=15, deadline=None)
def test_haproxy_takes_what_any_cluster_gives(
    tmp_path_factory: pytest.TempPathFactory, domains: dict[str, dict[str, Any]]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    write_rendering(render_shipped(domains, {}, str(folder)), folder / "haproxy.cfg")
    command = [HAPROXY, "-c", "-f", str(folder / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (done.returncode, done.stderr) == (0, "")
