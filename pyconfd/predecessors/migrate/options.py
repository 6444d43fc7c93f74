"""Every flag, variable and annotation of the predecessors, and what it is called now."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType

from pyconfd.predecessors.migrate.report import System


class OptionForm(Enum):
    """How a value was written."""

    TEXT = auto()
    LIST = auto()
    """Parted by commas."""
    REPEATED = auto()
    """One item for each use."""
    COMMAND = auto()
    SECONDS = auto()
    BOOLEAN = auto()
    CA = auto()
    COUNT = auto()
    """A flag without a value; how often it is given counts."""
    NOTHING = auto()
    """A flag without a value."""


@dataclass(frozen=True, slots=True)
class Option:
    """``flags`` and ``variables`` are the old names, ``path`` the setting today ("" for none), ``note`` what differs.

    ``still_works``: the old name is understood by pyconfd itself.
    """

    flags: tuple[str, ...]
    variables: tuple[str, ...]
    path: str
    form: OptionForm = OptionForm.TEXT
    note: str = ""
    still_works: bool = False


def _both(flag: str, variable: str, path: str, form: OptionForm = OptionForm.TEXT, note: str = "") -> Option:
    return Option((flag,), (variable,), path, form, note, still_works=True)


def _flag(flag: str, path: str, form: OptionForm = OptionForm.TEXT, note: str = "") -> Option:
    return Option((flag,), (), path, form, note)


def _kept(flag: str, path: str, form: OptionForm = OptionForm.TEXT, note: str = "") -> Option:
    return Option((flag,), (), path, form, note, still_works=True)


def _variable(name: str, path: str, form: OptionForm = OptionForm.TEXT, note: str = "") -> Option:
    return Option((), (name,), path, form, note)


_ANY_TEXT_WAS_TRUE = "python-confd took any text for true, also False; now false is false"

_READABLE = "with the shipped units the user pyconfd has to be able to read it, and the files that it names"

_PYTHON_CONFD = (
    _both("--api-servers", "APISERVERS", "kubernetes.api_servers", OptionForm.LIST),
    _both("--log-level", "LOGLEVEL", "log.level"),
    _both(
        "--ignore-proxy-env", "IGNORE_PROXY_ENV", "kubernetes.ignore_proxy_env", OptionForm.BOOLEAN, _ANY_TEXT_WAS_TRUE
    ),
    _both("--ssl-key", "SSL_KEY_FILE", "kubernetes.ssl_key"),
    _both("--ssl-cert", "SSL_CERT_FILE", "kubernetes.ssl_cert"),
    _both("--ssl-ca", "SSL_CA_FILE", "kubernetes.ssl_ca", OptionForm.CA),
    _both(
        "--interval",
        "REFRESH_INTERVAL",
        "kubernetes.interval_s",
        OptionForm.SECONDS,
        "changes are watched, so it counts only with kubernetes.mode = poll",
    ),
    _both("--template-dir", "TEMPLATE_DIR", "templates.dir"),
    _both(
        "--haproxy-conf",
        "HAPROXY_CONF",
        "haproxy.conf",
        note="leave it out with the shipped units: they write, and load, /etc/haproxy/generated/haproxy.cfg",
    ),
    _both(
        "--haproxy-chk-cmd",
        "HAPROXY_CHECK_CMD",
        "haproxy.chk_cmd",
        OptionForm.COMMAND,
        "leave it out for the same with the flags and the user of haproxy's unit",
    ),
    _both(
        "--haproxy-reload-cmd",
        "HAPROXY_RELOAD_CMD",
        "haproxy.reload_cmd",
        OptionForm.COMMAND,
        "leave it out with the shipped units: they reload over the master socket, and most commands need root",
    ),
)

OWN_HAPROXY = (
    "this is HAProxy: leave [target] out and put the template into templates.dir, then pyconfd itself checks it,"
    " reloads without losing a connection and verifies what runs"
)
"""What to do instead of a target where kube2lb's balancer was HAProxy."""

_KUBE2LB = (
    _kept("-apiserver", "kubernetes.api_servers", OptionForm.LIST),
    _kept("-kubecfg", "kubernetes.kubeconfig", note=_READABLE),
    _kept("-domain", "kube2lb.domain"),
    _kept("-config", "target.output"),
    _kept("-template", "target.template", note="give the template to pyconfd migrate too; this is what it becomes"),
    _kept("-notify", "target.notify"),
    _kept("-server-name-templates", "kube2lb.server_name_templates", OptionForm.LIST),
    _kept("-default-lb-ip", "kube2lb.default_lb_ip"),
    _kept("-default-port-mode", "kube2lb.default_port_mode"),
    _flag(
        "-reconnect-timeout",
        "",
        note="dropped: pyconfd never exits because no API server answers; `pyconfd status` shows how old the data are",
    ),
    _kept("-update-timeout", "target.timeout_s", OptionForm.SECONDS, "for the check, and for the notifier"),
    Option(("-version",), (), "", OptionForm.NOTHING, "works as it is: `pyconfd -version`", still_works=True),
)

_KUBEFIGURATOR = (
    _kept("--cluster", "kubefigurator.cluster"),
    _kept("--kubeconfig", "kubernetes.kubeconfig", note=_READABLE),
    Option(("-v", "--verbosity"), (), "log.level", OptionForm.COUNT),
    _flag(
        "--haproxy-config",
        "haproxy.conf",
        note="one file holds everything now, also what stood in haproxy.cfg; leave it out with the shipped units: they"
        " write, and load, /etc/haproxy/generated/haproxy.cfg",
    ),
    _flag(
        "--exec", "haproxy.reload_cmd", OptionForm.COMMAND, "a restart drops connections; without it pyconfd reloads"
    ),
    _kept("--etcd-host", "etcd.endpoints", OptionForm.REPEATED, "tried in order"),
    _kept("--etcd-path", "etcd.path", note="consumers must name the same path"),
    _kept("--etcd-ca-file", "etcd.ca"),
    _kept("--etcd-client-cert-file", "etcd.cert"),
    _kept("--etcd-client-key-file", "etcd.key"),
)

_KUBERNETES_HAPROXY = (
    _variable("K8SBASE", "kubernetes.api_servers", OptionForm.LIST, "https, a token or client certificates work now"),
    _variable("ETCD2BASE", "", note="dropped: objects come from the API server; set kubernetes.api_servers"),
    Option(
        (),
        ("STATISTICS_PASSWORD",),
        "",
        note="keep it in the environment; templates still see it as stats.password (not written to a file)",
        still_works=True,
    ),
)

_ADS_INFRA_HAPROXY = (
    _variable(
        "KONTROL_DAMPER",
        "hosts.damper_s",
        OptionForm.SECONDS,
        "each change cost a restart then; a reload loses nothing, so 0 will do",
    ),
    _variable("KONTROL_TTL", "", note="dropped: pods are watched, none reports"),
    _variable("KONTROL_FOVER", "", note="dropped: no master is elected, each balancer watches the cluster itself"),
    _variable("KONTROL_PORT", "", note="dropped: nothing reports to a port; metrics are on status.listen"),
    _variable("KONTROL_MODE", "", note="dropped: there are no masters and slaves"),
    _variable("KONTROL_CALLBACK", "", note="dropped: pyconfd renders by itself"),
    _variable("KONTROL_PAYLOAD", "", note="dropped: the state is in state_dir"),
    _variable("KONTROL_ETCD", "", note="dropped: no election needs an etcd"),
    _variable("KONTROL_EIP", "", note="dropped: the DNS module takes the balancers' addresses from its settings"),
    _variable("NAMESPACE", "", note="dropped: hosts.config says in which namespace the balancers' object is"),
)

OPTIONS: Mapping[System, tuple[Option, ...]] = MappingProxyType(
    {
        System.PYTHON_CONFD: _PYTHON_CONFD,
        System.KUBE2LB: _KUBE2LB,
        System.KUBEFIGURATOR: _KUBEFIGURATOR,
        System.KUBERNETES_HAPROXY: _KUBERNETES_HAPROXY,
        System.ADS_INFRA_HAPROXY: _ADS_INFRA_HAPROXY,
    }
)
"""The options of each system."""

COMMANDS: Mapping[System, Mapping[str, str]] = MappingProxyType(
    {
        System.KUBEFIGURATOR: MappingProxyType(
            {
                "view": "pyconfd render",
                "apply": "pyconfd publish --once (with etcd), else pyconfd run",
                "watch": "pyconfd publish (with etcd), else pyconfd run",
            }
        )
    }
)
"""Words after the program's name, and the command today."""

PROGRAMS: Mapping[System, frozenset[str]] = MappingProxyType(
    {
        System.PYTHON_CONFD: frozenset({"pyconfd.py", "pyconfd", "haproxy/pyconfd"}),
        System.KUBE2LB: frozenset({"kube2lb"}),
        System.KUBEFIGURATOR: frozenset({"haproxy-kubefigurator"}),
        System.KUBERNETES_HAPROXY: frozenset({"kubernetes-haproxy"}),
        System.ADS_INFRA_HAPROXY: frozenset({"ads-infra-haproxy", "kontrol"}),
    }
)
"""How the programs and their images are called."""

ANNOTATIONS: Mapping[System, Mapping[str, str]] = MappingProxyType(
    {
        System.PYTHON_CONFD: MappingProxyType({"domain": "works as it is", "proto": "works as it is"}),
        System.KUBE2LB: MappingProxyType(
            {
                "kube2lb/external-domains": "works as it is",
                "kube2lb/port-mode": "works as it is",
                "kube2lb/backend-timeout": "works as it is",
            }
        ),
        System.KUBEFIGURATOR: MappingProxyType({"haproxy-kubefigurator.": "works as it is"}),
        System.KUBERNETES_HAPROXY: MappingProxyType({}),
        System.ADS_INFRA_HAPROXY: MappingProxyType(
            {
                "haproxy.unity3d.com/config": "works as it is; only allowed sections and directives get through",
                "haproxy.unity3d.com/route53": "works as it is where dns.annotation_suffixes allows its names",
                "kontrol.unity3d.com/opentsdb": "no longer read: see docs/telegraf.md for what goes there",
                "kontrol.unity3d.com/master": "works as it is; hosts.master says whose pods are taken",
            }
        ),
    }
)
"""Annotations (a final dot stands for any name that begins so), and what becomes of them."""


def option_for_flag(system: System, flag: str) -> Option | None:
    """Return the option of a flag, also with one dash as Go's programs took it, or cut short as argparse did."""
    options = OPTIONS[system]
    by_flag = {name.lstrip("-"): option for option in options for name in option.flags}
    bare = flag.lstrip("-")
    if bare in by_flag and (system is System.KUBE2LB or any(flag in option.flags for option in options)):
        return by_flag[bare]
    if system is System.PYTHON_CONFD and flag.startswith("--"):
        close = [option for name, option in by_flag.items() if name.startswith(bare)]
        return close[0] if len(close) == 1 and bare else None
    counted = system is System.KUBEFIGURATOR and bare and set(bare) == {"v"} and not flag.startswith("--")
    return by_flag["v"] if counted else None


def option_for_variable(system: System, name: str) -> Option | None:
    """Return the option of an environment variable."""
    return next((option for option in OPTIONS[system] if name in option.variables), None)
