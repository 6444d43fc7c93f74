"""The sections of ``pyconfd/predecessors/``: its presets, templates of the cluster, ``[target]`` and ``[etcd]``.

They are here since the tree of all settings is one typed value that every package reads.
"""

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from pyconfd.predecessors.kube2lb.names import DEFAULT_SERVER_NAME, name_template
from pyconfd.settings.setting import YEAR_S, NotAcceptedError, TextForm, setting
from pyconfd.settings.values import (
    NAMESPACE,
    OBJECT_NAME,
    Address,
    BackendTarget,
    Command,
    Directive,
    Directory,
    Domain,
    Duration,
    DurationOrZero,
    EtcdEndpoint,
    FilePath,
    ItemName,
    Notify,
    ObjectName,
    PortRange,
    whole,
    words,
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


ServerNames = Annotated[tuple[str, ...], TextForm("TEMPLATE,...", read=_server_names, text=",".join)]


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
    server_name_templates: ServerNames = setting(
        (DEFAULT_SERVER_NAME,),
        "server names of each service, with {{ .Service.Name }}, {{ .Service.Namespace }}, {{ .Domain }} and more",
        also=("--server-name-templates",),
        empty="none",
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
        Annotated[str, TextForm("NAME"), whole(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")], ...
    ] = setting((), "environment variables that templates see as env.NAME")
    ignored_fields: tuple[Annotated[str, TextForm("NAME"), whole(r"[A-Za-z0-9._-]+", "the name of a field")], ...] = (
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
        "", "targets are the pods whose annotation kontrol.unity3d.com/master names this"
    )
    selector: tuple[
        Annotated[str, TextForm("LABEL=VALUE"), whole(_LABEL, "a label and its value, like app=haproxy")], ...
    ] = setting((), "targets are the pods with all these labels")
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


_AbsolutePath = Annotated[str, TextForm("PATH"), whole(r"/[A-Za-z0-9._/@+=-]+", "an absolute path")]


@dataclass(frozen=True, slots=True)
class ClusterTemplateSettings:
    """``[cluster_templates]``: templates that come from a ConfigMap or an annotation, never trusted."""

    allow_configuration_from_cluster: bool = setting(
        False,
        "render the template that the cluster supplies (presets configmap and hosts): everybody who may write that"
        " object is then trusted as much as authors of fragments",
    )
    allow: Annotated[tuple[Directive, ...], TextForm("NAME;...", separator=";")] = setting(
        (), "directives beyond the list that such a template may use, as a refusal names them"
    )
    directories: tuple[_AbsolutePath, ...] = setting(
        (), "directories whose files such a template may name, beside those of pyconfd"
    )
    timeout_s: Duration = setting(5.0, "longest time that a rendering may take, and processor time it may use")
    memory_bytes: Annotated[int, Meta(ge=64 * 1024**2, le=64 * 1024**3)] = setting(
        512 * 1024**2, "memory that the rendering process may use"
    )
    output_bytes: Annotated[int, Meta(ge=1024, le=1024**3)] = setting(
        16 * 1024**2, "longest text that a template may give"
    )


DEFAULT_TIMEOUT_S = 10.0
"""Source: kube2lb's ``-update-timeout``."""


@dataclass(frozen=True, slots=True)
class TargetSettings:
    """One target: ``template`` gives ``output``; ``check`` (its path appended) judges it; ``notify`` has it loaded.

    ``notify`` is the text that :func:`parse_notifier` parses; ``timeout_s`` limits the check, and the notifier.
    """

    name: ItemName
    template: FilePath
    output: FilePath
    notify: Notify
    check: Command = ()
    timeout_s: Duration = DEFAULT_TIMEOUT_S


@dataclass(frozen=True, slots=True)
class SingleTargetSettings:
    """``[target]``: one balancer other than haproxy, as kube2lb's flags name it."""

    template: FilePath = setting("", "template of the configuration of another load balancer", also=("--template",))
    output: FilePath = setting("", "file to generate from it")
    check: Command = setting((), "command that checks it; the file's path is appended, no shell")
    notify: Notify = setting(
        "",
        "how its balancer is notified: command:SHELL, pid:SIGNAL:PID, pidfile:SIGNAL:PATH or debug:",
        also=("--notify",),
    )
    timeout_s: Duration = setting(
        DEFAULT_TIMEOUT_S, "longest time of its check, and of its notifier", also=("--update-timeout",)
    )


@dataclass(frozen=True, slots=True)
class EtcdSettings:
    """``[etcd]``: where ``pyconfd publish`` puts the rendering and ``pyconfd consume`` takes it from."""

    endpoints: tuple[EtcdEndpoint, ...] = setting(
        ("http://127.0.0.1:2379",),
        "URLs of etcd, tried in order; the first that answers is used",
        also=("--etcd-host",),
    )
    path: Annotated[str, Meta(description="a prefix of keys, like /pyconfd/")] = setting(
        "/pyconfd/", "prefix of pyconfd's keys in etcd"
    )
    ca: FilePath = setting(
        "", "CA file that etcd's certificates are verified with", also=("--etcd-ca-file",), empty="the system's"
    )
    cert: FilePath = setting("", "client certificate for etcd", also=("--etcd-client-cert-file",))
    key: FilePath = setting("", "key of the client certificate for etcd", also=("--etcd-client-key-file",))
    user: str = setting("", "user name in etcd")
    password_file: FilePath = setting("", "file with the password of that user; read at each login")
    timeout_s: Duration = setting(5.0, "longest silence of etcd before it counts as dead")
    lease_s: Annotated[float, Meta(ge=2, le=YEAR_S)] = setting(
        15.0, "a producer that is silent for so long is replaced by the next"
    )
    poll_s: Duration = setting(30.0, "etcd is read this often, whatever a watch says")
    keep: Annotated[int, Meta(ge=2, le=100)] = setting(5, "published generations kept in etcd")
