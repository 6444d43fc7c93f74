"""The tree of settings. Each field says all that is known of it; flags, environment, TOML and documents follow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from pyconfd.model.preset import PresetName
from pyconfd.settings.apply import ApplySettings
from pyconfd.settings.claims import ClaimSettings
from pyconfd.settings.cluster_sections import ClusterTemplateSettings, ConfigmapSettings, HostsSettings
from pyconfd.settings.dns import DnsSettings
from pyconfd.settings.etcd import EtcdSettings
from pyconfd.settings.events import EventSettings
from pyconfd.settings.guard import GuardSettings
from pyconfd.settings.history import UNCHANGED, HistorySettings
from pyconfd.settings.kinds import (
    Boolean,
    CaFile,
    Choice,
    Command,
    Count,
    Listen,
    Listing,
    PathText,
    Seconds,
    Text,
    Variables,
    api_server,
    choice_of,
    matching,
    one_of,
    port_range,
)
from pyconfd.settings.kube2lb import Kube2lbSettings, SingleTargetSettings
from pyconfd.settings.setting import Setting
from pyconfd.settings.targets import TARGETS, TargetSettings
from pyconfd.settings.versions import VERSION
from pyconfd.settings.vip import VipSettings


class ReadMode(StrEnum):
    """How objects are kept current."""

    WATCH = "watch"
    POLL = "poll"


class UndefinedMode(StrEnum):
    """What an undefined name in a template does."""

    STRICT = "strict"
    LENIENT = "lenient"


class ReloadMethod(StrEnum):
    """How HAProxy is told to load a new configuration.

    AUTO takes the first of COMMAND (if set), MASTER, SYSTEMD, SIGNAL that can be used.
    """

    AUTO = "auto"
    MASTER = "master"
    SYSTEMD = "systemd"
    SIGNAL = "signal"
    COMMAND = "command"


class BackendTarget(StrEnum):
    """Where traffic goes: straight to pods, or to a node port on each eligible node."""

    POD = "pod"
    NODE = "node"


_FILE = PathText()
_REQUIRED = PathText(optional=False)
_DIRECTORY = PathText(optional=False, directory=True)
_WAIT = Seconds()
_LEVELS = Choice(
    words=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    aliases=MappingProxyType({"warn": "WARNING", "fatal": "CRITICAL", "notset": "DEBUG"}),
)
_ADDRESS_TYPES = one_of("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
_NAMESPACE = matching(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "the name of a namespace")
_PRESET = one_of(*(name.value for name in PresetName))
_PORT_RANGES = Listing(port_range, metavar="FIRST-LAST,...")


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """``[kubernetes]``: which API servers, with which credentials, read how."""

    api_servers: Annotated[
        tuple[str, ...],
        Setting(
            "URLs of the API servers, tried in order; the first that answers is used",
            Listing(api_server, metavar="URL,..."),
            name="api_servers",
            old_env="APISERVERS",
            also=("--apiserver",),
            empty="from the kubeconfig or the pod",
        ),
    ] = ()
    kubeconfig: Annotated[
        str,
        Setting(
            "kubeconfig with servers and credentials", _FILE, short="--kubeconfig", also=("--kubecfg",), empty="none"
        ),
    ] = ""
    context: Annotated[
        str, Setting("context of the kubeconfig", Text(), short="--context", empty="its current one")
    ] = ""
    in_cluster: Annotated[
        bool,
        Setting("take server, CA and token from the pod that pyconfd runs in", Boolean(), short="--in-cluster"),
    ] = False
    ssl_key: Annotated[
        str,
        Setting("key of the client certificate", _FILE, name="ssl_key", old_env="SSL_KEY_FILE", empty="none"),
    ] = ""
    ssl_cert: Annotated[
        str,
        Setting(
            "client certificate; OpenSSL gives the old name SSL_CERT_FILE another meaning, so prefer PYCONFD_SSL_CERT",
            _FILE,
            name="ssl_cert",
            old_env="SSL_CERT_FILE",
            empty="none",
        ),
    ] = ""
    ssl_ca: Annotated[
        str | bool,
        Setting(
            "CA file that the API servers' certificates are verified with; false switches verification off",
            CaFile(),
            name="ssl_ca",
            old_env="SSL_CA_FILE",
            empty="/etc/pyconfd/ca.pem if there, else the system's",
        ),
    ] = ""
    """A file; "" for /etc/pyconfd/ca.pem where it exists, else the system's; False switches verification off."""
    token_file: Annotated[
        str, Setting("file with a bearer token; read again when it changes", _FILE, short="--token-file", empty="none")
    ] = ""
    ignore_proxy_env: Annotated[
        bool,
        Setting(
            "reach API servers directly, whatever http_proxy and its like say",
            Boolean(),
            name="ignore_proxy_env",
            old_env="IGNORE_PROXY_ENV",
        ),
    ] = True
    mode: Annotated[
        ReadMode, Setting("watch: changes arrive as they happen; poll: lists each interval_s", choice_of(ReadMode))
    ] = ReadMode.WATCH
    interval_s: Annotated[
        float,
        Setting("pause between two lists when mode is poll", _WAIT, name="interval", old_env="REFRESH_INTERVAL"),
    ] = 30.0
    connect_timeout_s: Annotated[float, Setting("longest wait for a connection to an API server", _WAIT)] = 2.0
    read_timeout_s: Annotated[float, Setting("longest silence of an API server before it counts as dead", _WAIT)] = 75.0
    failback_s: Annotated[float, Setting("how often a better-placed API server is tried again", _WAIT)] = 300.0
    page_size: Annotated[int, Setting("objects asked for in one page of a list", Count(1, 100_000))] = 500
    cluster: Annotated[str, Setting("name of the cluster, for templates and logs", Text(), empty="none")] = ""
    secret_namespaces: Annotated[
        tuple[str, ...],
        Setting("namespaces whose Secrets may be read", Listing(_NAMESPACE, metavar="NAME,..."), empty="none"),
    ] = ()


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """``[templates]``: the fragments and how they are rendered; ``vars`` are the operator's own, as ``vars.NAME``."""

    dir: Annotated[
        str,
        Setting("directory of the fragments (*.conf, *.tmpl)", _DIRECTORY, name="template_dir", old_env="TEMPLATE_DIR"),
    ] = "/etc/pyconfd"
    undefined: Annotated[
        UndefinedMode,
        Setting("an undefined name in a template: an error (strict) or nothing (lenient)", choice_of(UndefinedMode)),
    ] = UndefinedMode.STRICT
    trim_blocks: Annotated[bool, Setting("drop the line break behind a template tag", Boolean())] = True
    vars: Annotated[
        Mapping[str, Any],
        Setting(
            "your own values, for templates as vars.NAME; sources are merged", Variables(), short="--var", empty="none"
        ),
    ] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PresetSettings:
    """``[presets]``: which readings of the cluster, first one first."""

    use: Annotated[
        tuple[str, ...],
        Setting("readings of the cluster's annotations", Listing(_PRESET, metavar="NAME,..."), short="--preset"),
    ] = ("domains",)
    backend_target: Annotated[
        BackendTarget, Setting("where traffic goes: pod addresses or node ports", choice_of(BackendTarget))
    ] = BackendTarget.POD
    node_address_types: Annotated[
        tuple[str, ...],
        Setting("kinds of node addresses to use, best first", Listing(_ADDRESS_TYPES, metavar="TYPE,...")),
    ] = ("InternalIP",)
    listen_ports: Annotated[
        tuple[str, ...],
        Setting("ports that an annotation may ask to be bound", _PORT_RANGES),
    ] = ("1024-32767",)
    """Above the privileged ports and below Linux's ephemeral ones (net.ipv4.ip_local_port_range)."""


@dataclass(frozen=True, slots=True)
class KubefiguratorSettings:
    """``[kubefigurator]``: what the preset of that name takes from haproxy-kubefigurator's users."""

    cluster: Annotated[
        str,
        Setting("what CLUSTER in a host name stands for", Text(), short="--cluster", empty="kubernetes.cluster"),
    ] = ""
    ssl_dir: Annotated[str, Setting("directory of the certificates, HOSTNAME.pem with key and chain", _DIRECTORY)] = (
        "/etc/haproxy/ssl"
    )
    ca_file: Annotated[
        str,
        Setting("authorities that backends-verify-ssl verifies with; @system-ca is the system's bundle", _REQUIRED),
    ] = "@system-ca"
    backend_target: Annotated[
        BackendTarget, Setting("where traffic goes: node ports, as it did, or pod addresses", choice_of(BackendTarget))
    ] = BackendTarget.NODE
    listen_ports: Annotated[tuple[str, ...], Setting("ports that listen-port may ask to be bound", _PORT_RANGES)] = (
        "80-80",
        "443-443",
        "1024-32767",
    )


class Enabled(StrEnum):
    """Whether haproxy is served: AUTO is yes unless ``[target]`` names another balancer."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


@dataclass(frozen=True, slots=True)
class HaproxySettings:
    """``[haproxy]``: what is written where, how it is checked and loaded."""

    enabled: Annotated[
        Enabled,
        Setting("serve haproxy; auto: yes, unless [target] names another load balancer", choice_of(Enabled)),
    ] = Enabled.AUTO
    conf: Annotated[str, Setting("file to generate", _REQUIRED, old_env="HAPROXY_CONF")] = (
        "/etc/haproxy/generated/haproxy.cfg"
    )
    files_dir: Annotated[
        str,
        Setting("directory of maps and certificates", PathText(directory=True), empty="the folder files beside conf"),
    ] = ""
    """"" is the folder ``files`` beside ``conf``."""
    binary: Annotated[str, Setting("the haproxy program", _REQUIRED)] = "/usr/sbin/haproxy"
    chk_cmd: Annotated[
        tuple[str, ...],
        Setting(
            "command that checks a configuration; the file's path is appended, no shell",
            Command(),
            old_env="HAPROXY_CHECK_CMD",
            empty="binary with the flags of unit, -c -f",
        ),
    ] = ()
    """Empty: ``binary`` with the flags of ``unit``, ``-c -f``. The path of the candidate is appended."""
    check_timeout_s: Annotated[float, Setting("longest time a check may take", _WAIT)] = 60.0
    check_user: Annotated[
        str, Setting("user that runs the check", Text(), empty="unit's user if pyconfd is root, else pyconfd's own")
    ] = ""
    """"" is the unit's user when pyconfd is root, else pyconfd's own."""
    reload_method: Annotated[
        ReloadMethod,
        Setting(
            "how haproxy is told to load; auto: the first of command, master, systemd, signal that can be used",
            choice_of(ReloadMethod),
        ),
    ] = ReloadMethod.AUTO
    reload_cmd: Annotated[
        tuple[str, ...],
        Setting("command that reloads haproxy; no shell", Command(), old_env="HAPROXY_RELOAD_CMD", empty="none"),
    ] = ()
    reload_timeout_s: Annotated[float, Setting("longest time a reload may take", _WAIT)] = 30.0
    master_socket: Annotated[str, Setting("socket of haproxy's master process", _FILE, empty="none")] = (
        "/run/haproxy-master.sock"
    )
    runtime_socket: Annotated[
        str,
        Setting("socket that changes a running haproxy", _FILE, empty="the stats socket that the configuration opens"),
    ] = ""
    max_old_workers: Annotated[
        int, Setting("workers of the past that may still end their sessions; at the bound reloads wait", Count(1, 1000))
    ] = 10
    pid_file: Annotated[str, Setting("file with the number of haproxy's process", _FILE, empty="none")] = (
        "/run/haproxy.pid"
    )
    unit: Annotated[str, Setting("systemd unit of haproxy", Text(), empty="none")] = "haproxy.service"


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """``[status]``: the HTTP server for metrics and health; an empty ``listen`` switches it off."""

    listen: Annotated[
        str, Setting("address of the HTTP server for metrics and health", Listen(), empty="switched off")
    ] = "127.0.0.1:9101"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``: ``format`` is "text" or "json"."""

    level: Annotated[str, Setting("least level that is logged", _LEVELS, old_env="LOGLEVEL")] = "INFO"
    format: Annotated[str, Setting("text for people, json for machines", Choice(("text", "json")))] = "text"


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree. ``state_dir`` survives a reboot, ``runtime_dir`` does not."""

    kubernetes: Annotated[KubernetesSettings, "which API servers, with which credentials, read how"] = (
        KubernetesSettings()
    )
    templates: Annotated[TemplateSettings, "the fragments and how they are rendered"] = TemplateSettings()
    presets: Annotated[PresetSettings, "which readings of the cluster, first one first"] = PresetSettings()
    claims: Annotated[ClaimSettings, "who may claim what"] = field(default_factory=ClaimSettings)
    kubefigurator: Annotated[KubefiguratorSettings, "the preset of that name"] = KubefiguratorSettings()
    kube2lb: Annotated[Kube2lbSettings, "defaults of the preset kube2lb"] = field(default_factory=Kube2lbSettings)
    configmap: Annotated[ConfigmapSettings, "preset of kubernetes-haproxy"] = field(default_factory=ConfigmapSettings)
    hosts: Annotated[HostsSettings, "the preset hosts, of ads-infra-haproxy"] = field(default_factory=HostsSettings)
    cluster_templates: Annotated[ClusterTemplateSettings, "templates that the cluster supplies"] = field(
        default_factory=ClusterTemplateSettings
    )
    haproxy: Annotated[HaproxySettings, "what is written where, how it is checked and loaded"] = HaproxySettings()
    target: Annotated[SingleTargetSettings, "one load balancer other than haproxy"] = field(
        default_factory=SingleTargetSettings
    )
    apply: Annotated[ApplySettings, "when changes are applied and what is kept"] = field(default_factory=ApplySettings)
    guard: Annotated[GuardSettings, "which sudden losses are held until they prove to be lasting"] = field(
        default_factory=GuardSettings
    )
    history: Annotated[HistorySettings, "which generations are kept, how one proves itself"] = UNCHANGED
    etcd: Annotated[EtcdSettings, "for publish and consume: the etcd between one producer and many balancers"] = field(
        default_factory=EtcdSettings
    )
    dns: Annotated[DnsSettings, "names in Route 53 that follow the nodes"] = field(default_factory=DnsSettings)
    vip: Annotated[VipSettings, "the floating address of several nodes"] = field(default_factory=VipSettings)
    events: Annotated[EventSettings, "what is told in the cluster"] = field(default_factory=EventSettings)
    status: Annotated[StatusSettings, "metrics and health over HTTP"] = StatusSettings()
    log: Annotated[LogSettings, "what is logged, and how"] = LogSettings()
    settings_version: Annotated[
        str,
        Setting(
            "the pyconfd that these settings are written for; an older one ignores what it does not know, and says so",
            VERSION,
            empty="this one",
        ),
    ] = ""
    state_dir: Annotated[str, Setting("history and last good configuration; survives a reboot", _DIRECTORY)] = (
        "/var/lib/pyconfd"
    )
    runtime_dir: Annotated[str, Setting("status and locks of the running daemon", _DIRECTORY)] = "/run/pyconfd"
    targets: Annotated[
        tuple[TargetSettings, ...],
        Setting(
            "load balancers beside or instead of haproxy, each a table [[targets]] with name, template, output, notify"
            " and maybe check and timeout_s",
            TARGETS,
            empty="none",
        ),
    ] = ()
