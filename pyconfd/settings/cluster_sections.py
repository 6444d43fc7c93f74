"""The sections of the presets that take their template from the cluster, and what such a template may do."""

from dataclasses import dataclass
from typing import Annotated

from pyconfd.settings.kinds import Boolean, Count, Listing, Seconds, Text, matching
from pyconfd.settings.setting import Setting

_OBJECT_NAME = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_NAME = Text(what="the name of an object", pattern=_OBJECT_NAME, optional=False)
_LABEL = matching(r"[A-Za-z0-9._/-]+=[A-Za-z0-9._-]*", "a label and its value, like app=haproxy")
_ENV_NAME = matching(r"[A-Za-z_][A-Za-z0-9_]*", "the name of an environment variable")


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


@dataclass(frozen=True, slots=True)
class ConfigmapSettings:
    """``[configmap]``: the preset of kubernetes-haproxy's ConfigMaps; the password is read from STATISTICS_PASSWORD."""

    namespace: Annotated[
        str,
        Setting(
            "namespace of the ConfigMaps and of the Secret",
            Text("the name of a namespace", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", optional=False),
        ),
    ] = "lb"
    services: Annotated[str, Setting("ConfigMap with a JSON object for each service", _NAME)] = "services"
    certificates: Annotated[str, Setting("ConfigMap with the certificates", _NAME)] = "certificates"
    keys: Annotated[str, Setting("Secret with the keys of these certificates", _NAME)] = "keys"
    config: Annotated[str, Setting("ConfigMap with the template", _NAME)] = "config"
    template_key: Annotated[
        str,
        Setting(
            "key of the template in its ConfigMap", Text("a key of a ConfigMap", r"[A-Za-z0-9._-]+", optional=False)
        ),
    ] = "template"
    env: Annotated[
        tuple[str, ...],
        Setting(
            "environment variables that templates see as env.NAME", Listing(_ENV_NAME, metavar="NAME,..."), empty="none"
        ),
    ] = ()
    ignored_fields: Annotated[
        tuple[str, ...],
        Setting(
            "fields of a service's JSON that are left out, since they hold text for people",
            Listing(matching(r"[A-Za-z0-9._-]+", "the name of a field"), metavar="NAME,..."),
            empty="none",
        ),
    ] = ("comment", "comments", "description", "note", "notes")


@dataclass(frozen=True, slots=True)
class HostsSettings:
    """``[hosts]``: the preset of ads-infra-haproxy's pods and annotations."""

    master: Annotated[
        str,
        Setting(
            "targets are the pods whose annotation kontrol.unity3d.com/master names this",
            Text("the name of a balancer, like haproxy.default.svc", r"[A-Za-z0-9._-]+"),
            empty="none",
        ),
    ] = ""
    selector: Annotated[
        tuple[str, ...],
        Setting("targets are the pods with all these labels", Listing(_LABEL, metavar="LABEL=VALUE,..."), empty="none"),
    ] = ()
    config: Annotated[
        str,
        Setting(
            "object with the annotations haproxy.unity3d.com/config and route53: KIND/NAMESPACE/NAME, the kind is"
            " pod, deployment or service",
            Text(
                "KIND/NAMESPACE/NAME, like deployment/default/haproxy",
                rf"(?i:pod|deployment|service)/[a-z0-9]([-a-z0-9]{{0,61}}[a-z0-9])?/{_OBJECT_NAME}",
            ),
            empty="none: the fragments hold the configuration",
        ),
    ] = ""
    own_app: Annotated[
        str,
        Setting(
            "label app of the balancers themselves, who are no targets",
            Text("a label's value", r"[A-Za-z0-9._-]+"),
            empty="that of the object that config names",
        ),
    ] = ""
    damper_s: Annotated[
        float, Setting("least quiet time before a change is applied, as KONTROL_DAMPER", Seconds(above=False))
    ] = 0.0


@dataclass(frozen=True, slots=True)
class ClusterTemplateSettings:
    """``[cluster_templates]``: templates that come from a ConfigMap or an annotation, never trusted."""

    allow_configuration_from_cluster: Annotated[
        bool,
        Setting(
            "render the template that the cluster supplies (presets configmap and hosts): whoever may write that object"
            " is then trusted as much as whoever writes fragments",
            Boolean(),
        ),
    ] = False
    allow: Annotated[
        tuple[str, ...],
        Setting(
            "directives beyond the list that such a template may use, as a refusal names them",
            Listing(_single_spaced, metavar="NAME;...", separators=r";", joiner=";"),
            empty="none",
        ),
    ] = ()
    directories: Annotated[
        tuple[str, ...],
        Setting(
            "directories whose files such a template may name, beside those of pyconfd",
            Listing(matching(r"/[A-Za-z0-9._/@+=-]+", "an absolute path"), metavar="PATH,..."),
            empty="none",
        ),
    ] = ()
    timeout_s: Annotated[
        float, Setting("longest time that a rendering may take, and processor time it may use", Seconds())
    ] = 5.0
    memory_bytes: Annotated[
        int, Setting("memory that the rendering process may use", Count(64 * 1024 * 1024, 64 * 1024**3))
    ] = 512 * 1024 * 1024
    output_bytes: Annotated[int, Setting("longest text that a template may give", Count(1024, 1024**3))] = (
        16 * 1024 * 1024
    )
