"""The TOML file, what may be wrong with it, and everything wrong at once."""

from pathlib import Path

import pytest

from pyconfd import __version__
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.context import AUTO, PresetName
from pyconfd.settings import ReloadMethod, Settings, SettingSource, resolve, resolve_again
from pyconfd.settings.resolve import is_newer
from pyconfd.settings.show import as_toml

PATH = "/etc/pyconfd/pyconfd.toml"


def problems_of(
    text: str, flags: dict[str, object] | None = None, environ: dict[str, str] | None = None
) -> tuple[Problem, ...]:
    with pytest.raises(ConfigurationError) as caught:
        resolve(flags or {}, environ or {}, lambda _: text)
    return caught.value.problems


def test_everything_from_a_file() -> None:
    text = """
        state_dir = "/srv/state"
        [kubernetes]
        api_servers = ["https://a:6443/", "https://b:6443"]
        ssl_ca = false
        interval_s = 15
        mode = "poll"
        [templates.vars]
        site = "berlin"
        ports = [80, 443]
        [haproxy]
        chk_cmd = "haproxy -c -f"
        reload_cmd = ["systemctl", "reload", "my haproxy"]
        reload_method = "command"
    """
    resolved = resolve({}, {}, lambda _: text)
    settings = resolved.settings
    assert settings.state_dir == "/srv/state"
    assert settings.kubernetes.api_servers == ("https://a:6443", "https://b:6443")
    assert settings.kubernetes.ssl_ca is False
    assert settings.kubernetes.interval_s == 15.0
    assert settings.templates.vars == {"site": "berlin", "ports": [80, 443]}
    assert settings.haproxy.chk_cmd == ("haproxy", "-c", "-f")
    assert settings.haproxy.reload_cmd == ("systemctl", "reload", "my haproxy")
    assert settings.haproxy.reload_method is ReloadMethod.COMMAND
    assert resolved.config_found
    assert resolved.origins["haproxy.chk_cmd"].place == f"{PATH}: [haproxy] chk_cmd"
    assert resolved.origins["haproxy.unit"].source is SettingSource.DEFAULT


def test_every_problem_of_every_source_at_once() -> None:
    text = """
        stat_dir = "/x"
        status = 3
        [haproxy]
        conff = "/x"
        unit = 5
        [haprxy]
        conf = "/x"
        [policies]
        max_body_size = 1048576
        [apply]
        keep_generations = 0
        quiet_s = true
    """
    environ = {"PYCONFD_INTERVL": "3", "REFRESH_INTERVAL": "often", "PYCONFD_KUBERNETES_API_SERVERS": "https://a"}
    problems = problems_of(text, {"kubernetes.page_size": "many"}, environ)
    found = {problem.place: (problem.message, problem.remedy) for problem in problems}
    assert found == {
        f"{PATH}: stat_dir": ("is not a setting", "did you mean state_dir?"),
        f"{PATH}: status": ("expected a table, got 3", "begin the section with [status] on a line of its own"),
        f"{PATH}: [haproxy] conff": ("is not a setting", "did you mean conf?"),
        f"{PATH}: [haproxy] unit": ("expected text on one line, got 5", 'write it in quotes: "5"'),
        f"{PATH}: [policies] max_body_size": (
            "expected bytes, or a size such as 100m, got 1048576",
            'write it in quotes: "1048576"',
        ),
        f"{PATH}: haprxy": ("is not a setting", "did you mean haproxy?"),
        f"{PATH}: [apply] keep_generations": ("expected a whole number from 1 to 10000, got 0", ""),
        f"{PATH}: [apply] quiet_s": (
            "expected seconds of at least 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got true",
            "",
        ),
        "environment REFRESH_INTERVAL": (
            'expected seconds above 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got "often"',
            "",
        ),
        "environment PYCONFD_INTERVL": ("is not a setting", "did you mean PYCONFD_INTERVAL?"),
        "environment PYCONFD_KUBERNETES_API_SERVERS": ("is not a setting", "did you mean PYCONFD_API_SERVERS?"),
        "--kubernetes-page-size": ('expected a whole number from 1 to 100000, got "many"', ""),
    }  # fmt: skip
    assert len(problems) == len(found)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("[kubernetes]\ninterval = 3", "did you mean interval_s?"),
        ("[kubernetes]\napi-servers = []", "did you mean api_servers?"),
        ("[templates]\ntemplate_dir = '/x'", "did you mean dir?"),
        ("[haproxy]\ninterval = 3", "did you mean interval_s in [kubernetes]?"),
        ("APISERVERS = 'https://a'", "did you mean api_servers in [kubernetes]?"),
        ("haproxy_conf = '/x'", "did you mean conf in [haproxy]?"),
        ("[haproxy]\nstate_dir = '/x'", "did you mean state_dir in the top of the file?"),
        ("zzz = 1", "`pyconfd settings` lists all settings"),
        ("'' = 1", "`pyconfd settings` lists all settings"),
    ],
)
def test_an_unknown_key_leads_to_the_one_that_was_meant(line: str, remedy: str) -> None:
    [problem] = problems_of(line)
    assert (problem.message, problem.remedy) == ("is not a setting", remedy)


def test_every_problem_within_lists_and_tables() -> None:
    text = """
        [presets]
        use = ["domain", "gatewy", "hosts"]
        [templates]
        vars = ["a=1", "b c=2", "d"]
        [[targets]]
        name = "a"
        template = "/t"
        timeout_s = "soon"
        [[targets]]
        name = "b"
        template = "/t"
        output = "/o"
        notfy = "debug:"
        "n\\no" = 1
    """
    expected = f"{PATH}: targets, table"
    presets = f"expected one of {', '.join([AUTO, *PresetName])}, got"
    names = "expected NAME=VALUE, the name of letters, digits and _, got"
    keys = "its keys are name, template, output, notify, check, timeout_s"
    assert [(each.place, each.message, each.remedy) for each in problems_of(text)] == [
        (f"{PATH}: [presets] use", f'{presets} "domain"', "did you mean domains?"),
        (f"{PATH}: [presets] use", f'{presets} "gatewy"', "did you mean gateway?"),
        (f"{PATH}: [templates] vars", f'{names} "b c"', ""),
        (f"{PATH}: [templates] vars", f'{names} "d"', ""),
        (
            f"{expected} 1, timeout_s",
            'expected seconds above 0 and at most a year (30, 0.5, or with a unit: 500ms, 30s, 5m), got "soon"',
            "",
        ),
        (f"{expected} 1, output", "is needed", ""),
        (f"{expected} 1, notify", "is needed", ""),
        (f"{expected} 2, notfy", "is not a key of this table", "did you mean notify?"),
        (f"{expected} 2, text of 3 characters over several lines", "is not a key of this table", keys),
        (f"{expected} 2, notify", "is needed", ""),
    ]


def test_a_syntax_error_has_its_line_and_hides_no_other_problem() -> None:
    broken, other = problems_of("[haproxy]\nconf = /x\n", environ={"LOGLEVEL": "x"})
    assert broken.place == f"{PATH}: line 2, column 8"
    assert "is not TOML" in broken.message
    assert other.place == "environment LOGLEVEL"


def test_a_byte_order_mark_is_named() -> None:
    [problem] = problems_of("\ufeff[log]\nlevel = 'INFO'\n")
    assert "begins with a byte order mark" in problem.message


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "9" * 5000, "a = 2020-99-99"])
def test_toml_that_breaks_the_parser_is_a_problem_too(text: str) -> None:
    assert "is not TOML" in problems_of(text)[0].message


def test_numbers_beyond_64_bits_are_refused() -> None:
    big = "0x" + "f" * 5000
    assert (
        len(problems_of(f"[apply]\nquiet_s = {big}\nkeep_generations = {big}\n[templates]\nvars = {{ a = {big} }}"))
        == 3
    )


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "none.toml")
    for flags, environ, place in (
        ({"config": missing}, {}, "--config"),
        ({}, {"PYCONFD_CONFIG": missing}, "environment PYCONFD_CONFIG"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            resolve(flags, environ)
        assert caught.value.problems[0].place == place
    assert not resolve({}, {}, _absent).config_found


def _absent(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


def _denied(path: str) -> str:
    raise PermissionError(13, "Permission denied", path)


def test_a_file_that_is_there_must_be_readable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"pyconfd\.toml: cannot be read: Permission denied") as caught:
        resolve({}, {}, _denied)
    assert "chmod 0644 /etc/pyconfd/pyconfd.toml" in caught.value.problems[0].remedy
    with pytest.raises(ConfigurationError, match="cannot be read: Is a directory"):
        resolve({"config": str(tmp_path)}, {})
    (tmp_path / "latin.toml").write_bytes(b'a = "\xe4"')
    with pytest.raises(ConfigurationError, match=r"is not UTF-8 \(byte 5\)"):
        resolve({"config": str(tmp_path / "latin.toml")}, {})


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("[status]\nlisten = '9101'", "[status] listen", "expected HOST:PORT"),
        ("[status]\nlisten = '::1:9101'", "[status] listen", "expected HOST:PORT"),
        ("[status]\nlisten = 'localhost:70000'", "[status] listen", "expected HOST:PORT"),
        ("[haproxy]\nconf = ''", "[haproxy] conf", "expected a path"),
        ('[haproxy]\nunit = "a\\u0000b"', "[haproxy] unit", "expected text on one line"),
        ("[presets]\nuse = ['domain']", "[presets] use", "expected one of auto"),
        ("[tls]\ndefault_certificate = 'wildcard'", "[tls] default_certificate", "NAMESPACE/NAME of a Secret"),
        ("[kubernetes]\nsecret_namespaces = ['A_b']", "[kubernetes] secret_namespaces", "the name of a namespace"),
        ("[addresses]\npool = ['192.0.2.9-192.0.2.1']", "[addresses] pool", "expected an address, a network"),
        ("[addresses]\npool = ['192.0.2.1-2001:db8::']", "[addresses] pool", "expected an address, a network"),
        ("[addresses]\npool = ['192.0.2.1/24']", "[addresses] pool", "expected an address, a network"),
        ("[addresses]\npool = ['224.0.0.1']", "[addresses] pool", "expected an address, a network"),
        ("[addresses]\npool = ['fe80::1%eth0']", "[addresses] pool", "expected an address, a network"),
        ("[addresses]\npool = ['2001:db8::/64']", "[addresses] pool", "expected at most 1024 addresses"),
    ],
)  # fmt: skip
def test_a_value_out_of_range_is_refused(text: str, place: str, message: str) -> None:
    [problem] = problems_of(text)
    assert problem.place == f"{PATH}: {place}"
    assert message in problem.message


@pytest.mark.parametrize(
    ("listen", "is_local"),
    [
        *[(each, True) for each in ("", "127.0.0.1:0", "127.9.9.9:1", "[::1]:9101", "localhost:65535", "LocalHost:1")],
        *[(each, False) for each in ("0.0.0.0:9101", "[::]:9101", "[fe80::1%eth0]:9101", "lb-1.example.com:9101")],
        ("192.0.2.1:9101", False),
        ("localhost.example.com:9101", False),
    ],
)
def test_addresses_to_listen_on(listen: str, is_local: bool) -> None:
    for more, is_accepted in (("", is_local), ("token_file = '/t'", True), ("tls_certificate = '/c'", True)):
        text = f"[status]\nlisten = '{listen}'\n{more}"
        if is_accepted:
            assert resolve({}, {}, lambda _, text=text: text).settings.status.listen == listen  # type: ignore[misc]
        else:
            (problem,) = problems_of(text)
            assert problem.place == f"{PATH}: [status] listen"
            assert "--status-token-file" in problem.remedy


def test_flag_over_environment_over_file() -> None:
    text = "[kubernetes]\npage_size = 1\n[apply]\nkeep_generations = 1\n[log]\nlevel = 'DEBUG'\n"
    environ = {"PYCONFD_KUBERNETES_PAGE_SIZE": "2", "PYCONFD_APPLY_KEEP_GENERATIONS": "2"}
    resolved = resolve({"kubernetes.page_size": "3"}, environ, lambda _: text)
    settings = resolved.settings
    assert (settings.kubernetes.page_size, settings.apply.keep_generations, settings.log.level) == (3, 2, "DEBUG")
    sources = [
        resolved.origins[path].source for path in ("kubernetes.page_size", "apply.keep_generations", "log.level")
    ]
    assert sources == [SettingSource.FLAG, SettingSource.ENVIRONMENT, SettingSource.FILE]


def test_an_empty_flag_is_a_value_and_no_flag_is_none() -> None:
    text = '[status]\nlisten = "127.0.0.1:9999"\n'
    for given, listen in (("", ""), (None, "127.0.0.1:9999"), ((), "127.0.0.1:9999")):
        resolved = resolve({"status.listen": given}, {}, lambda _: text)
        assert resolved.settings.status.listen == listen


def test_a_flag_given_twice_is_one_list() -> None:
    flags = {"cluster_templates.allow": ("http-request  lua.a", "b; c"), "presets.use": ("hosts", "domains,auto")}
    settings = resolve(flags | {"hosts.master": "m"}, {}, lambda _: "").settings
    assert settings.cluster_templates.allow == ("http-request lua.a", "b", "c")
    assert settings.presets.use == ("hosts", "domains", "auto")


def test_variables_are_merged_by_name() -> None:
    text = "[templates]\nvars = { a = 1, b = 2, c = 3 }"
    environ = {"PYCONFD_TEMPLATES_VARS": "b=two 'd=x y'"}
    resolved = resolve({"templates.vars": ("c=three", "e=it's")}, environ, lambda _: text)
    assert resolved.settings.templates.vars == {"a": 1, "b": "two", "c": "three", "d": "x y", "e": "it's"}


def test_an_empty_listen_switches_the_page_off() -> None:
    found = resolve({}, {"PYCONFD_STATUS_LISTEN": "", "PYCONFD_LOG_LEVEL": ""}, lambda _: "")
    assert found.settings.status.listen == ""
    assert found.origins["status.listen"].source is SettingSource.ENVIRONMENT
    assert found.origins["log.level"].source is SettingSource.DEFAULT


def test_a_variable_without_a_name() -> None:
    [problem] = problems_of("", {"templates.vars": ("my password=hunter2",)})
    assert problem.place == "--var"
    assert "hunter2" not in str(problem)


def test_variables_may_hold_line_breaks_and_nothing_else_unprintable() -> None:
    for flags, environ in (({"templates.vars": ("a=x\n\ty",)}, {}), ({}, {"PYCONFD_TEMPLATES_VARS": "'a=x\n\ty'"})):
        assert resolve(flags, environ, lambda _: "").settings.templates.vars == {"a": "x\n\ty"}
    for text in ("a=\x1b[2J", "a=\udcff", "b"):
        [problem] = problems_of("", {"templates.vars": (text, "c=3")})
        assert (problem.place, problem.message.rpartition(", got ")[2]) == ("--var", f'"{text[0]}"')


def test_home_is_expanded_in_paths_alone() -> None:
    text = "[kubernetes]\nkubeconfig = '~/.kube/config'\ncluster = '~/x'"
    text += "\n[[targets]]\nname = 'a'\ntemplate = '~/t.tmpl'\noutput = '/o'\nnotify = 'debug:'\ncheck = '~/check'"
    settings = resolve({}, {"HOME": "/root/"}, lambda _: text).settings
    assert (settings.kubernetes.kubeconfig, settings.kubernetes.cluster) == ("/root/.kube/config", "~/x")
    [target] = settings.targets
    assert (target.template, target.output, target.check) == ("/root/t.tmpl", "/o", ("~/check",))


def test_what_kubernetes_puts_into_a_pod_is_no_setting() -> None:
    environ = {
        "PYCONFD_SERVICE_HOST": "10.0.0.1",
        "PYCONFD_SERVICE_PORT": "80",
        "PYCONFD_SERVICE_PORT_METRICS": "80",
        "PYCONFD_PORT": "tcp://10.0.0.1:80",
        "PYCONFD_PORT_80_TCP": "tcp://10.0.0.1:80",
        "PYCONFD_PORT_80_TCP_ADDR": "10.0.0.1",
        "PYCONFD_STATUS_PAGE_SERVICE_HOST": "10.0.0.1",
    }
    assert resolve({}, environ, _absent).settings == Settings()


def test_resolving_again_reads_the_file_again_with_the_same_flags() -> None:
    first = resolve({"log.level": "debug"}, {"PYCONFD_KUBERNETES_PAGE_SIZE": "7", "PATH": "/bin"}, _absent)
    again = resolve_again(first, lambda _: "[log]\nlevel = 'ERROR'\n[apply]\nkeep_generations = 3")
    settings = again.settings
    assert (settings.log.level, settings.kubernetes.page_size, settings.apply.keep_generations) == ("DEBUG", 7, 3)
    assert "PATH" not in first.environ


def test_a_link_that_leads_nowhere_is_no_lack_of_a_file(tmp_path: Path) -> None:
    link = tmp_path / "pyconfd.toml"
    link.symlink_to("/no/such/file")
    with pytest.raises(ConfigurationError, match='is a link to "/no/such/file", which is not there'):
        resolve({"config": str(link)}, {})


def test_a_file_that_has_gone_takes_no_settings_back() -> None:
    first = resolve({}, {}, lambda _: "[log]\nlevel = 'ERROR'\n")
    with pytest.raises(ConfigurationError, match="is not there any more"):
        resolve_again(first, _absent)
    # One that never was there is not missed.
    assert resolve_again(resolve({}, {}, _absent), _absent).settings == Settings()


def test_a_relative_path_in_the_file_is_noted_and_one_on_the_command_line_is_not() -> None:
    text = '[haproxy]\nruntime_socket = "run/x.sock"\nconf = "/etc/haproxy.cfg"\n[templates]\ndir = "~/fragments"\n'
    (note,) = resolve({}, {"HOME": "/root"}, lambda _: text).notes
    assert note.startswith(f"{PATH}: [haproxy] runtime_socket: run/x.sock is relative")
    assert resolve({"templates.dir": "."}, {}, lambda _: "").notes == ()


NEWER = """
    settings_version = "999.1.0"
    brand_new = true
    [kubernetes]
    api_servers = ["https://a:6443"]
    brand_new_s = 3
    [invented]
    key = 1
"""


def test_an_older_pyconfd_reads_what_it_knows_of_newer_settings_and_names_the_rest() -> None:
    resolved = resolve({}, {"PYCONFD_INVENTED": "1"}, lambda _: NEWER)
    assert resolved.settings.kubernetes.api_servers == ("https://a:6443",)
    ignored = [note.partition(": ignored, ")[0] for note in resolved.notes]
    assert ignored == [
        f"{PATH}: brand_new",
        f"{PATH}: [kubernetes] brand_new_s",
        f"{PATH}: invented",
        "environment PYCONFD_INVENTED",
    ]
    assert all("999.1.0" in note for note in resolved.notes)


@pytest.mark.parametrize("version", ["", 'settings_version = "0.0.1"', f'settings_version = "{__version__}"'])
def test_unknown_names_in_settings_that_are_not_newer_stay_mistakes(version: str) -> None:
    text = NEWER.replace('settings_version = "999.1.0"', version)
    assert len(problems_of(text, environ={"PYCONFD_INVENTED": "1"})) == 4


def test_a_value_that_is_not_taken_is_a_mistake_in_newer_settings_too() -> None:
    (problem,) = problems_of(NEWER + "[log]\nformat = 'hologram'\n")
    assert problem.place == f"{PATH}: [log] format"


@pytest.mark.parametrize(
    ("older", "newer"), [("1.2.3", "1.2.4"), ("1.9.0", "1.10.0"), ("1.0.0rc2", "1.0.0"), ("1.0.0b9", "1.0.0rc1")]
)
def test_versions_are_ordered_by_number_and_a_candidate_comes_before_its_release(older: str, newer: str) -> None:
    assert is_newer(newer, older)
    assert not is_newer(older, newer)
    assert not is_newer(newer, newer)


def test_the_file_to_begin_with_says_for_which_pyconfd_it_is() -> None:
    text = "\n".join(as_toml(resolve({}, {}, lambda _: "")))
    assert f'\nsettings_version = "{__version__}"\n' in text
    assert resolve({}, {}, lambda _: text).settings.settings_version == __version__
