"""The page for people in a real browser, beside a real daemon."""

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from pyconfd.settings import StatusSettings
from pyconfd.status.page import StatusPage
from pyconfd.status.page_access import PageAccess
from tests.e2e.browser import CHROMIUM, Tab
from tests.status.conftest import SAMPLE
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import Crowd

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not CHROMIUM, reason="there is no chromium")]

HOSTILE = "<img src=x onerror=alert(1)>"
ROWS = "[...document.querySelectorAll('#routes-body tr')]"
LOOKS = {"light": (1200, 900, False), "dark": (1200, 900, True), "phone": (390, 844, False)}


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    with Tab(tmp_path / "browser") as it:
        yield it


def text(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).textContent"))


def painted(tab: Tab, plot: str) -> bool:
    """Return whether a line is drawn on a plot: the only strokes with a colour that is no grey."""
    script = f"""(() => {{
        const canvas = document.querySelector({json.dumps(f"{plot} canvas")});
        if (!canvas) return false;
        const copy = document.createElement("canvas");
        [copy.width, copy.height] = [canvas.width, canvas.height];
        const context = copy.getContext("2d", {{ willReadFrequently: true }});
        context.drawImage(canvas, 0, 0);
        const found = context.getImageData(0, 0, copy.width, copy.height).data;
        for (let at = 0; at < found.length; at += 4)
            if (found[at + 3] > 128 && Math.abs(found[at] - found[at + 2]) > 60) return true;
        return false;
    }})()"""
    return bool(tab.run(script))


def test_one_look_tells_who_is_served_and_what_strangers_write_is_text(appliance: Appliance, tab: Tab) -> None:
    appliance.serve("shop")
    appliance.serve("blog")
    appliance.serve("hostile", {"domain": HOSTILE, "proto": "http"})
    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    crowd = Crowd(appliance.http, "shop.example.com", keep_alive=True)
    url = f"http://127.0.0.1:{appliance.page}/"
    try:
        for width, height, dark in LOOKS.values():
            tab.look(width=width, height=height, dark=dark)
            tab.open(url)
            tab.until(lambda: f"shop.{'example'}" in text(tab, "#routes-body"), "the list has the route")
            tab.until(
                lambda: painted(tab, "#requests-plot") and painted(tab, "#latency-plot"), "plots of half a minute"
            )
            assert "1 object is left out" in text(tab, "#sentence")
            assert text(tab, "#headline-command") == "pyconfd explain --all-refused"
            assert HOSTILE in text(tab, "#wrong")
            assert f"pyconfd explain service {NAMESPACE}/hostile" in text(tab, "#wrong")
            assert "reload" in text(tab, "#changes") or "runtime update" in text(tab, "#changes")
            assert tab.run("document.querySelectorAll('main img').length") == 0
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "nothing is wider than the window"
            assert tab.run("matchMedia('(prefers-color-scheme: dark)').matches") is dark
            background = tab.run("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, background.strip("rgb()").split(","))) < 200) is dark
            assert struct.unpack(">II", tab.picture()[16:24]) == (width, height)
            of_shop = ".find((each) => /^be-shop/.test(each.textContent))"
            tab.run(f"[...document.querySelectorAll('button.route')]{of_shop}.click()")
            tab.until(lambda: painted(tab, ".details figure:nth-of-type(1)"), "the route has plots of its own")
            assert "requests/s" in text(tab, ".details figcaption")
            assert tab.run("document.documentElement.scrollWidth <= innerWidth"), "nor is a plot of one route"
            assert tab.complaints == []
    finally:
        crowd.stop()


def test_the_list_is_searched_sorted_and_explained_by_keyboard(appliance: Appliance, tab: Tab) -> None:
    appliance.serve("shop", pods=2)
    appliance.serve("blog")
    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    tab.look(width=1200, height=900)
    tab.open(f"http://127.0.0.1:{appliance.page}/")
    tab.until(lambda: "be-blog" in text(tab, "#routes-body"), "the list is there")

    def press(key: str, typed: str = "") -> None:
        tab.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=typed)
        tab.send("Input.dispatchKeyEvent", type="keyUp", key=key)

    press("/", "/")
    assert tab.run("document.activeElement.id") == "search"
    tab.send("Input.insertText", text="SHOP")
    shown = f"{ROWS}.map((row) => row.querySelector('button.route').textContent)"
    tab.until(lambda: tab.run(shown) == ["be-shop.example.com"], "the search leaves one")

    tab.run("document.querySelector('button.route').focus()")
    press("Enter", "\r")
    tab.until(lambda: "Programmed=True" in text(tab, "#routes-body"), "it is explained")
    assert "Servers (2)" in text(tab, "#routes-body")
    way = "[...document.querySelectorAll('ol.way li')].map((each) => each.innerText.replaceAll('\\n', ' '))"
    tab.until(lambda: "..." not in tab.run(way)[0], "the listener is named")
    listener, host, owner, backend, servers = tab.run(way)
    assert listener.startswith("Listener ")
    assert (host, owner) == ("Host and path shop.example.com", f"Object Service {NAMESPACE}/shop")
    assert (backend, servers) == ("Backend be-shop.example.com", "Servers 2 up")
    tab.until(lambda: "Its last errors" in text(tab, "#routes-body"), "changes and errors are there")
    assert tab.run("document.activeElement.getAttribute('aria-expanded')") == "true", "the focus stays"

    tab.run(
        "document.querySelector('#search').value = ''; document.querySelector('th[data-sort=backend] button').click()"
    )
    tab.run("document.querySelector('#search').dispatchEvent(new Event('input'))")
    names = f"{ROWS}.map((row) => row.querySelector('button.route')?.textContent).filter(Boolean)"
    found = tab.run(names)
    assert found == sorted(found)
    assert tab.run("document.querySelector('th[data-sort=backend]').getAttribute('aria-sort')") == "ascending"

    tab.run(f"document.querySelector('#search').value = {json.dumps(HOSTILE)}")
    tab.run("document.querySelector('#search-form button').click()")
    tab.until(lambda: "Not found in" in text(tab, "#explained"), "it says where it looked")
    url = f"http://shop.example.com:{appliance.http}/cart"
    tab.run(f"document.querySelector('#search').value = {json.dumps(url)}")
    tab.run("document.querySelector('#search-form button').click()")
    tab.until(lambda: "backend: be-shop.example.com" in text(tab, "#explained"), "it says where a request goes")
    assert tab.run("document.querySelectorAll('main img').length") == 0
    assert appliance.get(f"/explain?q={quote(HOSTILE)}")[0] == 200
    assert tab.complaints == []


def test_two_generations_are_compared_and_nothing_of_it_is_asked_for_before(appliance: Appliance, tab: Tab) -> None:
    appliance.serve("shop")
    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    appliance.serve("vault", {"domain": "vault.example.com", "proto": "https"})
    appliance.until(lambda: appliance.generation > 1 and appliance.settled() and appliance.written(), "the next one")
    tab.open(f"http://127.0.0.1:{appliance.page}/")
    asked = "performance.getEntriesByType('resource').filter((each) => each.name.includes('more.json')).length"
    tab.until(lambda: "served" in text(tab, "#sentence"), "the headline is there")
    assert tab.run(asked) == 0
    tab.run("document.querySelector('#behind summary').click()")
    tab.until(lambda: "(running)" in text(tab, "#behind-parts"), "the generations are there")
    for words in ("API servers (1)", "Quarantine", "Former workers", "Names in DNS", "Targets", "Held changes"):
        assert words in text(tab, "#behind-parts")
    tab.run("document.querySelector('#diff-form button').click()")
    tab.until(lambda: "vault.example.com" in text(tab, "#difference"), "the difference is there")
    assert "+++ generation" in text(tab, "#difference .text")
    assert tab.complaints == []


def test_a_page_whose_daemon_went_says_how_old_it_is(appliance: Appliance, tab: Tab) -> None:
    """Beside it, what another process left long ago about the floating address is told to be old."""
    folder = appliance.folder / "vip"
    folder.mkdir()
    router = {"addresses": ["10.31.12.10"], "holds": False, "holder": "lb2", "role_since": time.time() - 7300}
    report = {"at": time.time() - 600, "routers": [router | {"faults": [], "alarms": [], "drained": None}]}
    (folder / "status.json").write_text(json.dumps(report))
    appliance.values["vip"] = {"interface": "lo", "runtime_dir": str(folder)}
    appliance.serve("shop")
    appliance.start()
    appliance.until(appliance.settled, "all is applied")
    tab.open(f"http://127.0.0.1:{appliance.page}/")
    tab.until(lambda: "Everybody is served" in text(tab, "#sentence"), "the headline is there")
    assert tab.run("document.querySelector('#stale').hidden")
    assert "10.31.12.10 \u2013 this node is a backup, the holder is lb2, for 2 h" in text(tab, "#floating")
    assert "pyconfd-vip wrote this 1" in text(tab, "#floating")
    appliance.stop()
    tab.until(lambda: not tab.run("document.querySelector('#stale').hidden"), "it tells that it is old")
    assert "pyconfd does not answer" in text(tab, "#stale")
    assert "old" in text(tab, "#age")
    assert text(tab, "#sentence").startswith("? Not known now. Last: Everybody is served")
    appliance.spawn()
    tab.until(lambda: tab.run("document.querySelector('#stale').hidden"), "it goes on by itself")
    tab.until(lambda: text(tab, "#age") == "live", "it is live again")
    tab.until(
        lambda: text(tab, "#sentence").startswith("! Everybody is served; floating address"), "and so is what it says"
    )


def test_a_page_with_a_token_asks_for_it_and_shows_nothing_before(tmp_path: Path, tab: Tab) -> None:
    file = tmp_path / "token"
    file.touch(0o600)
    file.write_text("0123456789abcdef-first")
    page = StatusPage()
    page.serve("127.0.0.1:0", lambda: SAMPLE, PageAccess(StatusSettings(token_file=str(file))))

    def give(token: str) -> None:
        tab.run(f"document.querySelector('#token').value = {json.dumps(token)}")
        tab.run("document.querySelector('#token-form button').click()")

    shown = "getComputedStyle(document.querySelector('#{}')).display !== 'none'"
    try:
        tab.open(f"http://{page.address}/")
        tab.until(lambda: tab.run(shown.format("token-form")), "it asks for the token")
        assert not tab.run(shown.format("main"))
        give("0123456789abcdef-wrong")
        tab.until(lambda: "not, or no longer" in text(tab, "#token-wrong"), "a wrong one is told")
        assert not tab.run(shown.format("main"))
        give("0123456789abcdef-first")
        tab.until(lambda: "left out" in text(tab, "#sentence"), "the right one opens the page")
        assert tab.run(shown.format("main"))
        assert not tab.run(shown.format("token-form"))
        tab.open(f"http://{page.address}/")
        tab.until(lambda: "left out" in text(tab, "#sentence"), "the tab keeps it")
        assert not tab.run(shown.format("token-form"))
    finally:
        page.stop()
