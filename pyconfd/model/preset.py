"""The presets' names: what the settings accept and what the registry has a reading for."""

from enum import StrEnum


class PresetName(StrEnum):
    """One way of reading a Snapshot; each is the annotations of one predecessor."""

    DOMAINS = "domains"
    KUBEFIGURATOR = "kubefigurator"
    KUBE2LB = "kube2lb"
    CONFIGMAP = "configmap"
    HOSTS = "hosts"
