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
from pyconfd.settings.claims import Rules
from pyconfd.settings.dns_names import OwnAddress
from pyconfd.settings.kinds import Boolean, CaFile, Choice, Command, Count, Kind, Listen, Listing, Seconds, Text
from pyconfd.settings.sources import Findings, from_file
from pyconfd.settings.table import DEFAULT_CONFIG, SECTIONS, TABLE, Row, value_of
from pyconfd.settings.tables import Tables
from pyconfd.settings.targets import Address, Domain, NameTemplates, Notify
from pyconfd.settings.vip import Health, Interface, NumberOrNone


def _absent(path: str) -> str:
    raise FileNotFoundError(2, "No such file or directory", path)


_SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.dates() | st.datetimes()
_VALUES = st.recursive(_SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5)
_KEYS = st.sampled_from(sorted({row.key for row in TABLE.values()})) | st.text()
_SECTIONS = st.sampled_from(sorted(SECTIONS)) | st.text()
_DOCUMENTS = st.dictionaries(_SECTIONS, st.dictionaries(_KEYS, _VALUES) | _VALUES)
_ENV_NAMES = st.sampled_from([name for row in TABLE.values() for name in row.envs]) | st.text().map("PYCONFD_".__add__)
_WORDS = st.text(st.characters()) | st.sampled_from(["false", "1", "30s", "https://a:1", "poll", "[::1]:1", "'", "a=b"])


@given(_DOCUMENTS)
def test_any_document_gives_values_or_problems(document: Mapping[str, object]) -> None:
    found = Findings()
    for candidate in from_file("f", document, found):
        candidate.row.text(candidate.value)
    assert all(problem.place and problem.message for problem in found.problems)


@given(st.text(), st.dictionaries(_ENV_NAMES, _WORDS), st.dictionaries(st.sampled_from(list(TABLE)), _WORDS))
def test_nothing_but_a_configuration_error(text: str, environ: dict[str, str], flags: dict[str, str]) -> None:
    try:
        said = "\n".join(show.as_text(resolve(flags, environ, lambda _: text)))
    except ConfigurationError as error:
        said = str(error)
    assert said.encode()


_TARGET = {"name": "a", "template": "/t", "output": "/o", "notify": "debug:"}
_SAMPLES: Mapping[type[Kind], list[str]] = {
    Domain: ["local", "cluster.example.com"],
    Address: ["0.0.0.0", "::", "192.0.2.1"],
    NameTemplates: ["{{ .Service.Name }}.example.com", "a.{{ .Domain }},b.example.com"],
    Notify: ["command:true", "pid:HUP:77", "pidfile:SIGUSR1:/run/caddy.pid", "debug:"],
    Rules: [
        "[]",
        json.dumps([{"namespaces": ["prod-*"], "domains": ["a.b"], "protocols": [], "ports": ["80"]}]),
        json.dumps([{"namespaces": ["*"], "addresses": ["192.0.2.7", "2001:db8::/64"]}]),
    ],
    Interface: ["eth0", "bond0.42"],
    NumberOrNone: ["51", "0"],
    Health: ["", "127.0.0.1:8404/health", "[::1]:80/"],
}
_TABLES: Mapping[str, object] = {
    "dns.records": {"name": "lb.example.com", "mode": "shared", "private": True, "address_source": "interface"},
    "targets": _TARGET | {"check": ["a", "b c"], "timeout_s": 2},
    "vip.nodes": {"name": "lb1", "addresses": ["192.0.2.11", "2001:db8::11"]},
    "vip.routers": {"virtual_router_id": 7, "addresses": ["192.0.2.7/24"], "preferred": "lb1"},
}


def _texts(kind: Kind) -> st.SearchStrategy[str]:  # noqa: C901 - one case for each kind
    """Give texts that a kind accepts."""
    if type(kind) in _SAMPLES:
        return st.sampled_from(_SAMPLES[type(kind)])
    match kind:
        case Tables():
            return st.sampled_from(["[]", json.dumps([_TABLES[kind.name]])])
        case Boolean():
            return st.sampled_from(["true", "false", "no", "1"])
        case Choice():
            return st.sampled_from(kind.words)
        case Seconds():
            return st.floats(max(kind.least, 0.001), 86400).map(lambda number: f"{number:.3f}".rstrip("0") + "1")
        case Count():
            return st.integers(kind.least, kind.most).map(str)
        case Listen():
            return st.integers(0, 65535).map("127.0.0.1:{}".format)
        case Text() if kind.pattern or isinstance(kind, OwnAddress):
            fitting = [
                sample
                for sample in ("lb", "0.0.1", "pod/default/lb", "7", "192.0.2.1", "2001:db8::1", "https://a")
                if _fits(kind, sample)
            ]
            return st.sampled_from(fitting)
        case Command():
            return st.lists(st.sampled_from(["a", "b c", '"', "é", "'"]), min_size=1).map(kind.text)
        case CaFile():
            return st.sampled_from(["False", "/ca.pem"])
        case Listing():
            samples = [
                "https://a:1",
                "https://b",
                "domains",
                "kube2lb",
                "web",
                "lb",
                "ExternalIP",
                "Hostname",
                "1024-2047",
            ]
            samples += ["app=web", "/srv", "127.0.0.0/8", "192.0.2.7", "lb.example.com", "tcp://a:1"]
            samples += ["192.0.2.10/24", "443"]
            fitting = [sample for sample in samples if _fits(kind, sample)]
            return st.lists(st.sampled_from(fitting), min_size=1, max_size=3).map(", ".join)
    return st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs"]), min_size=1).map("/p{}".format)


def _fits(kind: Kind, sample: str) -> bool:
    try:
        kind.parse(sample)
    except ValueError:
        return False
    return True


_ROWS = [row for row in TABLE.values() if row.path != "templates.vars"]


@st.composite
def _given(draw: st.DrawFn, rows: list[Row]) -> dict[str, str]:
    chosen = draw(st.lists(st.sampled_from(rows), unique_by=lambda row: row.path))
    return {row.path: draw(_texts(row.kind)) for row in chosen}


def _resolved_or_none(flags: dict[str, str], environ: dict[str, str]) -> Any:
    try:
        return resolve(flags, environ, _absent)
    except ConfigurationError as error:
        problems = error.problems
    # Only contradictions are left: bounds the wrong way round, half a client certificate.
    assert not [problem for problem in problems if "expected" in problem.message]
    return None


@given(_given(_ROWS), _given(_ROWS))
def test_a_flag_wins_over_the_environment_and_that_over_the_default(flags: dict[str, str], env: dict[str, str]) -> None:
    resolved = _resolved_or_none(flags, {TABLE[path].env: text for path, text in env.items()})
    if resolved is None:
        return
    for row in _ROWS:
        text = flags.get(row.path, env.get(row.path))
        expected = row.default if text is None else row.kind.parse(text.strip())
        assert value_of(resolved.settings, row) == expected
        place = resolved.origins[row.path].place
        assert place == (
            row.flags[0] if row.path in flags else f"environment {row.env}" if row.path in env else "default"
        )


@given(_given(_ROWS))
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
