"""docs/live.md names every reason, and what the shipped fragment opens."""

import re

from pyconfd.haproxy.config.changes import MAX_CERTIFICATE_BYTES, MAX_ENTRY_BYTES
from pyconfd.haproxy.config.servers import DYNAMIC_ALGORITHMS
from pyconfd.model.plan import ReloadReason
from pyconfd.settings import ApplySettings
from tests.docs.examples import ROOT
from tests.fragments.shipped import render_shipped

PAGE = (ROOT / "docs" / "live.md").read_text(encoding="utf-8")


def test_every_reason_has_a_line_and_no_other_word_is_one() -> None:
    table = PAGE.partition("| reason |")[2].partition("\n\n")[0]
    named = [word for row in table.splitlines()[2:] for word in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(ReloadReason)


def test_the_socket_is_the_one_that_the_shipped_fragment_opens() -> None:
    (line,) = (line for line in render_shipped({}, {}, "/files").text.splitlines() if "stats socket" in line)
    assert f"global\n{line}\n```" in PAGE


def test_the_figures_are_those_of_the_program() -> None:
    assert f"at most {MAX_CERTIFICATE_BYTES:,} bytes" in PAGE
    assert f"longer than {MAX_ENTRY_BYTES:,} bytes" in PAGE
    assert ApplySettings().drain_limit_s == 600, "(10 minutes)"
    for algorithm in DYNAMIC_ALGORITHMS:
        assert f"`{algorithm}`" in PAGE
