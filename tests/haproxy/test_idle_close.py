"""Listeners that lack the option without which a reload closes idle connections under the next request."""

from pathlib import Path

import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.idle_close import idle_close_note, lacking_idle_close

WITH = "    option idle-close-on-response\n"
HTTP = "    mode http\n"


@pytest.mark.parametrize(
    ("text", "lacking"),
    [
        (f"defaults\n{HTTP}frontend a\n", ("frontend a",)),
        (f"defaults\n{HTTP}{WITH}frontend a\n", ()),
        (f"frontend a\n{HTTP}listen b\n{HTTP}{WITH}", ("frontend a",)),
        (f"listen a\n{HTTP}", ("listen a",)),
        ("frontend a\n    mode tcp\nfrontend b\n", ()),
        (f"defaults\n{HTTP}frontend a\n    mode tcp\nbackend b\n", ()),
        (f"defaults\n{HTTP}{WITH}frontend a\n    no option idle-close-on-response\n", ("frontend a",)),
        (f"defaults\n{HTTP}    option httpclose\nfrontend a\n", ()),
        (f"defaults\n{HTTP}{WITH}defaults\n{HTTP}frontend a\n", ("frontend a",)),
        (f"defaults x\n{HTTP}{WITH}defaults y\n{HTTP}frontend a from x\nfrontend b\n", ("frontend b",)),
        (f"defaults x\n{HTTP}{WITH}defaults y from x\nfrontend a\n", ()),
        (f"frontend a from gone\n{HTTP}", ("frontend a",)),
        ("", ()),
    ],
)
def test_what_lacks_it(text: str, lacking: tuple[str, ...]) -> None:
    assert lacking_idle_close(text) == lacking


def test_the_note_names_a_few_and_says_what_to_write() -> None:
    assert idle_close_note(f"defaults\n{WITH}{HTTP}frontend a\n") == ""
    text = "".join(f"frontend f{at}\n{HTTP}" for at in range(5))
    note = idle_close_note(text)
    assert note.startswith("frontend f0, frontend f1, frontend f2 and 2 more: ")
    assert "`option idle-close-on-response`" in note


def test_the_shipped_defaults_have_it() -> None:
    defaults = (Path(directory()) / "01-defaults.conf").read_text()
    assert lacking_idle_close(f"{defaults}frontend a\n") == ()
    assert lacking_idle_close(f"{defaults.replace(WITH, '')}frontend a\n") == ("frontend a",)
