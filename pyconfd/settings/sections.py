"""The tree of settings, and the sections of everything but presets, DNS and the floating address."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from pyconfd.settings.dns import DnsSettings
from pyconfd.settings.presets import (
    ClaimSettings,
    ClusterTemplateSettings,
    ConfigmapSettings,
    HostsSettings,
    Kube2lbSettings,
    KubefiguratorSettings,
    PresetSettings,
)
from pyconfd.settings.setting import YEAR_S, section, setting
from pyconfd.settings.targets import SingleTargetSettings, TargetSettings
from pyconfd.settings.values import (
    ApiServer,
    CaFile,
    Command,
    Directory,
    Duration,
    DurationOrZero,
    EtcdEndpoint,
    FilePath,
    Listen,
    Namespace,
    whole,
    words,
)
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


class Enabled(StrEnum):
    """Whether haproxy is served: AUTO is yes unless ``[target]`` names another balancer."""

    AUTO = "auto"
    YES = "yes"
    NO = "no"


class TotalLoss(StrEnum):
    """What to do when every endpoint is gone at once."""

    HOLD = "hold"
    APPLY = "apply"


_Level = Annotated[
    str,
    words("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", warn="WARNING", fatal="CRITICAL", notset="DEBUG"),
]
VERSION_FORM = r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?"
_Version = Annotated[str, whole(VERSION_FORM, "a version such as 1.2.3")]


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """``[kubernetes]``: which API servers, with which credentials, read how."""

    api_servers: tuple[ApiServer, ...] = setting(
        (),
        "URLs of the API servers, tried in order; the first that answers is used",
        name="api_servers",
        old_env="APISERVERS",
        also=("--apiserver",),
        empty="from the kubeconfig or the pod",
    )
    kubeconfig: FilePath = setting(
        "", "kubeconfig with servers and credentials", short="--kubeconfig", also=("--kubecfg",), empty="none"
    )
    context: str = setting("", "context of the kubeconfig", short="--context", empty="its current one")
    in_cluster: bool = setting(
        False, "take server, CA and token from the pod that pyconfd runs in", short="--in-cluster"
    )
    ssl_key: FilePath = setting(
        "", "key of the client certificate", name="ssl_key", old_env="SSL_KEY_FILE", empty="none"
    )
    ssl_cert: FilePath = setting(
        "",
        "client certificate; OpenSSL gives the old name SSL_CERT_FILE another meaning, so prefer PYCONFD_SSL_CERT",
        name="ssl_cert",
        old_env="SSL_CERT_FILE",
        empty="none",
    )
    ssl_ca: CaFile = setting(
        "",
        "CA file that the API servers' certificates are verified with; false switches verification off",
        name="ssl_ca",
        old_env="SSL_CA_FILE",
        empty="/etc/pyconfd/ca.pem if there, else the system's",
    )
    """A file; "" for /etc/pyconfd/ca.pem where it exists, else the system's; False switches verification off."""
    token_file: FilePath = setting(
        "", "file with a bearer token; read again when it changes", short="--token-file", empty="none"
    )
    ignore_proxy_env: bool = setting(
        True,
        "reach API servers directly, whatever http_proxy and its like say",
        name="ignore_proxy_env",
        old_env="IGNORE_PROXY_ENV",
    )
    mode: ReadMode = setting(ReadMode.WATCH, "watch: changes arrive as they happen; poll: lists each interval_s")
    interval_s: Duration = setting(
        30.0, "pause between two lists when mode is poll", name="interval", old_env="REFRESH_INTERVAL"
    )
    connect_timeout_s: Duration = setting(2.0, "longest wait for a connection to an API server")
    read_timeout_s: Duration = setting(75.0, "longest silence of an API server before it counts as dead")
    failback_s: Duration = setting(300.0, "how often a better-placed API server is tried again")
    page_size: Annotated[int, Meta(ge=1, le=100_000)] = setting(500, "objects asked for in one page of a list")
    cluster: str = setting("", "name of the cluster, for templates and logs", empty="none")
    secret_namespaces: tuple[Namespace, ...] = setting((), "namespaces whose Secrets may be read", empty="none")


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """``[templates]``: the fragments and how they are rendered; ``vars`` are the operator's own, as ``vars.NAME``."""

    dir: Directory = setting(
        "/etc/pyconfd", "directory of the fragments (*.conf, *.tmpl)", name="template_dir", old_env="TEMPLATE_DIR"
    )
    undefined: UndefinedMode = setting(
        UndefinedMode.STRICT, "an undefined name in a template: an error (strict) or nothing (lenient)"
    )
    trim_blocks: bool = setting(True, "drop the line break behind a template tag")
    vars: Mapping[str, Any] = setting(
        MappingProxyType({}),
        "your own values, for templates as vars.NAME; sources are merged",
        short="--var",
        empty="none",
    )


@dataclass(frozen=True, slots=True)
class HaproxySettings:
    """``[haproxy]``: what is written where, how it is checked and loaded."""

    enabled: Enabled = setting(Enabled.AUTO, "serve haproxy; auto: yes, unless [target] names another load balancer")
    conf: FilePath = setting("/etc/haproxy/generated/haproxy.cfg", "file to generate", old_env="HAPROXY_CONF")
    files_dir: Directory = setting("", "directory of maps and certificates", empty="the folder files beside conf")
    """"" is the folder ``files`` beside ``conf``."""
    binary: FilePath = setting("/usr/sbin/haproxy", "the haproxy program")
    chk_cmd: Command = setting(
        (),
        "command that checks a configuration; the file's path is appended, no shell",
        old_env="HAPROXY_CHECK_CMD",
        empty="binary with the flags of unit, -c -f",
    )
    """Empty: ``binary`` with the flags of ``unit``, ``-c -f``. The path of the candidate is appended."""
    check_timeout_s: Duration = setting(60.0, "longest time a check may take")
    check_user: str = setting(
        "", "user that runs the check", empty="unit's user if pyconfd is root, else pyconfd's own"
    )
    """"" is the unit's user when pyconfd is root, else pyconfd's own."""
    reload_method: ReloadMethod = setting(
        ReloadMethod.AUTO,
        "how haproxy is told to load; auto: the first of command, master, systemd, signal that can be used",
    )
    reload_cmd: Command = setting(
        (), "command that reloads haproxy; no shell", old_env="HAPROXY_RELOAD_CMD", empty="none"
    )
    reload_timeout_s: Duration = setting(30.0, "longest time a reload may take")
    master_socket: FilePath = setting("/run/haproxy-master.sock", "socket of haproxy's master process", empty="none")
    runtime_socket: FilePath = setting(
        "", "socket that changes a running haproxy", empty="the stats socket that the configuration opens"
    )
    max_old_workers: Annotated[int, Meta(ge=1, le=1000)] = setting(
        10, "former workers that may still end their sessions; at the bound reloads wait"
    )
    pid_file: FilePath = setting("/run/haproxy.pid", "file with the number of haproxy's process", empty="none")
    unit: str = setting("haproxy.service", "systemd unit of haproxy", empty="none")


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """``[apply]``: when changes are applied and what is kept."""

    quiet_s: DurationOrZero = setting(
        0.2, "a change that needs a reload is applied when nothing more came for so long; others are at once"
    )
    cap_s: DurationOrZero = setting(2.0, "a change that needs a reload is applied after so long at the latest")
    reload_interval_s: DurationOrZero = setting(
        2.0, "least time between two reloads; what needs one waits and is merged"
    )
    drain_limit_s: DurationOrZero = setting(600.0, "longest time that sessions of a removed server may go on")
    retry_min_s: Duration = setting(1.0, "first pause before a failed change is tried again")
    retry_max_s: Duration = setting(60.0, "longest pause between tries")
    boot_wait_s: DurationOrZero = setting(
        5.0, "wait for the cluster at start before the last good generation is applied"
    )
    keep_generations: Annotated[int, Meta(ge=1, le=10_000)] = setting(20, "applied configurations kept on disk")
    total_loss: TotalLoss = setting(
        TotalLoss.HOLD,
        "when every endpoint is gone: hold that until an operator allows it, or (apply) as any other loss",
    )


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """When a sudden loss of endpoints is held, beside that of all of them (``apply.total_loss``)."""

    share_percent: Annotated[int, Meta(ge=1, le=100)] = setting(
        50, "a sudden loss of more than this part of all endpoints is held; 100 holds none"
    )
    least: Annotated[int, Meta(ge=1, le=1_000_000)] = setting(5, "a loss of fewer endpoints than this is not held")
    window_s: Duration = setting(60.0, "losses within this time count together")
    persist_s: DurationOrZero = setting(
        60.0, "a held loss is applied once it has lasted so long and a second full list has confirmed it"
    )


@dataclass(frozen=True, slots=True)
class HistorySettings:
    """``[history]``: how long generations are kept, when one ran well, how long a new one is monitored."""

    keep_for_s: Duration = setting(
        30 * 24 * 3600.0, "generations older than this are removed, but for those that a rollback or a boot needs"
    )
    ran_well_s: DurationOrZero = setting(60.0, "a structure that ran so long without an alarm is applied at a boot")
    rollout_monitor_s: DurationOrZero = setting(
        60.0, "error rates and servers that are up are compared for so long after a reload; 0: never"
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
    cert: FilePath = setting("", "client certificate for etcd", also=("--etcd-client-cert-file",), empty="none")
    key: FilePath = setting(
        "", "key of the client certificate for etcd", also=("--etcd-client-key-file",), empty="none"
    )
    user: str = setting("", "user name in etcd", empty="none")
    password_file: FilePath = setting("", "file with the password of that user; read at each login", empty="none")
    timeout_s: Duration = setting(5.0, "longest silence of etcd before it counts as dead")
    lease_s: Annotated[float, Meta(ge=2, le=YEAR_S)] = setting(
        15.0, "a producer that is silent for so long is replaced by the next"
    )
    poll_s: Duration = setting(30.0, "etcd is read this often, whatever a watch says")
    keep: Annotated[int, Meta(ge=2, le=100)] = setting(5, "published generations kept in etcd")


@dataclass(frozen=True, slots=True)
class EventSettings:
    """Kubernetes Events on objects that are refused, for who may look at the cluster and not at the balancer."""

    enabled: bool = setting(False, "write a Kubernetes Event on each refused object; needs the right to create events")
    every_s: Duration = setting(3600.0, "least time between two Events for the same cause")


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """``[status]``: the HTTP server for metrics and health; an empty ``listen`` switches it off."""

    listen: Listen = setting(
        "127.0.0.1:9101", "address of the HTTP server for metrics and health", empty="switched off"
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``: ``format`` is "text" or "json"."""

    level: _Level = setting("INFO", "least level that is logged", old_env="LOGLEVEL")
    format: Annotated[str, words("text", "json")] = setting("text", "text for people, json for machines")


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree. ``state_dir`` survives a reboot, ``runtime_dir`` does not."""

    kubernetes: KubernetesSettings = section(KubernetesSettings, "which API servers, with which credentials, read how")
    templates: TemplateSettings = section(TemplateSettings, "the fragments and how they are rendered")
    presets: PresetSettings = section(PresetSettings, "which presets are used")
    claims: ClaimSettings = section(ClaimSettings, "who may claim what")
    kubefigurator: KubefiguratorSettings = section(KubefiguratorSettings, "the preset of that name")
    kube2lb: Kube2lbSettings = section(Kube2lbSettings, "defaults of the preset kube2lb")
    configmap: ConfigmapSettings = section(ConfigmapSettings, "preset of kubernetes-haproxy")
    hosts: HostsSettings = section(HostsSettings, "the preset hosts, of ads-infra-haproxy")
    cluster_templates: ClusterTemplateSettings = section(ClusterTemplateSettings, "templates that the cluster supplies")
    haproxy: HaproxySettings = section(HaproxySettings, "what is written where, how it is checked and loaded")
    target: SingleTargetSettings = section(SingleTargetSettings, "one load balancer other than haproxy")
    apply: ApplySettings = section(ApplySettings, "when changes are applied and what is kept")
    guard: GuardSettings = section(GuardSettings, "which sudden losses of endpoints are held")
    history: HistorySettings = section(HistorySettings, "which generations are kept")
    etcd: EtcdSettings = section(
        EtcdSettings, "for publish and consume: the etcd between one producer and many balancers"
    )
    dns: DnsSettings = section(DnsSettings, "names in Route 53 that follow the nodes")
    vip: VipSettings = section(VipSettings, "the floating address of several nodes")
    events: EventSettings = section(EventSettings, "Kubernetes Events")
    status: StatusSettings = section(StatusSettings, "metrics and health over HTTP")
    log: LogSettings = section(LogSettings, "what is logged, and how")
    settings_version: _Version = setting(
        "",
        "the pyconfd that these settings are written for; an older one ignores what it does not know, and says so",
        empty="this one",
    )
    state_dir: Directory = setting("/var/lib/pyconfd", "history and last good configuration; survives a reboot")
    runtime_dir: Directory = setting("/run/pyconfd", "status and locks of the running daemon")
    targets: tuple[TargetSettings, ...] = setting(
        (),
        "load balancers beside or instead of haproxy, each a table [[targets]] with name, template, output, notify"
        " and maybe check and timeout_s",
        empty="none",
    )
