"""Settings of the presets configmap and hosts, as they reach sources, presets, renderer and loop."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pyconfd import wiring
from pyconfd.errors import RejectedInput, TransientError
from pyconfd.model.context import ClusterTemplate, Context, PresetName
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import FileKind, FragmentSet, OutputFile
from pyconfd.model.snapshot import Named, Resource
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.presets import registry
from pyconfd.settings import Settings, resolve
from pyconfd.wiring import HostReader


def settings(**environ: str) -> Settings:
    return resolve({}, {f"PYCONFD_{name}": text for name, text in environ.items()}, lambda _: "").settings


def test_the_damper_is_a_least_quiet_time() -> None:
    both = {"HOSTS_MASTER": "x", "HOSTS_DAMPER_S": "10"}
    with_damper = wiring.apply_settings(settings(PRESETS_USE="hosts", **both))
    assert (with_damper.quiet_s, with_damper.cap_s) == (10.0, 10.0)
    without = wiring.apply_settings(settings(PRESETS_USE="domains", **both))
    assert (without.quiet_s, without.cap_s) == (0.2, 2.0)


def test_what_is_read() -> None:
    given = settings(
        PRESETS_USE="hosts,configmap",
        HOSTS_SELECTOR="app=web,tier=a",
        HOSTS_CONFIG="Deployment/default/haproxy",
        CONFIGMAP_NAMESPACE="edge",
    )
    assert wiring.resources(given) == {Resource.PODS}
    assert Named(Resource.DEPLOYMENTS, "default", "haproxy") in wiring.named(given)
    assert Named(Resource.SECRETS, "edge", "keys") in wiring.named(given)
    options = wiring.preset_options(given, wiring.renderer(given, FragmentSet(())))
    assert options.of(HostsOptions).config == ObjectRef("Deployment", "default", "haproxy")
    assert options.of(HostsOptions).selector == {"app": "web", "tier": "a"}


def test_the_addresses_of_the_load_balancers_are_no_places_for_endpoints_whoever_holds_them() -> None:
    text = """
        [claims]
        own_addresses = ["198.51.100.7"]
        [vip]
        interface = "eth0"
        virtual_router_id = 51
        addresses = ["192.0.2.10/24", "2001:db8::10/64"]
        nodes = [{ name = "lb1", addresses = ["192.0.2.11"] }, { name = "lb2", addresses = ["192.0.2.12"] }]
        routers = [{ virtual_router_id = 52, addresses = ["192.0.2.20/24"] }]
    """
    given = resolve({"config": "/pyconfd.toml"}, {}, lambda _: text).settings
    claims = wiring.base_options(given).claims
    everybody = {"192.0.2.10", "2001:db8::10", "192.0.2.20", "192.0.2.11", "192.0.2.12", "198.51.100.7"}
    assert claims.own_addresses == everybody


def test_api_servers_of_settings_or_kubeconfig_are_no_places_for_endpoints(tmp_path: Path) -> None:
    assert HostReader(settings(API_SERVERS="https://192.0.2.31:6443")).read().api_servers == {"192.0.2.31"}
    cluster = {"name": "a", "cluster": {"server": "https://192.0.2.32:6443"}}
    context = {"name": "a", "context": {"cluster": "a"}}
    config = {"current-context": "a", "clusters": [cluster], "contexts": [context]}
    (tmp_path / "config").write_text(json.dumps(config))
    assert HostReader(settings(KUBERNETES_KUBECONFIG=str(tmp_path / "config"))).read().api_servers == {"192.0.2.32"}
    assert HostReader(settings(KUBERNETES_KUBECONFIG=str(tmp_path / "none"))).read().api_servers == frozenset()


def test_endpoint_networks_reach_the_presets() -> None:
    claims = wiring.base_options(settings(CLAIMS_ENDPOINT_NETWORKS="10.244.0.0/16,fd00::/64")).claims
    assert list(map(str, claims.endpoint_networks)) == ["10.244.0.0/16", "fd00::/64"]


def test_no_fragment_is_needed_where_the_cluster_gives_the_template(tmp_path: Path) -> None:
    enabled = {"PRESETS_USE": "configmap", "CLUSTER_TEMPLATES_ALLOW_CONFIGURATION_FROM_CLUSTER": "true"}
    for directory in (str(tmp_path / "none"), str(tmp_path)):
        assert wiring.fragments(settings(TEMPLATE_DIR=directory, **enabled)) == FragmentSet(())


@pytest.mark.parametrize(
    "use", [{"PRESETS_USE": "configmap"}, {"PRESETS_USE": "hosts", "HOSTS_CONFIG": "pod/a/b", "HOSTS_MASTER": "lb"}]
)
def test_configuration_of_the_cluster_is_off_by_default(use: dict[str, str], tmp_path: Path) -> None:
    given = settings(TEMPLATE_DIR=str(tmp_path), **use)
    assert not wiring.base_options(given).cluster_templates
    assert any(registry.SWITCH in note for note in wiring.preset_notes(given))
    with pytest.raises(TransientError) as caught:
        wiring.fragments(given)
    assert caught.value.problems[-1].place == registry.SWITCH
    enabled = settings(CLUSTER_TEMPLATES_ALLOW_CONFIGURATION_FROM_CLUSTER="true", **use)
    assert wiring.base_options(enabled).cluster_templates
    assert not any(registry.SWITCH in note for note in wiring.preset_notes(enabled))


def test_the_text_of_the_cluster_comes_last_and_is_judged() -> None:
    given = settings(PRESETS_USE="configmap", CLUSTER_TEMPLATES_ALLOW="bind user; stats admin", HAPROXY_FILES_DIR="/f")
    renderer = wiring.renderer(given, FragmentSet(()))
    file = OutputFile(FileKind.CERTIFICATE, "/f/certs/a.pem", "x")
    good = "listen l\n bind :80 user {{ name }} ssl crt /f/certs/a.pem\n stats admin if FALSE"
    context = Context({}, templates=(ClusterTemplate("configmap lb/config", good, {"name": "x"}),), files=(file,))
    rendering = renderer.render(context, curdate="").rendering
    assert [piece.fragment for piece in rendering.pieces] == ["configmap lb/config"]
    assert rendering.text.splitlines()[1] == " bind :80 user x ssl crt /f/certs/a.pem"
    assert rendering.files == (file,)
    bad = Context({}, templates=(ClusterTemplate("configmap lb/config", good, {"name": "x\n lua-load /x"}),))
    with pytest.raises(RejectedInput, match="'lua-load' is not allowed"):
        renderer.render(bad, curdate="")


def test_composition_root_alone_registers_all_presets() -> None:
    program = "import pyconfd.wiring; from pyconfd.presets.registry import PRESETS; print(*PRESETS)"

    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert set(found.stdout.split()) == set(PresetName)
