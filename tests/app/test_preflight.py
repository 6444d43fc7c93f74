"""The parts of the look that need no world."""

from dataclasses import replace
from pathlib import Path

from pyconfd import app
from pyconfd.app.inspecting import another_user, preflight
from pyconfd.model.preflight import Level
from pyconfd.settings import HaproxySettings, KubernetesSettings, Settings


def test_a_clock_from_before_this_version_is_a_failure(tmp_path: Path) -> None:
    settings = Settings(
        state_dir=str(tmp_path), runtime_dir=str(tmp_path), kubernetes=KubernetesSettings(kubeconfig="/nowhere")
    )
    settings = replace(settings, haproxy=HaproxySettings(binary="/nowhere", conf=f"{tmp_path}/haproxy.cfg"))
    (first, *_) = preflight(settings, clock=lambda: 86400.0)
    assert (first.level, first.topic) == (Level.FAILURE, "clock")
    assert "1970-01-02" in first.message
    found = list(app.preflight(settings))
    assert found[0].level is Level.OK
    # Whatever is missing, it comes to its end.
    assert {finding.topic for finding in found if finding.level is Level.FAILURE} >= {"haproxy", "kubernetes"}


def test_whoever_looks_as_another_user_than_the_daemon_is_told_to_change_nothing() -> None:
    assert not list(another_user("pyconfd", "pyconfd"))
    (found,) = another_user("pyconfd", "root")
    assert found.level is Level.WARNING
    assert "it runs as pyconfd, and this is root" in found.message
    assert found.remedy.startswith("sudo -u pyconfd pyconfd preflight")
