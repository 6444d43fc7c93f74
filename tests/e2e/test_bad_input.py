"""Bad input: one clear message that says what to do, what served serves on, and it heals when the cause goes."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.e2e.expect import (
    all_is_well,
    attempts_fail,
    command_reload,
    complaints,
    edit,
    list_again,
    new_pod_answers,
    one_complaint,
    serving,
    undisturbed,
)
from tests.world.appliance import Appliance
from tests.world.haproxy import fetch, free_port

pytestmark = pytest.mark.haproxy

EXTRA = """frontend extra
    mode http
    bind {address}:{port}
    http-request return status 200 content-type text/plain string "extra"
"""
OLD, NEW = "reqadd X-Forwarded-Proto:\\ http", "http-request add-header X-Forwarded-Proto http"


def test_each_bad_edit_is_told_once_with_its_line_stops_nobody_and_heals(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    before, port = appliance.haproxy.running(), free_port()
    extra = EXTRA.format(address="127.0.0.1", port=port)
    undefined = "{% for domain, items in domains.items() %}\n# {{ items.protocol }}\n{% endfor %}\n"
    cases = (
        ("06-a.conf", EXTRA.format(address="203.0.113.77", port=port), ("203.0.113.77", "06-a.conf line 3"), ""),
        ("06-b.conf", "backend x\n    mode http\n    no-such-keyword\n", ("06-b.conf line 3",), ""),
        ("06-c.tmpl", f"{extra}    {OLD}\n", ("06-c.tmpl", "line 5", "reqadd"), NEW),
        ("06-d.tmpl", "# fine\n{% fro domain in domains %}\n", ("06-d.tmpl line 2", "fro"), ""),
        ("06-e.tmpl", undefined, ("06-e.tmpl line 2", "protocol", "shop"), "proto"),
    )
    with undisturbed(appliance):
        for name, text, words, remedy in cases:
            edit(templates / name, text)
            appliance.until(lambda: appliance.status()["problems"], f"{name} is refused")
            new_pod_answers(appliance)
            said = one_complaint(appliance, *words)
            assert said["remedy"]
            assert remedy in said["remedy"]
            assert appliance.get("/readyz")[0] == 200, "what served goes on"
            assert name in appliance.get("/")[1]
            (templates / name).unlink()
            all_is_well(appliance)
        assert 'step="check"' in appliance.get("/metrics")[1]
        assert appliance.haproxy.running() == before

        away, generation = templates.with_name("away"), appliance.generation
        templates.rename(away)
        appliance.until(lambda: appliance.status()["problems"], "the directory is missed")
        new_pod_answers(appliance)
        one_complaint(appliance, str(templates), "does not exist")
        away.rename(templates)
        all_is_well(appliance)
        assert generation < appliance.generation <= generation + 1, "the new pod, and nothing else"

        with socket.create_server(("127.0.0.1", port)):
            edit(templates / "06-taken.conf", extra)
            attempts_fail(appliance)
            said = one_complaint(appliance, f"127.0.0.1:{port}", "06-taken.conf line 3")
            assert f"(pid {os.getpid()})" in str(said)
            assert appliance.haproxy.running() == before
        appliance.until(lambda: _answers(port) == "extra", "the new bind serves as soon as its port is free")
    all_is_well(appliance)


def _answers(port: int) -> str:
    try:
        return fetch(port)
    except OSError:
        return ""


# Lists that are suddenly empty


def _empty(appliance: Appliance) -> None:
    (server,) = appliance.servers
    server.faults.empty_list(times=None)
    list_again(server)


def test_lists_that_are_suddenly_empty_are_held_and_heal_by_themselves(appliance: Appliance) -> None:
    serving(appliance)
    (server,) = appliance.servers
    before = appliance.haproxy.running()
    with undisturbed(appliance):
        _empty(appliance)
        appliance.until(lambda: appliance.phase == "held", "the change is held")
        lists = len(server.seen("endpointslices", "list"))
        said = one_complaint(appliance, "the last ready endpoint", f"pyconfd allow {appliance.status()['hold_id']}")
        assert said["event"] == "hold.begun"
        appliance.until(lambda: len(server.seen("endpointslices", "list")) > lists + 1, "it lists again")
        assert appliance.haproxy.running() == before
        server.faults.clear()
        all_is_well(appliance)
    assert appliance.haproxy.running() == before
    assert len(complaints(appliance, "hold.begun")) == 1
    assert appliance.events("hold.returned")


# Disk and target


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare to mount a tmpfs")
def test_a_full_disk(appliance: Appliance) -> None:
    appliance.reload_always()
    state = Path(appliance.values[""]["state_dir"])
    state.mkdir()
    mount = f'mount -t tmpfs -o size=256k none {state} && exec "$@"'
    appliance.launcher = ("unshare", "--mount", "sh", "-c", mount, "sh")
    serving(appliance)
    assert appliance.daemon is not None
    seen_by_pyconfd = Path(f"/proc/{appliance.daemon.pid}/root{state}")
    before = appliance.haproxy.running()
    with undisturbed(appliance):
        filler = seen_by_pyconfd / "filler"
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"x" * 1_000_000)
        pod = appliance.scale_up("shop")
        attempts_fail(appliance)
        one_complaint(appliance, str(state), "No space left on device", "free some space")
        assert appliance.haproxy.running() == before
        filler.unlink()
        appliance.until(lambda: appliance.ask("shop") == pod, "it is applied when there is space again")
    all_is_well(appliance)
    leftovers = [path.name for path in appliance.haproxy.conf.parent.iterdir() if path.name.startswith(".")]
    assert leftovers == []


def test_a_target_that_is_a_directory(appliance: Appliance) -> None:
    appliance.reload_always()
    serving(appliance)
    conf = appliance.haproxy.conf
    with undisturbed(appliance):
        conf.unlink()
        conf.mkdir()
        pod = appliance.scale_up("shop")
        attempts_fail(appliance)
        one_complaint(appliance, str(conf), "directory")
        conf.rmdir()
        appliance.until(lambda: appliance.ask("shop") == pod, "it is applied when the directory is gone")
    all_is_well(appliance)
    assert conf.is_file()


# The reload


def test_a_reload_command_that_hangs(appliance: Appliance) -> None:
    """One that fails is class 2 in test_failure_classes.py."""
    appliance.reload_always()
    hang = appliance.folder / "hang"
    command_reload(appliance, f"if [ -e {hang} ]; then sleep 600; fi")
    appliance.values["haproxy"] |= {"reload_timeout_s": 4}
    serving(appliance)
    before = appliance.haproxy.running()
    former = appliance.haproxy.conf.read_text()
    with undisturbed(appliance):
        hang.touch()
        pod = appliance.scale_up("shop")
        attempts_fail(appliance, 2)
        one_complaint(appliance, "did not end within 4 s")
        appliance.until(lambda: appliance.haproxy.conf.read_text() == former, "the former file is back")
        assert appliance.haproxy.running() == before
        hang.unlink()
        appliance.until(lambda: appliance.ask("shop") == pod, "the reload is tried again, with no new event")
    all_is_well(appliance)
    assert len(complaints(appliance, "generation.failed", "did not end")) == 1
