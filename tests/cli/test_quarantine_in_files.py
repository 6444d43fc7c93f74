"""What check, plan and explain say of files in which something is bad: the daemon would serve the rest."""

from pathlib import Path

import pytest

from pyconfd.app.explaining import explain_without_daemon
from pyconfd.cli.commands.check import check_once
from pyconfd.cli.commands.plan import plan_once
from pyconfd.errors import RejectedInput
from pyconfd.explain.text import render
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.plan import Reload
from pyconfd.settings import HaproxySettings, Settings, StatusSettings, TemplateSettings
from tests.world.cluster import Cluster
from tests.world.haproxy import BINARY
from tests.world.objects import EndpointSpec, PortSpec

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not Path(BINARY).exists(), reason="no haproxy binary")]

FRAGMENT = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend fe
    option idle-close-on-response
    bind unix@/nowhere/pyconfd-test.sock
{% for service in cluster.services %}
backend raw-{{ service.name }}
    balance {{ service.annotations['lb'] | default('roundrobin') }}
    # {{ 100 // (service.annotations['share'] | default(1) | int) }}
{% endfor %}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "templates").mkdir()
    (tmp_path / "generated").mkdir()
    (tmp_path / "templates" / "01-all.tmpl").write_text(FRAGMENT)
    return Settings(
        templates=TemplateSettings(dir=str(tmp_path / "templates")),
        haproxy=HaproxySettings(conf=str(tmp_path / "generated" / "haproxy.cfg"), binary=BINARY, unit=""),
        status=StatusSettings(listen=""),
        state_dir=str(tmp_path / "state"),
        runtime_dir=str(tmp_path / "run"),
    )


def files(folder: Path, **services: dict[str, str]) -> tuple[str, ...]:
    cluster = Cluster()
    for number, (name, annotations) in enumerate(services.items(), start=1):
        cluster.add_service("demo", name, ports=[PortSpec("web", 80, 8080)], annotations=annotations)
        cluster.set_endpoints("demo", name, [EndpointSpec(f"10.1.0.{number}", pod=f"{name}-1")])
    path = folder / "objects.yaml"
    cluster.dump(path)
    return (str(path),)


def spoilt(refused: tuple[Refusal, ...]) -> dict[str, str]:
    return {each.ref.name: each.detail for each in refused if each.reason is RefusalReason.QUARANTINED}


def test_what_would_go_into_quarantine_is_named_and_the_rest_is_judged(settings: Settings, tmp_path: Path) -> None:
    found = files(tmp_path, good={}, bad={"lb": "nonsense"}, worse={"share": "0"})
    checked = check_once(settings, found)
    assert checked.haproxy_version
    assert spoilt(checked.refused).keys() == {"bad", "worse"}
    assert "balance only supports" in spoilt(checked.refused)["bad"]
    assert "division by zero" in spoilt(checked.refused)["worse"]
    planned = plan_once(settings, found)
    assert spoilt(planned.refused) == spoilt(checked.refused)
    assert isinstance(planned.plan, Reload)
    assert "+backend raw-good" in planned.diff
    assert "raw-bad" not in planned.diff
    assert "raw-worse" not in planned.diff


def test_explain_says_it_of_files_too(settings: Settings, tmp_path: Path) -> None:
    found = files(tmp_path, good={}, bad={"lb": "nonsense"}, worse={"share": "0"})
    for name, why in (("bad", "balance only supports"), ("worse", "division by zero")):
        told = render(explain_without_daemon(settings, name, found, None))
        assert "refused (quarantined)" in told
        assert why in told
    assert "raw-good" in render(explain_without_daemon(settings, "backend raw-good", found, None))


def test_the_fault_of_a_fragment_is_told_also_where_an_object_hides_it(settings: Settings, tmp_path: Path) -> None:
    Path(settings.templates.dir, "02-own.conf").write_text("backend own\n    balance nonsense\n")
    found: tuple[dict[str, dict[str, str]], ...] = ({}, {"good": {}}, {"good": {}, "worse": {"share": "0"}})
    for services in found:
        for command in (check_once, plan_once):
            with pytest.raises(RejectedInput) as caught:
                command(settings, files(tmp_path, **services))
            told = str(caught.value)
            assert "02-own.conf line 2" in told
            assert "the fault is in a fragment" in told
            assert ("division by zero" in told) == ("worse" in services)


def test_a_fault_of_every_object_takes_nobody_out(settings: Settings, tmp_path: Path) -> None:
    path = Path(settings.templates.dir, "01-all.tmpl")
    path.write_text(FRAGMENT.replace("'roundrobin'", "'nonsense'"))
    with pytest.raises(RejectedInput, match="balance only supports"):
        check_once(settings, files(tmp_path, a={}, b={}, c={}))
