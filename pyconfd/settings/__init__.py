"""One typed tree of settings: flag > environment > file > default; all that is known of them stands in the tree."""

from pyconfd.settings.apply import ApplySettings, TotalLoss
from pyconfd.settings.claims import ClaimSettings
from pyconfd.settings.dns import DnsSettings, name_of, names_of
from pyconfd.settings.dns_names import AddressSource, NameSettings, dns_name
from pyconfd.settings.etcd import EtcdSettings
from pyconfd.settings.events import EventSettings
from pyconfd.settings.guard import GuardSettings
from pyconfd.settings.history import HistorySettings
from pyconfd.settings.kube2lb import Kube2lbSettings, SingleTargetSettings
from pyconfd.settings.resolve import Resolved, overlaid, resolve, resolve_again
from pyconfd.settings.sources import Origin, Source
from pyconfd.settings.targets import TargetSettings
from pyconfd.settings.tree import (
    BackendTarget,
    Enabled,
    HaproxySettings,
    KubefiguratorSettings,
    KubernetesSettings,
    LogSettings,
    PresetSettings,
    ReadMode,
    ReloadMethod,
    Settings,
    StatusSettings,
    TemplateSettings,
    UndefinedMode,
)

__all__ = [
    "AddressSource",
    "ApplySettings",
    "BackendTarget",
    "ClaimSettings",
    "DnsSettings",
    "Enabled",
    "EtcdSettings",
    "EventSettings",
    "GuardSettings",
    "HaproxySettings",
    "HistorySettings",
    "Kube2lbSettings",
    "KubefiguratorSettings",
    "KubernetesSettings",
    "LogSettings",
    "NameSettings",
    "Origin",
    "PresetSettings",
    "ReadMode",
    "ReloadMethod",
    "Resolved",
    "Settings",
    "SingleTargetSettings",
    "Source",
    "StatusSettings",
    "TargetSettings",
    "TemplateSettings",
    "TotalLoss",
    "UndefinedMode",
    "dns_name",
    "name_of",
    "names_of",
    "overlaid",
    "resolve",
    "resolve_again",
]
