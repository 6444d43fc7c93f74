from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd import fragments, wiring
from pyconfd.app.dry_run import EmptyBalancer, dry_run
from pyconfd.app.service import Holds
from pyconfd.errors import RejectedInput
from pyconfd.fragments import of_presets
from pyconfd.model.context import AUTOMATIC_PRESETS
from pyconfd.model.listener import Listener
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import (
    BackendTarget,
    HaproxySettings,
    KubefiguratorSettings,
    KubernetesSettings,
    PresetSettings,
    Settings,
    TemplateSettings,
    UndefinedMode,
)
from pyconfd.settings.sections import AddressSettings, ProxySettings
from pyconfd.settings.vip import VipSettings
from pyconfd.wiring import HostReader

PAGE = Listener("127.0.0.1", 9101)
SHIPPED = Settings(templates=TemplateSettings(dir=fragments.directory()))
KUBEFIGURATOR = Settings(presets=PresetSettings(use=("kubefigurator",)))


def _options(settings: Settings) -> PresetOptions:
    return wiring.preset_options(settings, wiring.renderer(settings, wiring.fragments(settings)))


def test_ports_that_the_fragments_bind_by_themselves_are_the_operators() -> None:
    both = replace(SHIPPED, templates=replace(SHIPPED.templates, vars={"ipv6": True}))
    assert _options(both).reserved.owners == {
        Listener("0.0.0.0", 80): "frontend http-in of the fragments",
        Listener("::", 80, v6only=True): "frontend http-in of the fragments",
        Listener("0.0.0.0", 443): "frontend https-in of the fragments",
        Listener("::", 443, v6only=True): "frontend https-in of the fragments",
        Listener("127.0.0.1", 8404): "frontend stats of the fragments",
    }
    assert _options(both).status_page.owners == {PAGE: "the status page of pyconfd"}
    moved = replace(SHIPPED.templates, vars={"http_bind": "127.0.0.1:8080-8082", "https_bind": "", "stats_bind": ""})
    assert set(_options(replace(SHIPPED, templates=moved)).reserved) == {
        Listener("127.0.0.1", port) for port in (8080, 8081, 8082)
    }


@pytest.mark.parametrize("preset", AUTOMATIC_PRESETS)
def test_the_shipped_fragments_need_no_other_preset(preset: str) -> None:
    alone = replace(SHIPPED, presets=PresetSettings(use=(preset,)))
    text = wiring.render_empty_cluster(alone, wiring.renderer(alone, wiring.fragments(alone))).text
    assert "frontend http-in" in text


def test_fragments_that_need_objects_reserve_only_the_status_page(tmp_path: Path) -> None:
    (tmp_path / "01.tmpl").write_text("frontend fe\n    bind :80\n{{ domains['shop.example.com'].proto }}\n")
    found = _options(Settings(templates=TemplateSettings(dir=str(tmp_path))))
    assert (set(found.reserved), set(found.status_page)) == (set(), {PAGE})


def test_ports_of_domains_are_asked_for_where_the_fragments_bind_them() -> None:
    assert not _options(SHIPPED).listen_address
    moved = replace(SHIPPED.templates, vars={"tcp_address": "192.0.2.1"})
    assert _options(replace(SHIPPED, templates=moved)).listen_address == "192.0.2.1"


def test_settings_reach_the_presets() -> None:
    presets = PresetSettings(
        backend_target=BackendTarget.NODE, node_address_types=("ExternalIP",), listen_ports=("6379-6380", "9000-9000")
    )
    options = _options(replace(SHIPPED, presets=presets))
    assert options.node_ports
    assert options.node_address_types == ("ExternalIP",)
    assert options.listen_ports == ((6379, 6380), (9000, 9000))
    assert not _options(SHIPPED).node_ports


@pytest.mark.parametrize(
    ("text", "first", "last", "count"),
    [
        ("192.0.2.16/28", "192.0.2.17", "192.0.2.30", 14),
        ("192.0.2.16/30", "192.0.2.17", "192.0.2.18", 2),
        ("192.0.2.16/31", "192.0.2.16", "192.0.2.17", 2),
        ("192.0.2.16/32", "192.0.2.16", "192.0.2.16", 1),
        ("192.0.2.16-192.0.2.31", "192.0.2.16", "192.0.2.31", 16),
        ("2001:db8::10/124", "2001:db8::10", "2001:db8::1f", 16),
    ],
)
def test_the_ends_of_a_network_are_given_to_nobody(text: str, first: str, last: str, count: int) -> None:
    pool = _options(replace(SHIPPED, addresses=AddressSettings((text,), per_namespace=3))).addresses
    assert (pool.pool[0], pool.pool[-1], len(pool.pool), pool.per_namespace) == (first, last, count, 3)


def test_addresses_are_given_away_or_shared() -> None:
    own = AddressSettings(("192.0.2.8/31", "2001:DB8::1-2001:DB8::2", "192.0.2.9"))
    vip = VipSettings(addresses=("192.0.2.1/24", "192.0.2.8/24", "2001:DB8:0::9/64"))

    options = _options(replace(SHIPPED, addresses=own, vip=vip))

    assert options.addresses.pool == ("192.0.2.8", "192.0.2.9", "2001:db8::1", "2001:db8::2")
    assert options.addresses.shared == ("192.0.2.1", "2001:db8::9")
    assert options.claims.own_addresses >= {*options.addresses.pool, *options.addresses.shared}
    named = replace(SHIPPED, addresses=replace(own, shared=("2001:DB8::7",)), vip=vip)
    assert _options(named).addresses.shared == ("2001:db8::7",)


def test_settings_reach_the_templates(tmp_path: Path) -> None:
    (tmp_path / "01.tmpl").write_text("# {{ vars.who }}{{ nothing }}\n# {{ map_file('hosts', {'a': 'b'}) }}\n")
    templates = TemplateSettings(dir=str(tmp_path), vars={"who": "me"})
    settings = Settings(templates=templates, haproxy=HaproxySettings(conf="/srv/haproxy.cfg"))
    snapshot = tmp_path / "empty.json"
    snapshot.write_text('{"kind": "List", "apiVersion": "v1", "items": []}')
    with pytest.raises(RejectedInput, match="nothing"):
        dry_run(settings, (str(snapshot),), EmptyBalancer(), curdate="today")
    lenient = replace(settings, templates=replace(templates, undefined=UndefinedMode.LENIENT))
    text = dry_run(lenient, (str(snapshot),), EmptyBalancer(), curdate="today").rendering.text
    assert text == "# me\n# /srv/files/maps/hosts.map\n"
    elsewhere = replace(lenient, haproxy=replace(settings.haproxy, files_dir="/elsewhere"))
    assert "/elsewhere/maps" in dry_run(elsewhere, (str(snapshot),), EmptyBalancer(), curdate="").rendering.text


def test_another_order_than_the_predecessors_is_said_once_with_both() -> None:
    def note(*names: str) -> str:
        return wiring.order_note(FragmentSet(tuple(Fragment(name, "") for name in names)))

    assert note("01-a.conf", "02-b.conf") == ""
    said = note("9-tcp.conf", "10-stats.conf")
    assert "natural order (9-tcp.conf, 10-stats.conf)" in said
    assert said.endswith("by bytes: 10-stats.conf, 9-tcp.conf")


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


def test_to_allow_something_follows_no_link_that_another_of_the_group_planted(tmp_path: Path) -> None:
    holds = Holds(str(tmp_path))
    holds.prepare()
    (tmp_path / "allowed" / "0123abcd").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        holds.allow("0123abcd")
    assert not (tmp_path / "elsewhere").exists()


def shipped(*presets: str) -> Renderer:
    found = tuple(Fragment(name, path.read_text()) for name, path in of_presets(presets).items())
    included = tuple(each for each in found if each.name.endswith(".j2"))
    rendered = tuple(each for each in found if each not in included)
    return Renderer(FragmentSet(rendered, included), RenderOptions("/files"))


class TestHostFacts:
    def test_the_addresses_of_the_balancer_are_known_whatever_the_preset(self) -> None:
        assert "127.0.0.1" in HostReader(Settings()).read().addresses

    def test_certificates_and_addresses_are_read_again_each_time(self, tmp_path: Path) -> None:
        reader = HostReader(replace(KUBEFIGURATOR, kubefigurator=KubefiguratorSettings(ssl_dir=str(tmp_path))))
        before = reader.read()
        (tmp_path / "a.pem").write_text("not yet")
        after = reader.read()

        assert before.known
        assert before.listening == ()
        assert before.certificates == {}
        assert after.certificates == {f"{tmp_path}/a.pem": "the file has no certificate in PEM"}
        assert before != after


class TestPresetOptions:
    def test_cluster_is_the_clusters_name_unless_it_has_one_of_its_own(self) -> None:
        named = replace(KUBEFIGURATOR, kubernetes=KubernetesSettings(cluster="ny"))
        both = replace(named, kubefigurator=KubefiguratorSettings(cluster="co"))

        renderer = shipped("kubefigurator")
        assert wiring.preset_options(named, renderer).of(KubefiguratorOptions).cluster == "ny"
        assert wiring.preset_options(both, renderer).of(KubefiguratorOptions).cluster == "co"

    def test_where_traffic_goes_is_chosen_for_this_preset_alone(self) -> None:
        pods = replace(KUBEFIGURATOR, kubefigurator=KubefiguratorSettings(backend_target=BackendTarget.POD))
        nodes = replace(KUBEFIGURATOR, presets=PresetSettings(backend_target=BackendTarget.NODE))

        renderer = shipped("kubefigurator")
        found = [wiring.preset_options(each, renderer) for each in (KUBEFIGURATOR, pods, nodes)]
        assert [(each.node_ports, each.of(KubefiguratorOptions).node_ports) for each in found] == [
            (False, True),
            (False, False),
            (True, True),
        ]

    def test_the_fragments_of_two_presets_keep_their_ports_apart(self) -> None:
        both = replace(KUBEFIGURATOR, presets=PresetSettings(use=("domains", "kubefigurator")))
        alone = wiring.preset_options(KUBEFIGURATOR, shipped("kubefigurator")).reserved
        together = wiring.preset_options(both, shipped("domains", "kubefigurator")).reserved

        https = Listener("0.0.0.0", 443)
        assert alone.holder(https) is None
        assert together.holder(https) == (https, "frontend https-in of the fragments")


def test_names_that_several_presets_give_are_said() -> None:
    given = {name: frozenset({"services", name}) for name in ("two", "one")}

    (note,) = registry.clashes(given)
    assert note == "services is that of preset two, listed first; that of one is one.services"
    assert registry.clashes({"one": given["one"]}) == ()
    assert wiring.preset_notes(Settings(presets=PresetSettings(use=("domains", "kubefigurator")))) == ()


def test_fragments_are_given_the_networks_of_proxies() -> None:
    proxy = ProxySettings(trusted_networks=("192.0.2.7", "2001:DB8::/32"), protocol_networks=("10.0.0.0/8",))
    settings = replace(SHIPPED, proxy=proxy)
    rendering = wiring.render_empty_cluster(settings, wiring.renderer(settings, wiring.fragments(settings)))
    content = {Path(file.path).name: file.content for file in rendering.files}
    assert content["trusted-networks.map"] == "192.0.2.7/32 1\n2001:db8::/32 1\n"
    assert content["protocol-networks.map"] == "10.0.0.0/8 1\n"
