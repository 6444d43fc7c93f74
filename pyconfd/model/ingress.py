"""The parts of Ingress and IngressClass that pyconfd uses. Source: the API reference, networking.k8s.io/v1."""

from pyconfd.model.records import ObjectMeta, Record, Status


class IngressServicePort(Record, frozen=True, gc=False):
    """Either the name or the number of a port of the Service."""

    name: str = ""
    number: int = 0


class IngressServiceBackend(Record, frozen=True, gc=False):
    """A Service in the namespace of the Ingress."""

    name: str = ""
    port: IngressServicePort = IngressServicePort()


class LocalObjectReference(Record, frozen=True, gc=False):
    """An object in the namespace of the one that names it; ``group`` is "" for core and may be missing."""

    group: str = ""
    kind: str = ""
    name: str = ""


class IngressBackend(Record, frozen=True, gc=False):
    """One of both."""

    service: IngressServiceBackend | None = None
    resource: LocalObjectReference | None = None


class IngressPath(Record, frozen=True, gc=False):
    """``path_type`` is Exact, Prefix or ImplementationSpecific."""

    path: str = ""
    path_type: str = "ImplementationSpecific"
    backend: IngressBackend = IngressBackend()


class IngressHttp(Record, frozen=True, gc=False):
    """The paths of one rule."""

    paths: tuple[IngressPath, ...] = ()


class IngressRule(Record, frozen=True, gc=False):
    """``host`` "" is any host; without ``http`` everything for the host goes to the default backend."""

    host: str = ""
    http: IngressHttp | None = None


class IngressTls(Record, frozen=True, gc=False):
    """``secret_name`` "" is the default certificate; without ``hosts`` the certificate's own names count."""

    hosts: tuple[str, ...] | None = None
    secret_name: str = ""


class IngressSpec(Record, frozen=True, gc=False):
    """What an Ingress asks for; ``ingress_class_name`` None is the default class."""

    ingress_class_name: str | None = None
    default_backend: IngressBackend | None = None
    tls: tuple[IngressTls, ...] | None = None
    rules: tuple[IngressRule, ...] | None = None


class Ingress(Record, frozen=True, gc=False):
    """An Ingress of networking.k8s.io/v1."""

    metadata: ObjectMeta
    spec: IngressSpec = IngressSpec()
    status: Status | None = None


class IngressClassSpec(Record, frozen=True, gc=False):
    """``controller`` says who serves Ingresses of this class."""

    controller: str = ""


class IngressClass(Record, frozen=True, gc=False):
    """An IngressClass; its annotation ``ingressclass.kubernetes.io/is-default-class`` makes it the default."""

    metadata: ObjectMeta
    spec: IngressClassSpec = IngressClassSpec()
