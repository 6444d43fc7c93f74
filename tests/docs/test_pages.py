"""How pages are written: line length, vocabulary, the form of decisions, and paths that exist."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from pyconfd.settings.table import SECTIONS, TABLE
from tests.docs.examples import ROOT, blocks_of

PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
EVENTS = ("quarantine", "object", "rollout", "drift", "campaign", "publication", "certificate", "live_change")
"""The nouns of log events that pages name."""
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
NOT_OURS = re.compile(
    r"\b(?:anew|whoever|whomever|tenures?|level with|what serves|what served|goes live|went live|go live"
    r"|probation|proving|culprits?|totals|the guard|guard's|turned away|verdict)\b",
    re.IGNORECASE,
)
"""The project's former private words, for which Kubernetes, HAProxy and keepalived have better ones."""
NOT_A_FIRST_WORD = frozenset({"Give", "Have", "Let", "Look", "Mend", "Note", "Say", "Take", "Tell"})
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def _prose(page: Path) -> str:
    """The text without fenced blocks, code and targets of links."""
    return re.sub(r"`[^`\n]*`|\]\([^)]*\)", "", _FENCE.sub("", page.read_text(encoding="utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_of_prose_have_at_most_120_characters(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    assert not [line for line in text.splitlines() if len(line) > 120 and not line.startswith(("|", "#"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_to_be_copied_have_at_most_120_characters(page: Path) -> None:
    """What a program printed, and the examples of templates, are as long as they are."""
    blocks = [each for each in blocks_of(page) if each.language in ("", "sh", "toml", "yaml", "json")]
    copied = "".join(each.body for each in blocks if "\n$ " not in f"\n{each.body}")
    assert not [line for line in copied.splitlines() if len(line) > 120]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_words_are_those_of_the_manuals(page: Path) -> None:
    assert not NOT_OURS.findall(_prose(page))


def test_docstrings_begin_with_a_verb_of_the_vocabulary() -> None:
    files = [path for name in ("pyconfd", "release") for path in sorted((ROOT / name).rglob("*.py"))]
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno} {text.split()[0]}"
        for path in files
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and (text := ast.get_docstring(node))
        and text.split()[0] in NOT_A_FIRST_WORD
    ]
    assert len(files) > 300
    assert not found, "begin with Return, Record, Check, Assign, Replace, ..."


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_context_choice_alternatives_and_example(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    places = [text.find(f"**{part}.**") for part in ("Context", "Decision", "Rejected", "Example")]
    if "| rejected |" in text:
        places.remove(places[2])
    assert -1 not in places
    assert places == sorted(places)


@pytest.mark.parametrize(
    "page", ["docs/architecture.md", "CONTRIBUTING.md", *(f"docs/decisions/{each.name}" for each in DECISIONS)]
)
def test_a_path_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`((?:pyconfd|tests|docs)/[\w./-]*)`", (ROOT / page).read_text(encoding="utf-8"))
    assert not [path for path in named if not (ROOT / path).exists()]


def test_the_architecture_names_enough_files_to_be_followed() -> None:
    assert len(re.findall(r"`pyconfd/[\w/]+\.py`", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"))) > 20


def _named(pattern: str) -> list[tuple[str, str]]:
    """Every word in code quotes that matches, with the page that it stands on."""
    return sorted(
        {
            (str(page.relative_to(ROOT)), word)
            for page in PAGES
            for word in re.findall(rf"`({pattern})`", _FENCE.sub("", page.read_text(encoding="utf-8")))
        }
    )


FILES = (".cfg", ".json", ".prom", ".py", ".service", ".tmpl")
VARIABLES = {"kube2lb.services", "kubefigurator.backends", "kubefigurator.listeners"}


def test_each_setting_that_a_page_names_exists() -> None:
    named = [(page, word) for page, word in _named(r"[a-z0-9_]+\.[a-z0-9_]+") if word.partition(".")[0] in SECTIONS]
    named = [each for each in named if not each[1].endswith(FILES) and each[1] not in VARIABLES]
    assert len(named) > 100
    assert not [each for each in named if each[1] not in TABLE]


def test_each_log_event_and_state_file_that_a_page_names_is_in_the_code() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "pyconfd").rglob("*.py"))
    code += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "systemd").iterdir() if path.is_file())
    events = _named(rf"(?:{'|'.join(EVENTS)})\.[a-z_]+") + _named(r"[a-z][a-z-]+\.(?:json|jsonl|prom)")
    assert len(events) > 20
    assert not [each for each in events if each[1] not in code]


def test_the_installation_of_the_readme_is_that_of_its_page() -> None:
    """The page's commands are run by tests/release/test_deb.py."""
    install = (ROOT / "README.md").read_text(encoding="utf-8").partition("\n## Install\n")[2].partition("\n## ")[0]
    page = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    lines = [line.partition("  #")[0].strip() for line in _FENCE.findall(install)[0].splitlines()[1:-1]]
    commands = [command.strip() for line in lines for command in line.split("&&")]
    assert len(commands) > 6
    assert [command for command in commands if command not in page] == ["$EDITOR /etc/pyconfd/pyconfd.toml"]


def test_the_dependencies_are_those_with_a_reason() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    page = (ROOT / "docs/decisions/0002-dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([^|]*) \|", page, re.MULTILINE)[1:]
    given = {re.split(r"[<>=\[]", name)[0] for row in rows for name in row.split(", ")}
    assert given == {re.split(r"[<>=\[]", name)[0] for name in needed}
