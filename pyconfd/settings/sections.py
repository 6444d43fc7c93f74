"""The sections of the settings that are in no file of their own, and the tree of all of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta

from pyconfd.model.context import ALL_NAMESPACES, AUTO, AUTOMATIC_PRESETS, PresetName
from pyconfd.settings.dns import DnsSettings
from pyconfd.settings.predecessors import (
    ClusterTemplateSettings,
    ConfigmapSettings,
    EtcdSettings,
    HostsSettings,
    Kube2lbSettings,
    KubefiguratorSettings,
    SingleTargetSettings,
    TargetSettings,
)
from pyconfd.settings.setting import section, setting
from pyconfd.settings.values import (
    NAMESPACE,
    OBJECT_NAME,
    Address,
    Addresses,
    ApiServer,
    BackendTarget,
    CaFile,
    Command,
    Directory,
    Duration,
    DurationOrZero,
    FilePath,
    HostPattern,
    Listen,
    NamespaceOrAll,
    Network,
    PortRange,
    Protocol,
    Suffix,
    addresses_of,
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
        "", "kubeconfig with servers and credentials", short="--kubeconfig", also=("--kubecfg",)
    )
    context: str = setting("", "context of the kubeconfig", short="--context", empty="its current one")
    in_cluster: bool = setting(
        False, "take server, CA and token from the pod that pyconfd runs in", short="--in-cluster"
    )
    ssl_key: FilePath = setting("", "key of the client certificate", name="ssl_key", old_env="SSL_KEY_FILE")
    ssl_cert: FilePath = setting(
        "",
        "client certificate; OpenSSL gives the old name SSL_CERT_FILE another meaning, so prefer PYCONFD_SSL_CERT",
        name="ssl_cert",
        old_env="SSL_CERT_FILE",
    )
    ssl_ca: CaFile = setting(
        "",
        "CA file that the API servers' certificates are verified with; false switches verification off",
        name="ssl_ca",
        old_env="SSL_CA_FILE",
        empty="/etc/pyconfd/ca.pem if there, else the system's",
    )
    token_file: FilePath = setting("", "file with a bearer token; read again when it changes", short="--token-file")
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
    cluster: str = setting("", "name of the cluster, for templates and logs")
    secret_namespaces: tuple[NamespaceOrAll, ...] = setting(
        (), "namespaces whose TLS Secrets, and CA certificates in ConfigMaps, may be read; * is all"
    )

    password_secrets: bool = setting(
        False, "whether Secrets of type Opaque are read there too, for the users of basic-auth-secret"
    )

    @property
    def secret_scopes(self) -> tuple[str, ...]:
        """The namespaces to read Secrets of, each once; the one "" is all of them."""
        return ("",) if ALL_NAMESPACES in self.secret_namespaces else tuple(dict.fromkeys(self.secret_namespaces))


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
        MappingProxyType({}), "your own values, for templates as vars.NAME; sources are merged", short="--var"
    )


_Preset = Annotated[str, words(AUTO, *PresetName, metavar="NAME")]
_AddressType = Annotated[
    str, words("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS", metavar="TYPE")
]


@dataclass(frozen=True, slots=True)
class PresetSettings:
    """``[presets]``."""

    use: tuple[_Preset, ...] = setting(
        (AUTO,),
        f"presets, the first one owns the plain names; {AUTO} is {', '.join(AUTOMATIC_PRESETS)}",
        short="--preset",
    )
    backend_target: BackendTarget = setting(BackendTarget.POD, "where traffic goes: pod addresses or node ports")
    node_address_types: tuple[_AddressType, ...] = setting(
        ("InternalIP",), "kinds of node addresses to use, best first"
    )
    # Above the privileged ports and below Linux's ephemeral ones (net.ipv4.ip_local_port_range).
    listen_ports: tuple[PortRange, ...] = setting(("1024-32767",), "ports that an annotation may ask to be bound")

    @property
    def names(self) -> tuple[str, ...]:
        """Return the presets in use, each once."""
        listed = (AUTOMATIC_PRESETS if name == AUTO else (name,) for name in self.use)
        return tuple(dict.fromkeys(str(name) for names in listed for name in names))


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """``[tls]``: certificates of Secrets."""

    default_certificate: Annotated[str, whole(f"{NAMESPACE}/{OBJECT_NAME}", "NAMESPACE/NAME of a Secret")] = setting(
        "",
        "Secret of the certificate for clients that name no host, or one without a certificate: NAMESPACE/NAME",
        empty="none, such a handshake fails",
    )


ClassName = Annotated[str, whole(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", "the name of an IngressClass, such as nginx")]


PolicySize = Annotated[
    str, whole(r"[0-9]{1,12}|[0-9]{1,9}[kK]|[0-9]{1,6}[mM]|[0-9]{1,3}[gG]", "bytes, or a size such as 100m")
]
"""Less than 1 TiB, as a size of the word max-body-size."""


@dataclass(frozen=True, slots=True)
class IngressSettings:
    """``[ingress]``: Ingresses that were written for other controllers."""

    ignored_annotations: tuple[
        Annotated[
            str,
            whole(
                r"[A-Za-z0-9.*-]+/[A-Za-z0-9._*-]+", "an annotation such as konghq.com/plugins, maybe with * at its end"
            ),
        ],
        ...,
    ] = setting(
        (),
        "annotations of other controllers that restrict access (lists of addresses, authentication, limits) and are"
        " done without: by default a path behind one is not served",
    )
    nginx_classes: tuple[ClassName, ...] = setting(
        (),
        "classes whose Ingresses were written for ingress-nginx: they are served, and their annotations mean what they"
        " meant there",
    )
    nginx_body_size: PolicySize = setting(
        "1m",
        "the largest body for Ingresses of nginx_classes without proxy-body-size, as that key of ingress-nginx's"
        " ConfigMap; a larger one gets 413; 0: any size",
    )


@dataclass(frozen=True, slots=True)
class RuleSettings:
    """One table ``[[claims.rules]]``; None is no limit."""

    namespaces: tuple[Annotated[str, whole(r"[a-z0-9*?\[\]!-]+", "names of namespaces, or patterns with * and ?")], ...]
    domains: tuple[Suffix, ...] | None = None
    protocols: tuple[Protocol, ...] | None = None
    ports: tuple[PortRange, ...] | None = None
    addresses: tuple[Network, ...] = ()
    policies: tuple[Annotated[str, whole(r"[a-z*?-]+", "words of policies, or patterns with * and ?")], ...] | None = (
        None
    )


@dataclass(frozen=True, slots=True)
class ClaimSettings:
    """``[claims]``: who may claim what, for all presets."""

    rules: tuple[RuleSettings, ...] = setting(
        (),
        "who may claim what: tables [[claims.rules]] with namespaces (names, or patterns with * and ?) and maybe"
        " domains (what names must end with), protocols, ports and policies (words, or patterns); what of these a rule"
        " does not mention it does not limit, and an empty list allows nothing. Its addresses are the networks in which"
        " it may name an address of this balancer to listen on; a rule without them allows none. The first rule that"
        " names a namespace decides about it; where there are rules, a namespace that none names may claim nothing",
        empty="everybody may claim anything",
    )
    reserve_s: DurationOrZero = setting(
        600.0,
        "how long a name or port stays with its namespace when its object is gone, so that a recreated one gets it"
        " back; 0: the next claimant gets it at once",
    )
    shared_hosts: tuple[HostPattern, ...] = setting(
        (),
        "hosts to which every namespace may add paths: names, *.example.com for all below it, * for all; any other host"
        " belongs to one namespace with all its paths and its TLS, unless that consents by the annotation"
        " pyconfd.io/shared-with",
    )
    allow_endpoints: tuple[Network, ...] = setting(
        (),
        "networks whose addresses may be endpoints though they are loopback, link-local, multicast, a cloud's"
        " metadata, this balancer's own, an API server's, or outside of claims.endpoint_networks",
    )
    endpoint_networks: tuple[Network, ...] = setting(
        (),
        "networks of pods: no endpoint may be elsewhere, whatever an EndpointSlice says",
        empty="endpoints may be anywhere else",
    )
    own_addresses: tuple[Address, ...] = setting(
        (),
        "addresses of load balancers beside those of this one's interfaces and those in [vip], floating or of a"
        " node: no endpoint may be there",
    )


AuthTimeout = Annotated[float, Meta(ge=0.1, le=30)]
"""Less than the timeouts of HAProxy, which would end the question before."""


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """``[policies]``: the most that words of policies may say."""

    max_body_size: PolicySize = setting(
        "", "the most that max-body-size may say; a larger size, or 0, is refused", empty="no limit"
    )
    max_timeout_s: DurationOrZero = setting(
        0.0, "the most that a timeout of a policy may say; a longer one is refused; 0: no limit"
    )
    auth_timeout_s: AuthTimeout = setting(
        5.0, "how long external authentication may take, and the most that auth-timeout may say; then requests get 503"
    )


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """``[addresses]``: the addresses that Gateways and Services of type LoadBalancer are given, and the shared ones."""

    pool: tuple[Addresses, ...] = setting(
        (),
        "addresses that Gateways and Services of type LoadBalancer are given: addresses, networks (of IPv4 without"
        " their first and last address) or ranges FIRST-LAST, in the order in which they are given away; with [vip]"
        " these are floating addresses",
        empty="none: such objects are refused",
    )
    shared: tuple[Address, ...] = setting(
        (),
        "addresses that names of Ingresses and of the preset domains are reached at, as their status says",
        empty="the floating addresses that are not in the pool",
    )
    per_namespace: Annotated[int, Meta(ge=0, le=1024)] = setting(
        32,
        "how many addresses of the pool one namespace is given; what it has already stays; 0: as many as there are",
    )
    default_class: bool = setting(
        False, "serve Services of type LoadBalancer without a loadBalancerClass too; only where nothing else does"
    )

    @property
    def pool_addresses(self) -> tuple[str, ...]:
        """Return the addresses of the pool, each once."""
        return tuple(dict.fromkeys(each for text in self.pool for each in addresses_of(text)))


@dataclass(frozen=True, slots=True)
class ProxySettings:
    """``[proxy]``: proxies and balancers in front of this one, whose word on the client of a request counts."""

    trusted_networks: tuple[Network, ...] = setting(
        (),
        "networks of proxies in front: their X-Forwarded-For says where the client is, and their other headers about it"
        " reach pods; those of all others are deleted",
    )
    protocol_networks: tuple[Network, ...] = setting(
        (),
        "networks whose connections to ports of HTTP and TLS begin with the PROXY protocol, which says where the client"
        " is; without it they are refused",
    )


@dataclass(frozen=True, slots=True)
class HaproxySettings:
    """``[haproxy]``: what is written where, how it is checked and loaded."""

    enabled: Enabled = setting(Enabled.AUTO, "serve haproxy; auto: yes, unless [target] names another load balancer")
    conf: FilePath = setting("/etc/haproxy/generated/haproxy.cfg", "file to generate", old_env="HAPROXY_CONF")
    files_dir: Directory = setting("", "directory of maps and certificates", empty="the folder files beside conf")
    binary: FilePath = setting("/usr/sbin/haproxy", "the haproxy program")
    chk_cmd: Command = setting(
        (),
        "command that checks a configuration; the file's path is appended, no shell",
        old_env="HAPROXY_CHECK_CMD",
        empty="binary with the flags of unit, -c -f",
    )
    check_timeout_s: Duration = setting(60.0, "longest time a check may take")
    check_user: str = setting(
        "", "user that runs the check", empty="unit's user if pyconfd is root, else pyconfd's own"
    )
    reload_method: ReloadMethod = setting(
        ReloadMethod.AUTO,
        "how haproxy is told to load; auto: the first of command, master, systemd, signal that can be used",
    )
    reload_cmd: Command = setting((), "command that reloads haproxy; no shell", old_env="HAPROXY_RELOAD_CMD")
    reload_timeout_s: Duration = setting(30.0, "longest time a reload may take")
    master_socket: FilePath = setting("/run/haproxy-master.sock", "socket of haproxy's master process", empty="none")
    runtime_socket: FilePath = setting(
        "", "socket that changes a running haproxy", empty="the stats socket that the configuration opens"
    )
    max_old_workers: Annotated[int, Meta(ge=1, le=1000)] = setting(
        10, "former workers that may still end their sessions; at the bound a reload ends one of them"
    )
    dynamic_backends: bool = setting(
        default=False,
        about="new backends by `add backend` of HAProxy 3.4 in place of spares; 3.4.7 ends itself then (docs/live.md)",
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
        0.0, "least time between two reloads, which wait three times as long as the last one took in any case"
    )
    rename_interval_s: DurationOrZero = setting(
        30.0, "new backends that spares serve, and removed ones, wait so long for the reload that puts them in order"
    )
    spare_backends: Annotated[int, Meta(ge=0, le=10_000)] = setting(
        200, "empty backends of each kind in the file, which serve new ones without a reload; 11 KB of memory each"
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
class RemovalProtectionSettings:
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
class EventSettings:
    """Kubernetes Events on objects that are not served, for who may look at the cluster and not at the balancer."""

    enabled: bool = setting(
        True,
        "write a Kubernetes Event on each object that is refused, or for which no server answers; needs the right to"
        " create events",
    )
    every_s: Duration = setting(3600.0, "least time between two Events for the same cause")


_ObjectName = Annotated[str, whole(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", "a name of Kubernetes")]


@dataclass(frozen=True, slots=True)
class ClusterStatusSettings:
    """``[cluster_status]``: the status of objects of the cluster, written by one of several balancers."""

    enabled: bool = setting(
        True,
        "write addresses and conditions into the status of the objects that are served; needs the rights that"
        " pyconfd rbac prints",
    )
    lease_namespace: _ObjectName = setting("pyconfd", "namespace of the Lease that elects the balancer that writes")
    lease_name: _ObjectName = setting("pyconfd", "name of that Lease; the same for all balancers of one address")
    grace_s: DurationOrZero = setting(
        30.0, "an object that is not served any more, and was not deleted, loses its address after so long"
    )
    gateway_services: bool = setting(
        False,
        "make a Service for each Gateway, with its address and the labels and annotations of spec.infrastructure; needs"
        " the right to create and patch Services, which pyconfd rbac prints then",
    )


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """``[status]``: the HTTP server for metrics and health; an empty ``listen`` switches it off."""

    listen: Listen = setting(
        "127.0.0.1:9101",
        "address of the HTTP server for metrics and health; another one than loopback needs token_file or"
        " tls_certificate",
        empty="switched off",
    )
    token_file: FilePath = setting(
        "", "file with a bearer token that each request to it needs; read again when it changes", empty="no token"
    )
    tls_certificate: FilePath = setting(
        "", "PEM file with chain and key, for HTTPS there; read again when it changes", empty="plain HTTP"
    )
    metrics_per_host: bool = setting(
        False, "/metrics/routes says which hosts lead to each backend: a series each, 20,000 at most"
    )


_Level = Annotated[
    str,
    words("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", warn="WARNING", fatal="CRITICAL", notset="DEBUG"),
]


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``: ``format`` is "text" or "json"."""

    level: _Level = setting("INFO", "least level that is logged", old_env="LOGLEVEL")
    format: Annotated[str, words("text", "json")] = setting("text", "text for people, json for machines")


VERSION_FORM = r"(\d+)\.(\d+)\.(\d+)(?:(a|b|rc)(\d+))?"
_Version = Annotated[str, whole(VERSION_FORM, "a version such as 1.2.3")]


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree. ``state_dir`` survives a reboot, ``runtime_dir`` does not."""

    kubernetes: KubernetesSettings = section(KubernetesSettings, "which API servers, with which credentials, read how")
    templates: TemplateSettings = section(TemplateSettings, "the fragments and how they are rendered")
    presets: PresetSettings = section(PresetSettings, "which presets are used")
    tls: TlsSettings = section(TlsSettings, "certificates of Secrets")
    ingress: IngressSettings = section(IngressSettings, "Ingresses that were written for other controllers")
    claims: ClaimSettings = section(ClaimSettings, "who may claim what")
    policies: PolicySettings = section(PolicySettings, "bounds of what policies may say")
    addresses: AddressSettings = section(AddressSettings, "addresses of Gateways, of Services and of names")
    proxy: ProxySettings = section(ProxySettings, "proxies in front of this balancer")
    kubefigurator: KubefiguratorSettings = section(KubefiguratorSettings, "the preset of that name")
    kube2lb: Kube2lbSettings = section(Kube2lbSettings, "defaults of the preset kube2lb")
    configmap: ConfigmapSettings = section(ConfigmapSettings, "preset of kubernetes-haproxy")
    hosts: HostsSettings = section(HostsSettings, "the preset hosts, of ads-infra-haproxy")
    cluster_templates: ClusterTemplateSettings = section(ClusterTemplateSettings, "templates that the cluster supplies")
    haproxy: HaproxySettings = section(HaproxySettings, "what is written where, how it is checked and loaded")
    target: SingleTargetSettings = section(SingleTargetSettings, "one load balancer other than haproxy")
    apply: ApplySettings = section(ApplySettings, "when changes are applied and what is kept")
    removal_protection: RemovalProtectionSettings = section(
        RemovalProtectionSettings, "which sudden losses of endpoints are held"
    )
    history: HistorySettings = section(HistorySettings, "which generations are kept")
    etcd: EtcdSettings = section(
        EtcdSettings, "for publish and consume: the etcd between one producer and many balancers"
    )
    dns: DnsSettings = section(DnsSettings, "names in Route 53 that follow the nodes")
    vip: VipSettings = section(VipSettings, "the floating address of several nodes")
    events: EventSettings = section(EventSettings, "Kubernetes Events")
    cluster_status: ClusterStatusSettings = section(ClusterStatusSettings, "the status of objects of the cluster")
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
    )
