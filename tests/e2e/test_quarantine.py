"""One bad object never stops the others: it is left out, named and tried again; everybody else goes on."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.expect import edit, new_pod_answers, serving, undisturbed
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy

RAW = """{# A fragment that trusts annotations. #}
{% for service in cluster.services %}
{% set notes = service.annotations %}
{% if notes['example.com/balance'] is defined or notes['example.com/share'] is defined %}
backend raw-{{ service.name }}
    mode http
    balance {{ notes['example.com/balance'] | default('roundrobin') }}
    # {{ 100 // (notes['example.com/share'] | default(1) | int) }} percent
    http-request return status 200 content-type text/plain string "raw {{ service.name }}"
{% endif %}
{% endfor %}
"""


def raw(appliance: Appliance) -> Path:
    path = appliance.own_fragments() / "06-raw.tmpl"
    path.write_text(RAW)
    return path


def quarantined(appliance: Appliance) -> dict[str, dict[str, Any]]:
    status = appliance.status()
    return {item["ref"]["name"]: item for item in status.get("quarantine", {}).get("now", ())}


def annotate(appliance: Appliance, name: str, **values: str) -> None:
    notes = {f"example.com/{key}": value for key, value in values.items()}
    appliance.cluster.annotate("services", NAMESPACE, name, notes)


def isolated(appliance: Appliance, *names: str) -> None:
    """Wait until just these are in quarantine and everything else is applied."""
    wanted = set(names)
    appliance.until(lambda: set(quarantined(appliance)) == wanted and appliance.settled(), f"in quarantine: {wanted}")


def installed(appliance: Appliance) -> str:
    return appliance.haproxy.conf.read_text()


def test_an_object_that_haproxy_refuses_is_left_out_until_it_changes(appliance: Appliance) -> None:
    raw(appliance)
    appliance.serve("bad")
    serving(appliance)
    with undisturbed(appliance):
        annotate(appliance, "bad", balance="nonsense")
        isolated(appliance, "bad")
        new_pod_answers(appliance)
        (found,) = quarantined(appliance).values()
        assert found["step"] == "check"
        assert "balance only supports" in found["detail"]
        assert "06-raw.tmpl rendered line" in found["detail"]
        assert found["since"] > 0
        assert appliance.ask("bad") == "404"
        assert "raw-bad" not in installed(appliance)
        shown = appliance.command("status")
        assert shown.returncode == 0, "others' mistakes are no problem of the balancer"
        assert "demo/bad" in shown.stdout
        assert "quarantine" in shown.stdout.lower()
        metrics = appliance.get("/metrics")[1]
        assert "pyconfd_quarantined_objects 1.0" in metrics
        assert 'pyconfd_quarantined_total{step="check"} 1.0' in metrics
        annotate(appliance, "bad", balance="leastconn")
        isolated(appliance)
        appliance.until(lambda: appliance.ask("bad") == "bad-1", "what was mended is served")
        assert "raw-bad" in installed(appliance)
    assert [line["object"] for line in appliance.events("object.quarantined")] == ["Service demo/bad"]
    assert [line["object"] for line in appliance.events("object.released")] == ["Service demo/bad"]


def test_a_restart_serves_meanwhile_and_finds_them_again(appliance: Appliance) -> None:
    raw(appliance)
    appliance.serve("bad")
    serving(appliance)
    with undisturbed(appliance):
        annotate(appliance, "bad", balance="nonsense")
        isolated(appliance, "bad")
        number, before = appliance.generation, appliance.haproxy.running()
        appliance.stop()
        appliance.spawn()
        appliance.until(lambda: quarantined(appliance) and appliance.settled(), "pyconfd is back")
        isolated(appliance, "bad")
        assert appliance.generation == number
        after = appliance.haproxy.running()
        assert after is not None
        assert before is not None
        assert (after.worker_pid, after.digest) == (before.worker_pid, before.digest), "the restart changed nothing"
        new_pod_answers(appliance)


ODD = """{% for service in cluster.services if service.annotations['example.com/odd'] is defined %}
backend odd-{{ service.name }}
    mode http
{% for port in service.ports %}{% for server in port.endpoints | servers %}
    server {{ server.name }} {{ server.target }}{{ ' observe nonsense' if loop.index > 1 }}
{% endfor %}{% endfor %}
{% endfor %}
"""
"""Only the second server is wrong, and only HAProxy can tell."""


def test_a_server_that_haproxy_does_not_take_live_holds_up_nobody_else(appliance: Appliance) -> None:
    (appliance.own_fragments() / "06-odd.tmpl").write_text(ODD)
    appliance.serve("bad")
    annotate(appliance, "bad", odd="yes")
    serving(appliance)
    with undisturbed(appliance):
        appliance.scale_up("bad")
        new_pod_answers(appliance)
        isolated(appliance, "bad")
        new_pod_answers(appliance)
    assert appliance.events("runtime_update.rejected")
    assert not appliance.events("runtime_update.failed")
    assert "observe" in quarantined(appliance)["bad"]["detail"]


def test_what_went_live_and_cannot_be_loaded_is_traced(appliance: Appliance) -> None:
    appliance.serve("bad")
    check = appliance.folder / "check"
    forbidden = appliance.members("bad")[0].address.rpartition(".")[0] + ".2:"
    check.write_text(
        f"""#!/bin/sh
line=$(grep -n 'server .*{forbidden}' "$1" | head -n 1 | cut -d: -f1)
if [ -n "$line" ]; then echo "[ALERT]    (1) : config : parsing [$1:$line] : 'server' : not this one."; exit 1; fi
exec {BINARY} -W -c -f "$1"
"""
    )
    check.chmod(0o755)
    appliance.values["haproxy"]["chk_cmd"] = f"{check}"
    serving(appliance)
    with undisturbed(appliance):
        appliance.scale_up("bad")
        isolated(appliance, "bad")
        appliance.until(lambda: appliance.events("file.write_failed"), "it is said what became of the file")
        new_pod_answers(appliance)
        appliance.until(lambda: forbidden not in installed(appliance) and appliance.settled(), "the file is level")
        appliance.remove("bad", "bad-2")
        isolated(appliance)
        appliance.until(lambda: appliance.ask("bad") == "bad-1", "it is served again")


def test_most_of_all_at_once_is_no_loss_and_goes_and_comes_with_a_pin(appliance: Appliance) -> None:
    names = ("api", "blog", "news", "wiki")
    for name in ("shop", *names):
        appliance.serve(name, pods=3)
    appliance.own_fragments()
    appliance.start()
    appliance.until(appliance.settled, "the first configuration is applied and verified")
    path = Path(appliance.values["templates"]["dir"]) / "06-raw.tmpl"
    path.write_text(RAW)
    annotate(appliance, "shop", share="4")
    appliance.until(lambda: "raw-shop" in installed(appliance), "the fragment serves")
    with undisturbed(appliance, "shop"):
        for name in names:
            annotate(appliance, name, balance="not-a-balance")
        isolated(appliance, *names)
        assert appliance.status()["hold"] is None, "who is left out is still in the cluster"
        refused = appliance.command("explain", "--all-refused").stdout
        assert refused.count("Quarantined") == len(names)
        assert "Quarantined" in appliance.command("explain", "api.example.com").stdout
        back = appliance.command("rollback", "1")
        assert back.returncode == 0, back.stdout + back.stderr
        isolated(appliance)
        appliance.until(lambda: appliance.ask("api").startswith("api-"), "the former fragments have nothing against it")
        end = appliance.command("unpin")
        assert end.returncode == 0, end.stdout + end.stderr
        isolated(appliance, *names)  # there and back brings back who was left out as well
        for name in names:
            annotate(appliance, name, balance="leastconn")
        appliance.until(lambda: "balance leastconn" in installed(appliance), "the newest fragments serve")
        for name in names:
            annotate(appliance, name, balance="not-a-balance")
        isolated(appliance, *names)
        # They are in quarantine and lose their pods: neither may bring down who is good.
        for name in names:
            appliance.cluster.set_endpoints(NAMESPACE, name, [])
        appliance.until(lambda: appliance.status()["hold"], "that is a loss")
        for name in names:
            annotate(appliance, name, balance="leastconn")
        appliance.until(lambda: not quarantined(appliance), "they are good again")
        appliance.until(lambda: appliance.ask("api").startswith("api-"), "the pods are held, and still answer")


def test_the_commands_say_what_the_daemon_would_do(appliance: Appliance) -> None:
    path = raw(appliance)
    appliance.serve("bad")
    serving(appliance)
    annotate(appliance, "bad", balance="nonsense")
    isolated(appliance, "bad")
    checked = appliance.command("check")
    assert checked.returncode == 4, checked.stderr
    assert "good only without Service demo/bad" in checked.stdout
    assert "balance only supports" in checked.stderr
    appliance.until(appliance.written, "the file is written")
    planned = appliance.command("plan")
    assert (planned.returncode, planned.stdout[:13]) == (0, "Nothing to do"), planned.stdout + planned.stderr
    assert "Service demo/bad: quarantined" in planned.stderr
    looked = appliance.command("preflight")
    assert looked.returncode == 0, looked.stdout
    assert "Service demo/bad" in looked.stdout
    # New fragments take nothing away: who is left out already is no obstacle, who is served would be one.
    edit(path, RAW.replace("raw {{ service.name }}", "new {{ service.name }}"))
    assert appliance.command("check").returncode == 4
    appliance.until(appliance.settled, "the edit is applied")
    edit(path, RAW + "{% if domains['shop.example.com'] is defined %}\nbalance nonsense\n{% endif %}\n")
    refused = appliance.command("check")
    assert refused.returncode == 1, refused.stdout
    assert "new fragments take nothing away" in refused.stderr
    assert appliance.ask("shop").startswith("shop-")


def test_without_a_daemon_the_rest_is_explained_and_planned(appliance: Appliance) -> None:
    raw(appliance)
    appliance.serve("bad")
    serving(appliance)
    appliance.stop()
    annotate(appliance, "bad", balance="nonsense")
    told = appliance.command("explain", "service bad")
    assert told.returncode == 0, told.stderr
    assert "quarantined: 06-raw.tmpl rendered line" in told.stdout
    assert "balance only supports" in told.stdout
    assert "served by 1 server" in appliance.command("explain", "service shop").stdout
    planned = appliance.command("plan")
    assert planned.returncode == 2, planned.stderr
    assert "quarantined" in planned.stderr
