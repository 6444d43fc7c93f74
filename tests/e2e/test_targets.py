"""The daemon with targets: beside haproxy, and instead of it as kube2lb was called."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.appliance import Appliance
from tests.world.haproxy import wait_until


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Return a process that notes each SIGUSR1, and whose number is in ``listener.pid``."""
    script = f"trap 'echo told >> {tmp_path}/told' USR1; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(["/bin/sh", "-c", script], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    (tmp_path / "listener.pid").write_text(str(process.pid))
    yield process
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def target(folder: Path, name: str, **changes: object) -> dict[str, object]:
    template = folder / f"{name}.tpl"
    template.write_text("{% for domain in domains %}{{ domain }} {{ domains[domain].ips | join(' ') }}\n{% endfor %}")
    notify = f"command:echo told >> {folder}/{name}.told"
    return {"name": name, "template": str(template), "output": str(folder / name), "notify": notify, **changes}


def test_a_failing_target_keeps_neither_haproxy_nor_the_others_waiting(appliance: Appliance) -> None:
    folder = appliance.folder
    targets = [
        target(folder, "hanging", notify="command:sleep 600", timeout_s=600),
        target(folder, "broken", check=["/bin/false"]),
        target(folder, "good"),
    ]
    appliance.serve("shop")
    appliance.start(PYCONFD_TARGETS=json.dumps(targets))
    appliance.until(lambda: appliance.ask("shop") == "shop-1", "haproxy serves")
    appliance.until((folder / "good").exists, "the good target is written")
    second = appliance.scale_up("shop")
    appliance.until(lambda: appliance.ask("shop") == second, "haproxy follows")
    appliance.until(lambda: (folder / "good").read_text().count("127.18.") == 2, "the good target follows")

    def phases() -> tuple[str, str]:
        states = {state["name"]: state["phase"] for state in appliance.status().get("targets", ())}
        return states.get("good", ""), states.get("broken", "")

    appliance.until(lambda: phases() == ("serving", "rejected"), "it says so of each")
    assert not (folder / "broken").exists()
    assert appliance.phase == "serving"
    # These are looked at each second.
    appliance.until(
        lambda: any("target broken" in problem for problem in appliance.status()["problems"]), "the problem is shown"
    )
    code, metrics = appliance.get("/metrics")
    assert code == 200
    assert 'pyconfd_target_serving{target="good"} 1.0' in metrics


def test_targets_alone_by_the_flags_of_kube2lb(
    appliance: Appliance, listener: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    output, told = tmp_path / "Caddyfile", tmp_path / "told"
    (tmp_path / "Caddyfile.tpl").write_text(
        "{% for service in services %}{{ service }} {{ ServerNames(service, domain) | join(',') }}"
        " {{ service.endpoints | join(' ') }}\n{% endfor %}"
    )
    appliance.serve("shop", {}, pods=2, kind="NodePort")
    del appliance.values["haproxy"]
    appliance.spawn(
        "run",
        "--config",
        str(appliance.config),
        "--preset",
        "kube2lb",
        f"-apiserver={appliance.servers[0].url}",
        f"--template={tmp_path}/Caddyfile.tpl",  # beside kube2lb's own spelling, --config would be its output
        f"--target-output={output}",
        "-domain=cluster.local",
        "-server-name-templates={{ .Service.Name }}.example.com,{{ .Service.Name }}.{{ .Domain }}",
        f"-notify=pidfile:SIGUSR1:{tmp_path}/listener.pid",
    )
    appliance.until(output.exists, "the target is written")
    appliance.until(told.exists, "its balancer is told")
    assert output.read_text().startswith("shop_demo_80_tcp_http shop.example.com,shop.cluster.local 127.18.")
    assert not appliance.haproxy.conf.exists()
    appliance.until(lambda: appliance.phase == "serving", "it says that it serves")

    appliance.scale_up("shop")
    appliance.until(lambda: output.read_text().count("127.18.") == 3, "it follows")
    wait_until(lambda: told.read_text().count("told") == 2, "its balancer is told again")
    text = appliance.run("status", "--config", str(appliance.config)).stdout
    assert "Targets" in text
    assert "targets only, no haproxy" in text
    assert appliance.stop() == 0


def test_a_restart_tells_nobody_anything(appliance: Appliance) -> None:
    appliance.serve("shop")
    environment = json.dumps([target(appliance.folder, "good")])
    appliance.start(PYCONFD_TARGETS=environment)
    appliance.until((appliance.folder / "good.told").exists, "told")
    appliance.until(lambda: appliance.status()["targets"][0]["phase"] == "serving", "it serves")
    appliance.stop()
    appliance.spawn(PYCONFD_TARGETS=environment)
    appliance.until(lambda: appliance.status().get("targets", [{}])[0].get("phase") == "serving", "it serves again")

    assert (appliance.folder / "good.told").read_text() == "told\n"


def test_losing_every_endpoint_is_held_for_targets_too(appliance: Appliance) -> None:
    appliance.serve("shop")
    appliance.start(PYCONFD_TARGETS=json.dumps([target(appliance.folder, "good")]))
    appliance.until((appliance.folder / "good.told").exists, "told")
    appliance.until(appliance.settled, "all is applied")
    before = (appliance.folder / "good").read_text()
    appliance.remove("shop", "shop-1")
    appliance.until(lambda: appliance.phase == "held", "held")

    assert (appliance.folder / "good").read_text() == before
    hold = appliance.status()["hold_id"]
    assert appliance.command("allow", hold).returncode == 0
    appliance.until(lambda: (appliance.folder / "good").read_text() != before, "let through")
