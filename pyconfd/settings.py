"""One typed tree of settings: flag > environment > file > default."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any


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


class TotalLoss(StrEnum):
    """What to do when every endpoint is gone at once."""

    HOLD = "hold"
    APPLY = "apply"


@dataclass(frozen=True, slots=True)
class KubernetesSettings:
    """``[kubernetes]``: which API servers, with which credentials, read how."""

    api_servers: tuple[str, ...] = ()
    kubeconfig: str = ""
    context: str = ""
    in_cluster: bool = False
    ssl_key: str = ""
    ssl_cert: str = ""
    ssl_ca: str | bool = ""
    """A file; "" for /etc/pyconfd/ca.pem where it exists, else the system's; False switches verification off."""
    token_file: str = ""
    ignore_proxy_env: bool = True
    mode: ReadMode = ReadMode.WATCH
    interval_s: float = 30.0
    connect_timeout_s: float = 2.0
    read_timeout_s: float = 75.0
    failback_s: float = 300.0
    page_size: int = 500
    cluster: str = ""
    secret_namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TemplateSettings:
    """``[templates]``: the fragments and how they are rendered; ``vars`` are the operator's own, as ``vars.NAME``."""

    dir: str = "/etc/pyconfd"
    undefined: UndefinedMode = UndefinedMode.STRICT
    trim_blocks: bool = True
    vars: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class PresetSettings:
    """``[presets]``: which readings of the cluster, first one first."""

    use: tuple[str, ...] = ("domains",)
    backend_target: BackendTarget = BackendTarget.POD
    node_address_types: tuple[str, ...] = ("InternalIP",)


@dataclass(frozen=True, slots=True)
class HaproxySettings:
    """``[haproxy]``: what is written where, how it is checked and loaded."""

    conf: str = "/etc/haproxy/generated/haproxy.cfg"
    files_dir: str = ""
    """"" is the folder ``files`` beside ``conf``."""
    binary: str = "/usr/sbin/haproxy"
    chk_cmd: tuple[str, ...] = ()
    """Empty: ``binary`` with the flags of ``unit``, ``-c -f``. The path of the candidate is appended."""
    check_timeout_s: float = 60.0
    check_user: str = ""
    """"" is the unit's user when pyconfd is root, else pyconfd's own."""
    reload_method: ReloadMethod = ReloadMethod.AUTO
    reload_cmd: tuple[str, ...] = ()
    reload_timeout_s: float = 30.0
    master_socket: str = "/run/haproxy-master.sock"
    pid_file: str = "/run/haproxy.pid"
    unit: str = "haproxy.service"


@dataclass(frozen=True, slots=True)
class ApplySettings:
    """``[apply]``: when changes are applied and what is kept."""

    quiet_s: float = 0.2
    cap_s: float = 2.0
    retry_min_s: float = 1.0
    retry_max_s: float = 60.0
    boot_wait_s: float = 5.0
    keep_generations: int = 20
    total_loss: TotalLoss = TotalLoss.HOLD


@dataclass(frozen=True, slots=True)
class StatusSettings:
    """``[status]``: the HTTP server for metrics and health; an empty ``listen`` switches it off."""

    listen: str = "127.0.0.1:9101"


@dataclass(frozen=True, slots=True)
class LogSettings:
    """``[log]``: ``format`` is "text" or "json"."""

    level: str = "INFO"
    format: str = "text"


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole tree. ``state_dir`` survives a reboot, ``runtime_dir`` does not."""

    kubernetes: KubernetesSettings = KubernetesSettings()
    templates: TemplateSettings = TemplateSettings()
    presets: PresetSettings = PresetSettings()
    haproxy: HaproxySettings = HaproxySettings()
    apply: ApplySettings = ApplySettings()
    status: StatusSettings = StatusSettings()
    log: LogSettings = LogSettings()
    state_dir: str = "/var/lib/pyconfd"
    runtime_dir: str = "/run/pyconfd"
