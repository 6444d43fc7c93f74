"""``render``, ``check``, ``plan`` and ``record``, with files or a fake API server, and the real haproxy."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.app.explaining import explain_without_daemon
from pyconfd.cli.commands.check import check_once
from pyconfd.cli.commands.plan import ask_process, plan_once
from pyconfd.cli.commands.rbac import permissions
from pyconfd.errors import ConfigurationError, RejectedInput, TransientError
from pyconfd.explain.text import render
from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process.balancer import Balancer
from pyconfd.model.context import EndpointTotals, Refusal, RefusalReason
from pyconfd.model.operations import AddServer
from pyconfd.model.outcome import Generation
from pyconfd.model.plan import Noop, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Piece, Rendering
from pyconfd.settings import (
    HaproxySettings,
    KubernetesSettings,
    ReloadMethod,
    Settings,
    StatusSettings,
    TemplateSettings,
    resolve,
)
from tests.cli.invoking import invoke
from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.haproxy import BINARY, HaproxyProcess, free_port
from tests.world.objects import EndpointSpec, PortSpec

pytestmark = pytest.mark.haproxy
needs_haproxy = pytest.mark.skipif(not Path(BINARY).exists(), reason="no haproxy binary")

FRONTEND = """defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
frontend fe
    bind 127.0.0.1:{port}
{{% for domain, items in domains.items() %}}
    use_backend {{{{ items.key }}}} if {{ hdr(host) -i {{{{ domain }}}} }}
{{% endfor %}}
{{% for domain, items in domains.items() %}}
backend {{{{ items.key }}}}
{{% for server in items.endpoints | servers %}}
    server {{{{ server.name }}}} {{{{ server.target }}}}
{{% endfor %}}
{{% endfor %}}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    templates = tmp_path / "templates"
    templates.mkdir()
    (templates / "01-all.tmpl").write_text(FRONTEND.format(port=free_port()))
    return Settings(
        kubernetes=KubernetesSettings(api_servers=("http://127.0.0.1:1",), connect_timeout_s=1),
        templates=TemplateSettings(dir=str(templates)),
        haproxy=HaproxySettings(
            conf=str(tmp_path / "haproxy.cfg"),
            binary=BINARY,
            master_socket=str(tmp_path / "none"),
            pid_file=str(tmp_path / "no.pid"),
            unit="",
        ),
        status=StatusSettings(listen=""),
        state_dir=str(tmp_path / "state"),
        runtime_dir=str(tmp_path / "run"),
    )


@pytest.fixture
def snapshot(tmp_path: Path) -> tuple[str, ...]:
    cluster = Cluster()
    _populate(cluster)
    path = tmp_path / "snapshot.yaml"
    cluster.dump(path)
    return (str(path),)


def _populate(cluster: Cluster) -> None:
    annotations = {"domain": "shop.example.com", "proto": "http"}
    cluster.add_service("demo", "shop", ports=[PortSpec("web", 80, 8080)], annotations=annotations)
    cluster.set_endpoints("demo", "shop", [EndpointSpec("192.0.2.10", pod="shop-1")])
    thief = {"domain": "nonsense domain", "proto": "http"}
    cluster.add_service("demo", "thief", ports=[PortSpec("web", 80, 8080)], annotations=thief)


def _edit(settings: Settings, more: str) -> None:
    path = Path(settings.templates.dir, "01-all.tmpl")
    path.write_text(path.read_text() + more)


def test_rendering_from_files(settings: Settings, snapshot: tuple[str, ...]) -> None:
    options = ("--template-dir", settings.templates.dir, "--snapshot", *snapshot)
    whole = invoke("render", *options)
    assert whole.exit_code == 0
    assert "192.0.2.10:8080" in whole.stdout
    assert "Service demo/thief annotation domain" in whole.stderr
    _edit(settings, "{{ map_file('hosts', {'a': 'be_a'}) }}")
    assert invoke("render", "--fragment", "01-all.tmpl", *options).stdout == invoke("render", *options).stdout
    assert "/maps/hosts.map\na be_a\n" in invoke("render", "--files", *options).stdout
    wrong = invoke("render", "--fragment", "01-al.tmpl", *options)
    assert (wrong.exit_code, "did you mean 01-all.tmpl?" in wrong.stderr) == (78, True)
    old = invoke("view", *options[:2], "--api-servers", "http://127.0.0.1:1", "--kubernetes-connect-timeout-s", "1")
    assert (old.exit_code, "view is `pyconfd render` now" in old.stderr) == (75, True)


def test_the_order_of_fragments_is_noted(settings: Settings, snapshot: tuple[str, ...]) -> None:
    for name in ("9-x.conf", "10-y.conf"):
        Path(settings.templates.dir, name).write_text("# more\n")
    assert "natural order" in dry_run(settings, snapshot, EmptyBalancer()).notes[0]


@needs_haproxy
def test_a_check_is_haproxys_own_and_installs_nothing(settings: Settings, snapshot: tuple[str, ...]) -> None:
    report = check_once(settings, snapshot)
    assert report.haproxy_version.startswith("2.") or report.haproxy_version[0] in "3456789"
    assert len(report.refused) == 1
    assert not Path(settings.haproxy.conf).exists()
    assert not Path(settings.state_dir).exists()
    _edit(settings, "    blance roundrobin\n")
    with pytest.raises(RejectedInput, match=r"01-all.tmpl rendered line \d+.*\n?.*blance"):
        check_once(settings, snapshot)


@needs_haproxy
def test_the_plan_for_a_machine_without_a_configuration(settings: Settings, snapshot: tuple[str, ...]) -> None:
    report = plan_once(settings, snapshot)
    assert isinstance(report.plan, Reload)
    assert ReloadReason.FIRST_CONFIGURATION in report.plan.reasons
    assert "+    server " in report.diff
    assert report.diff.startswith(f"--- {settings.haproxy.conf}\n")
    assert not Path(settings.haproxy.conf).exists()


@needs_haproxy
def test_the_plan_is_noop_when_it_serves_and_names_what_differs(
    settings: Settings, snapshot: tuple[str, ...], tmp_path: Path
) -> None:
    with HaproxyProcess(tmp_path / "haproxy") as haproxy:
        ours = haproxy.settings(reload_method=ReloadMethod.MASTER)
        settings = replace(settings, haproxy=ours)
        _edit(settings, "# made {{ extra.curdate }}\n")
        haproxy.conf.write_text(f"frontend x\n    mode http\n    timeout client 1s\n    bind 127.0.0.1:{free_port()}\n")
        haproxy.start()
        adoption.adopt(settings.state_dir)
        once = dry_run(settings, snapshot, EmptyBalancer(), curdate="some day")
        balancer = Balancer(ours, settings.apply, settings.state_dir)
        plan = balancer.plan(once.rendering)
        assert isinstance(plan, Reload)
        balancer.apply(once.rendering, plan, curdate="some day", now=1.0, totals=once.context.totals)
        balancer.close()

        same = plan_once(settings, snapshot)
        assert (same.plan, same.diff) == (Noop(), "")
        _edit(settings, "# more\n")
        other = plan_once(settings, snapshot)
        assert other.plan == RuntimeUpdate((), ("comments, blanks or the order of sections",))
        assert "+# more" in other.diff


@contextmanager
def _serving(settings: Settings, snapshot: tuple[str, ...], folder: Path, *, level: str) -> Iterator[Settings]:
    """Serve by a haproxy what is rendered, with a runtime socket that forbids changes unless ``level`` is admin."""
    with HaproxyProcess(folder / "haproxy") as haproxy:
        settings = replace(settings, haproxy=haproxy.settings(reload_method=ReloadMethod.MASTER))
        opened = f"global\n    stats socket {haproxy.stats_socket} level {level}\n"
        Path(settings.templates.dir, "00-runtime.conf").write_text(opened)
        haproxy.conf.write_text(f"frontend x\n    mode http\n    timeout client 1s\n    bind 127.0.0.1:{free_port()}\n")
        haproxy.start()
        adoption.adopt(settings.state_dir)
        once = dry_run(settings, snapshot, EmptyBalancer(), curdate="some day")
        balancer = Balancer(settings.haproxy, settings.apply, settings.state_dir)
        plan = balancer.plan(once.rendering)
        assert isinstance(plan, Reload)
        balancer.apply(once.rendering, plan, curdate="some day", now=1.0, totals=once.context.totals)
        balancer.close()
        yield settings


def _one_more_server(settings: Settings) -> None:
    path = Path(settings.templates.dir, "01-all.tmpl")
    line = "    server {{ server.name }} {{ server.target }}\n"
    path.write_text(path.read_text().replace(line, f"{line}    server more 192.0.2.77:8080\n"))


@needs_haproxy
def test_the_plan_asks_the_running_haproxy_what_it_can_do(
    settings: Settings, snapshot: tuple[str, ...], tmp_path: Path
) -> None:
    with _serving(settings, snapshot, tmp_path, level="admin") as served:
        _one_more_server(served)
        report = plan_once(served, snapshot)
        assert isinstance(report.plan, RuntimeUpdate)
        assert [command for command in report.plan.commands if isinstance(command, AddServer)]
        assert "+    server more 192.0.2.77:8080" in report.diff
        assert report.notes == ()
        text = Path(served.haproxy.conf).read_text()
        assert plan_once(served, snapshot).plan == report.plan, "looking changes nothing"
        assert Path(served.haproxy.conf).read_text() == text


@needs_haproxy
def test_the_plan_says_what_a_haproxy_needs_that_cannot_be_changed(
    settings: Settings, snapshot: tuple[str, ...], tmp_path: Path
) -> None:
    with _serving(settings, snapshot, tmp_path, level="operator") as served:
        _one_more_server(served)
        plan = plan_once(served, snapshot).plan
        assert isinstance(plan, Reload)
        assert plan.reasons == (ReloadReason.NOT_LIVE,)
        assert plan.advice == (
            f"{served.haproxy.master_socket[:-1]}s is not `level admin`; with that, most changes need no reload",
        )


@needs_haproxy
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user for a moment")
def test_the_plan_says_that_it_is_assumed_where_the_socket_is_not_for_this_user(
    settings: Settings, snapshot: tuple[str, ...], tmp_path: Path
) -> None:
    with _serving(settings, snapshot, tmp_path, level="admin") as served:
        once = dry_run(served, snapshot, EmptyBalancer())
        balancer = Balancer(served.haproxy, served.apply, served.state_dir)
        observed = balancer.observe()
        socket = Path(served.haproxy.master_socket).parent / "s"
        socket.parent.chmod(0o755)
        socket.chmod(0o600)
        os.seteuid(65534)
        try:
            abilities, note = ask_process(served, observed, once.rendering)
        finally:
            os.seteuid(0)
        assert abilities.runtime
        assert "is not for this user" in note
        assert ask_process(served, observed, once.rendering)[1] == ""


def test_a_cluster_that_does_not_answer_is_said_with_its_address(settings: Settings) -> None:
    with pytest.raises(TransientError, match=r"127\.0\.0\.1:1"):
        dry_run(settings, (), EmptyBalancer())
    with pytest.raises(ConfigurationError):
        dry_run(settings, ("/no/such/file",), EmptyBalancer())


def test_recording_keeps_secrets_to_itself(settings: Settings, tmp_path: Path) -> None:
    cluster = Cluster()
    _populate(cluster)
    cluster.add_namespace("tls")
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "site", "namespace": "tls"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "UFVCTElD", "tls.key": "UFJJVkFURQ=="},
    }
    cluster.create("secrets", secret)
    annotations = {"note": "user admin insecure-password hunter2", "example.com/api-token": "hunter3", "domain": "a.b"}
    cluster.add_service("tls", "noted", annotations=annotations)
    path = tmp_path / "recorded.yaml"
    with ApiServer(cluster) as server:
        flags = ("--api-servers", server.url, "--kubernetes-secret-namespaces", "tls")
        said = invoke("record", str(path), *flags).stdout
        refused = invoke("record", str(tmp_path / "none" / "x"), *flags)
        assert (refused.exit_code, "cannot be written" in refused.stderr) == (1, True)
    text = path.read_text()
    assert str(path) in said
    assert "Secrets redacted" in said
    assert path.stat().st_mode & 0o777 == 0o600
    assert "UFJJVkFURQ" not in text
    assert "UFVCTElD" not in text
    assert "tls.key: REDACTED" in text
    assert "hunter" not in text
    assert "domain: a.b" in text
    assert "192.0.2.10" in dry_run(settings, (str(path),), EmptyBalancer()).rendering.text


def test_the_permissions_are_those_that_the_settings_need(settings: Settings) -> None:
    documents = list(yaml.safe_load_all(permissions(settings)))
    everything = [rule for each in documents if each["kind"] == "ClusterRole" for rule in each["rules"]]
    assert {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]} in everything
    everything = [rule for rule in everything if rule["resources"] != ["events"]]
    rules = [rule for rule in everything if rule["verbs"] != ["patch"]]
    written = {resource for rule in everything if rule not in rules for resource in rule["resources"]}
    assert "ingresses/status" in written
    assert all(resource.endswith("/status") for resource in written)
    assert {resource for rule in rules for resource in rule["resources"]} == {
        "services",
        "endpoints",
        "endpointslices",
        "nodes",
        "namespaces",
        "gatewayclasses",
        "gateways",
        "listenersets",
        "httproutes",
        "grpcroutes",
        "tlsroutes",
        "tcproutes",
        "referencegrants",
        "backendtlspolicies",
        "routepolicies",
        "ingresses",
        "ingressclasses",
    }
    assert {verb for rule in rules for verb in rule["verbs"]} <= {"get", "list", "watch"}
    secrets = replace(settings, kubernetes=KubernetesSettings(secret_namespaces=("tls",)))
    roles = [each for each in yaml.safe_load_all(permissions(secrets)) if each["kind"] == "Role"]
    assert {role["metadata"]["namespace"] for role in roles} == {"tls", "pyconfd"}


SOCKET_FRAGMENT = """
defaults
    mode http
    option idle-close-on-response
    timeout client 5s
    timeout connect 5s
    timeout server 5s
frontend main
    bind unix@pyconfd-test.sock
    http-request return status 200
"""
EMPTY = "apiVersion: v1\nkind: List\nitems: []\n"


def settings_for(folder: Path, **flags: str) -> Settings:
    templates = folder / "templates"
    templates.mkdir(exist_ok=True)
    (templates / "01-all.conf").write_text(SOCKET_FRAGMENT)
    own = {
        "templates.dir": str(templates),
        "haproxy.conf": str(folder / "generated" / "haproxy.cfg"),
        "haproxy.binary": BINARY,
        "state_dir": str(folder / "state"),
    }
    paths = {name.replace("__", "."): value for name, value in flags.items()}
    return resolve(own | paths, {}, lambda path: Path(path).read_text()).settings


@needs_haproxy
def test_check_says_what_keeps_this_machine_from_applying_it(tmp_path: Path) -> None:
    with ApiServer(Cluster()) as server:
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url)
        (note,) = check_once(settings, ()).notes
        assert note.startswith(f"haproxy.conf: the directory {tmp_path / 'generated'} does not exist; create it")
        (tmp_path / "generated").mkdir()
        assert check_once(settings, ()).notes == ()


@needs_haproxy
def test_check_says_that_reloads_would_close_idle_connections(tmp_path: Path) -> None:
    settings, objects = settings_for(tmp_path), tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    fragment = Path(settings.templates.dir) / "01-all.conf"
    fragment.write_text(SOCKET_FRAGMENT.replace("    option idle-close-on-response\n", ""))
    (note,) = check_once(settings, (str(objects),)).notes
    assert note.startswith("frontend main: a reload closes idle keep-alive connections")


@needs_haproxy
def test_check_says_that_the_directory_of_the_runtime_socket_is_missing(tmp_path: Path) -> None:
    (tmp_path / "generated").mkdir()
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    with ApiServer(Cluster()) as server, TemporaryDirectory() as short:
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url)
        opened = f"global\n    stats socket {short}/run/s level admin\n"
        (Path(settings.templates.dir) / "00-runtime.conf").write_text(opened)
        (note,) = check_once(settings, ()).notes
        assert note.startswith(f"stats socket {short}/run/s: its directory does not exist")
        assert check_once(settings, (str(objects),)).notes == (), "files are not about this machine"
        Path(short, "run").mkdir()
        assert check_once(settings, ()).notes == ()


@needs_haproxy
def test_check_of_files_is_not_about_this_machine(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    assert check_once(settings_for(tmp_path), (str(objects),)).notes == ()


@needs_haproxy
def test_plan_says_that_a_change_would_be_held(tmp_path: Path) -> None:
    objects = tmp_path / "objects.yaml"
    objects.write_text(EMPTY)
    before = Rendering((Piece("01-all.conf", "global\n    maxconn 99\n"),))
    generation = Generation(1, before.digest, 1_700_000_000.0, totals=EndpointTotals(claimed=3, total=3))
    GenerationStore(str(tmp_path / "state"), 5).record(before, generation)

    (note,) = plan_once(settings_for(tmp_path), (str(objects),)).notes
    assert note.startswith("the daemon would hold this change: all 3 ready endpoints")
    assert "pyconfd allow " in note
    assert plan_once(settings_for(tmp_path, apply__total_loss="apply"), (str(objects),)).notes == ()


ASKING = """
{% for domain, items in domains.items() if items.listen_port %}
frontend {{ domain }}
    mode tcp
    bind 127.0.0.1:{{ items.listen_port }}
{% endfor %}
"""


@needs_haproxy
def test_plan_and_check_leave_out_what_another_program_has_unless_they_read_files(tmp_path: Path) -> None:
    cluster = Cluster()
    with ApiServer(cluster) as server, socket.create_server(("127.0.0.1", 0)) as program:
        port = program.getsockname()[1]
        (tmp_path / "generated").mkdir()
        settings = settings_for(tmp_path, kubernetes__api_servers=server.url, presets__listen_ports="1024-65535")
        (tmp_path / "templates" / "02-asking.tmpl").write_text(ASKING)
        asked = {"domain": "cache.example.com", "proto": "redis", "pyconfd.io/listen-port": str(port)}
        cluster.add_service("demo", "cache", annotations=asked)

        planned, checked = plan_once(settings, ()), check_once(settings, ())
        assert "frontend cache.example.com" not in planned.diff
        for (refusal,) in (planned.refused, checked.refused):
            assert (str(refusal.ref), refusal.field, refusal.value) == (
                "Service demo/cache",
                "annotation listen-port",
                str(port),
            )
            assert f"listens on 127.0.0.1:{port}" in refusal.detail

        flags = ("--api-servers", server.url, "--template-dir", settings.templates.dir)
        assert invoke("record", str(tmp_path / "objects.yaml"), *flags).exit_code == 0
        assert "frontend cache.example.com" in plan_once(settings, (str(tmp_path / "objects.yaml"),)).diff


RAW_FRAGMENT = """defaults
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
def raw(tmp_path: Path) -> Settings:
    (tmp_path / "templates").mkdir()
    (tmp_path / "generated").mkdir()
    (tmp_path / "templates" / "01-all.tmpl").write_text(RAW_FRAGMENT)
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


@needs_haproxy
def test_what_would_go_into_quarantine_is_named_and_the_rest_is_judged(raw: Settings, tmp_path: Path) -> None:
    found = files(tmp_path, good={}, bad={"lb": "nonsense"}, worse={"share": "0"})
    checked = check_once(raw, found)
    assert checked.haproxy_version
    assert spoilt(checked.refused).keys() == {"bad", "worse"}
    assert "balance only supports" in spoilt(checked.refused)["bad"]
    assert "division by zero" in spoilt(checked.refused)["worse"]
    planned = plan_once(raw, found)
    assert spoilt(planned.refused) == spoilt(checked.refused)
    assert isinstance(planned.plan, Reload)
    assert "+backend raw-good" in planned.diff
    assert "raw-bad" not in planned.diff
    assert "raw-worse" not in planned.diff


@needs_haproxy
def test_explain_says_it_of_files_too(raw: Settings, tmp_path: Path) -> None:
    found = files(tmp_path, good={}, bad={"lb": "nonsense"}, worse={"share": "0"})
    for name, why in (("bad", "balance only supports"), ("worse", "division by zero")):
        told = render(explain_without_daemon(raw, name, found, None))
        assert "Quarantined" in told
        assert why in told
    assert "raw-good" in render(explain_without_daemon(raw, "backend raw-good", found, None))


@needs_haproxy
def test_the_fault_of_a_fragment_is_told_also_where_an_object_hides_it(raw: Settings, tmp_path: Path) -> None:
    Path(raw.templates.dir, "02-own.conf").write_text("backend own\n    balance nonsense\n")
    found: tuple[dict[str, dict[str, str]], ...] = ({}, {"good": {}}, {"good": {}, "worse": {"share": "0"}})
    for services in found:
        for command in (check_once, plan_once):
            with pytest.raises(RejectedInput) as caught:
                command(raw, files(tmp_path, **services))
            told = str(caught.value)
            assert "02-own.conf line 2" in told
            assert "the fault is in a fragment" in told
            assert ("division by zero" in told) == ("worse" in services)


@needs_haproxy
def test_a_fault_of_every_object_takes_nobody_out(raw: Settings, tmp_path: Path) -> None:
    path = Path(raw.templates.dir, "01-all.tmpl")
    path.write_text(RAW_FRAGMENT.replace("'roundrobin'", "'nonsense'"))
    with pytest.raises(RejectedInput, match="balance only supports"):
        check_once(raw, files(tmp_path, a={}, b={}, c={}))
