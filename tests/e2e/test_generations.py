"""History, rollback and pins of the whole appliance."""

import json
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pyconfd.status.changes import ChangeReader
from tests.e2e.expect import all_is_well, beats, edit, list_again, new_pod_answers, serving, texts_in, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.haproxy import BINARY, fetch, free_port
from tests.world.objects import EndpointSpec, PortSpec

pytestmark = pytest.mark.haproxy

GREETING = """frontend greeting
    bind 127.0.0.1:{port}
    mode http
    http-request return status 200 content-type text/plain string "{text}"
"""


ports: dict[Appliance, int] = {}
"""Where each appliance greets."""


def greeted(appliance: Appliance, text: str) -> None:
    """Write the fragment with the greeting, and wait until it serves."""
    write_greeting(appliance, text)
    appliance.until(lambda: greeting(appliance) == text, f"{text} is served")
    all_is_well(appliance)


def write_greeting(appliance: Appliance, text: str) -> None:
    path = Path(appliance.values["templates"]["dir"]) / "30-greeting.conf"
    edit(path, GREETING.format(port=ports[appliance], text=text))


def greeting(appliance: Appliance) -> str:
    try:
        return fetch(ports[appliance])
    except OSError:
        return ""


GREETING_EDITED = {
    "kind": "fragment",
    "name": "30-greeting.conf",
    "what": "edited",
    "lines_added": 1,
    "lines_removed": 1,
}
"""The edit of its text."""


def rows(appliance: Appliance) -> list[dict[str, Any]]:
    done = appliance.command("history", "--json")
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@pytest.fixture
def greeter(appliance: Appliance) -> Appliance:
    """Return an appliance that serves a shop, and a greeting of a fragment; two versions of that served already."""
    appliance.own_fragments()
    ports[appliance] = free_port()
    write_greeting(appliance, "first")
    serving(appliance)
    appliance.until(lambda: greeting(appliance) == "first", "the first greeting is served")
    greeted(appliance, "second")
    return appliance


def test_history_tells_what_changed_and_a_rollback_pins_fragments_while_endpoints_stay_live(greeter: Appliance) -> None:
    new_pod_answers(greeter)
    all_is_well(greeter)
    # What goes live is kept a moment later.
    greeter.until(lambda: rows(greeter)[0]["number"] == greeter.generation, "the newest is kept")
    greeter.until(lambda: rows(greeter)[0]["causes"], "what caused it is written")
    listed = rows(greeter)
    live, edited = listed[0], next(row for row in listed if row["edits"])
    assert (live["how"], live["reasons"], live["edits"], live["serving"]) == ("live", [], [], True)
    assert any("1 server added" in change for change in live["changes"]), live
    (cause,) = [each for each in live["causes"] if each.startswith("EndpointSlice")]
    assert cause.startswith(f"EndpointSlice {NAMESPACE}/shop-")
    assert edited["causes"] == []
    assert edited["how"] == "reload"
    assert edited["reasons"]
    assert edited["edits"] == [GREETING_EDITED]
    assert edited["changes"] == ["frontend greeting changed"]
    text = greeter.command("history").stdout
    assert "fragment 30-greeting.conf edited (+1 -1 lines)" in text
    assert f", by {cause}" in text
    with ChangeReader(greeter.values[""]["runtime_dir"]) as reader:
        assert any(cause in change.causes for change in reader.known())
    shown = greeter.command("diff", str(edited["since"]), str(edited["number"]))
    assert shown.returncode == 2
    assert "fragment 30-greeting.conf edited" in shown.stdout
    assert '+    http-request return status 200 content-type text/plain string "second"' in shown.stdout
    latest = json.loads(greeter.command("diff", "--json").stdout)
    assert (latest["from"], latest["to"]) == (live["since"], live["number"])
    assert latest["changes"]
    missing = greeter.command("diff", "999")
    assert (missing.returncode, "generation 999 is not kept" in missing.stderr) == (1, True)

    bad = edited["number"]
    with undisturbed(greeter):
        done = greeter.command("rollback", "--reason", "greeting is rude", "--json")
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said["serving"] > bad > said["pinned"]
        assert greeting(greeter) == "first"
        seen = list[str]()

        def names_the_edit() -> bool:
            seen.append(greeter.command("status").stdout)
            return "fragment 30-greeting.conf edited (+1 -1 lines)" in seen[-1]

        greeter.until(names_the_edit, "what is on disk waits")
        status = seen[-1]
        assert f"PINNED to generation {said['pinned']}" in status
        assert "greeting is rude" in status
        new_pod_answers(greeter)
        write_greeting(greeter, "third")
        beats(greeter)
        assert greeting(greeter) == "first"
        again = greeter.command("rollback")
        assert (again.returncode, "pinned already" in again.stderr) == (1, True)
        done = greeter.command("unpin")
        assert (done.returncode, done.stderr) == (0, "")
        assert greeting(greeter) == "third"
        assert greeter.status()["pin"] is None
        assert "Nothing was pinned" in greeter.command("unpin").stdout
    all_is_well(greeter)
    done = greeter.command("rollback", "77")
    assert (done.returncode, "generation 77 is not kept" in done.stderr) == (1, True)

    # What another program has bound meanwhile cannot be bound again.
    old_port, ports[greeter] = ports[greeter], free_port()
    write_greeting(greeter, "elsewhere")
    greeter.until(lambda: greeting(greeter) == "elsewhere", "the new port is served")
    all_is_well(greeter)
    with socket.create_server(("127.0.0.1", old_port)):
        done = greeter.command("rollback")
        assert done.returncode == 1, done.stdout
        assert "which are not applied yet" in done.stderr
        assert str(old_port) in done.stderr
        assert greeting(greeter) == "elsewhere"
        new_pod_answers(greeter)
    greeter.until(lambda: greeter.status()["pin"]["serves"], "it serves when the port is free")
    assert greeter.command("unpin").returncode == 0


def test_a_renewed_token_is_no_fragment_edit(appliance: Appliance) -> None:
    directory = appliance.own_fragments()
    token = directory / "token.j2"  # a name that templates may include, were it not a credential
    appliance.values["kubernetes"]["token_file"] = str(token)
    token.write_text("planted-token-1")
    appliance.servers[0].token = "planted-token-1"
    ports[appliance] = free_port()
    write_greeting(appliance, "first")
    serving(appliance)
    greeted(appliance, "second")
    edit(token, "planted-token-2")
    appliance.servers[0].token = "planted-token-2"
    list_again(appliance.servers[0])
    appliance.until(lambda: appliance.events("credentials.changed"), "the new token is in use")
    new_pod_answers(appliance)
    all_is_well(appliance)
    appliance.until(lambda: rows(appliance)[0]["number"] == appliance.generation, "the newest is kept")
    assert [row["edits"] for row in rows(appliance) if row["edits"]] == [[GREETING_EDITED]]
    done = appliance.command("rollback", "--json")
    assert done.returncode == 0, done.stderr
    assert greeting(appliance) == "first"  # not the same fragments with the former token
    assert appliance.command("unpin").returncode == 0
    holders = [path for path, text in texts_in(appliance.folder / "state") if "planted-token" in text]
    assert holders == []
    template = directory / "40-steals.tmpl"
    edit(template, "{% include 'token.j2' %}\n")
    appliance.until(lambda: appliance.phase == "rejected", "the fragment is refused")
    (problem,) = appliance.status()["problems"]
    assert "never credentials" in problem


def test_a_pin_outlives_restarts_and_hangups_and_is_taken_up_by_a_start(greeter: Appliance) -> None:
    assert greeter.stop() == 0
    done = greeter.command("rollback")
    assert (done.returncode, "next start" in done.stdout) == (0, True)
    assert greeting(greeter) == "second"
    greeter.spawn()
    greeter.until(lambda: greeting(greeter) == "first", "the start takes up the pin")
    greeter.until(lambda: (greeter.status().get("pin") or {}).get("serves"), "it says so")
    greeter.reload_settings()
    greeter.until(greeter.settled, "it serves")
    beats(greeter)
    assert greeting(greeter) == "first"
    greeter.kill()
    greeter.spawn()
    greeter.until(greeter.settled, "it serves")
    beats(greeter)
    assert (greeting(greeter), greeter.status()["pin"]["serves"]) == ("first", True)
    assert greeter.command("unpin").returncode == 0
    assert greeting(greeter) == "second"


def test_settings_go_back_with_the_fragments_but_for_secrets(greeter: Appliance) -> None:
    path = Path(greeter.values["templates"]["dir"]) / "30-greeting.conf"
    path.unlink()
    template = path.with_suffix(".tmpl")
    edit(template, GREETING.format(port=ports[greeter], text="{{ vars.text }} {{ vars.api_token }}"))
    greeter.values["templates.vars"] |= {"text": "old", "api_token": "abc"}
    greeter.write_settings()
    greeter.reload_settings()
    greeter.until(lambda: greeting(greeter) == "old abc", "the settings are in force")
    all_is_well(greeter)
    former = rows(greeter)[0]["number"]
    greeter.values["templates.vars"] |= {"text": "new", "api_token": "xyz"}
    greeter.write_settings()
    greeter.reload_settings()
    greeter.until(lambda: greeting(greeter) == "new xyz", "the settings are in force")
    all_is_well(greeter)
    assert [(each["name"], each["what"]) for each in rows(greeter)[0]["edits"]] == [("templates.vars.text", "changed")]
    done = greeter.command("rollback", str(former))
    assert done.returncode == 0, done.stderr
    assert greeting(greeter) == "old xyz"
    # What waits is told a moment later.
    greeter.until(
        lambda: "setting templates.vars.text changed" in greeter.command("status").stdout, "what is on disk waits"
    )
    kept = [text for _, text in texts_in(greeter.folder / "state" / "inputs")]
    assert kept
    assert not any("abc" in text or "xyz" in text for text in kept)
    said = greeter.command("diff", str(former)).stdout
    assert "xyz" not in said
    assert greeter.command("unpin").returncode == 0
    assert greeting(greeter) == "new xyz"


def test_a_restart_with_bad_fragments_follows_the_cluster_with_the_former_ones(greeter: Appliance) -> None:
    assert greeter.stop() == 0
    write_greeting(greeter, "third")
    path = Path(greeter.values["templates"]["dir"]) / "02-http.tmpl"
    good = path.read_text()
    edit(path, good + "\nblance roundrobin\n")
    greeter.spawn()
    greeter.until(lambda: greeter.phase == "rejected", "the new fragments are refused")
    new_pod_answers(greeter)
    assert greeting(greeter) == "second"
    edit(path, "{% fro")
    beats(greeter)
    new_pod_answers(greeter)
    greeter.kill()
    greeter.spawn()
    greeter.until(lambda: greeter.status().get("problems"), "the new fragments are refused")
    new_pod_answers(greeter)
    edit(path, good)
    greeter.until(lambda: greeting(greeter) == "third", "mended fragments are applied")
    all_is_well(greeter)


PRESTART = Path(__file__).parents[2] / "systemd" / "pyconfd-haproxy-prestart"


def test_a_boot_serves_what_ran_well_until_an_api_server_answers(greeter: Appliance) -> None:
    """The unit of haproxy starts it; that pyconfd does, too, is in test_daemon.py."""
    greeter.values["apply"]["boot_wait_s"] = 0.5
    greeter.values["history"] = {"ran_well_s": 1.0}
    greeter.write_settings()
    greeter.reload_settings()
    greeter.until(lambda: greeter.events("generation.ran_well"), "what serves has run well")
    proven = greeter.generation
    greeter.values["history"] = {"ran_well_s": 3600.0}
    greeter.write_settings()
    greeter.reload_settings()
    greeted(greeter, "third")  # which never ran for long
    new_pod_answers(greeter)
    greeter.until(lambda: rows(greeter)[0]["number"] == greeter.generation, "all is in the history")
    assert {row["number"]: row["ran_well"] for row in rows(greeter)}[proven]
    newest = greeter.generation
    greeter.kill()
    greeter.haproxy.stop()
    (server,) = greeter.servers
    server.refuse()
    environment = {
        "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
        "CONFIG": str(greeter.haproxy.conf),
        "PYCONFD_GENERATIONS": f"{greeter.folder}/state/generations",
        "PYCONFD_HAPROXY": BINARY,
        "PYCONFD_LOCK": f"{greeter.folder}/state/lock",
    }
    subprocess.run(["/bin/sh", PRESTART], env=environment, check=True)
    greeter.haproxy.start()
    assert greeting(greeter) == "second"
    greeter.spawn()
    greeter.until(lambda: greeter.phase == "serving_last_good", "the last good generation serves")
    assert greeting(greeter) == "second"
    assert greeter.generation <= proven
    assert greeter.command("status").returncode == 1  # stale, and it says so
    server.listen()
    greeter.until(lambda: greeting(greeter) == "third", "what the cluster and the fragments say is caught up with")
    all_is_well(greeter)
    assert greeter.generation > newest
    new_pod_answers(greeter)


def test_a_rollback_leaves_names_with_their_present_owners(greeter: Appliance) -> None:
    greeter.values["claims"] |= {"reserve_s": 0}
    greeter.write_settings()
    greeter.reload_settings()
    greeter.until(greeter.settled, "it serves")
    ports_of = [PortSpec(name="web", port=80, target=greeter.pods.port)]
    claim = {"domain": "contested.example.com", "proto": "http"}

    def put_up(namespace: str, pod: str, address: str) -> None:
        greeter.pods.add(pod, address)
        greeter.cluster.add_service(namespace, "contested", ports=ports_of, annotations=claim)
        greeter.cluster.set_endpoints(namespace, "contested", [EndpointSpec(address, pod=pod)])

    def answers(pod: str) -> None:
        greeter.until(lambda: greeter.ask("contested") == pod, f"{pod} answers")
        greeter.until(greeter.settled, "it serves")

    put_up("first", "first-pod", "127.18.200.1")
    answers("first-pod")
    greeter.until(lambda: rows(greeter)[0]["number"] == greeter.generation, "all is in the history")
    former = greeter.generation
    greeter.cluster.delete("services", "first", "contested")
    put_up("second", "second-pod", "127.18.200.2")
    answers("second-pod")
    beats(greeter)  # its creation is told in whole seconds
    greeter.cluster.add_service("first", "contested", ports=ports_of, annotations=claim)
    greeter.cluster.set_endpoints("first", "contested", [EndpointSpec("127.18.200.1", pod="first-pod")])
    beats(greeter)
    assert greeter.ask("contested") == "second-pod"  # the older one has it
    done = greeter.command("rollback", str(former))
    assert done.returncode == 0, done.stderr
    answers("second-pod")
    new_pod_answers(greeter)
