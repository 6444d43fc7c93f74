"""The files of the page: complete, small, of nobody else, and readable for everybody."""

import re
from importlib.resources import files

import pytest

from pyconfd.status.web import _FILES, CONTENT_SECURITY_POLICY, page_file
from tests.status.conftest import SAMPLE
from tests.status.serving import ask, served

LIMIT_BYTES = 300 * 1024
STATIC = files("pyconfd.status").joinpath("static")
CSS = STATIC.joinpath("page.css").read_text(encoding="utf-8")
OWN = [STATIC.joinpath(name).read_text(encoding="utf-8") for name in ("index.html", "page.css", "page.js")]


def test_each_file_is_served_with_its_type_and_all_are_small() -> None:
    loaded = 0
    with served(lambda: SAMPLE) as page:
        for path, kind in {
            "/": "text/html",
            "/page.css": "text/css",
            "/page.js": "text/javascript",
            "/uPlot.css": "text/css",
            "/uPlot.js": "text/javascript",
        }.items():
            code, body, headers = ask(page, path, accept="text/html,*/*;q=0.8")
            assert (code, headers["content-type"]) == (200, f"{kind}; charset=utf-8")
            assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY
            assert headers["x-content-type-options"] == "nosniff"
            loaded += len(body.encode())
    assert loaded <= LIMIT_BYTES
    assert len(_FILES) == 5


def test_what_the_page_loads_is_here() -> None:
    named = re.findall(r'<(?:link rel="stylesheet"|script)[^>]* (?:href|src)="([^"]+)"', OWN[0])
    assert sorted(named) == ["page.css", "page.js", "uPlot.css", "uPlot.js"]
    assert all(page_file(f"/{name}") for name in named)


@pytest.mark.parametrize("path", ["/uPlot.LICENSE", "/static/page.js", "/../page.js", "/page.py", "/index.html"])
def test_no_other_file_is_served(path: str) -> None:
    assert page_file(path) is None


def test_the_plotting_library_is_unchanged_beside_its_licence() -> None:
    assert "v1.6.32" in STATIC.joinpath("uPlot.iife.min.js").read_text(encoding="utf-8")[:80]
    assert "The MIT License" in STATIC.joinpath("uPlot.LICENSE").read_text(encoding="utf-8")


@pytest.mark.parametrize("text", OWN)
def test_nothing_comes_from_elsewhere_and_no_text_becomes_html(text: str) -> None:
    for word in ("://", "@import", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert word not in text
    assert not re.search(r"<[^>]* (?:style|on\w+)=", text)  # the policy would block it


def test_the_policy_allows_nothing_inline_and_nothing_of_others() -> None:
    policy = dict(each.strip().split(" ", 1) for each in CONTENT_SECURITY_POLICY.split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect")} == {"'self'"}
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


LIGHT, DARK = map(colours, CSS.split("@media (prefers-color-scheme: dark)"))
TEXTS = [
    *((text, behind) for text in ("text", "faint", "focus") for behind in ("page", "card")),
    *((level, behind) for level in ("good", "warning", "bad") for behind in ("card", f"{level}-page")),
    *(("text", f"{level}-page") for level in ("good", "warning", "bad")),
    *(("faint", f"{level}-page") for level in ("good", "warning", "bad")),
    ("bad", "page"),
    ("warning", "page"),
]


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "behind"), TEXTS)
def test_text_has_the_contrast_that_wcag_asks_for(scheme: dict[str, str], text: str, behind: str) -> None:
    bright, dim = sorted((luminance(scheme[text]), luminance(scheme[behind])), reverse=True)
    assert (bright + 0.05) / (dim + 0.05) >= 4.5
