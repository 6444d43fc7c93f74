from dataclasses import replace
from pathlib import Path

import yaml

from pyconfd import app, wiring
from pyconfd.fragments import of_presets
from pyconfd.model.host import HostFacts
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.model.snapshot import Resource
from pyconfd.presets import registry
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings import (
    BackendTarget,
    KubefiguratorSettings,
    KubernetesSettings,
    PresetSettings,
    Settings,
    StatusSettings,
)

KUBEFIGURATOR = Settings(presets=PresetSettings(use=("kubefigurator",)))


def shipped(*presets: str) -> Renderer:
    fragments = tuple(Fragment(name, path.read_text()) for name, path in of_presets(presets).items())
    return Renderer(FragmentSet(fragments), RenderOptions("/files"))


class TestHostFacts:
    def test_where_no_preset_judges_by_them_nothing_is_asked(self) -> None:
        assert wiring.HostReader(Settings()).read() == HostFacts()

    def test_certificates_and_addresses_are_read_again_each_time(self, tmp_path: Path) -> None:
        reader = wiring.HostReader(replace(KUBEFIGURATOR, kubefigurator=KubefiguratorSettings(ssl_dir=str(tmp_path))))
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
        assert wiring.preset_options(named, renderer).kubefigurator.cluster == "ny"
        assert wiring.preset_options(both, renderer).kubefigurator.cluster == "co"

    def test_where_traffic_goes_is_chosen_for_this_preset_alone(self) -> None:
        pods = replace(KUBEFIGURATOR, kubefigurator=KubefiguratorSettings(backend_target=BackendTarget.POD))
        nodes = replace(KUBEFIGURATOR, presets=PresetSettings(backend_target=BackendTarget.NODE))

        renderer = shipped("kubefigurator")
        found = [wiring.preset_options(each, renderer) for each in (KUBEFIGURATOR, pods, nodes)]
        assert [(each.node_ports, each.kubefigurator.node_ports) for each in found] == [
            (False, True),
            (False, False),
            (True, True),
        ]

    def test_the_fragments_of_two_presets_keep_their_ports_apart(self) -> None:
        both = replace(KUBEFIGURATOR, presets=PresetSettings(use=("domains", "kubefigurator")))
        alone = wiring.preset_options(KUBEFIGURATOR, shipped("kubefigurator")).reserved_ports
        together = wiring.preset_options(both, shipped("domains", "kubefigurator")).reserved_ports

        assert 443 not in alone
        assert {80, 443} <= together


def test_permissions_are_those_of_the_chosen_presets() -> None:
    text = app.rbac(KUBEFIGURATOR)
    roles = [each for each in yaml.safe_load_all(text) if each["kind"] == "ClusterRole"]
    named = {name for role in roles for rule in role["rules"] for name in rule["resources"]}

    wanted = registry.PRESETS["kubefigurator"].resources
    assert named == {resource.value for resource in wanted}
    assert wanted <= set(Resource) - {Resource.SECRETS}


def test_names_that_several_presets_give_are_said() -> None:
    entry = registry.PRESETS["domains"]
    presets = {name: replace(entry, names=frozenset({"services", name})) for name in ("one", "two")}

    (note,) = registry.clashes(["two", "one"], presets)
    assert note == "services is that of preset two, listed first; that of one is one.services"
    assert registry.clashes(["one"], presets) == ()
    assert wiring.preset_notes(Settings(presets=PresetSettings(use=("domains", "kubefigurator")))) == ()


def test_nobody_may_have_the_port_of_pyconfds_own_page() -> None:
    assert 9101 in wiring.preset_options(KUBEFIGURATOR, shipped("kubefigurator")).reserved_ports
    silent = replace(KUBEFIGURATOR, status=StatusSettings(listen=""))
    assert 9101 not in wiring.preset_options(silent, shipped("kubefigurator")).reserved_ports
