"""Judges whether a host, a certificate or an address of the pool changes hands while namespaces want the same.

What the rules say is written down here once more, from the objects alone: who asks for a host, who was first, what was
given up. What is served is read off the configuration (:mod:`tests.fuzz.haproxy_model`).
"""

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import AUTOMATIC_PRESETS, Context
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import Name, NameRegister
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets.addresses import FIRST_OWNER, RESERVED, AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.host_ownership import SCOPE
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Renderer
from tests.fragments.shipped import HAPROXY, write_rendering
from tests.fuzz import edge
from tests.fuzz.clusters import (
    ANY_HOST,
    HOSTS,
    HSTS_OF,
    INTRUDER,
    NAMESPACES,
    OPERATOR,
    OWN_CLASSES,
    PATHS,
    POOL,
    SHARED_ADDRESS,
    Cluster,
    Document,
    Happened,
    Slot,
    listeners_at,
    namespace_of,
    renderer,
)
from tests.fuzz.haproxy_model import Config, Request, Section, is_inner, parse, route
from tests.fuzz.restrictions import Restrictions
from tests.fuzz.words import NGINX_CLASS

KEEP_S = 600.0
STEPS = 40
FRESH_EVERY = 8
"""After how many steps all is read again without the memory of former readings."""
OTHER_ORDER_EVERY = 4
"""After how many steps the setting of the pool has its addresses in the other order; what was given stays."""
PRESETS = tuple(str(each) for each in AUTOMATIC_PRESETS)
ASKED_HOSTS = (
    *(host for host in HOSTS if not host.startswith("*.")),
    "z.x.test",
    "z.b.x.test",
    "q.p.x.test",
    "other.test",
)
_KNOWN = frozenset((*HOSTS, ANY_HOST))
"""The hosts of which :class:`Hosts` says whose they are; what words name besides (server-alias) is not among them."""
EVERYBODY = frozenset((*NAMESPACES, INTRUDER))


class Asking(NamedTuple):
    """One object that asks for a host; the first in this order is the oldest."""

    created: str
    namespace: str
    name: str
    kind: str
    shared_with: frozenset[str]
    has_tls: bool
    is_http: bool


@dataclass(slots=True)
class Holder:
    """The namespace that has a host; ``until`` is when it is free, None while an object of it asks."""

    namespace: str
    until: float | None = None


def asked_for(slot: Slot, document: Document) -> Iterator[tuple[str, Asking]]:
    """Return the hosts of the shared frontends that an object asks for."""
    kind, namespace, name = slot
    annotations: Mapping[str, str] = document["metadata"].get("annotations", {})
    consent = annotations.get("pyconfd.io/shared-with", "")
    shared = EVERYBODY if consent == "*" else frozenset({consent}) & EVERYBODY

    def asking(*, has_tls: bool) -> Asking:
        is_http = annotations.get("pyconfd.io/proto", "http") == "http"
        return Asking(document["metadata"]["creationTimestamp"], namespace, name, kind, shared, has_tls, is_http)

    if kind == "Service" and (domain := annotations.get("pyconfd.io/domain", "")) and " " not in domain:
        yield domain.lower().rstrip("."), asking(has_tls="pyconfd.io/tls-secret" in annotations)
    if kind == "Ingress" and document["spec"]["ingressClassName"] in OWN_CLASSES and not is_canary(annotations):
        spec = document["spec"]
        hosts = [rule["host"] for rule in spec["rules"]] or ([""] if "defaultBackend" in spec else [])
        for host in hosts:
            has_tls = any(not item["hosts"] or host in item["hosts"] for item in spec.get("tls", ()))
            yield host or ANY_HOST, asking(has_tls=has_tls)


def is_canary(annotations: Mapping[str, str]) -> bool:
    """Return whether an Ingress may be a canary, which has no host of its own."""
    return any(each.endswith("/canary") and text.strip().lower() != "false" for each, text in annotations.items())


@dataclass(slots=True)
class Hosts:
    """Who has which host by the rule: the oldest at first, and then the same namespace until it gives the host up."""

    shared_hosts: frozenset[str] = frozenset()
    holders: dict[str, Holder] = field(default_factory=dict)
    asking: dict[str, list[Asking]] = field(default_factory=dict)

    def update(self, cluster: Cluster, register: NameRegister) -> None:
        """Follow one step; ``register`` is asked just whether an object that was edited still counts as there."""
        found: defaultdict[str, list[Asking]] = defaultdict(list)
        for slot, document in cluster.objects.items():
            for host, asking in asked_for(slot, document):
                found[host].append(asking)
        self.asking = {host: sorted(each) for host, each in found.items()}
        for host in {*self.holders, *self.asking}:
            self._update(host, cluster, register)

    def _update(self, host: str, cluster: Cluster, register: NameRegister) -> None:
        asking, holder = self.asking.get(host, ()), self.holders.get(host)
        if holder is not None and holder.until is not None and holder.until <= cluster.now:
            holder = None
        if holder is not None:
            if any(each.namespace == holder.namespace for each in asking):
                holder.until = None
                return
            if holder.until is not None:
                return
            known = register.reservations.get(SCOPE, {}).get(Name("", host))
            is_kept = known is not None and known.until and known.namespace == holder.namespace
            # One that was created again under its name, unseen in between, is as one that was edited.
            if cluster.happened not in {Happened.EDITED, Happened.AGAIN} or is_kept:
                holder.until = cluster.now + KEEP_S
                return
        self.holders.pop(host, None)
        if asking:
            self.holders[host] = Holder(asking[0].namespace)

    def owner(self, host: str) -> str:
        """Return the namespace whose objects ask for a host that it has; "" where there is none."""
        holder = self.holders.get(host)
        return holder.namespace if holder is not None and holder.until is None else ""

    def consents(self, host: str) -> frozenset[str]:
        """Return the namespaces that may add paths to a host."""
        owner = self.owner(host)
        if self.shared_hosts & {host, ANY_HOST, *wildcards_above(host)}:
            return EVERYBODY
        return frozenset().union(*(each.shared_with for each in self.asking.get(host, ()) if each.namespace == owner))

    def deciding(self, name: str) -> Iterator[str]:
        """Return the hosts that may decide who answers for a name, the most specific first.

        A wildcard of an Ingress is for one label, so that the next one counts for more of them. A host without HTTP
        leaves it to a wider one of its owner, who lets others add paths there.
        """
        decided = ""
        for host in (name, *wildcards_above(name), ANY_HOST):
            owner = self.owner(host)
            if decided and owner not in {decided, ""}:
                return
            if owner:
                yield host
                if host == name or name.count(".") == host.count("."):
                    decided = owner

    def owners_of_requests(self, name: str) -> frozenset[str]:
        """Return who may have the requests for a name by a host of as many labels.

        A host that domains of another protocol ask for, one of which may have the name, has none.
        """
        return frozenset(
            self.owner(host)
            for host in self.deciding(name)
            if name.count(".") == host.count(".")
            and self._is_of_http([each for each in self.asking[host] if each.namespace == self.owner(host)])
        )

    def _is_of_http(self, asking: list[Asking]) -> bool:
        return all(each.is_http for each in asking) or any(each.kind == "Ingress" for each in asking)

    def has_tls(self, host: str) -> bool:
        """Return whether the owner of a host asks for a certificate of it."""
        owner = self.owner(host)
        return any(each.has_tls for each in self.asking.get(host, ()) if each.namespace == owner)


def wildcards_above(host: str) -> tuple[str, ...]:
    """Return the wildcards that a name is below, the longest first."""
    labels = host.removeprefix("*.").split(".")
    found = (f"*.{'.'.join(labels[number:])}" for number in range(len(labels)))
    return tuple(each for each in found if each not in {host, f"*.{host}"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step led to."""

    context: Context
    rendering: Rendering
    config: Config


@dataclass(slots=True)
class Story:
    """A number of steps of one cluster, each of which is judged. Deterministic: by its seed and number."""

    seed: int
    number: int
    folder: str = "/f"
    per_namespace: int = 0
    cluster: Cluster = field(init=False)
    hosts: Hosts = field(init=False)
    options: PresetOptions = field(init=False)
    register: NameRegister = field(default_factory=NameRegister)
    memo: Memo = field(default_factory=Memo)
    places: dict[Name, tuple[Slot, float]] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    before: Seen | None = None
    step: int = 0
    other: list[str] = field(default_factory=list)
    trusted: tuple[str, ...] = ()
    restrictions: Restrictions = field(default_factory=Restrictions)
    _renderer: Renderer = field(init=False)
    _former: NameRegister = field(default_factory=NameRegister)

    def __post_init__(self) -> None:
        """Begin with an empty cluster."""
        rng = Random(f"ownership/{self.seed}/{self.number}")
        shared = rng.choice((frozenset(), frozenset(), frozenset({"y.test"}), frozenset({"*.x.test"})))
        self.cluster, self.hosts = Cluster(rng), Hosts(shared)
        self.options = PresetOptions(
            addresses=AddressOptions(POOL, (SHARED_ADDRESS,), per_namespace=self.per_namespace),
            tls=TlsOptions(f"{self.folder}/files/secrets", ("*",), rng.choice((None, Key(OPERATOR, "default")))),
            claims=ClaimOptions(shared_hosts=shared, own_addresses=frozenset(POOL)),
            nginx_classes=(NGINX_CLASS,),
        )
        self.trusted = rng.choice(((), edge.TRUSTED))
        self._renderer = copy(_renderer(self.folder, self.trusted))

    def run(self, steps: int = STEPS) -> Iterator[str]:
        """Return what is wrong after each step."""
        for _ in range(steps):
            seen = self.advance()
            cluster = self.cluster
            for what in self._judged(seen):
                yield f"{self.name}, {'/'.join(cluster.changed)} {cluster.happened}: {what}"
            self.before = seen

    def advance(self) -> Seen:
        """Change one object, and return what that leads to."""
        self.cluster.step()
        self.step += 1
        if self.step % OTHER_ORDER_EVERY == 0:
            addresses = self.options.addresses
            self.options = replace(self.options, addresses=replace(addresses, pool=addresses.pool[::-1]))
        seen = self.read()
        self.hosts.update(self.cluster, self.register)
        return seen

    def read(self) -> Seen:
        """Return what the cluster leads to now."""
        snapshot = self.cluster.snapshot()
        context = self._translate(snapshot, self.memo)
        self.other = []
        if self.step % FRESH_EVERY == 0:
            fresh = self._translate(snapshot, None)
            parts = "names", "refused", "register", "statuses"
            self.other = [part for part in parts if getattr(fresh, part) != getattr(context, part)]
        self._former, self.register = self.register, context.register
        return self.rendered(context)

    def opened(self) -> Seen:
        """Return what the last step leads to without words."""
        names = FormerNames(self._former, self.cluster.now, KEEP_S)
        return self.rendered(self.restrictions.translated(PRESETS, self.options, self.cluster, names))

    def rendered(self, context: Context) -> Seen:
        """Return the configuration of what was translated."""
        rendering = self._renderer.render(context, curdate="").rendering
        return Seen(context, rendering, parse(rendering.text, {file.path: file.content for file in rendering.files}))

    @property
    def name(self) -> str:
        """Says where it is, so that it can be told again."""
        return f"seed {self.seed} case {self.number} step {self.step}"

    def checked(self, seen: Seen) -> Iterator[str]:
        """Return what ``haproxy -c`` says of a configuration; of a sound one nothing."""
        conf = Path(self.folder) / "haproxy.cfg"
        rendering = replace(seen.rendering, files=(*seen.rendering.files, *seen.context.files))
        write_rendering(rendering, conf)
        done = subprocess.run([HAPROXY, "-c", "-f", conf], capture_output=True, text=True, check=False)
        lines = (done.stdout + done.stderr).splitlines()
        yield from (line for line in lines if "[WARNING]" in line and _NO_CERTIFICATE_YET not in line)
        if done.returncode:
            yield f"haproxy -c exits with {done.returncode}"

    def _translate(self, snapshot: Snapshot, memo: Memo | None) -> Context:
        names = FormerNames(self.register, self.cluster.now, KEEP_S)
        return Translator(PRESETS, self.options, memo, names).translate(snapshot)

    def _judged(self, seen: Seen) -> Iterator[str]:
        yield from self._answers(seen.config)
        yield from self._lines(seen.config)
        yield from self._addresses(seen)
        yield from (f"without what is remembered for speed, the {part} are others" for part in self.other)
        yield from Gateways(self.cluster.objects, seen.config).judged()
        rng = Random(self.name)
        yield from edge.headers(seen.config, self.trusted, rng)
        yield from edge.misdirected(seen.config, self.hosts.owners_of_requests, rng)
        yield from edge.misdirected_at_gateways(seen.config, self.cluster.objects, rng)
        yield from edge.questions(seen.config, rng)
        yield from edge.targets(seen.config)
        yield from self.restrictions.judged(self.cluster, self.opened().config, seen.config, rng)
        if self.cluster.happened is Happened.STATUS and self.before is not None and self.before.config != seen.config:
            yield "a written status changes the configuration"

    def _answers(self, config: Config) -> Iterator[str]:
        for name in ASKED_HOSTS:
            deciding = list(self.hosts.deciding(name))
            owners = frozenset(map(self.hosts.owner, deciding))
            allowed = owners.union(*map(self.hosts.consents, deciding))
            for port in (80, 443):
                for path in PATHS if port == 80 else ("/", "/login"):
                    answer = route(config, Request(SHARED_ADDRESS, port, name, path))
                    for server in answer.servers:
                        if namespace_of(server) not in allowed:
                            yield f"{name}:{port}{path} of {sorted(allowed)} is answered by {server}"
                if port == 443:
                    for path in answer.certificates:
                        if _namespace_of_file(path) not in {*owners, OPERATOR}:
                            yield f"{name} of {sorted(owners)} is shown {path}"

    def _lines(self, config: Config) -> Iterator[str]:
        hosts = self.hosts
        for path, names in self._map(config, "https-certificates"):
            for host in names.split():
                if host in _KNOWN and hosts.owner(host) != _namespace_of_file(path):
                    yield f"{path} is presented for {host} of {hosts.owner(host)!r}"
        for virtual_host, seconds in self._map(config, "https-hsts"):
            owner = self._owner_of_virtual_host(virtual_host)
            if str(HSTS_OF.get(owner, 0)) != seconds:
                yield f"HSTS of {virtual_host} of {owner!r} is {seconds}"
        for virtual_host, owner in self._map(config, "https-owners"):
            is_known = not _KNOWN.isdisjoint({virtual_host, f"*{virtual_host}"})
            if is_known and (had_by := self._owner_of_virtual_host(virtual_host)) != owner:
                yield f"connections for {virtual_host} of {had_by!r} count as those of {owner}"
        for virtual_host, _ in self._map(config, "https-redirects"):
            if not hosts.has_tls(virtual_host) and not hosts.has_tls(f"*{virtual_host}"):
                yield f"{virtual_host} is redirected, which its owner did not ask for"

    def _owner_of_virtual_host(self, virtual_host: str) -> str:
        """Return whose a virtual host is: a domain that is a wildcard has one without the asterisk."""
        return self.hosts.owner(f"*{virtual_host}" if virtual_host.startswith(".") else virtual_host)

    def _map(self, config: Config, name: str) -> Iterator[tuple[str, str]]:
        for path in config.files:
            if Path(path).stem == name:
                yield from config.entries(path)

    def _addresses(self, seen: Seen) -> Iterator[str]:
        """Judge who has which place of the pool: all of an address, or a port of it."""
        cluster = self.cluster
        given = seen.context.reserved.get(RESERVED, {})
        now: dict[Name, Slot] = {
            Name(name.place, ""): owner[:3] for name, owner in given.items() if name.name != FIRST_OWNER
        }
        # The namespace that had an address first may end the sharing; it goes on itself.
        ended = {address for address, namespace in self.first.items() if cluster.changed[1] == namespace}
        self.first = {name.place: owner.namespace for name, owner in given.items() if name.name == FIRST_OWNER}
        ended -= self.first.keys()
        for place, (slot, gone) in list(self.places.items()):
            is_changed = slot == cluster.changed and cluster.happened is not Happened.NOTHING
            has, is_there = now.get(place), slot in cluster.objects
            if has == slot:
                continue
            if is_there and not is_changed and not (has is None and _address(place) in ended):
                yield f"{place.place} of {slot}, which did not change, is {has}'s now"
            if not is_there and has is not None and has[1] != slot[1] and cluster.now < gone + KEEP_S:
                yield f"{place.place} of {slot}, which is gone for {cluster.now - gone} s, is {has}'s now"
        for place, slot in now.items():
            self.places[place] = slot, cluster.now
        for place, (slot, gone) in list(self.places.items()):
            if place in now:
                continue
            if slot in cluster.objects or cluster.now >= gone + KEEP_S:
                del self.places[place]
        yield from self._listening(seen.config, now)

    def _listening(self, config: Config, now: Mapping[Name, Slot]) -> Iterator[str]:
        users: defaultdict[str, set[str]] = defaultdict(set)
        keys: defaultdict[str, set[str]] = defaultdict(set)
        for place, slot in now.items():
            address = _address(place)
            users[address].add(slot[1])
            annotations = self.cluster.objects[slot]["metadata"]["annotations"]
            keys[address].add(annotations.get("pyconfd.io/sharing-key", ""))
        for address, namespaces in users.items():
            if len(namespaces) > 1 and (len(keys[address]) > 1 or keys[address] & {"", "not a key"}):
                yield f"{address} is shared by {sorted(namespaces)} with the keys {keys[address]}"
        for section, binds in config.frontends:
            for bind in binds:
                address = bind.address.strip("[]")
                if address in POOL and _namespace_of_frontend(section.name) not in users[address]:
                    yield f"{section.name} listens on {address} of {users[address]}"


def _address(place: Name) -> str:
    return place.place if place.place in POOL else place.place.rpartition(":")[0].strip("[]")


@dataclass(frozen=True, slots=True)
class Gateways:
    """Judges what Gateways lead to: routes that a listener lets in, and Services and Secrets that a grant names."""

    objects: Mapping[Slot, Document]
    config: Config

    def judged(self) -> Iterator[str]:
        """Return what is reached, or presented, without consent."""
        for section, _ in self.config.frontends:
            if section.name.startswith("gw_"):
                yield from self._frontend(section)

    def _frontend(self, section: Section) -> Iterator[str]:
        _, namespace, name, port = section.name.partition(".")[0].split("_")
        known = [each for each in listeners_at(self.objects, namespace, name) if str(each[2]["port"]) == port]
        options = (pair for line in section.lines if line[0] == "bind" for pair in pairwise(line))
        names = set() if is_inner(section) else {value for option, value in options if option == "name"}
        for listener in names - {id_ for _, id_, _ in known}:
            yield f"{section.name} has the listener {listener}, which its Gateway does not allow"
        for backend in sorted(self._backends(section)):
            kind, owner, route = _route_of(backend)
            if not any(of[1] == owner or _lets_all_in(each) for of, _, each in known):
                yield f"{section.name} of {namespace} leads to {backend}"
            if (kind, owner, route) not in self.objects:
                yield f"{section.name} leads to {backend}, whose route is not there"
            found = self.config.backend(backend)
            for line in found.lines if found else ():
                if line[0] == "server" and not self._is_granted(kind, owner, "Service", namespace_of(line[2])):
                    yield f"{backend} leads to {line[2]}"
        for path in self._certificates(section):
            owners = {(of[0], of[1]) for of, _, _ in known}
            if not any(self._is_granted(*each, "Secret", _namespace_of_file(path)) for each in owners):
                yield f"{section.name} presents {path}"

    def _backends(self, section: Section) -> set[str]:
        """Return the backends that a frontend may choose, for any request."""
        found: set[str] = set()
        for line in section.lines:
            found |= {word for word in line if self.config.backend(word) is not None}
            found |= {word[4:-1] for word in line if word.startswith("str(") and word.endswith(")")}
            for file in re.findall(r"map_\w+\(([^,)]+)", " ".join(line)):
                shared = Path(file).stem in {"exact-paths", "path-prefixes"}
                mine = (f"{section.name.partition('.')[0]}|", f"{section.name}|")
                found |= {value for key, value in self.config.entries(file) if not shared or key.startswith(mine)}
        return {each for each in found if each.startswith("gw_") and self.config.backend(each) and ":" not in each}

    def _certificates(self, section: Section) -> Iterator[str]:
        for line in section.lines:
            for option, value in pairwise(line):
                if line[0] == "bind" and option == "crt-list":
                    yield from (path for path, _ in self.config.entries(value))

    def _is_granted(self, kind: str, namespace: str, to: str, owner: str) -> bool:
        """Return whether objects of a kind may name Services or Secrets of a namespace."""
        grant = self.objects.get(("ReferenceGrant", owner, "n0"), {"spec": {"from": [], "to": []}})["spec"]
        sources = {(each["kind"], each["namespace"]) for each in grant["from"]}
        return namespace == owner or ((kind, namespace) in sources and to in {each["kind"] for each in grant["to"]})


_ROUTES = {"http": "HTTPRoute", "grpc": "GRPCRoute", "tls": "TLSRoute", "tcp": "TCPRoute"}


def _route_of(backend: str) -> Slot:
    _, kind, namespace, name, *_ = backend.split("_")
    return _ROUTES[kind], namespace, name


def _lets_all_in(listener: Document) -> bool:
    return bool(listener["allowedRoutes"]["namespaces"]["from"] == "All")


_NO_CERTIFICATE_YET = "no SSL certificate specified for bind"
"""Where objects ask for TLS and no Secret is there: the first one comes without a reload."""


def _namespace_of_file(path: str) -> str:
    return Path(path).name.partition(".")[0]


def _namespace_of_frontend(name: str) -> str:
    return name.removeprefix("fe-lb-").partition(":")[0] if name.startswith("fe-lb-") else name.split("_")[1]


@cache
def _renderer(folder: str, trusted: tuple[str, ...]) -> Renderer:
    return renderer(folder, trusted)


def run(seed: int, numbers: Iterable[int], folder: str = "/f") -> Iterator[str]:
    """Return the findings of these stories; what is raised is one.

    With a ``folder`` that is there, HAProxy checks the configuration after the last step.
    """
    for number in numbers:
        story = Story(seed, number, folder)
        try:
            yield from story.run()
            if HAPROXY and Path(folder).is_dir() and story.before is not None:
                yield from (f"{story.name}: {line}" for line in story.checked(story.before))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            yield f"{story.name}: {type(error).__name__}: {error}"
