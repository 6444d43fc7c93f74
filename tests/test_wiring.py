from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd import fragments, wiring
from pyconfd.errors import RejectedInput, TransientError
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Resource
from pyconfd.presets.reading import PresetOptions
from pyconfd.settings import (
    BackendTarget,
    HaproxySettings,
    KubernetesSettings,
    PresetSettings,
    Settings,
    TemplateSettings,
    UndefinedMode,
)
from pyconfd.wiring import Holds

SHIPPED = Settings(templates=TemplateSettings(dir=fragments.directory()))


def _options(settings: Settings) -> PresetOptions:
    return wiring.preset_options(settings, wiring.renderer(settings, wiring.fragments(settings)))


def test_ports_that_the_fragments_bind_by_themselves_are_the_operators() -> None:
    assert _options(SHIPPED).reserved_ports == {80, 443, 8404, 9101}
    moved = replace(SHIPPED.templates, vars={"http_bind": "127.0.0.1:8080-8082", "https_bind": "", "stats_bind": ""})
    assert _options(replace(SHIPPED, templates=moved)).reserved_ports == {8080, 8081, 8082, 9101}


def test_fragments_that_need_objects_reserve_only_the_status_page(tmp_path: Path) -> None:
    (tmp_path / "01.tmpl").write_text("frontend fe\n    bind :80\n{{ domains['shop.example.com'].proto }}\n")
    assert _options(Settings(templates=TemplateSettings(dir=str(tmp_path)))).reserved_ports == {9101}


def test_settings_reach_the_presets() -> None:
    presets = PresetSettings(
        backend_target=BackendTarget.NODE, node_address_types=("ExternalIP",), listen_ports=("6379-6380", "9000-9000")
    )
    options = _options(replace(SHIPPED, presets=presets))
    assert options.node_ports
    assert options.node_address_types == ("ExternalIP",)
    assert options.listen_ports == ((6379, 6380), (9000, 9000))
    assert not _options(SHIPPED).node_ports


def test_secrets_are_read_only_where_namespaces_are_named() -> None:
    assert Resource.SECRETS not in wiring.resources(Settings())
    named = KubernetesSettings(secret_namespaces=("tls",))
    assert Resource.SECRETS in wiring.resources(Settings(kubernetes=named))


def test_settings_reach_the_templates(tmp_path: Path) -> None:
    (tmp_path / "01.tmpl").write_text("# {{ vars.who }}{{ nothing }}\n# {{ map_file('hosts', {'a': 'b'}) }}\n")
    templates = TemplateSettings(dir=str(tmp_path), vars={"who": "me"})
    settings = Settings(templates=templates, haproxy=HaproxySettings(conf="/srv/haproxy.cfg"))
    snapshot = tmp_path / "empty.json"
    snapshot.write_text('{"kind": "List", "apiVersion": "v1", "items": []}')
    with pytest.raises(RejectedInput, match="nothing"):
        wiring.render_once(settings, (str(snapshot),), "today")
    lenient = replace(settings, templates=replace(templates, undefined=UndefinedMode.LENIENT))
    text = wiring.render_once(lenient, (str(snapshot),), "today").rendered.rendering.text
    assert text == "# me\n# /srv/files/maps/hosts.map\n"
    elsewhere = replace(lenient, haproxy=replace(settings.haproxy, files_dir="/elsewhere"))
    assert "/elsewhere/maps" in wiring.render_once(elsewhere, (str(snapshot),), "").rendered.rendering.text


def test_another_order_than_the_predecessors_is_said_once_with_both() -> None:
    def note(*names: str) -> str:
        return wiring.order_note(FragmentSet(tuple(Fragment(name, "") for name in names)))

    assert note("01-a.conf", "02-b.conf") == ""
    said = note("9-tcp.conf", "10-stats.conf")
    assert "natural order (9-tcp.conf, 10-stats.conf)" in said
    assert said.endswith("by bytes: 10-stats.conf, 9-tcp.conf")


def test_a_missing_template_directory_is_a_problem_that_may_heal(tmp_path: Path) -> None:
    with pytest.raises(TransientError, match="does not exist"):
        wiring.fragments(Settings(templates=TemplateSettings(dir=str(tmp_path / "none"))))


def test_a_hold_is_allowed_and_forgotten(tmp_path: Path) -> None:
    daemons, operators = Holds(str(tmp_path / "run")), Holds(str(tmp_path / "run"))
    assert daemons.allowed() == frozenset()
    daemons.forget()
    daemons.prepare()
    operators.allow("0123abcd")
    assert daemons.allowed() == {"0123abcd"}
    daemons.prepare()
    assert daemons.allowed() == {"0123abcd"}, "a restart does not take it back"
    daemons.forget()
    assert daemons.allowed() == frozenset()
    operators.allow("0123abcd")
    assert daemons.allowed() == {"0123abcd"}


def test_what_root_allows_belongs_to_the_daemon_to_forget(tmp_path: Path) -> None:
    """The folder is made by the daemon: in one that root made it could neither look nor remove."""
    with pytest.raises(FileNotFoundError):
        Holds(str(tmp_path / "run")).allow("0123abcd")


def test_the_date_always_has_microseconds() -> None:
    assert wiring.SystemClock().date(1_700_000_000.0).endswith(".000000")
