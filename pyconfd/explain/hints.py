"""Says what would make an object be served that asks for nothing. Pure."""

import difflib
from collections.abc import Iterator

from pyconfd.explain.evidence import Evidence
from pyconfd.model.preset import PresetName
from pyconfd.model.snapshot import Key
from pyconfd.presets import domains, hosts, kubefigurator_claims, values

_ANNOTATIONS = ("domain", "proto", f"{domains.PREFIX}domain", f"{domains.PREFIX}proto")


def hints_for(key: Key, evidence: Evidence) -> tuple[str, ...]:
    """Return a sentence for each preset, those about what was probably meant first."""
    needed = (_needed(preset, evidence) for preset in evidence.presets)
    return (*_never(key, evidence), *slips(key, evidence), *needed)


def _never(key: Key, evidence: Evidence) -> Iterator[str]:
    """Return why nothing could be served of it as it is."""
    service = evidence.snapshot.services.get(key)
    if service is None:
        return
    protocols = {port.protocol or "TCP" for port in service.spec.ports or ()}
    if service.spec.type == "ExternalName":
        yield domains.EXTERNAL_NAME
    elif protocols and "TCP" not in protocols:
        yield domains.NO_TCP


def slips(key: Key, evidence: Evidence) -> Iterator[str]:
    """Return what of an object has no effect, though something else was probably meant by it."""
    service = evidence.snapshot.services.get(key)
    annotations = (service.metadata.annotations or {}) if service is not None else {}
    labels = (service.metadata.labels or {}) if service is not None else {}
    for name in sorted(annotations):
        close = difflib.get_close_matches(name.lower(), _ANNOTATIONS, n=1, cutoff=0.75)
        if PresetName.DOMAINS in evidence.presets and close and name not in _ANNOTATIONS:
            yield f"its annotation {values.shown(name)} has no effect: did you mean {close[0]}?"
    value = labels.get(kubefigurator_claims.LABEL)
    if PresetName.KUBEFIGURATOR in evidence.presets and value is not None:
        yield f"its label {kubefigurator_claims.LABEL} is {values.shown(value)!r}: only 'yes' counts"
    if any(name in labels for name in ("domain", "proto")):
        yield "domain and proto are labels of it: they have to be annotations"


def _needed(preset: str, evidence: Evidence) -> str:
    match PresetName(preset):
        case PresetName.DOMAINS:
            return "annotate the Service with domain and proto (preset domains)"
        case PresetName.KUBEFIGURATOR:
            return f"label the Service {kubefigurator_claims.LABEL}=yes (preset kubefigurator)"
        case PresetName.KUBE2LB:
            return "give the Service the type NodePort or LoadBalancer (preset kube2lb)"
        case PresetName.CONFIGMAP:
            own = evidence.options.configmap
            return f"enter it into the ConfigMap {own.namespace}/{own.services} (preset configmap)"
        case PresetName.HOSTS:
            own_hosts = evidence.options.hosts
            mark = (
                f"the annotation {hosts.MASTER} with {own_hosts.master}"
                if own_hosts.master
                else "the labels of hosts.selector"
            )
            return f"give its pods {mark}, and the label {hosts.APP} (preset hosts)"
