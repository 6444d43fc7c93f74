"""What must hold between settings: ``contradictions.txt`` has all that is said about settings given by flags."""

import shlex
from pathlib import Path

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.settings import resolve

BLOCKS = Path(__file__).with_name("contradictions.txt").read_text(encoding="utf-8").strip().split("\n\n")


@pytest.mark.parametrize("block", BLOCKS, ids=[block.partition("\n")[0] for block in BLOCKS])
def test_what_is_said_of_settings_that_do_not_go_together(block: str) -> None:
    given, _, expected = block.partition("\n")
    flags = dict(word.split("=", 1) for word in shlex.split(given))
    try:
        said = "\n".join(f"note: {note}" for note in resolve(flags, {}, lambda _: "").notes)
    except ConfigurationError as error:
        said = str(error)
    assert said == expected
