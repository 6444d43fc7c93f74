"""What external authentication asks: backends with the pods of Services, and why some lead nowhere.

They are made of what the rules of all presets ask for. Objects of a namespace that name the same port of a Service
share a backend, which the script of HAProxy reaches by a frontend of its own. One of another namespace is asked where a
ReferenceGrant there allows it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from pyconfd.derived import Collection, Derived, Grouped, Joined, Published, Read, SameParts, Tally
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.gateway_api import ReferenceGrant
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.rendering import OutputFile
from pyconfd.model.snapshot import KIND_OF, Key
from pyconfd.model.versioned import GivenDict
from pyconfd.presets import values
from pyconfd.presets.cluster import NO_SERVICE
from pyconfd.presets.gateway.grants import Grants, ReferenceTarget, Referrer
from pyconfd.presets.host_ownership import ANY_HOST, wildcards_above
from pyconfd.presets.objects import Objects
from pyconfd.presets.policies.attached import GROUP_OF
from pyconfd.presets.policies.external_auth import AuthService
from pyconfd.presets.policies.external_auth_script import script_file
from pyconfd.presets.policies.words import KINDS
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.refusals import JoinedRefusals
from pyconfd.presets.routing.references import ServiceReference, Unresolved, UnresolvedReference, resolve
from pyconfd.presets.routing.types import RouteBackend
from pyconfd.presets.rule_backends import RuleBackends, RuleSection
from pyconfd.presets.views import PortAt

_BY_HOST = "host"
_GROUPS = {KIND_OF[resource]: group for resource, group in GROUP_OF.items() if KIND_OF[resource] in KINDS}
"""Of who may have a service asked."""


_NO_GRANTS = UnresolvedReference(
    Unresolved.NOT_PERMITTED,
    "a Service of another namespace needs a ReferenceGrant, which the preset gateway reads: add gateway to presets.use",
)


class AuthTarget(NamedTuple):
    """A port of a Service that is asked, and why it cannot be."""

    port: PortAt | None = None
    fault: UnresolvedReference | None = None


class AuthServices:
    """What external authentication of all objects asks."""

    def __init__(
        self,
        objects: Objects,
        rules: Sequence[RuleBackends],
        shared: Collection[str, Any],
        hosts: Sequence[Collection[tuple[str, str], int]],
    ) -> None:
        """Begin with the ``rules`` of all presets, and the hosts of shared frontends and of those of single presets."""
        self._objects, self._directory = objects, ""
        of_shared = Tally(shared, lambda host, _: ((("", host), 1),), "hosts of shared frontends")
        known = Joined[tuple[str, str], int](of_shared, *hosts, name="hosts of all frontends")
        self._hosts: Collection[tuple[bool, str], int] = Tally(
            known, lambda at, _: (((not at[0], at[1]), 1),), "hosts that can be asked"
        )
        sections = Joined[Any, RuleSection](*(each.sections for each in rules), name="sections that may ask")
        self._grants = Grouped(objects.grants, _namespace_of_grant, "grants of what is asked")
        named = Tally(sections, _services_of, "Services that are asked")
        self._targets = Derived(named, self._target, "targets of external authentication")
        self._kinds = Tally(sections, _kinds_of, "kinds of what is asked")
        backends = Derived(self._targets, self._backend, "backends of external authentication")
        refused = Derived(sections, self._refused, "faults of external authentication")
        self._backends = Published[str, RouteBackend](backends, key=lambda service: service.section)
        self._faults = JoinedRefusals(refused)
        self._given = SameParts[GivenDict]()

    def see(self, options: PresetOptions) -> None:
        """Record where the script is."""
        self._directory = options.tls.directory

    @property
    def refused(self) -> tuple[Refusal, ...]:
        """What cannot be asked, of each object that wants it to be."""
        return self._faults.all()

    @property
    def files(self) -> tuple[OutputFile, ...]:
        """The script, where something is asked."""
        return (script_file(self._directory),) if self._kinds.items else ()

    def given(self) -> Mapping[str, object]:
        """Return ``auth``: the backends of Services, whether hosts are asked, and the script, "" where nothing is."""
        backends, by_host, files = self._backends.mapping(), _BY_HOST in self._kinds.items, self.files
        path = files[0].path if files else ""
        return self._given.made(
            (backends, by_host, path), lambda: GivenDict(backends=backends, by_host=by_host, script=path)
        )

    def _target(self, read: Read, service: AuthService, _: int) -> AuthTarget:
        key = Key(service.namespace, service.name)
        seen = read(self._objects.declared, key) or NO_SERVICE
        by_namespace = read.view(self._grants)
        grants = Grants(by_namespace)
        target = ReferenceTarget("Service", *key)
        permitted = any(
            grants.permits(Referrer(kind, service.asking, group), target) for kind, group in _GROUPS.items()
        )
        reference = ServiceReference(service.namespace, service.name, service.port)
        if not permitted and not self._objects.reads_grants:
            return AuthTarget(fault=_NO_GRANTS)
        found = resolve(reference, seen.object, seen.view, permitted=permitted)
        if isinstance(found, UnresolvedReference) or seen.view is None:
            return AuthTarget(fault=found if isinstance(found, UnresolvedReference) else None)
        return AuthTarget(PortAt(key, seen.view.ports.index(found)))

    def _backend(self, read: Read, service: AuthService, target: AuthTarget) -> RouteBackend:
        """Return the backend; it has no servers where the Service cannot be asked, so that nobody is let in."""
        owner = f"Service {service.namespace}/{service.name}, port {service.port}, that {service.asking} asks"
        servers = self._objects.servers(read, target.port) if target.port is not None else ()
        return RouteBackend(service.section, owner, service.namespace, service.name, (), servers)

    def _refused(self, read: Read, _: object, section: RuleSection) -> tuple[Refusal, ...] | None:
        auth = section.backend.policy.external
        if auth.url is None:
            return None
        ref = ObjectRef(*section.owner[:3], self._objects.cluster)
        field = dict(section.backend.said).get("auth-url", "")
        if (service := auth.service) is None:
            if auth.url.host.startswith("$") or self._is_served(read, auth.url.host, ref.kind):
                return None
            detail = "nothing serves this host here: serve it, or name a Service; nobody is let in"
            return (Refusal(ref, field, values.shortened(auth.url.host), RefusalReason.INVALID_VALUE, detail),)
        target = read(self._targets, service)
        if target is None or target.fault is None:
            return None
        reason = RefusalReason.NO_SUCH_PORT if target.fault.port else RefusalReason.NO_SUCH_SERVICE
        shown = f"{service.namespace}/{service.name}:{service.port}"
        return (Refusal(ref, field, shown, reason, f"{target.fault.detail}; nobody is let in"),)

    def _is_served(self, read: Read, host: str, kind: str) -> bool:
        """Return whether an object has a host, or a wildcard above it, at frontends where objects of this kind are."""
        is_shared = kind == "Ingress"
        found = (host, *wildcards_above(host), ANY_HOST if is_shared else "")
        return any(read(self._hosts, (is_shared, each)) is not None for each in found)


def _namespace_of_grant(key: Key, _: ReferenceGrant) -> tuple[str]:
    return (key.namespace,)


def _services_of(_: object, section: RuleSection) -> Iterator[tuple[AuthService, int]]:
    if (service := section.backend.policy.external.service) is not None:
        yield service, 1


def _kinds_of(_: object, section: RuleSection) -> Iterator[tuple[str, int]]:
    if auth := section.backend.policy.external:
        yield "service" if auth.service is not None else _BY_HOST, 1
