"""Judges whether one object of one tenant changes what others have, and whether what it leads to is bounded.

Each step renders the same cluster with and without an object of a namespace that nobody else names. What is written
for the others has to be the same text, and their requests the same answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from json import dumps
from pathlib import Path
from random import Random
from typing import Any

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.object_status import ObjectKey, ObjectStatus
from pyconfd.model.reservation import Name
from pyconfd.model.snapshot import Resource
from pyconfd.presets.addresses import RESERVED
from tests.fragments.shipped import HAPROXY
from tests.fuzz.clusters import (
    ANY_HOST,
    EXPRESSIONS,
    HOSTS,
    INTRUDER,
    MAKERS,
    PATHS,
    POOL,
    SHARED_ADDRESS,
    Document,
    Maker,
    Slot,
    listeners_at,
    made_of,
)
from tests.fuzz.haproxy_model import Answer, Config, Request, Section, chosen, is_inner, route, shared_tls
from tests.fuzz.ownership import ASKED_HOSTS, KEEP_S, PRESETS, Seen, Story, asked_for, wildcards_above

STEPS = 20
PER_NAMESPACE = 1
"""How many addresses of the pool a namespace may have."""
MOST_BYTES = 16_384
BYTES_FOR_EACH = 40
"""How much may be written for an object: so many bytes, and so many for each of its own."""
SLOW = (".*a.{1,64}b",) * 24
_SHARED = frozenset({"", "global", "http-in", "https-in", "https-terminate"})
"""The sections that all share: what they do is seen by requests."""
NO_ANSWER = Answer(frozenset(), frozenset())
_OWN = ("web", "s0")
_ROUTES = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"})
_PLURALS = frozenset(f"{kind.lower()}s" for kind in _ROUTES)
MANY = "many"
"""The name of objects that are as large as they may be; their paths are nobody else's."""


def _many_hosts(rng: Random, namespace: str, name: str) -> Document:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": f"/{number}", "pathType": "Prefix", "backend": backend} for number in range(10)]
    rules = [{"host": f"h{number}.{rng.choice(HOSTS[:2])}", "http": {"paths": paths}} for number in range(40)]
    tls = [{"secretName": "s0", "hosts": [rule["host"] for rule in rules]}]
    return {"metadata": {"annotations": {}}, "spec": {"ingressClassName": "pyconfd", "rules": rules, "tls": tls}}


def _all_hosts(rng: Random, namespace: str, name: str) -> Document:
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": path, "pathType": "Prefix", "backend": backend} for path in PATHS]
    rules = [{"host": host, "http": {"paths": paths}} for host in (*HOSTS, "")]
    return {
        "metadata": {"annotations": {"pyconfd.io/hsts": "31536000"}},
        "spec": {"ingressClassName": "pyconfd", "rules": rules, "tls": [{"secretName": "s0", "hosts": [*HOSTS]}]},
    }


def _many_listeners(rng: Random, namespace: str, name: str) -> Document:
    listeners = [
        {"name": f"l{number}", "port": 443, "protocol": "HTTPS", "hostname": f"h{number}.x.test",
         "tls": {"mode": "Terminate", "certificateRefs": [{"name": "s0"}]}}
        for number in range(64)
    ]  # fmt: skip
    address = {"type": "IPAddress", "value": rng.choice((*POOL, "192.0.2.99"))}
    return {
        "metadata": {"annotations": {}},
        "spec": {"gatewayClassName": "pyconfd", "listeners": listeners, "addresses": [address]},
    }


def _all_addresses(rng: Random, namespace: str, name: str) -> Document:
    made = MAKERS["Service", "l0"](rng, namespace, name)
    made["metadata"]["annotations"]["pyconfd.io/addresses"] = ",".join(rng.sample(POOL, len(POOL)))
    made["spec"]["loadBalancerClass"] = "pyconfd.io/lb"
    return made


def _open_gateway(rng: Random, namespace: str, name: str) -> Document:
    listener = {"name": "l0", "port": 80, "protocol": "HTTP", "allowedRoutes": {"namespaces": {"from": "All"}}}
    return {"metadata": {"annotations": {}}, "spec": {"gatewayClassName": "pyconfd", "listeners": [listener]}}


def _expression(rng: Random, namespace: str, name: str) -> Document:
    match = {"path": {"type": "RegularExpression", "value": EXPRESSIONS[0]}}
    rules = [{"matches": [match], "backendRefs": [{"name": "web", "port": 80}]}]
    return {"metadata": {"annotations": {}}, "spec": {"parentRefs": [{"name": "g0"}], "rules": rules}}


def _slow_expressions(parents: list[Slot], rng: Random, namespace: str, name: str) -> Document:
    """Return a route whose expressions use up all that a namespace may have at a listener, and more."""
    parent = {"name": "g0", "namespace": rng.choice(parents)[1] if parents else namespace}
    values = [*SLOW, *(f".*a.{{1,{most}}}b" for most in range(60, 0, -4)), *["a.*"] * 60, *["a+", "a"] * 3]
    slow = [{"path": {"type": "RegularExpression", "value": f"/{at}/{value}"}} for at, value in enumerate(values)]
    rules = [{"matches": [each], "backendRefs": [{"name": "web", "port": 80}]} for each in slow]
    return {"metadata": {"annotations": {}}, "spec": {"parentRefs": [parent], "rules": rules}}


@dataclass(slots=True)
class Neighbours:
    """A number of steps of one cluster, beside which an object is added at each. Deterministic, as a Story is."""

    seed: int
    number: int
    folder: str = "/f"
    story: Story = field(init=False)
    rng: Random = field(init=False)
    slot: Slot = ("", "", "")
    last: Seen | None = None

    def __post_init__(self) -> None:
        """Begin with a cluster, and what the added objects name."""
        self.story = Story(self.seed, self.number, self.folder, per_namespace=PER_NAMESPACE)
        self.rng = Random(f"neighbours/{self.seed}/{self.number}")
        objects = self.story.cluster.objects
        for (kind, name), maker in MAKERS.items():
            if name in _OWN:
                slot = kind, INTRUDER, name
                objects[slot] = made_of(self.rng, slot, maker)
        for slot, maker in ((("Gateway", "a", "g0"), _open_gateway), (("HTTPRoute", "a", "h0"), _expression)):
            objects[slot] = made_of(self.rng, slot, maker)

    def run(self, steps: int = STEPS) -> Iterator[str]:
        """Return what is wrong after each step."""
        for _ in range(steps):
            self.story.advance()
            alone = self._read(self.story.cluster.objects)
            absent = frozenset(self.rng.sample(POOL, self.rng.choice((1, 1, 2))))
            name = self.story.name
            yield from (f"{name}, without {sorted(absent)}: {what}" for what in self._without(alone, absent))
            self.slot, document = self._added()
            yield from (f"{name}, with {'/'.join(self.slot)}: {what}" for what in self._beside(alone, document))

    def _added(self) -> tuple[Slot, Document]:
        rng, objects = self.rng, self.story.cluster.objects
        open_ones = [
            slot
            for slot, gateway in objects.items()
            if slot[0] == "Gateway" and any(map(_lets_all_in, gateway["spec"]["listeners"]))
        ]
        with_expressions = {
            parent.get("namespace", slot[1])
            for slot, document in objects.items()
            if slot[0] == "HTTPRoute" and "RegularExpression" in str(document["spec"])
            for parent in document["spec"]["parentRefs"]
        }
        open_ones = [slot for slot in open_ones if slot[1] in with_expressions] or open_ones
        many: Mapping[tuple[str, str], Maker] = {
            ("Ingress", MANY): _many_hosts,
            ("Ingress", "all"): _all_hosts,
            ("Gateway", MANY): _many_listeners,
            ("Service", MANY): _all_addresses,
            ("HTTPRoute", MANY): partial(_slow_expressions, open_ones),
        }
        usual = {each: maker for each, maker in MAKERS.items() if each[1] not in _OWN}
        kind, name = rng.choice([*usual, *many, *many, *[("HTTPRoute", MANY)] * 3])
        slot = kind, INTRUDER, name
        made = made_of(rng, slot, {**usual, **many}[kind, name], rng.choice(("2025-01-01T00:00:00Z", "")))
        return slot, made

    def _read(self, objects: Mapping[Slot, Document], absent: frozenset[str] = frozenset()) -> Seen:
        story = self.story
        cluster = copy(story.cluster)
        cluster.objects = dict(objects)
        names = FormerNames(story.register, cluster.now, KEEP_S)
        return story.rendered(Translator(PRESETS, story.options, None, names).translate(cluster.snapshot(absent)))

    def _without(self, alone: Seen, absent: frozenset[str]) -> Iterator[str]:
        """Judge the same cluster on a host that has not all addresses of the pool."""
        seen = self._read(self.story.cluster.objects, absent)
        names: Mapping[Name, Any] = alone.context.reserved.get(RESERVED, {})
        losers = {owner[1:3] for name, owner in names.items() if any(_is_at(name.place, each) for each in absent)}
        after = _statuses(seen)
        for of, status in _statuses(alone).items():
            if of.resource.value in {"gateways", "services"} and of.key not in losers and after.get(of) != status:
                yield f"the status of {of.resource} {of.key.namespace}/{of.key.name} is another one"
        for section in alone.config.sections:
            owner = _owner_of(section)
            if owner not in losers and section not in seen.config.sections and section.name not in _SHARED:
                yield f"{section.header} of {owner} is another one"
        for section, binds in seen.config.frontends:
            for bind in binds:
                if bind.address.strip("[]") in absent and "transparent" not in bind.words:
                    yield f"{section.name} cannot be started with: {bind}"

    def _beside(self, alone: Seen, document: Document) -> Iterator[str]:
        objects = {**self.story.cluster.objects, self.slot: document}
        seen = self.last = self._read(objects)
        guests = self._guests(document)
        yield from self._sections(alone.config, seen.config, guests, document)
        yield from self._statuses(alone, seen, guests, document)
        yield from self._answers(alone.config, seen.config, document)
        own = {each for each in POOL if any(_is_at(name.place, each) for name in _given(seen))}
        if len(own) > PER_NAMESPACE:
            yield f"it has {len(own)} addresses of the pool"
        before, after, size = _size(alone), _size(seen), len(dumps(document))
        if after - before > MOST_BYTES + BYTES_FOR_EACH * size:
            yield f"{after - before} bytes are written for its {size}"

    def _guests(self, document: Document) -> frozenset[str]:
        """Return the namespaces that add paths to a host by a consent that this object has too: age decides there."""
        hosts = self.story.hosts
        return frozenset(
            each.namespace
            for host, _ in asked_for(self.slot, document)
            if INTRUDER in hosts.consents(host)
            for each in hosts.asking.get(host, ())
            if each.namespace != hosts.owner(host)
        )

    def _sections(self, alone: Config, seen: Config, guests: frozenset[str], document: Document) -> Iterator[str]:
        there = {section.header: section for section in seen.sections}
        for section in alone.sections:
            # With the first certificate https-terminate takes the place of https-in, or the other way round.
            if section.name in _SHARED and (section.header in there or shared_tls(seen) is not None):
                continue
            if there.get(section.header) == section or _is_of_questions(section):
                continue
            # A profile goes with the last section that is from it.
            users = [each.name for each in alone.sections if each.header[2:] == ("from", section.name)] or [
                section.name
            ]
            if all(name.startswith(tuple(f"ing_{each}_" for each in guests)) for name in users):
                continue
            if self.slot[0] in _ROUTES and section.name.startswith("gw_") and self._is_open(section):
                continue  # its conditions stand there; the lines of the others are compared
            if self.slot[0] == "ListenerSet" and self._has_more_listeners(section, document):
                continue
            yield f"{section.header} is another one"
        for section in alone.sections:
            if self.slot[0] in _ROUTES and self.slot[2] == MANY and section.header in there:
                lost = [line for line in section.lines if line not in there[section.header].lines]
                if lost and section.name not in _SHARED:
                    yield f"{section.header} has no longer {lost}"

    def _has_more_listeners(self, section: Section, document: Document) -> bool:
        """Return whether a section is one of the Gateway that the added ListenerSet names."""
        parent = document["spec"]["parentRef"]
        return section.name.startswith(f"gw_{parent['namespace']}_{parent['name']}_")

    def _is_open(self, section: Section) -> bool:
        """Return whether a section is one of a port with a listener that lets the namespace in, or is its own."""
        _, namespace, name, port = section.name.partition(".")[0].partition(":")[0].split("_")[:4]
        objects = self.story.cluster.objects
        return ("Gateway", namespace, name) in objects and any(
            str(each["port"]) == port and (of[1] == INTRUDER or _lets_all_in(each))
            for of, _, each in listeners_at(objects, namespace, name)
        )

    def _statuses(self, alone: Seen, seen: Seen, guests: frozenset[str], document: Document) -> Iterator[str]:
        before, after = _statuses(alone), _statuses(seen)
        # Listeners of other sets no longer overlap with one that has lost its host.
        has_first = self.slot[0] in _ROUTES and any(self._lost_by_age(before, after, document))
        for of, status in before.items():
            # It counts routes, and a policy lists the Gateways that lead to its Service.
            counts = of.resource.value in {"gateways", "backendtlspolicies"} and self.slot[0] in _ROUTES
            # Of equal matches of guests the older one wins, as the Gateway API has it.
            counts = counts or (of.resource.value in _PLURALS and self.slot[0] in _ROUTES and self.slot[2] != MANY)
            counts = counts or (of.resource.value == "ingresses" and of.key.namespace in guests)
            # A Gateway counts them, an older one comes before others, and names say which overlap.
            counts = counts or (of.resource.value in {"gateways", "listenersets"} and self.slot[0] == "ListenerSet")
            counts = counts or (of.resource.value == "listenersets" and has_first)
            if of.key.namespace != INTRUDER and not counts and _had(of, status) != _had(of, after.get(of)):
                yield f"the status of {of.resource} {of.key.namespace}/{of.key.name} is another one"

    def _lost_by_age(
        self, before: Mapping[ObjectKey, ObjectStatus], after: Mapping[ObjectKey, ObjectStatus], document: Document
    ) -> Iterator[bool]:
        """Return for each ListenerSet whether it lost a host that the added, older route names at the Gateway."""
        for of, status in before.items():
            owner = self.story.cluster.objects.get(("ListenerSet", *of.key))
            if of.resource is Resource.LISTENERSETS and owner is not None and of in after:
                is_younger = owner["metadata"]["creationTimestamp"] >= document["metadata"]["creationTimestamp"]
                yield is_younger and bool(_conflicting(after[of]) - _conflicting(status))

    def _answers(self, alone: Config, seen: Config, document: Document) -> Iterator[str]:
        hosts = self.story.hosts
        asked = {host for host, _ in asked_for(self.slot, document) if host not in hosts.holders}
        for name in ASKED_HOSTS:
            deciding = list(hosts.deciding(name))
            if not deciding or asked & {name, *wildcards_above(name), ANY_HOST}:
                continue
            if any(INTRUDER in hosts.consents(host) for host in deciding):
                continue
            for port in (80, 443):
                for path in PATHS:
                    request = Request(SHARED_ADDRESS, port, name, path)
                    before, after = _answer(alone, request), _answer(seen, request)
                    if before != after:
                        yield f"{name}:{port}{path} gets {after} instead of {before}"


def _answer(config: Config, request: Request) -> Answer:
    """Return who answers a request; without a certificate there is no connection that ends here."""
    found = route(config, request)
    entry = shared_tls(config)
    if request.port != 443 or entry is None or found.certificates:
        return found
    goes_through = entry.name == "https-in" and chosen(config, entry, request).startswith("be-")
    return found if goes_through else NO_ANSWER


def _had(of: ObjectKey, status: ObjectStatus | None) -> object:
    """Return what a status says that an object has: where an address is lacking, the reason may be another one."""
    if status is None or of.resource.value not in {"services", "gateways"}:
        return status
    return status if status.body.get("addresses") else status.body.get("loadBalancer")


def _is_of_questions(section: Section) -> bool:
    """Return whether all who ask share a section: it comes and goes with them, and an older guest may end that."""
    return is_inner(section) or section.name in {"auth-questions", "auth-service"}


def _conflicting(status: ObjectStatus) -> set[str]:
    """Return the names of listeners whose host somebody else has."""
    return {
        each["name"]
        for each in status.body["listeners"]
        if any(of["type"] == "Conflicted" and of["reason"] == "HostnameConflict" for of in each["conditions"])
    }


def _statuses(seen: Seen) -> dict[ObjectKey, ObjectStatus]:
    return {of: status for each in seen.context.statuses for of, status in each.items()}


def _given(seen: Seen) -> dict[Name, Any]:
    found: Mapping[Name, Any] = seen.context.reserved.get(RESERVED, {})
    return {name: owner for name, owner in found.items() if owner[1] == INTRUDER}


def _is_at(place: str, address: str) -> bool:
    return place == address or place.rpartition(":")[0].strip("[]") == address


def _lets_all_in(listener: Document) -> bool:
    return bool(listener.get("allowedRoutes", {}).get("namespaces", {}).get("from") == "All")


def _owner_of(section: Section) -> tuple[str, str]:
    """Return namespace and name of the object that a section was made for at an address of the pool."""
    name = section.name.removeprefix("fe-")
    if name.startswith("lb-"):
        namespace, _, rest = name.removeprefix("lb-").replace("lb-", "", 1).partition(":")
        return namespace, rest.partition(":")[0]
    parts = name.partition(":")[0].split("_")
    return (parts[1], parts[2]) if parts[0] == "gw" and len(parts) > 3 else ("", "")


def _size(seen: Seen) -> int:
    return len(seen.rendering.text) + sum(len(file.content) for file in seen.rendering.files)


def run(seed: int, numbers: Iterable[int], folder: str = "/f") -> Iterator[str]:
    """Return the findings of these clusters; what is raised is one.

    With a ``folder`` that is there, HAProxy checks the configuration after the last step.
    """
    for number in numbers:
        case = Neighbours(seed, number, folder)
        try:
            yield from case.run()
            if HAPROXY and Path(folder).is_dir() and case.last is not None:
                yield from (f"{case.story.name}: {line}" for line in case.story.checked(case.last))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield f"{case.story.name}: {type(error).__name__}: {error}"
