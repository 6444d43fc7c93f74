"""One typed tree of settings: flag > environment > file > default; all that is known of them stands in the tree."""

from pyconfd.settings.etcd import EtcdSettings
from pyconfd.settings.kube2lb import Kube2lbSettings, SingleTargetSettings
from pyconfd.settings.resolve import Resolved, resolve, resolve_again
from pyconfd.settings.sources import Origin, Source
from pyconfd.settings.targets import TargetSettings
from pyconfd.settings.tree import (
    ApplySettings,
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
    TotalLoss,
    UndefinedMode,
)

__all__ = [
    "ApplySettings",
    "BackendTarget",
    "Enabled",
    "EtcdSettings",
    "HaproxySettings",
    "Kube2lbSettings",
    "KubefiguratorSettings",
    "KubernetesSettings",
    "LogSettings",
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
    "resolve",
    "resolve_again",
]
