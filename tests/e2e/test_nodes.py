"""Two balancers that show each other: whole daemons, real HAProxys, a fake API server and a real browser."""

import os
from pathlib import Path

import pytest

from tests.e2e.browser import CHROMIUM, Tab
from tests.e2e.expect import serving
from tests.world.appliance import Appliance
from tests.world.haproxy import wait_until

pytestmark = pytest.mark.haproxy

PICTURE = os.environ.get("PYCONFD_TEST_PICTURES", "")
"""The folder for docs/page/page-pair.png; "" for no picture."""


def test_each_shows_both(appliance: Appliance, second: Appliance, tmp_path: Path) -> None:
    serving(appliance)
    own = second.own_fragments() / "01-defaults.conf"
    own.write_text(f"{own.read_text()}\n# another text\n")
    second.start()
    assert "Nodes" not in appliance.command("status").stdout, "one that is alone needs no list"

    def seen() -> list[dict[str, object]]:
        found: list[dict[str, object]] = appliance.status()["nodes"]
        return found

    wait_until(lambda: len(seen()) == 2, "each has heard of the other")
    text = appliance.command("status").stdout
    lines = text.partition("\nNodes\n")[2].splitlines()[:2]
    assert ["this one" in line for line in lines].count(True) == 1
    assert ["heard " in line for line in lines].count(True) == 1
    assert 'pyconfd_nodes{state="heard"} 2.0' in appliance.get("/metrics")[1]
    if CHROMIUM:
        with Tab(tmp_path / "browser") as tab:
            look(appliance, tab)


def look(appliance: Appliance, tab: Tab) -> None:
    """Look at the page; for a picture only when what differs has been so for a minute."""
    if PICTURE:
        wait_until(lambda: "other fragments" in appliance.command("status").stdout, "it is named", limit_s=150.0)
    tab.look(width=1200, height=900, dark=False)
    tab.open(f"http://127.0.0.1:{appliance.page}/")
    shown = "document.querySelector('#nodes').textContent"
    tab.until(lambda: "heard" in str(tab.run(shown)), "the page shows both")
    assert "this one" in str(tab.run(shown))
    assert not tab.complaints
    if PICTURE:
        assert "other fragments" in str(tab.run(shown))
        (Path(PICTURE) / "page-pair.png").write_bytes(tab.picture())
