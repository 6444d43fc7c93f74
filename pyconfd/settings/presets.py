"""The sections of the presets, of what objects may claim, and of templates that the cluster supplies."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from pyconfd.model.preset import PresetName
from pyconfd.presets.kube2lb_names import DEFAULT_SERVER_NAME, name_template
from pyconfd.settings.setting import Form, NotAcceptedError, setting
from pyconfd.settings.values import (
    NAMESPACE,
    OBJECT_NAME,
    Address,
    Directory,
    Domain,
    Duration,
    DurationOrZero,
    FilePath,
    Network,
    ObjectName,
    PortRange,
    Protocol,
    Suffix,
    whole,
    words,
)


class BackendTarget(StrEnum):
    """Where traffic goes: straight to pods, or to a node port on each eligible node."""

    POD = "pod"
    NODE = "node"


_Preset = Annotated[str, words(*PresetName, metavar="NAME")]
_AddressType = Annotated[
    str, words("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS", metavar="TYPE")
]


@dataclass(frozen=True, slots=True)
class PresetSettings:
    """``[presets]``."""

    use: tuple[_Preset, ...] = setting(("domains",), "presets, the first one owns the plain names", short="--preset")
    backend_target: BackendTarget = setting(BackendTarget.POD, "where traffic goes: pod addresses or node ports")
    node_address_types: tuple[_AddressType, ...] = setting(
        ("InternalIP",), "kinds of node addresses to use, best first"
    )
    # Above the privileged ports and below Linux's ephemeral ones (net.ipv4.ip_local_port_range).
    listen_ports: tuple[PortRange, ...] = setting(("1024-32767",), "ports that an annotation may ask to be bound")


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """One table ``[[claims.rules]]``; None is no limit."""

    namespaces: tuple[Annotated[str, whole(r"[a-z0-9*?\[\]!-]+", "names of namespaces, or patterns with * and ?")], ...]
    domains: tuple[Suffix, ...] | None = None
    protocols: tuple[Protocol, ...] | None = None
    ports: tuple[PortRange, ...] | None = None
    addresses: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """``[claims]``: who may claim what, for all presets."""

    rules: tuple[RuleSettings, ...] = setting(
        (),
        "who may claim what: tables [[claims.rules]] with namespaces (names, or patterns with * and ?) and maybe"
        " domains (what names must end with), protocols and ports; what of these a rule does not mention it does"
        " not limit, and an empty list allows nothing. Its addresses are the networks in which it may name an"
        " address of this balancer to listen on; a rule without them allows none. The first rule that names a"
        " namespace decides about it; where there are rules, a namespace that none names may claim nothing",
        empty="everybody may claim anything",
    )
    reserve_s: DurationOrZero = setting(
        600.0,
        "how long a name or port stays with its namespace when its object is gone, so that a recreated one gets it"
        " back; 0: the next claimant gets it at once",
    )
    allow_endpoints: tuple[Network, ...] = setting(
        (),
        "networks whose addresses may be endpoints though they are loopback, link-local, multicast, a cloud's"
        " metadata, or this balancer's own",
        empty="none",
    )
    own_addresses: tuple[Address, ...] = setting(
        (),
        "addresses of load balancers beside those of this one's interfaces and those in [vip], floating or of a"
        " node: no endpoint may be there",
        empty="none",
    )


@dataclass(frozen=True, slots=True)
class KubefiguratorSettings:
    """``[kubefigurator]``: what the preset of that name takes from haproxy-kubefigurator's users."""

    cluster: str = setting("", "what CLUSTER in a host name stands for", short="--cluster", empty="kubernetes.cluster")
    ssl_dir: Directory = setting("/etc/haproxy/ssl", "directory of the certificates, HOSTNAME.pem with key and chain")
    ca_file: FilePath = setting(
        "@system-ca", "authorities that backends-verify-ssl verifies with; @system-ca is the system's bundle"
    )
    backend_target: BackendTarget = setting(
        BackendTarget.NODE, "where traffic goes: node ports, as it did, or pod addresses"
    )
    listen_ports: tuple[PortRange, ...] = setting(
        ("80-80", "443-443", "1024-32767"), "ports that listen-port may ask to be bound"
    )


def _server_names(value: object) -> tuple[str, ...]:
    """Return server-name templates in Go's form; an empty text is kube2lb's default, as an empty flag was."""
    if isinstance(value, str) and not value.strip():
        return (DEFAULT_SERVER_NAME,)
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise NotAcceptedError("an array of templates like {{ .Service.Name }}.example.com", value)
    found = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    for text in found:
        try:
            name_template(text)
        except ValueError as error:
            expected = f"a server name like {{{{ .Service.Name }}}}.example.com ({error})"
            raise NotAcceptedError(expected, text) from None
    return found


@dataclass(frozen=True, slots=True)
class Kube2lbSettings:
    """``[kube2lb]``: what the flags of that system said, for the preset of this name."""

    domain: Domain = setting("local", "domain for templates and server names", also=("--domain",), empty="none")
    default_lb_ip: Address = setting(
        "0.0.0.0",  # noqa: S104 - the predecessor's default
        "address to listen on for services that ask for none",
        also=("--default-lb-ip",),
    )
    default_port_mode: Annotated[str, words("http", "tcp")] = setting(
        "http", "mode of ports without an annotation", also=("--default-port-mode",)
    )
    server_name_templates: Annotated[tuple[str, ...], Form("TEMPLATE,...", read=_server_names, text=",".join)] = (
        setting(
            (DEFAULT_SERVER_NAME,),
            "server names of each service, with {{ .Service.Name }}, {{ .Service.Namespace }}, {{ .Domain }} and more",
            also=("--server-name-templates",),
            empty="none",
        )
    )
    listen_ports: tuple[PortRange, ...] = setting(
        ("1-21", "23-32767"),
        "ports that Services may have bound; by default as kube2lb, but not where the machine itself is reached",
    )


@dataclass(frozen=True, slots=True)
class ConfigmapSettings:
    """``[configmap]``: the preset of kubernetes-haproxy's ConfigMaps; the password is read from STATISTICS_PASSWORD."""

    namespace: Annotated[str, whole(NAMESPACE, "the name of a namespace")] = setting(
        "lb", "namespace of the ConfigMaps and of the Secret"
    )
    services: ObjectName = setting("services", "ConfigMap with a JSON object for each service")
    certificates: ObjectName = setting("certificates", "ConfigMap with the certificates")
    keys: ObjectName = setting("keys", "Secret with the keys of these certificates")
    config: ObjectName = setting("config", "ConfigMap with the template")
    template_key: Annotated[str, whole(r"[A-Za-z0-9._-]+", "a key of a ConfigMap")] = setting(
        "template", "key of the template in its ConfigMap"
    )
    env: tuple[
        Annotated[str, Form("NAME"), whole(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")], ...
    ] = setting((), "environment variables that templates see as env.NAME", empty="none")
    ignored_fields: tuple[Annotated[str, Form("NAME"), whole(r"[A-Za-z0-9._-]+", "the name of a field")], ...] = (
        setting(
            ("comment", "comments", "description", "note", "notes"),
            "fields of a service's JSON that are left out, since they hold text for people",
            empty="none",
        )
    )


_CONFIG_OBJECT = rf"(?i:pod|deployment|service)/{NAMESPACE}/{OBJECT_NAME}"
_LABEL = r"[A-Za-z0-9._/-]+=[A-Za-z0-9._-]*"


@dataclass(frozen=True, slots=True)
class HostsSettings:
    """``[hosts]``: the preset of ads-infra-haproxy's pods and annotations."""

    master: Annotated[str, whole(r"[A-Za-z0-9._-]+", "the name of a balancer, like haproxy.default.svc")] = setting(
        "", "targets are the pods whose annotation kontrol.unity3d.com/master names this", empty="none"
    )
    selector: tuple[
        Annotated[str, Form("LABEL=VALUE"), whole(_LABEL, "a label and its value, like app=haproxy")], ...
    ] = setting((), "targets are the pods with all these labels", empty="none")
    config: Annotated[str, whole(_CONFIG_OBJECT, "KIND/NAMESPACE/NAME, like deployment/default/haproxy")] = setting(
        "",
        "object with the annotations haproxy.unity3d.com/config and route53: KIND/NAMESPACE/NAME, the kind is"
        " pod, deployment or service",
        empty="none: the fragments hold the configuration",
    )
    own_app: Annotated[str, whole(r"[A-Za-z0-9._-]+", "a label's value")] = setting(
        "",
        "label app of the balancers themselves, who are no targets",
        empty="that of the object that config names",
    )
    damper_s: DurationOrZero = setting(0.0, "least quiet time before a change is applied, as KONTROL_DAMPER")


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


_AbsolutePath = Annotated[str, Form("PATH"), whole(r"/[A-Za-z0-9._/@+=-]+", "an absolute path")]


@dataclass(frozen=True, slots=True)
class ClusterTemplateSettings:
    """``[cluster_templates]``: templates that come from a ConfigMap or an annotation, never trusted."""

    allow_configuration_from_cluster: bool = setting(
        False,
        "render the template that the cluster supplies (presets configmap and hosts): everybody who may write that"
        " object is then trusted as much as authors of fragments",
    )
    allow: Annotated[tuple[Annotated[str, Form("", read=_single_spaced)], ...], Form("NAME;...", separator=";")] = (
        setting((), "directives beyond the list that such a template may use, as a refusal names them", empty="none")
    )
    directories: tuple[_AbsolutePath, ...] = setting(
        (), "directories whose files such a template may name, beside those of pyconfd", empty="none"
    )
    timeout_s: Duration = setting(5.0, "longest time that a rendering may take, and processor time it may use")
    memory_bytes: Annotated[int, Meta(ge=64 * 1024**2, le=64 * 1024**3)] = setting(
        512 * 1024**2, "memory that the rendering process may use"
    )
    output_bytes: Annotated[int, Meta(ge=1024, le=1024**3)] = setting(
        16 * 1024**2, "longest text that a template may give"
    )
