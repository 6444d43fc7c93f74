"""The tests against every HAProxy are there."""

from pathlib import Path

import pytest

from tests.matrix import TESTS


@pytest.mark.parametrize("path", TESTS)
def test_each_file_of_the_matrix_is_there(path: str) -> None:
    assert (Path(__file__).parents[1] / path).is_file()
