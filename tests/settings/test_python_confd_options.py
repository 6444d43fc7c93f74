"""The eleven options of python-confd: old flags, old environment names, old meanings, without its traps."""

from pathlib import Path

import pytest

from pyconfd.errors import ConfigurationError
from pyconfd.settings import ReadMode, Resolved, Settings, resolve
from pyconfd.settings.table import TABLE
from tests.world.pki import CertificateAuthority


def _no_file(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def from_env(**environ: str) -> Resolved:
    return resolve({}, environ, _no_file)


def problems_of(flags: dict[str, str] | None = None, **environ: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        resolve(flags or {}, environ, _no_file)
    return [str(problem) for problem in caught.value.problems]


def test_exactly_the_eleven_have_an_old_name() -> None:
    assert {row.old_env for row in TABLE.values() if row.old_env} == {
        "APISERVERS", "LOGLEVEL", "IGNORE_PROXY_ENV", "SSL_KEY_FILE", "SSL_CERT_FILE", "SSL_CA_FILE",
        "REFRESH_INTERVAL", "TEMPLATE_DIR", "HAPROXY_CONF", "HAPROXY_CHECK_CMD", "HAPROXY_RELOAD_CMD",
    }  # fmt: skip


@pytest.mark.parametrize("word", ["False", "false", "no", "OFF", "0"])
def test_false_is_false(word: str) -> None:
    assert from_env(IGNORE_PROXY_ENV=word).settings.kubernetes.ignore_proxy_env is False
    assert resolve({"kubernetes.ignore_proxy_env": word}, {}, _no_file).settings.kubernetes.ignore_proxy_env is False


@pytest.mark.parametrize("word", ["True", "yes", "on", "1"])
def test_true_is_true(word: str) -> None:
    assert from_env(IGNORE_PROXY_ENV=word).settings.kubernetes.ignore_proxy_env is True


def test_ssl_ca_false_switches_verification_off_from_flag_and_environment() -> None:
    for resolved in (resolve({"kubernetes.ssl_ca": "False"}, {}, _no_file), from_env(SSL_CA_FILE="False")):
        assert resolved.settings.kubernetes.ssl_ca is False
        assert any("not verified" in note for note in resolved.notes)


def test_ssl_ca_true_is_no_file() -> None:
    assert "expected the path of a file, or false" in problems_of(SSL_CA_FILE="True")[0]


def test_an_empty_variable_is_not_set() -> None:
    resolved = from_env(SSL_CA_FILE="", APISERVERS=" ", REFRESH_INTERVAL="", HAPROXY_CONF="", PYCONFD_CONFIG="")
    assert resolved.settings == Settings()
    assert resolved.notes == ()


def test_lists_with_spaces_commas_and_slashes() -> None:
    expected = ("https://a:6443", "https://b:6443", "https://c/k8s/clusters/x")
    text = " https://a:6443/, https://b:6443  ,,https://c/k8s/clusters/x/ https://a:6443,"
    assert from_env(APISERVERS=text).settings.kubernetes.api_servers == expected


@pytest.mark.parametrize(
    "text", ["10.0.0.1:6443", "ftp://a", "https://", "https://a:99999", "https://a:b", "--log-level"]
)
def test_what_is_no_url_of_an_api_server(text: str) -> None:
    assert "expected the URL of an API server" in problems_of(APISERVERS=text)[0]


def test_a_password_in_a_url_is_refused_and_never_repeated() -> None:
    for url in ("https://root:hunter2@a", "https://a/?token=hunter2"):
        [problem] = problems_of(APISERVERS=url)
        assert "hunter2" not in problem


def test_a_key_in_place_of_its_file_is_never_repeated() -> None:
    [problem] = problems_of(SSL_KEY_FILE="-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----")
    assert "environment SSL_KEY_FILE" in problem
    assert "MIIE" not in problem


def test_an_interval_alone_does_not_switch_to_polling() -> None:
    resolved = resolve({"kubernetes.interval_s": "30"}, {}, _no_file)
    assert resolved.settings.kubernetes.mode is ReadMode.WATCH
    assert any(note.startswith("--interval: has no effect") for note in resolved.notes)
    polling = resolve({"kubernetes.interval_s": "30", "kubernetes.mode": "poll"}, {}, _no_file)
    assert polling.settings.kubernetes.mode is ReadMode.POLL
    assert polling.notes == ()


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "soon", "1e400", "1 0", "99999999999", "٣"])
def test_intervals_that_cannot_be(text: str) -> None:
    assert "environment REFRESH_INTERVAL: expected seconds" in problems_of(REFRESH_INTERVAL=text)[0]


def test_commands_are_split_with_their_quotes() -> None:
    command = from_env(HAPROXY_RELOAD_CMD="sudo 'my tool' --flag=\"a b\" ; rm").settings.haproxy.reload_cmd
    assert command == ("sudo", "my tool", "--flag=a b", ";", "rm")
    assert "quotes closed" in problems_of(HAPROXY_CHECK_CMD="haproxy 'oops")[0]


@pytest.mark.parametrize(("text", "level"), [("debug", "DEBUG"), ("Warn", "WARNING"), ("fatal", "CRITICAL")])
def test_log_levels_in_any_case_and_by_their_other_names(text: str, level: str) -> None:
    assert from_env(LOGLEVEL=text).settings.log.level == level


def test_an_unknown_log_level_is_a_problem_with_a_suggestion() -> None:
    assert problems_of(LOGLEVEL="inf")[0].endswith("-> did you mean INFO?")


def test_the_new_name_wins_and_a_difference_is_said() -> None:
    resolved = from_env(REFRESH_INTERVAL="10", PYCONFD_INTERVAL="20", PYCONFD_KUBERNETES_MODE="poll")
    assert resolved.settings.kubernetes.interval_s == 20
    assert resolved.notes == ("environment PYCONFD_INTERVAL and REFRESH_INTERVAL differ; PYCONFD_INTERVAL counts",)
    same = from_env(REFRESH_INTERVAL="20.0", PYCONFD_INTERVAL="20s", PYCONFD_KUBERNETES_MODE="poll")
    assert same.notes == ()


def test_flags_and_environment_mix() -> None:
    resolved = resolve({"log.level": "debug"}, {"APISERVERS": "https://a"}, _no_file)
    assert (resolved.settings.log.level, resolved.settings.kubernetes.api_servers) == ("DEBUG", ("https://a",))


def test_the_default_output_is_a_file_that_pyconfd_owns() -> None:
    assert from_env().settings.haproxy.conf == "/etc/haproxy/generated/haproxy.cfg"


def _pem(certificates: int, *, key: bool = False) -> str:
    one = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    return one * certificates + ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n" if key else "")


@pytest.fixture
def bundle(tmp_path: Path) -> str:
    (tmp_path / "bundle.pem").write_text(_pem(120))
    return str(tmp_path / "bundle.pem")


def test_openssls_ssl_cert_file_is_no_client_certificate(bundle: str) -> None:
    resolved = resolve({}, {"SSL_CERT_FILE": bundle, "PYCONFD_CONFIG": ""})
    assert resolved.settings.kubernetes.ssl_cert == ""
    assert [note for note in resolved.notes if "no key comes with it" in note]


def test_a_ca_bundle_of_openssl_needs_no_note(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    resolved = resolve({}, {"SSL_CERT_FILE": str(authority.cert), "PYCONFD_CONFIG": ""})
    assert (resolved.settings.kubernetes.ssl_cert, resolved.notes) == ("", ())
    resolved = resolve({}, {"SSL_CERT_FILE": str(authority.client("one").cert), "PYCONFD_CONFIG": ""})
    assert [note for note in resolved.notes if "no key comes with it" in note]


@pytest.mark.parametrize("key", ["SSL_KEY_FILE", "PYCONFD_SSL_KEY"])
def test_ssl_cert_file_with_a_key_is_used(key: str, bundle: str) -> None:
    resolved = resolve({}, {"SSL_CERT_FILE": bundle, key: "/k"})
    assert (resolved.settings.kubernetes.ssl_cert, resolved.notes) == (bundle, ())


def test_a_certificate_that_holds_its_key_needs_no_other(tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    path.write_text(_pem(1, key=True))
    for name in ("SSL_CERT_FILE", "PYCONFD_SSL_CERT"):
        assert resolve({}, {name: str(path)}).settings.kubernetes.ssl_cert == str(path)
    path.write_text(_pem(1))
    with pytest.raises(ConfigurationError, match="a client certificate without its key"):
        resolve({}, {"PYCONFD_SSL_CERT": str(path)})


def test_a_key_without_a_certificate() -> None:
    [problem] = problems_of(SSL_KEY_FILE="/k.pem")
    assert problem.startswith("environment SSL_KEY_FILE: a client key without its certificate")
    assert "PYCONFD_SSL_CERT" in problem
