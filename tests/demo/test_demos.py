"""The scenes of the demos are the end-to-end tests of the presets: fake API servers; real haproxy, nginx and TLS.

Those of the presets that are in use by default are repeated by tests/e2e.
"""

import importlib
import shlex
import subprocess

import pytest

from pyconfd.cli.exits import Exit
from pyconfd.model.context import AUTOMATIC_PRESETS, PresetName
from tests.demo.__main__ import to_try


@pytest.mark.haproxy
@pytest.mark.parametrize("preset", sorted(set(PresetName) - set(AUTOMATIC_PRESETS)))
def test_every_promise_of_the_demo_holds(preset: str) -> None:
    play = importlib.import_module(f"tests.demo.{preset}").scenes()
    with play.stage() as stage:
        stage.populate()
        for scene in play.scenes:
            scene(stage)
        stage.servers[0].listen()
        for command in to_try(stage):
            if "/pyconfd " in command and " watch " not in command:
                done = subprocess.run(shlex.split(command), capture_output=True, text=True, check=False, timeout=60)
                assert done.returncode != Exit.USAGE, f"{command}: {done.stderr}"
