"""The scenes of the demos are the end-to-end tests of the presets: fake API servers; real haproxy, nginx and TLS.

Those of the presets that are in use by default are repeated by tests/e2e.
"""

import importlib
import json
import shlex
import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from pyconfd.cli.exits import Exit
from pyconfd.model.context import AUTOMATIC_PRESETS, PresetName
from tests.demo.playing import first_configuration, keep, new_name, renew, to_try
from tests.demo.routes import canary, ingress
from tests.demo.sample import SampleStage
from tests.demo.stage import Stage
from tests.world.clients import Crowd


def assert_that_it_can_be_kept(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    """Run what ``make demo KEEP=1`` says to try, but for what ends by hand, edits, or needs kubectl."""
    clients = list[Crowd]()
    with pytest.MonkeyPatch.context() as patch:
        start = stage.clients
        patch.setattr(stage, "clients", lambda: clients.extend(start()))
        capsys.readouterr()
        keep(stage)
    assert capsys.readouterr().out.splitlines()[-1].strip() == f"http://127.0.0.1:{stage.page}/"
    assert clients
    for client in clients:
        stage.until(lambda client=client: client.seen().total() > 2, "a client is answered")  # type: ignore[misc]
    for client in clients:
        answers = client.stop()
        assert all("-" in pod or "@" in pod for pod in answers), answers
    for command in (*stage.to_try(), *to_try(stage)):
        program, *words = shlex.split(command, comments=True)
        if program == "curl":
            words = ["--fail", "--silent", "--show-error", "--globoff", *words]
        elif not program.endswith("/pyconfd") or {"watch", "-f"} & {*words}:
            continue
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False, timeout=60)
        wrong = done.returncode != Exit.OK if program == "curl" else done.returncode == Exit.USAGE
        assert not wrong, f"{command}: {done.stderr}"


@pytest.mark.haproxy
@pytest.mark.parametrize("preset", sorted(set(PresetName) - set(AUTOMATIC_PRESETS)))
def test_every_promise_of_the_demo_holds(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    play = importlib.import_module(f"tests.demo.{preset}").scenes()
    with play.stage() as stage:
        stage.populate()
        for scene in play.scenes:
            try:
                scene(stage)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{stage.tail()}") from error
        assert_that_it_can_be_kept(stage, capsys)


_INTERRUPTED = """
import runpy, signal, sys

class Interrupting:
    def find_spec(self, name, *_):
        if name == "tests.world.clients":
            signal.raise_signal(signal.{name})

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has ignored
sys.meta_path.insert(0, Interrupting())
runpy.run_module("tests.demo", run_name="__main__")
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP", "SIGTERM"])
def test_ctrl_c_during_the_imports_ends_with_a_sentence(name: str) -> None:
    code = _INTERRUPTED.replace("{name}", name)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\nEverything has been stopped.\n", "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_ctrl_c_while_the_demo_ends_leaves_nothing(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> None:
    with suppress(KeyboardInterrupt), SampleStage() as stage:
        monkeypatch.setattr(stage, "stop", lambda: signal.raise_signal(number))
    assert not stage.haproxy.sockets.exists(), "haproxy was not stopped"
    assert not stage.folder.exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.haproxy
def test_the_demo_can_be_kept_and_its_log_has_the_traffic(capsys: pytest.CaptureFixture[str]) -> None:
    with SampleStage() as stage:
        stage.populate()
        for scene in (first_configuration, new_name, renew, ingress, canary):
            scene(stage)
        assert_that_it_can_be_kept(stage, capsys)
        logged = [json.loads(each) for each in stage.command("logs", "--json").stdout.splitlines()]
        assert {"Service/demo/shop", "Service/demo/docs", "Ingress/demo/www"} <= {each.get("object") for each in logged}
