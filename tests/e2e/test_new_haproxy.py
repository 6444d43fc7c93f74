"""``pyconfd preflight --new-haproxy`` beside a real daemon, with a program that stands for a newer haproxy."""

from pathlib import Path

import pytest

from pyconfd.haproxy.runtime.route_figures import FILE_NAME
from tests.e2e.expect import edit, of, preflight, serving
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(900)]

NEW_HAPROXY = f"""#!/bin/sh
# The haproxy of this machine, as a version would be that warns of one word and refuses another.
case "$1" in -v) echo "HAProxy version 9.9.1 2026/01/01"; exit 0 ;; -vv) exec {BINARY} -vv ;; esac
for last; do :; done
grep -q 'option http-ignore-probes' "$last" && echo "[WARNING]  (7) : config : 'http-ignore-probes' will go in 10.0" >&2
grep -q 'REFUSED' "$last" || exec {BINARY} "$@"
echo "[ALERT]    (7) : config : parsing [$last:$(grep -n REFUSED "$last" | cut -d: -f1)] : unknown keyword" >&2
exit 1
"""


def program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def files(appliance: Appliance) -> set[Path]:
    """Return all files but those that the daemon writes meanwhile."""
    return {path for path in appliance.folder.rglob("*") if "run" not in path.parts and path.name != FILE_NAME}


def test_a_new_haproxy_judges_all_that_it_may_have_to_serve(appliance: Appliance, tmp_path: Path) -> None:
    fragments = appliance.own_fragments()
    serving(appliance)
    new = program(tmp_path / "new-haproxy", NEW_HAPROXY)
    before = files(appliance)

    good = preflight(appliance, "--new-haproxy", new)
    assert not of(good, "warning")
    assert not of(good, "failure")
    said = " / ".join(f"{each['what']} {each['message']}" for each in of(good, "ok"))
    for part in ("version 9.9.1", "what is installed", "boot without any API", "what the cluster gives"):
        assert part in said
    assert files(appliance) - before == set()

    # What serves now is warned of, and the fragment that comes next is refused.
    fragment = fragments / "01-defaults.conf"
    edit(fragment, fragment.read_text() + "    option http-ignore-probes\n")
    appliance.until(lambda: "http-ignore-probes" in appliance.haproxy.conf.read_text(), "the option is installed")
    assert appliance.stop() == 0
    (fragments / "09-own.conf").write_text("# REFUSED by what comes\n")
    bad = preflight(appliance, "--new-haproxy", new, code=1)
    assert [each["message"] for each in of(bad, "warning")] == ["config : 'http-ignore-probes' will go in 10.0"]
    assert [each["what"] for each in of(bad, "failure")] == ["09-own.conf line 1"]
    assert "until then keep the haproxy that runs" in of(bad, "failure")[0]["remedy"]

    # What the cluster gives cannot be known; the rest can.
    (fragments / "09-own.conf").unlink()
    for server in appliance.servers:
        server.refuse()
    away = preflight(appliance, "--new-haproxy", new)
    assert "--snapshot" in {each["what"]: each["remedy"] for each in of(away, "warning")}["the cluster as it is"]
    preflight(appliance, "--new-haproxy", new, "--strict", code=1)


def test_what_is_no_haproxy(appliance: Appliance, tmp_path: Path) -> None:
    other = program(tmp_path / "other", "#!/bin/sh\necho hello\n")
    assert of(preflight(appliance, "--new-haproxy", other, code=1), "failure")[0]["remedy"] == "is it HAProxy?"
    assert of(preflight(appliance, "--new-haproxy", "/nowhere/haproxy", code=1), "failure")
