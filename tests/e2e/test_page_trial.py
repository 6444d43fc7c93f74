"""Ten prepared faults: whoever never saw the page finds the cause and the remedy on its first screen.

``PYCONFD_PAGE_TRIAL=DIR`` leaves what is read of each, and a picture, for people to judge.
"""

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.e2e.browser import CHROMIUM, Tab
from tests.e2e.expect import edit
from tests.e2e.test_quarantine import annotate, raw
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.issuer import Issuer

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")]

FIRST_SCREEN = (
    "['headline', 'floating-section', 'wrong'].map((id) => document.getElementById(id).innerText).join('\\n')"
)
PATIENCE_S = float(os.environ.get("PYCONFD_PAGE_TRIAL_PATIENCE_S", "90"))
PICTURES = os.environ.get("PYCONFD_PAGE_TRIAL", "")


class Fault(NamedTuple):
    """``prepare`` is called before the start, ``strike`` once all is served."""

    strike: Callable[[Appliance], object]
    cause: tuple[str, ...]
    command: str
    prepare: Callable[[Appliance], object] = lambda _: None


def _pod_is_deaf(appliance: Appliance) -> None:
    (pod,) = appliance.members("shop")
    appliance.pods.stop(pod.pod)


def _half_a_secret(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    first, other = issuer.pair("shop.example.com"), issuer.pair("shop.example.com")
    issuer.write("shop-tls", first.key, other.cert)
    tls = {"domain": "shop.example.com", "proto": "http", "pyconfd.io/tls-secret": "shop-tls"}
    appliance.cluster.annotate("services", NAMESPACE, "shop", tls)


def _reads_secrets(appliance: Appliance) -> None:
    appliance.values["kubernetes"]["secret_namespaces"] = [NAMESPACE]


def _certificate_ended(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    pair = issuer.pair("shop.example.com", expired=True)
    issuer.write("shop-tls", pair.key, pair.cert)
    appliance.cluster.annotate("services", NAMESPACE, "shop", {"pyconfd.io/tls-secret": "shop-tls"})


def _nobody_holds(appliance: Appliance) -> None:
    folder = appliance.folder / "vip"
    folder.mkdir()
    router = {"addresses": ["10.31.12.10"], "holds": False, "holder": "", "role_since": time.time() - 90}
    router |= {"faults": ["haproxy_hangs"], "alarms": [], "drained": None}
    (folder / "status.json").write_text(json.dumps({"at": time.time() + 600, "routers": [router]}))
    appliance.values["vip"] = {"interface": "lo", "runtime_dir": str(folder)}


def _holds_losses(appliance: Appliance) -> None:
    appliance.values["removal_protection"] = {"persist_s": 3600}
    appliance.serve("web", pods=6)


def _pays_no_attention(appliance: Appliance) -> None:
    """Do nothing: the fault was there before."""


FAULTS = {
    "backend-down": Fault(
        _pod_is_deaf,
        ("be-shop.example.com", "is not up", "get errors", "Connection refused", "does the application listen"),
        "pyconfd explain be-shop",
    ),
    "wrong-secret": Fault(
        _half_a_secret, ("shop-tls", "does not belong"), f"pyconfd explain service {NAMESPACE}/shop", _reads_secrets
    ),
    "conflicting-host": Fault(
        lambda appliance: appliance.serve("copy", {"domain": "blog.example.com", "proto": "http"}),
        ("copy", "blog.example.com", f"{NAMESPACE}/blog"),
        f"pyconfd explain service {NAMESPACE}/copy",
    ),
    "held-change": Fault(
        lambda appliance: appliance.cluster.set_endpoints(NAMESPACE, "web", []),
        ("held back", "only if it is meant", "6 of 8 ready endpoints are gone at once", "web.example.com"),
        "pyconfd allow ",
        _holds_losses,
    ),
    "haproxy-dead": Fault(
        lambda appliance: appliance.haproxy.stop(),
        ("Nobody is served", "HAProxy does not run"),
        "journalctl -u haproxy",
    ),
    "api-server-away": Fault(
        lambda appliance: appliance.servers[0].refuse(), ("API server", "cannot connect", "127.0.0.1"), "pyconfd status"
    ),
    "quarantined-object": Fault(
        lambda appliance: annotate(appliance, "blog", balance="nonsense"),
        ("in quarantine", "balance only supports", f"{NAMESPACE}/blog"),
        f"pyconfd explain service {NAMESPACE}/blog",
        raw,
    ),
    "certificate-ended": Fault(
        _certificate_ended, ("shop-tls", "tls.crt has expired: renew it"), f"pyconfd explain service {NAMESPACE}/shop",
        _reads_secrets,
    ),
    "bad-fragment": Fault(
        lambda appliance: edit(appliance.folder / "templates" / "06-own.tmpl", "{% if broken\n"),
        ("06-own.tmpl", "line 1"),
        "pyconfd check",
        lambda appliance: appliance.own_fragments(),
    ),
    "address-held-by-nobody": Fault(
        _pays_no_attention, ("10.31.12.10", "nobody", "haproxy hangs"), "pyconfd vip status", _nobody_holds
    ),
}  # fmt: skip


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with Tab(tmp_path / "browser") as it:
        yield it


def test_there_are_ten() -> None:
    assert len(FAULTS) == 10


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_screen_names_cause_and_remedy(appliance: Appliance, tab: Tab, name: str) -> None:
    fault = FAULTS[name]
    appliance.values["kubernetes"] |= {"read_timeout_s": 1, "connect_timeout_s": 1}
    fault.prepare(appliance)
    appliance.serve("shop")
    appliance.serve("blog")
    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    fault.strike(appliance)
    tab.look(width=1200, height=900)
    tab.open(f"http://127.0.0.1:{appliance.page}/")
    wanted = (*fault.cause, fault.command)

    def missing() -> list[str]:
        seen = str(tab.run(FIRST_SCREEN))
        return [each for each in wanted if each not in seen]

    try:
        tab.until(lambda: not missing(), f"the first screen says {wanted}", PATIENCE_S)
    finally:
        seen = str(tab.run(FIRST_SCREEN))
        if PICTURES:
            Path(PICTURES, f"{name}.txt").write_text(seen)
            Path(PICTURES, f"{name}.png").write_bytes(tab.picture())
    assert "Everybody is served" not in seen
    assert tab.complaints == []
