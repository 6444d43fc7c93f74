"""The first start beside a haproxy that serves a site which pyconfd did not configure."""

import json
from pathlib import Path

import pytest

from tests.e2e.expect import beats
from tests.world.appliance import Appliance
from tests.world.haproxy import configuration, fetch, free_port, wait_until

pytestmark = pytest.mark.haproxy


@pytest.fixture
def old_port(appliance: Appliance) -> int:
    """Start haproxy with a site of its own on this port, and write the settings of pyconfd."""
    port = free_port()
    appliance.haproxy.conf.write_text(configuration(port, "old site"))
    appliance.haproxy.start()
    appliance.own_fragments()
    appliance.serve("shop")
    appliance.write_settings()
    return port


def waits(appliance: Appliance) -> None:
    appliance.until(lambda: appliance.phase == "held", "it waits for the operator")
    beats(appliance)


def test_a_first_start_leaves_the_old_site_alone(appliance: Appliance, old_port: int) -> None:
    before = appliance.haproxy.conf.read_text()
    for _ in range(2):  # a restart of pyconfd adopts nothing either
        appliance.spawn()
        waits(appliance)
        appliance.scale_up("shop")
        beats(appliance)
        assert fetch(old_port) == "old site"
        assert appliance.haproxy.conf.read_text() == before
        shown = appliance.command("status")
        assert shown.returncode == 1
        assert f"frontend fe_main (bind 127.0.0.1:{old_port})" in shown.stdout
        assert "pyconfd adopt --copy" in shown.stdout
        assert "pyconfd allow" not in shown.stdout
        assert appliance.command("allow", "adopt").returncode == 1
        assert appliance.stop() == 0


def test_plan_and_preflight_name_what_would_disappear(appliance: Appliance, old_port: int) -> None:
    lost = f"frontend fe_main (bind 127.0.0.1:{old_port})"
    assert lost in appliance.command("plan").stderr
    findings = json.loads(appliance.command("preflight", "--json").stdout)["findings"]
    (found,) = [each for each in findings if lost in each["message"]]
    assert (found["level"], "pyconfd adopt" in found["remedy"]) == ("warning", True)
    assert fetch(old_port) == "old site"


def test_adopt_with_copy_keeps_the_old_site(appliance: Appliance, old_port: int) -> None:
    appliance.spawn()
    waits(appliance)
    done = appliance.command("adopt", "--copy")
    assert done.returncode == 0, done.stderr
    appliance.until(lambda: appliance.settled() and appliance.generation, "pyconfd goes on")
    appliance.until(lambda: appliance.ask("shop").startswith("shop-"), "the cluster is served")
    assert fetch(old_port) == "old site"
    assert "pyconfd:" in appliance.haproxy.conf.read_text()
    copy = Path(appliance.values["templates"]["dir"]) / "00-adopted.conf"
    assert "frontend fe_main" in copy.read_text()
    # From now on it is an ordinary fragment.
    copy.unlink()
    wait_until(lambda: not _answers(old_port), "the fragment is gone, and so is the site")


def test_adopt_replaces_the_old_site(appliance: Appliance, old_port: int) -> None:
    assert appliance.command("adopt").returncode == 0  # before the first start as well
    appliance.spawn()
    appliance.until(lambda: appliance.settled() and appliance.generation, "pyconfd goes on")
    appliance.until(lambda: appliance.ask("shop").startswith("shop-"), "the cluster is served")
    assert not _answers(old_port)
    assert "nothing to adopt" in appliance.command("adopt").stdout


def test_a_copy_that_clashes_with_a_fragment_is_refused(appliance: Appliance, old_port: int) -> None:
    appliance.values["templates.vars"]["http_bind"] = f"127.0.0.1:{old_port}"
    appliance.spawn()
    waits(appliance)
    done = appliance.command("adopt", "--copy")
    assert done.returncode == 1
    assert f"bind 127.0.0.1:{old_port} of frontend http-in: also bound by frontend fe_main" in done.stderr
    assert not (Path(appliance.values["templates"]["dir"]) / "00-adopted.conf").exists()
    beats(appliance)
    assert (appliance.phase, fetch(old_port)) == ("held", "old site")


def _answers(port: int) -> bool:
    try:
        fetch(port)
    except (OSError, AssertionError):
        return False
    return True
