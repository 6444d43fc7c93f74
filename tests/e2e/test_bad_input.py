"""Bad input: one clear message that says what to do, what served serves on, and it heals when the cause goes."""

import os
import shutil
import socket
from pathlib import Path

import pytest

from tests.e2e.expect import (
    all_is_well,
    attempts_fail,
    beats,
    complaints,
    edit,
    lists_anew,
    new_pod_answers,
    one_complaint,
    serving,
    undisturbed,
)
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.haproxy import fetch, free_port

pytestmark = pytest.mark.haproxy

EXTRA = """frontend extra
    mode http
    bind {address}:{port}
    http-request return status 200 content-type text/plain string "extra"
"""


def test_a_new_bind_whose_port_is_taken_is_not_reloaded(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    before = appliance.haproxy.running()
    port = free_port()
    with undisturbed(appliance):
        with socket.create_server(("127.0.0.1", port)):
            edit(templates / "06-extra.conf", EXTRA.format(address="127.0.0.1", port=port))
            attempts_fail(appliance)
            said = one_complaint(appliance, f"127.0.0.1:{port}", "06-extra.conf line 3")
            assert f"(pid {os.getpid()})" in str(said)
            assert appliance.haproxy.running() == before
        appliance.until(lambda: _answers(port) == "extra", "the new bind serves as soon as its port is free")
    all_is_well(appliance)


def test_a_new_bind_whose_address_is_absent_is_not_reloaded(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    before = appliance.haproxy.running()
    port = free_port()
    with undisturbed(appliance):
        fragment = templates / "06-extra.conf"
        edit(fragment, EXTRA.format(address="203.0.113.77", port=port))
        attempts_fail(appliance)
        one_complaint(appliance, f"203.0.113.77:{port}", "06-extra.conf line 3")
        assert appliance.haproxy.running() == before
        edit(fragment, EXTRA.format(address="127.0.0.1", port=port))
        appliance.until(lambda: _answers(port) == "extra", "the corrected bind serves")
    all_is_well(appliance)


@pytest.mark.parametrize(
    "fragment",
    [
        pytest.param(EXTRA.format(address="203.0.113.77", port=18999), id="absent address"),
        pytest.param("backend broken\n    mode http\n    no-such-keyword\n", id="refused by haproxy"),
    ],
)
def test_while_a_fragment_is_refused_endpoint_changes_go_on_with_the_former_fragments(
    appliance: Appliance, fragment: str
) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    edit(templates / "06-extra.conf", fragment)
    appliance.until(lambda: appliance.phase == "rejected", "the fragment is refused")
    with undisturbed(appliance):
        new_pod_answers(appliance)
    attempts_fail(appliance)
    said = one_complaint(appliance, "06-extra.conf line 3")
    assert said["event"] == "generation.rejected"
    (templates / "06-extra.conf").unlink()
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
    lists_anew(server)


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


def test_an_operator_lets_an_empty_list_through_once(appliance: Appliance) -> None:
    serving(appliance)
    appliance.cluster.set_endpoints(NAMESPACE, "shop", [])
    appliance.until(lambda: appliance.phase == "held", "the change is held")
    assert appliance.ask("shop") == "shop-1"
    hold = appliance.status()["hold_id"]
    assert appliance.command("allow", "00000000").returncode == 1
    assert appliance.command("allow", hold).returncode == 0
    appliance.until(lambda: appliance.ask("shop") == "503", "the change is applied")
    all_is_well(appliance)
    new_pod_answers(appliance)
    appliance.cluster.set_endpoints(NAMESPACE, "shop", [])
    appliance.until(lambda: appliance.phase == "held", "the next one is held again")


# Objects


def test_an_annotation_with_a_line_break_is_refused_and_the_others_go_on(appliance: Appliance) -> None:
    appliance.serve("evil", {"domain": "evil.example.com\n    bind :1", "proto": "http"})
    serving(appliance)
    (said,) = complaints(appliance)
    assert said["event"] == "object.refused"
    assert said["object"].endswith("demo/evil")
    assert "evil.example.com" in appliance.command("status").stdout
    new_pod_answers(appliance)
    assert "bind :1" not in appliance.haproxy.conf.read_text()
    assert len(complaints(appliance)) == 1
    appliance.cluster.annotate("services", NAMESPACE, "evil", {"domain": "evil.example.com"})
    appliance.until(lambda: appliance.ask("evil") == "evil-1", "the mended annotation is served")
    appliance.until(lambda: appliance.events("refusal.cleared"), "and it is said")


# Fragments


def test_a_fragment_with_a_syntax_error(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    with undisturbed(appliance):
        edit(templates / "06-extra.tmpl", "# fine\n{% fro domain in domains %}\n")
        appliance.until(lambda: appliance.status()["problems"], "the problem is shown")
        new_pod_answers(appliance)
        beats(appliance)
        said = one_complaint(appliance, "06-extra.tmpl line 2", "fro")
        assert said["remedy"]
        edit(templates / "06-extra.tmpl", "# fine\n")
        all_is_well(appliance)
    appliance.until(lambda: "# fine" in appliance.haproxy.conf.read_text(), "the file follows")
    assert appliance.events("problem.cleared")


def test_an_undefined_name_is_told_with_fragment_line_and_object(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    extra = "# fine\n{% for domain, items in domains.items() %}\n# {{ items.protocol }}\n{% endfor %}\n"
    with undisturbed(appliance):
        edit(templates / "06-extra.tmpl", extra)
        attempts_fail(appliance)
        said = one_complaint(appliance, "06-extra.tmpl line 3", "protocol", "shop")
        assert "proto" in said["remedy"]
        edit(templates / "06-extra.tmpl", extra.replace("protocol", "proto"))
        all_is_well(appliance)
    appliance.until(lambda: "# http\n" in appliance.haproxy.conf.read_text(), "the file follows")


def test_a_template_directory_that_vanishes_and_comes_back(appliance: Appliance) -> None:
    templates = appliance.own_fragments()
    serving(appliance)
    away = templates.with_name("away")
    with undisturbed(appliance):
        templates.rename(away)
        appliance.until(lambda: appliance.status()["problems"], "the problem is shown")
        new_pod_answers(appliance)
        beats(appliance)
        one_complaint(appliance, str(templates), "does not exist")
        generation = appliance.generation
        away.rename(templates)
        all_is_well(appliance)
    assert appliance.generation == generation
    assert appliance.events("problem.cleared")


# Disk and target


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare to mount a tmpfs")
def test_a_full_disk(appliance: Appliance) -> None:
    appliance.reload_always()
    state = Path(appliance.values[""]["state_dir"])
    state.mkdir()
    mount = f'mount -t tmpfs -o size=128k none {state} && exec "$@"'
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


def test_a_target_that_is_a_directory_from_the_start(appliance: Appliance) -> None:
    conf = appliance.haproxy.conf
    conf.mkdir()
    appliance.serve("shop")
    appliance.spawn()
    attempts_fail(appliance)
    assert len(complaints(appliance, "generation.failed", "directory")) == 1
    conf.rmdir()
    appliance.until(conf.is_file, "the first configuration is written")
    appliance.haproxy.start()
    all_is_well(appliance)
    assert appliance.ask("shop") == "shop-1"


# The reload


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        pytest.param("echo the disk is on fire; exit 3", ("ended with 3", "the disk is on fire"), id="fails"),
        pytest.param("sleep 600", ("did not end within 1 s",), id="hangs"),
    ],
)
def test_a_reload_command_that_fails_or_hangs(appliance: Appliance, behaviour: str, words: tuple[str, ...]) -> None:
    appliance.reload_always()
    script, mood = appliance.folder / "reload", appliance.folder / "mood"
    good = f"kill -USR2 $(cat {appliance.haproxy.pid_file})"
    mood.write_text(good)
    script.write_text(f"#!/bin/sh\n. {mood}\n")
    script.chmod(0o755)
    appliance.values["haproxy"] |= {
        "reload_method": "command",
        "reload_cmd": str(script),
        "reload_timeout_s": 1,
    }
    serving(appliance)
    before = appliance.haproxy.running()
    former = appliance.haproxy.conf.read_text()
    with undisturbed(appliance):
        mood.write_text(behaviour)
        pod = appliance.scale_up("shop")
        attempts_fail(appliance, 2)
        one_complaint(appliance, str(script), *words)
        appliance.until(lambda: appliance.haproxy.conf.read_text() == former, "the former file is back")
        assert appliance.haproxy.running() == before
        mood.write_text(good)
        appliance.until(lambda: appliance.ask("shop") == pod, "the reload is tried again, with no new event")
    all_is_well(appliance)
    assert len(complaints(appliance, "generation.failed", *words)) == 1
