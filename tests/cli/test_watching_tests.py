"""``pyconfd test --watch``: what an edit changed is told once, not for each test."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyconfd.app.testing import TrialRound
from pyconfd.settings import Resolved
from tests.cli.application import FakeApp, invoke

EDIT = ("--- before", "+++ now", "@@ -1,2 +1,3 @@", " frontend a", "+    option httplog", "     bind :80")
MOVED = ("--- before", "+++ now", "@@ -7,2 +7,3 @@", " frontend a", "+    option httplog", "     bind :81")
MORE = (*MOVED, "@@ -20 +21 @@", "-backend b", "+backend c")


@dataclass
class Edited(FakeApp):
    """A run of tests in which one edit changed what each of them renders."""

    def watch_tests(self, settings: Resolved, paths: tuple[str, ...], *, only: str) -> Iterator[TrialRound]:
        del settings, paths, only
        yield TrialRound((), {"one": EDIT, "two": MOVED, "three": MORE, "four": EDIT})


def test_what_an_edit_changed_is_told_once() -> None:
    result = invoke("test", "--watch", app=Edited())
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "changed: one",
        "    @@ -1,2 +1,3 @@",
        "     frontend a",
        "    +    option httplog",
        "         bind :80",
        "changed: three",
        "    @@ -20 +21 @@",
        "    -backend b",
        "    +backend c",
        "changed: the same in 2 more tests",
        "",
    ]
