"""One typed tree of settings: flag > environment > file > default; all that is known of them stands in the tree."""

from pyconfd.settings.resolve import Resolved, resolve, resolve_again
from pyconfd.settings.sources import Origin, Source
from pyconfd.settings.targets import TargetSettings
from pyconfd.settings.tree import (
    ApplySettings,
    BackendTarget,
    Enabled,
    HaproxySettings,
    Kube2lbSettings,
    KubernetesSettings,
    LogSettings,
    PresetSettings,
    ReadMode,
    ReloadMethod,
    Settings,
    SingleTargetSettings,
    StatusSettings,
    TemplateSettings,
    TotalLoss,
    UndefinedMode,
)

__all__ = [
    "ApplySettings",
    "BackendTarget",
    "Enabled",
    "HaproxySettings",
    "Kube2lbSettings",
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
