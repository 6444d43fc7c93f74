"""What docs/migrating/python-confd.md says of options and removed lines is what pyconfd does."""

import re

import pytest

from pyconfd.haproxy.removed import replacement_for
from pyconfd.settings.table import TABLE
from tests.docs.examples import ROOT

PAGE = (ROOT / "docs" / "migrating" / "python-confd.md").read_text(encoding="utf-8")
OPTIONS = re.findall(r"^\| `(--[a-z-]+)` \| `([A-Z_]+)` \| `([a-z._]+)` \|", PAGE, re.MULTILINE)
REMOVED = re.findall(r"^\| `([^`]+)` \| `(http-(?:request|response) [^`]+|option [^`]+)` \|$", PAGE, re.MULTILINE)


def test_the_table_has_all_options_of_python_confd() -> None:
    assert {path for _, _, path in OPTIONS} == {row.path for row in TABLE.values() if row.old_env}
    assert len(OPTIONS) == 11


@pytest.mark.parametrize(("flag", "variable", "path"), OPTIONS)
def test_an_option_has_the_names_that_the_table_gives_it(flag: str, variable: str, path: str) -> None:
    assert flag in TABLE[path].flags
    assert variable == TABLE[path].old_env


@pytest.mark.parametrize(("line", "today"), REMOVED)
def test_a_removed_line_is_replaced_as_the_page_says(line: str, today: str) -> None:
    assert str(replacement_for(line)) == f"write: {today}"


def test_the_table_of_removed_lines_is_read() -> None:
    assert len(REMOVED) >= 4
