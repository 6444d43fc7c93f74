"""What README and docs point at is there: files, headings, commands and their options."""

import re
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from pyconfd.cli.main import PLACES, cli, load
from tests.docs.examples import ROOT

PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "systemd").glob("*.md"),
        *(ROOT / "packer").rglob("*.md"),
        *(ROOT / "pyconfd").rglob("*.md"),
    ]
)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_CALL = re.compile(r"(?:^|[\s`/(\"])pyconfd (?P<rest>(?:--)?[a-z][^\n`|;&#)]*)", re.MULTILINE)
COMMANDS = {name: load(place) for name, place in PLACES.items()}
_NOT_CALLS = frozenset({"runs", "needs", "keeps", "was", "is", "has", "does", "and", "keys", "as", "stops", "writes"})


def links(pages: Iterable[Path]) -> list[tuple[Path, str]]:
    """Return each relative link with the page that it stands on."""
    return [
        (page, found["target"])
        for page in pages
        for found in _LINK.finditer(_FENCE.sub("", page.read_text(encoding="utf-8")))
        if "://" not in found["target"]
    ]


def _anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, spaces to hyphens, punctuation dropped."""
    headings = _HEADING.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _quoted(page: Path) -> list[str]:
    """Every fenced block and every piece of code within a line."""
    text = page.read_text(encoding="utf-8")
    return [*_FENCE.findall(text), *re.findall(r"`[^`\n]+`", _FENCE.sub("", text))]


def _calls() -> list[tuple[str, str]]:
    found = {
        (page.name, call["rest"].strip()) for page in PAGES for code in _quoted(page) for call in _CALL.finditer(code)
    }
    return sorted(call for call in found if call[1].split()[0] not in _NOT_CALLS)


@pytest.mark.parametrize(("page", "target"), links(PAGES), ids=lambda value: str(getattr(value, "name", value)))
def test_a_relative_link_resolves(page: Path, target: str) -> None:
    path, _, anchor = target.partition("#")
    there = (page.parent / path).resolve() if path else page
    assert there.exists()
    if anchor:
        assert anchor in _anchors(there)


@pytest.mark.parametrize(("page", "call"), _calls())
def test_a_call_that_a_page_shows_exists(page: str, call: str) -> None:
    words = call.split()
    name = "" if words[0].startswith("-") else words[0]
    command = COMMANDS[name] if name else cli
    if isinstance(command, click.Group) and len(words) > 1 and words[1] in command.commands:
        command = command.commands[words[1]]
    params = command.params
    known = {option for parameter in params for option in parameter.opts} | {"--help", "-h"}
    assert not [word for word in words if word.startswith("--") and word.partition("=")[0] not in known], page


def test_the_table_of_commands_is_complete() -> None:
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `pyconfd ([a-z-]+)", text, re.MULTILINE)) == {
        name for name, command in COMMANDS.items() if not command.hidden
    }


def test_there_is_something_to_look_at() -> None:
    assert len(links(PAGES)) > 10
    assert len(_calls()) > 20
