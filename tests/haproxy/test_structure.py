import pytest

from pyconfd.haproxy.config.text import structure_of

TEXT = """global
    nbthread 1
frontend f
    bind :80
backend b
    server a 10.0.0.1:80
    server b 10.0.0.2:80 weight 0
"""


@pytest.mark.parametrize(
    "same",
    [
        TEXT.replace("    server b 10.0.0.2:80 weight 0\n", ""),
        TEXT.replace("10.0.0.1", "10.0.0.9"),
        TEXT + "# a comment\n\n",
        TEXT + "\tserver\tc\t10.0.0.3:80\n",
    ],
)
def test_endpoints_and_comments_are_none(same: str) -> None:
    assert structure_of(same) == structure_of(TEXT)


@pytest.mark.parametrize(
    "other",
    [
        TEXT.replace(":80\nbackend", ":81\nbackend"),
        TEXT + "backend c\n",
        TEXT.replace("nbthread 1", "nbthread 2"),
        TEXT.replace("backend b\n", "backend b\n    option httpchk\n"),
        TEXT.replace("    server a", "    server-template a 3"),
    ],
)
def test_all_else_is(other: str) -> None:
    assert structure_of(other) != structure_of(TEXT)
