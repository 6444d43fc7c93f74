"""Properties of resolution: nothing but ConfigurationError, precedence, a TOML file that gives what it was made of."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyconfd import __version__
from pyconfd.errors import ConfigurationError
from pyconfd.settings import Settings, resolve, show
from pyconfd.settings.resolve import Sources
from pyconfd.settings.setting import NotAcceptedError, Setting
from pyconfd.settings.table import DEFAULT_CONFIG, SECTIONS, TABLE, value_of


def _absent(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.datetimes()
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
_KEYS = st.sampled_from(sorted({setting.key for setting in TABLE.values()})) | st.text()
_SECTIONS = st.sampled_from(sorted(SECTIONS)) | st.text()
_DOCUMENTS = st.dictionaries(_SECTIONS, st.dictionaries(_KEYS, _VALUES) | _VALUES)
_ENV_NAMES = st.sampled_from([name for each in TABLE.values() for name in each.envs]) | st.text().map(
    "PYCONFD_".__add__
)
_WORDS = st.text(st.characters()) | st.sampled_from(["false", "1", "30s", "https://a:1", "poll", "[::1]:1", "'", "a=b"])


@given(_DOCUMENTS)
def test_any_document_gives_values_or_problems(document: Mapping[str, object]) -> None:
    sources = Sources()
    sources.add_document("f", document)
    for candidate in sources.candidates:
        candidate.setting.text(candidate.value)
    assert all(problem.place and problem.message for problem in sources.problems)


@given(st.text(), st.dictionaries(_ENV_NAMES, _WORDS), st.dictionaries(st.sampled_from(list(TABLE)), _WORDS))
def test_nothing_but_a_configuration_error(text: str, environ: dict[str, str], flags: dict[str, str]) -> None:
    try:
        said = "\n".join(show.as_text(resolve(flags, environ, lambda _: text)))
    except ConfigurationError as error:
        said = str(error)
    assert said.encode()


_TABLES = [
    {"name": "a", "template": "/t", "output": "/o", "notify": "debug:", "check": ["a", "b c"], "timeout_s": "2s"},
    {"name": "lb.example.com", "mode": "shared", "private": True, "address_source": "interface", "weight": 0},
    {"name": "lb1", "addresses": ["192.0.2.11", "2001:db8::11"]},
    {"virtual_router_id": 7, "addresses": ["192.0.2.7/24"], "preferred": "lb1"},
    {"namespaces": ["prod-*"], "domains": ["a.b"], "protocols": [], "ports": ["80"], "addresses": ["2001:db8::/64"]},
]
_TEXTS = (
    "/p é", "/srv", "/a, /b", "lb", "http", "0.0.1", "1.2.3rc1", "a-b, c", "a b", "deployment/default/lb", "app=web",
    "edge/default",
    "true", "No", "off", "1", "0", "7", "4096", "99999999", "0.5", "250ms", "10s", "2m", "80, 443", "1024-2047, 80",
    "192.0.2.1", "2001:db8::1", "192.0.2.10/24", "127.0.0.0/8", "[::1]:80", "127.0.0.1:8404/health", "eth0",
    "https://a:1", "https://a, https://b/x/", "http://127.0.0.1:80/", "tcp://a:1", "lb.example.com",
    "domains, kube2lb", "InternalIP, Hostname", "poll", "lenient", "json", "warn", "tcp", "shared", "cloud", "apply",
    "interface", "node", "signal", "auto", "a 'b c'", "debug:", "pid:HUP:77", "command:true", "{{ .Domain }},b.c",
    "[]", *(json.dumps([table]) for table in _TABLES),
)  # fmt: skip


def _takes(setting: Setting, text: str) -> bool:
    try:
        setting.accept(text)
    except NotAcceptedError:
        return False
    return True


_ROWS = [setting for setting in TABLE.values() if setting.path != "templates.vars"]
_GOOD = {setting.path: [text for text in _TEXTS if _takes(setting, text)] for setting in _ROWS}


def test_each_setting_takes_a_sample() -> None:
    assert [path for path, texts in _GOOD.items() if not texts] == []


@st.composite
def _given(draw: st.DrawFn) -> dict[str, str]:
    paths = draw(st.lists(st.sampled_from(list(_GOOD)), unique=True))
    return {path: draw(st.sampled_from(_GOOD[path])) for path in paths}


def _resolved_or_none(flags: dict[str, str], environ: dict[str, str]) -> Any:
    try:
        return resolve(flags, environ, _absent)
    except ConfigurationError as error:
        problems = error.problems
    # Only contradictions are left: bounds the wrong way round, half a client certificate.
    assert not [problem for problem in problems if "expected" in problem.message]
    return None


@given(_given(), _given())
def test_a_flag_wins_over_the_environment_and_that_over_the_default(flags: dict[str, str], env: dict[str, str]) -> None:
    resolved = _resolved_or_none(flags, {TABLE[path].env: text for path, text in env.items()})
    if resolved is None:
        return
    for row in _ROWS:
        text = flags.get(row.path, env.get(row.path))
        expected = row.default if text is None else row.accept(text)
        assert value_of(resolved.settings, row) == expected
        place = resolved.origins[row.path].place
        assert place == (
            row.flags[0] if row.path in flags else f"environment {row.env}" if row.path in env else "default"
        )


@given(_given())
def test_the_toml_file_gives_the_same_settings(flags: dict[str, str]) -> None:
    resolved = _resolved_or_none(flags, {})
    if resolved is not None:
        text = "\n".join(show.as_toml(resolved))
        again = resolve({}, {}, lambda path: text if path == DEFAULT_CONFIG else _absent(path)).settings
        assert again == replace(resolved.settings, settings_version=again.settings_version)


def test_the_default_file_sets_nothing_and_says_all() -> None:
    text = "\n".join(show.as_toml(show.defaults()))
    assert resolve({}, {}, lambda _: text).settings == Settings(settings_version=__version__)
    assigned = "\n".join(
        line.removeprefix("# ") if line.startswith("# ") and " = " in line and "NAME" not in line
        else line if line.startswith("[") else ""
        for line in text.splitlines()
    )  # fmt: skip
    everything = resolve({}, {}, lambda _: f'settings_version = "{__version__}"\n{assigned}')
    assert everything.settings == Settings(settings_version=__version__)
    assert all(everything.origins[row.path].source == "file" for row in _ROWS)
