"""Settings: flag > environment > file > default, checked at once, documented from their declarations.

``setting.py`` says how one is declared, ``values.py`` has the types, ``sections.py`` the tree (with ``dns.py``,
``vip.py`` and ``predecessors.py``), ``table.py`` all settings by path, ``resolve.py`` the sources and their order,
``checks.py`` what must hold between settings, ``show.py`` the list, the file and the reference for people.
"""

from pyconfd.settings.checks import SettingOrigin, SettingSource
from pyconfd.settings.dns import AddressSource, DnsSettings, Mode, NameSettings, name_of, names_of
from pyconfd.settings.predecessors import (
    EtcdSettings,
    KubefiguratorSettings,
    SingleTargetSettings,
    TargetSettings,
)
from pyconfd.settings.resolve import Resolved, overlaid, resolve, resolve_again
from pyconfd.settings.sections import (
    ApplySettings,
    ClaimSettings,
    ClusterStatusSettings,
    Enabled,
    HaproxySettings,
    HistorySettings,
    KubernetesSettings,
    PresetSettings,
    ReadMode,
    ReloadMethod,
    Settings,
    StatusSettings,
    TemplateSettings,
    TotalLoss,
    UndefinedMode,
)
from pyconfd.settings.values import BackendTarget, dns_name

__all__ = [
    "AddressSource",
    "ApplySettings",
    "BackendTarget",
    "ClaimSettings",
    "ClusterStatusSettings",
    "DnsSettings",
    "Enabled",
    "EtcdSettings",
    "HaproxySettings",
    "HistorySettings",
    "KubefiguratorSettings",
    "KubernetesSettings",
    "Mode",
    "NameSettings",
    "PresetSettings",
    "ReadMode",
    "ReloadMethod",
    "Resolved",
    "SettingOrigin",
    "SettingSource",
    "Settings",
    "SingleTargetSettings",
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
