"""The commands, with a fake application: what they pass on, print and end with."""

import json
from pathlib import Path

import pytest

from pyconfd.cli.main import cli
from pyconfd.errors import ApplyError, ConfigurationError, Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.settings import ReadMode, Resolved
from pyconfd.settings.table import TABLE
from tests.cli.application import FakeApp, StatusReport, invoke


@pytest.mark.parametrize(
    "arguments",
    [
        ("--api-servers", "https://a:6443"),
        ("run", "--api-servers", "https://a:6443"),
        ("--api-servers", "https://a:6443", "run"),
        ("--api-servers", "https://b", "run", "--api-servers", "https://a:6443"),
        ("--api-servers=https://a:6443",),
    ],
)
def test_running_as_python_confd_was_called_and_by_name(arguments: tuple[str, ...]) -> None:
    app = FakeApp()
    result = invoke(*arguments, app=app)
    assert (result.exit_code, result.output) == (0, "")
    [(name, settings, _)] = app.calls
    assert name == "run"
    assert settings.kubernetes.api_servers == ("https://a:6443",)


def test_running_with_the_environment_alone() -> None:
    app = FakeApp()
    assert invoke(app=app, APISERVERS="https://a", SSL_CA_FILE="False").exit_code == 0
    assert app.resolved
    assert app.resolved.settings.kubernetes.ssl_ca is False
    assert str(app.resolved.origins["kubernetes.api_servers"]) == "environment APISERVERS"
    assert app.resolved.notes


def test_the_exit_code_of_the_daemon_is_passed_on() -> None:
    class Stopped(FakeApp):
        def run(self, settings: Resolved) -> int:
            del settings
            return 5

    assert invoke("run", app=Stopped()).exit_code == 5


def test_the_exact_call_of_the_predecessors_readme() -> None:
    app = FakeApp()
    arguments = """--ssl-key /etc/pyconfd/admin-key.pem --ssl-cert /etc/pyconfd/admin.pem --ssl-ca /etc/pyconfd/ca.pem
        --api-servers https://10.31.12.49:6443,https://10.31.12.51:6443 --log-level debug --ignore-proxy-env False"""
    assert invoke(*arguments.split(), app=app).exit_code == 0
    kubernetes = app.calls[0][1].kubernetes
    assert kubernetes.api_servers == ("https://10.31.12.49:6443", "https://10.31.12.51:6443")
    assert kubernetes.ignore_proxy_env is False
    assert (kubernetes.ssl_key, kubernetes.ssl_cert) == ("/etc/pyconfd/admin-key.pem", "/etc/pyconfd/admin.pem")


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (("--in-cluster", "run"), True),
        (("--in-cluster",), True),
        (("run", "--in-cluster", "--log-level", "info"), True),
        (("run", "--in-cluster", "no"), False),
        (("--in-cluster=false", "run"), False),
    ],
)
def test_a_boolean_flag_with_and_without_its_value(arguments: tuple[str, ...], value: object) -> None:
    app = FakeApp()
    assert invoke(*arguments, app=app).exit_code == 0
    assert app.calls[0][1].kubernetes.in_cluster is value


def test_every_setting_is_an_option_of_the_command_and_of_the_program() -> None:
    for command in (cli, cli.commands["run"], cli.commands["plan"], cli.commands["settings"]):
        flags = {flag for option in command.params for flag in option.opts}
        assert {flag for row in TABLE.values() for flag in row.flags} | {"--config"} <= flags


def test_repeated_flags_of_lists_and_variables() -> None:
    app = FakeApp()
    arguments = ["--api-servers", "https://a", "--api-servers", "https://b,https://c", "--var", "a=1", "--var", "b=x y"]
    assert invoke(*arguments, app=app).exit_code == 0
    assert app.calls[0][1].kubernetes.api_servers == ("https://a", "https://b", "https://c")
    assert app.calls[0][1].templates.vars == {"a": "1", "b": "x y"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--api-servers",), "requires an argument"),
        (("--api-server", "x"), "--api-servers"),
        (("rendr",), "render"),
        (("run", "surplus"), "unexpected extra argument"),
        (("allow",), "Missing argument 'ID'"),
        (("render", "--snapshot", "/nowhere.yaml"), "does not exist"),
        (("plan", "--output", "json"), "--output"),
        (("settings", "--toml", "--markdown"), "exclude each other"),
    ],
)
def test_a_wrong_command_line_ends_with_64(arguments: tuple[str, ...], said: str) -> None:
    app = FakeApp()
    result = invoke(*arguments, app=app)
    assert result.exit_code == 64
    assert said in result.stderr
    assert app.calls == []


def test_wrong_settings_end_with_78_and_a_list_of_all() -> None:
    app = FakeApp()
    result = invoke("--interval", "0", app=app, LOGLEVEL="inf", PYCONFD_HAPROXY_CONFF="/x")
    assert result.exit_code == 78
    assert app.calls == []
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "pyconfd cannot use its settings (3 problems):",
        '  environment LOGLEVEL: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL, got "inf"',
        "      -> did you mean INFO?",
        "  environment PYCONFD_HAPROXY_CONFF: is not a setting",
        "      -> did you mean PYCONFD_HAPROXY_CONF?",
        '  --interval: expected seconds above 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got "0"',
    ]  # fmt: skip


_PROBLEM = Problem("02-http.tmpl line 3", "no such name", "define it")


@pytest.mark.parametrize("arguments", [("run",), ("render",), ("check",), ("plan",), ("status",), ("record", "f"),
                                       ("rbac",), ("allow", "x"), ("server", "drain", "x"), ("server", "list"),
                                       ("pause",), ("resume",), ("adopt",), ()])  # fmt: skip
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError(_PROBLEM), 78),
        (TransientError(_PROBLEM), 75),
        (RejectedInput(_PROBLEM), 1),
        (ApplyError("check", _PROBLEM), 1),
    ],
)
def test_errors_end_with_their_code_and_no_traceback(
    arguments: tuple[str, ...], error: PyconfdError, code: int
) -> None:
    result = invoke(*arguments, app=FakeApp(fails=error))
    assert result.exit_code == code
    assert result.stdout == ""
    assert "  02-http.tmpl line 3: no such name\n      -> define it\n" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_bug_ends_with_70_and_a_traceback() -> None:
    result = invoke("plan", app=FakeApp(fails=ZeroDivisionError("oops")))
    assert result.exit_code == 70
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: oops" in result.stderr


def test_control_c_is_quiet() -> None:
    result = invoke("plan", app=FakeApp(fails=KeyboardInterrupt()))
    assert result.exit_code == 130
    assert result.output.strip() == ""


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    (tmp_path / "s.yaml").write_text("kind: List\n")
    return str(tmp_path / "s.yaml")


def test_render_prints_the_text_alone_to_standard_output(snapshot: str) -> None:
    app = FakeApp()
    result = invoke("render", "--snapshot", snapshot, "--snapshot", snapshot, "--kubernetes-mode", "poll", app=app)
    assert (result.exit_code, result.stdout) == (0, "global\nfrontend a\n")
    [(_, settings, arguments)] = app.calls
    assert arguments == (snapshot, snapshot)
    assert settings.kubernetes.mode is ReadMode.POLL
    assert "note: order differs" in result.stderr
    assert "Service demo/shop annotation proto 'smtp': use http [invalid_value]" in result.stderr


def test_objects_may_come_through_a_pipe() -> None:
    app = FakeApp()
    assert invoke("render", "--snapshot", "-", app=app).exit_code == 0
    assert app.calls[0][2] == ("-",)


def test_render_one_fragment() -> None:
    assert invoke("render", "--fragment", "02-http.tmpl").stdout == "frontend a\n"
    wrong = invoke("render", "--fragment", "02-http.tmp")
    assert wrong.exit_code == 78
    assert "did you mean 02-http.tmpl?" in wrong.stderr


def test_render_shows_maps_and_hides_certificates() -> None:
    result = invoke("render", "--files")
    assert "# --- /f/maps/hosts.map\na be_a\n" in result.stdout
    assert "# --- /f/certs/a.pem (certificate, 6 bytes, not shown)" in result.stdout
    assert "SECRET" not in result.output


def test_status_alive_and_dead() -> None:
    alive = invoke("status")
    assert (alive.exit_code, alive.stdout) == (0, "serving\n")
    app = FakeApp(status_report=StatusReport(alive=False, status={"phase": "serving"}, exit_code=3))
    dead = invoke("status", "--json", app=app)
    assert dead.exit_code == 3
    assert json.loads(dead.stdout) == {"alive": False, "status": {"phase": "serving"}}


@pytest.mark.parametrize(("alive", "code"), [(True, 1), (False, 78)])
def test_status_is_shown_though_the_file_cannot_be_used(*, alive: bool, code: int) -> None:
    app = FakeApp(status_report=StatusReport(alive=alive, exit_code=0 if alive else 3))
    files = {"/etc/pyconfd/pyconfd.toml": "[kubernetes\n"}
    shown = invoke("status", app=app, files=files, PYCONFD_RUNTIME_DIR="/run/own")
    assert (shown.exit_code, shown.stdout) == (code, "serving\n")
    assert "pyconfd.toml: line 1, column 12: is not TOML" in shown.stderr
    [(_, settings, _)] = app.calls
    assert settings.runtime_dir == "/run/own"
    floating = invoke("vip", "status", app=FakeApp(), files=files)
    assert (floating.exit_code, "is not TOML" in floating.stderr) == (1, True)
    assert floating.stdout
    # Wrong variables are of no use, and a wrong flag is a mistake of this very line.
    assert invoke("status", app=FakeApp(), PYCONFD_NO_SUCH="1").exit_code == 1
    assert invoke("status", "--interval", "0").exit_code == 78


def test_record_rbac_and_allow_pass_their_arguments_on() -> None:
    app = FakeApp()
    assert invoke("record", "cluster.yaml", app=app).stdout == "3 objects written to cluster.yaml\n"
    rbac = invoke("rbac", "--kubernetes-secret-namespaces", "web, lb", app=app)
    assert rbac.stdout == "kind: ClusterRole\n"
    assert invoke("allow", "3f9c", app=app).stdout == "3f9c will be applied\n"
    assert [(name, arguments) for name, _, arguments in app.calls] == [
        ("record", ("cluster.yaml",)),
        ("rbac", ()),
        ("allow", ("3f9c",)),
    ]
    assert app.calls[1][1].kubernetes.secret_namespaces == ("web", "lb")


def test_fragments_are_copied_and_never_overwritten(tmp_path: Path) -> None:
    shipped, target = tmp_path / "shipped", tmp_path / "target"
    (shipped / "errors").mkdir(parents=True)
    (shipped / "01-defaults.conf").write_text("new")
    (shipped / "errors" / "503.http").write_text("HTTP/1.0 503")
    target.mkdir()
    (target / "01-defaults.conf").write_text("mine")
    app = FakeApp(shipped=str(shipped))
    assert invoke("fragments", app=app).stdout == f"{shipped}\n"
    result = invoke("fragments", "--copy-to", str(target), app=app)
    assert result.stdout == "copied  errors/503.http\nkept    01-defaults.conf (it is there already)\n"
    assert (target / "01-defaults.conf").read_text() == "mine"
    assert (target / "errors" / "503.http").read_text() == "HTTP/1.0 503"
    assert app.presets == ("domains",)
    other = FakeApp(shipped=str(shipped))
    shown = invoke("fragments", "--preset", "kubefigurator", "--preset", "domains", app=other)
    assert shown.stdout == f"{shipped}/01-defaults.conf\n{shipped}/errors/503.http\n"
    assert other.presets == ("kubefigurator", "domains")
    (tmp_path / "a_file").write_text("")
    refused = invoke("fragments", "--copy-to", str(tmp_path / "a_file" / "x"), app=app)
    assert refused.exit_code == 78


def test_presets_by_their_short_flag_repeated_or_in_a_list() -> None:
    app = FakeApp()
    assert invoke("rbac", "--preset", "kubefigurator", "--preset", "domains", app=app).exit_code == 0
    assert invoke("run", "--preset", "kubefigurator,domains", "--cluster", "ny", app=app).exit_code == 0
    for _, settings, _ in app.calls:
        assert settings.presets.use == ("kubefigurator", "domains")
    assert app.calls[1][1].kubefigurator.cluster == "ny"
    assert app.calls[1][1].kubernetes.cluster == ""


def test_an_unknown_preset_is_said_with_those_there_are() -> None:
    result = invoke("run", "--preset", "kubefig")
    assert result.exit_code == 78
    assert "kubefigurator" in result.stderr
