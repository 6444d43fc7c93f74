"""The scenes of the demos are the end-to-end tests of the presets: fake API servers; real haproxy, nginx and TLS.

Those of the presets that are in use by default are repeated by tests/e2e.
"""

import importlib
import shlex
import subprocess
import sys

import pytest

from pyconfd.cli.exits import Exit
from pyconfd.model.context import AUTOMATIC_PRESETS, PresetName
from tests.demo.playing import first_configuration, new_name, renew, to_try
from tests.demo.routes import canary, ingress
from tests.demo.sample import SampleStage
from tests.demo.stage import Stage


def assert_that_its_commands_work(stage: Stage) -> None:
    """Run what ``make demo KEEP=1`` says to try, but for what ends by hand, edits, or needs kubectl."""
    stage.servers[0].listen()
    for command in (*stage.to_try(), *to_try(stage)):
        program, *words = shlex.split(command, comments=True)
        if program == "curl":
            words = ["--fail", "--silent", "--show-error", "--globoff", *words]
        elif not program.endswith("/pyconfd") or "watch" in words:
            continue
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
        wrong = done.returncode != Exit.OK if program == "curl" else done.returncode == Exit.USAGE
        assert not wrong, f"{command}: {done.stderr}"


@pytest.mark.haproxy
@pytest.mark.parametrize("preset", sorted(set(PresetName) - set(AUTOMATIC_PRESETS)))
def test_every_promise_of_the_demo_holds(preset: str) -> None:
    play = importlib.import_module(f"tests.demo.{preset}").scenes()
    with play.stage() as stage:
        stage.populate()
        for scene in play.scenes:
            try:
                scene(stage)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{stage.tail()}") from error
        assert_that_its_commands_work(stage)


_INTERRUPTED = """
import runpy, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "tests.world.clients":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupting())
runpy.run_module("tests.demo", run_name="__main__")
"""


def test_ctrl_c_during_the_imports_ends_with_a_sentence() -> None:
    done = subprocess.run([sys.executable, "-c", _INTERRUPTED], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\nEverything has been stopped.\n", "")


@pytest.mark.haproxy
def test_the_commands_that_the_demo_ends_with_work() -> None:
    with SampleStage() as stage:
        stage.populate()
        for scene in (first_configuration, new_name, renew, ingress, canary):
            scene(stage)
        assert_that_its_commands_work(stage)
