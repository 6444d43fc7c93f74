"""File systems that refuse: read-only, and of the wrong owner."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.expect import (
    all_is_well,
    attempts_fail,
    complaints,
    new_pod_answers,
    one_complaint,
    serving,
    undisturbed,
)
from tests.world.appliance import Appliance

pytestmark = [
    pytest.mark.haproxy,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "setpriv"))),
        reason="needs root, unshare, nsenter and setpriv",
    ),
]

NOBODY = 65534
UNPRIVILEGED = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
"""Root without its powers may write what is root's, and nothing else."""


def on_a_file_system_of_its_own(appliance: Appliance) -> Path:
    """Mount the state directory where only the daemon sees it; return the directory."""
    state = Path(appliance.values[""]["state_dir"])
    state.mkdir()
    mount = f'mount -t tmpfs -o size=8m none {state} && exec "$@"'
    appliance.launcher = ("unshare", "--mount", "sh", "-c", mount, "sh")
    return state


def inside(appliance: Appliance, *argv: str) -> None:
    """Run a command where the daemon sees its files."""
    assert appliance.daemon is not None
    subprocess.run(["nsenter", "-t", str(appliance.daemon.pid), "-m", *argv], check=True)


def test_a_read_only_state_directory_stops_reloads_and_nothing_that_goes_live(appliance: Appliance) -> None:
    state = on_a_file_system_of_its_own(appliance)
    serving(appliance)
    new_pod_answers(appliance)
    with undisturbed(appliance):
        inside(appliance, "mount", "--bind", str(state), str(state))
        inside(appliance, "mount", "-o", "remount,bind,ro", str(state))
        new_pod_answers(appliance)
        appliance.serve("second")
        appliance.until(lambda: complaints(appliance, "Read-only file system"), "it says why it cannot be applied")
        appliance.until(lambda: "ReadWritePaths" in appliance.command("status").stdout, "and what to do")
        new_pod_answers(appliance)
        inside(appliance, "umount", str(state))
        appliance.until(lambda: appliance.ask("second") == "second-1", "it is applied when it can be written")
    all_is_well(appliance)


def test_a_state_directory_of_somebody_else_is_said_at_the_start(appliance: Appliance) -> None:
    appliance.write_settings()
    state = Path(appliance.values[""]["state_dir"])
    state.mkdir(mode=0o755)
    os.chown(state, NOBODY, NOBODY)
    appliance.launcher = UNPRIVILEGED
    appliance.serve("shop")
    appliance.spawn()
    assert appliance.daemon is not None
    assert appliance.daemon.wait(60) == 75
    said = appliance.log.read_text()
    assert str(state) in said
    assert "root writes nothing in directories of other users" in said
    assert "Traceback" not in said
    os.chown(state, 0, 0)
    appliance.daemon = None
    appliance.start()
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "it serves")


def test_a_directory_that_is_given_to_somebody_else_meanwhile_is_said_and_heals(appliance: Appliance) -> None:
    appliance.launcher = UNPRIVILEGED
    appliance.reload_always()
    serving(appliance)
    generated = appliance.haproxy.conf.parent
    with undisturbed(appliance):
        generated.chmod(0o755)
        os.chown(generated, NOBODY, NOBODY)
        pod = appliance.scale_up("shop")
        attempts_fail(appliance)
        one_complaint(appliance, str(generated), "Permission denied", "let the user that pyconfd runs as write")
        os.chown(generated, 0, 0)
        appliance.until(lambda: appliance.ask("shop") == pod, "it is applied when it can be written")
    all_is_well(appliance)


def test_a_pin_that_cannot_be_written_is_said_and_changes_nothing(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    (templates / "40-more.conf").write_text("backend more\n    mode http\n")
    appliance.until(lambda: appliance.events("fragments.read")[1:] and appliance.settled(), "the edit is applied")
    appliance.until(lambda: appliance.command("rollback", "99").returncode == 1, "the history can be read")
    state = Path(appliance.values[""]["state_dir"])
    os.chown(state, NOBODY, NOBODY)
    state.chmod(0o755)
    try:
        argv = [*UNPRIVILEGED, sys.executable, "-m", "pyconfd", "rollback", "--config", str(appliance.config)]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 75, done.stdout
        assert f"{state}/pin" in done.stderr
        assert "Permission denied" in done.stderr
    finally:
        os.chown(state, 0, 0)
    assert appliance.status()["pin"] is None
    assert appliance.command("rollback").returncode == 0
    assert appliance.command("unpin").returncode == 0
