"""The command line as a whole: how it runs the daemon, where settings come from, and how it ends."""

import inspect
from pathlib import Path
from typing import Any

import click
import pytest

from pyconfd.cli.command import SettingsCommand
from pyconfd.cli.exits import Boundary
from pyconfd.cli.main import COMMANDS, PLACES, cli, load
from pyconfd.errors import ApplyError, ConfigurationError, Problem, PyconfdError, RejectedInput, TransientError
from pyconfd.settings.table import TABLE
from tests.cli.invoking import daemon_settings, invoke


def every_command() -> dict[str, click.Command]:
    found: dict[str, click.Command] = {}
    for name, place in PLACES.items():
        command = load(place)
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {below}": each for below, each in command.commands.items()}
    return found


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
    assert daemon_settings(*arguments).settings.kubernetes.api_servers == ("https://a:6443",)


def test_running_with_the_environment_alone() -> None:
    resolved = daemon_settings(APISERVERS="https://a", SSL_CA_FILE="False")
    assert resolved.settings.kubernetes.ssl_ca is False
    assert str(resolved.origins["kubernetes.api_servers"]) == "environment APISERVERS"
    assert resolved.notes


def test_the_exit_code_of_the_daemon_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyconfd.cli.commands.run.daemon", lambda _: 5)
    assert invoke("run").exit_code == 5
    assert invoke().exit_code == 5


def test_the_exact_call_of_the_predecessors_readme() -> None:
    arguments = """--ssl-key /etc/pyconfd/admin-key.pem --ssl-cert /etc/pyconfd/admin.pem --ssl-ca /etc/pyconfd/ca.pem
        --api-servers https://10.31.12.49:6443,https://10.31.12.51:6443 --log-level debug --ignore-proxy-env False"""
    kubernetes = daemon_settings(*arguments.split()).settings.kubernetes
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
    assert daemon_settings(*arguments).settings.kubernetes.in_cluster is value


def test_repeated_flags_of_lists_and_variables() -> None:
    arguments = ["--api-servers", "https://a", "--api-servers", "https://b,https://c", "--var", "a=1", "--var", "b=x y"]
    settings = daemon_settings(*arguments).settings
    assert settings.kubernetes.api_servers == ("https://a", "https://b", "https://c")
    assert settings.templates.vars == {"a": "1", "b": "x y"}


def test_presets_by_their_short_flag_repeated_or_in_a_list() -> None:
    repeated = daemon_settings("--preset", "kubefigurator", "--preset", "domains").settings
    listed = daemon_settings("run", "--preset", "kubefigurator,domains", "--cluster", "ny").settings
    assert repeated.presets.use == listed.presets.use == ("kubefigurator", "domains")
    assert (listed.kubefigurator.cluster, listed.kubernetes.cluster) == ("ny", "")
    unknown = invoke("run", "--preset", "kubefig")
    assert (unknown.exit_code, "kubefigurator" in unknown.stderr) == (78, True)


def test_every_command_takes_every_setting() -> None:
    without = {"fragments", "completion", "migrate"}
    for name, command in every_command().items():
        assert isinstance(command, SettingsCommand | click.Group) or name in without, name
    for each in (cli, *(load(PLACES[name]) for name in ("run", "plan", "settings"))):
        flags = {flag for option in each.params for flag in option.opts}
        assert {flag for row in TABLE.values() for flag in row.flags} | {"--config"} <= flags


def test_every_function_takes_what_its_command_gives() -> None:
    for name, command in every_command().items():
        if isinstance(command, SettingsCommand):
            callback: Any = command.callback
            _, *parameters = inspect.signature(callback).parameters
            settings = {path.replace(".", "__") for path in TABLE} | {"config"}
            assert set(parameters) == {each.name for each in command.params} - settings, name


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
        (("explain",), "give either a NAME or --all-refused"),
        (("explain", "web", "--all-refused"), "give either a NAME or --all-refused"),
        (("explain", " "), "give either a NAME or --all-refused"),
        (("server", "drain"), "Missing argument 'NAME'"),
        (("server", "drain", "b/a", "--for", "soon"), "seconds above 0"),
        (("server", "drain", "b/a", "--for", "0"), "seconds above 0"),
        (("server", "drain", "b/a", "--for", "-5m"), "seconds above 0"),
        (("server", "drian", "b/a"), "drain"),
        (("pause", "--for", "inf"), "seconds above 0"),
        (("diff", "x"), "valid integer"),
        (("rollback", "1", "2"), "unexpected extra argument"),
        (("watch", "--since", "-1"), "x>=0"),
        (("watch", "--since", "yesterday"), "valid integer"),
        (("test", "--watch", "--update"), "--watch goes with none"),
    ],
)
def test_a_wrong_command_line_ends_with_64(arguments: tuple[str, ...], said: str) -> None:
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (64, "")
    assert said in result.stderr


def test_wrong_settings_end_with_78_and_a_list_of_all() -> None:
    result = invoke("--interval", "0", LOGLEVEL="inf", PYCONFD_HAPROXY_CONFF="/x")
    assert (result.exit_code, result.stdout) == (78, "")
    assert result.stderr.splitlines() == [
        "pyconfd cannot use its settings (3 problems):",
        '  environment LOGLEVEL: expected one of DEBUG, INFO, WARNING, ERROR, CRITICAL, got "inf"',
        "      -> did you mean INFO?",
        "  environment PYCONFD_HAPROXY_CONFF: is not a setting",
        "      -> did you mean PYCONFD_HAPROXY_CONF?",
        '  --interval: expected seconds above 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got "0"',
    ]  # fmt: skip


_PROBLEM = Problem("02-http.tmpl line 3", "no such name", "define it")


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
    error: PyconfdError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, Boundary():
        raise error
    assert ended.value.code == code
    out, err = capsys.readouterr()
    assert out == ""
    assert "  02-http.tmpl line 3: no such name\n      -> define it\n" in err
    assert "Traceback" not in err


def test_a_bug_ends_with_70_and_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> int:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("pyconfd.cli.commands.run.daemon", broken)
    result = invoke("run")
    assert result.exit_code == 70
    assert "Traceback" in result.stderr
    assert "ZeroDivisionError: oops" in result.stderr


def test_control_c_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("pyconfd.cli.commands.run.daemon", interrupted)
    result = invoke("run")
    assert (result.exit_code, result.output.strip()) == (130, "")


def test_fragments_are_copied_and_never_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "01-defaults.conf").write_text("mine")
    (shipped,) = invoke("fragments").stdout.splitlines()
    copied = invoke("fragments", "--copy-to", str(target)).stdout.splitlines()
    assert "kept    01-defaults.conf (it is there already)" in copied
    assert "copied  00-runtime.tmpl" in copied
    assert (target / "01-defaults.conf").read_text() == "mine"
    assert (target / "00-runtime.tmpl").read_bytes() == Path(shipped, "00-runtime.tmpl").read_bytes()
    assert (target / "tests").is_dir()
    of_another = invoke("fragments", "--preset", "kubefigurator", "--preset", "domains").stdout.splitlines()
    assert {Path(path).name for path in of_another} >= {"02-http.tmpl", "10-kubefigurator.tmpl"}
    (tmp_path / "a_file").write_text("")
    assert invoke("fragments", "--copy-to", str(tmp_path / "a_file" / "x")).exit_code == 78


def test_each_command_teaches() -> None:
    for name, command in every_command().items():
        text = invoke(*name.split(), "--help").stdout
        assert "Examples:" in text, name
        assert "Exit codes:" in text, name
        assert f"pyconfd {name}" in text, name
        assert command.get_short_help_str()
    assert "  2  something would change" in invoke("plan", "-h").stdout


def test_the_list_says_of_a_command_what_its_own_help_begins_with() -> None:
    for name, (place, about) in ((name, entry) for commands in COMMANDS.values() for name, entry in commands.items()):
        assert load(place).get_short_help_str(200) == about, name


def test_the_help_shows_each_command_and_the_predecessors_names_not_at_all() -> None:
    text = invoke("--help").stdout
    for name in (name for commands in COMMANDS.values() for name in commands):
        assert f"\n  {name} " in text
    for name in ("view", "apply"):
        assert f"\n  {name} " not in text


REPORTS = [
    ("check",), ("plan",), ("status",), ("explain",), ("preflight",), ("history",), ("diff",), ("watch",),
    ("server", "list"), ("vip", "status"), ("dns", "plan"), ("dns", "status"), ("settings",),
]  # fmt: skip


@pytest.mark.parametrize("command", REPORTS, ids=" ".join)
def test_every_report_has_json(command: tuple[str, ...]) -> None:
    assert "--json" in invoke(*command, "--help").stdout
