"""A host of the shared frontends belongs to one namespace, with all its paths and its TLS, in any preset."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.reservation import NO_OWNERS, NameRegister, Reservation
from pyconfd.presets.addresses import RESERVED, AddressOptions
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.host_ownership import SHARED_WITH, shared_with
from pyconfd.presets.policy import ClaimOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import Obj, ingress, ingress_class, path, paths_of, secret, service, snapshot
from tests.world.pki import CertificateAuthority, KeyPair

HOST = "app.victim.test"
WILD = "*.victim.test"
PRESETS = ("domains", "ingress")
CLASS = ingress_class()
TAKEN = RefusalReason.NAME_TAKEN
TLS = PresetOptions(tls=TlsOptions("/tls", ("*",)))
KEEP_S = 600.0


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return CertificateAuthority(tmp_path_factory.mktemp("ca")).server("web", [HOST, WILD])


@dataclass
class World:
    """Remembers who has which host from one cluster to the next."""

    options: PresetOptions = TLS
    register: NameRegister = field(default_factory=NameRegister)
    memo: Memo = field(default_factory=Memo)

    def read(self, *objects: Any, now: float = 1.0, classes: Sequence[Obj] = (CLASS,)) -> Context:
        flat = [each for some in objects for each in (some if isinstance(some, list | tuple) else (some,))]
        seen, names = snapshot(*classes, *flat), FormerNames(self.register, now, KEEP_S)
        context = Translator(PRESETS, self.options, self.memo, names).translate(seen)
        fresh = Translator(PRESETS, self.options, None, names).translate(seen)
        assert fresh.names == context.names, "what is remembered changes nothing"
        assert fresh.refused == context.refused
        assert fresh.register == context.register
        self.register = context.register
        return context


def only(names: tuple[str, ...], *objects: list[Obj]) -> Context:
    return Translator(names, TLS).translate(snapshot(*(each for some in objects for each in some)))


def served_by(context: Context) -> set[str]:
    """Return the namespaces that answer for the host."""
    of_paths = {name.split("_")[1] for key, name in paths_of(context).items() if key.lstrip("=").startswith(f"{HOST}/")}
    domain = context.names["domains"].get(HOST)
    return of_paths | ({domain["namespace"]} if domain else set())


def refused(context: Context) -> set[tuple[str, RefusalReason]]:
    return {(each.ref.namespace, each.reason) for each in context.refused}


def app(namespace: str, day: int, at: str = "/app", host: str = HOST, **more: Any) -> list[Obj]:
    made = ingress("wild" if host == WILD else "app", {host: [path(at)]}, namespace=namespace, day=day, **more)
    return [*service("web", "10.0.0.1", namespace=namespace), made]


def domain(namespace: str, day: int, host: str = HOST, **more: str) -> list[Obj]:
    annotations = {"domain": host, "proto": "http"} | prefixed(more)
    return list(
        service("wild" if host == WILD else "site", "10.0.0.2", namespace=namespace, annotations=annotations, day=day)
    )


def prefixed(more: dict[str, str]) -> dict[str, str]:
    return {f"pyconfd.io/{name}": value for name, value in more.items()}


def tls(host: str = HOST) -> Sequence[Obj]:
    return [{"secretName": "cert", "hosts": [host]}]


@pytest.mark.parametrize("more", [{"proto": "https"}, {"tls-secret": "cert"}, {}])
def test_a_younger_domain_of_another_namespace_gets_nothing_of_the_host(pair: KeyPair, more: dict[str, str]) -> None:
    certs = [secret("cert", pair, namespace=each) for each in ("victim", "thief")]
    context = World().read(certs, app("victim", 1, tls=tls()), domain("thief", 2, **more))
    assert served_by(context) == {"victim"}
    assert list(context.names["ingress"]["certificates"]) == ["victim/cert"]
    assert [file.path for file in context.files] == ["/tls/victim.cert.pem"]
    assert refused(context) == {("thief", TAKEN)}
    assert "Ingress victim/app has this host" in context.refused[0].detail


@pytest.mark.parametrize("proto", ["http", "https"])
def test_with_a_consent_an_older_ingress_takes_no_domain_of_the_owner(proto: str) -> None:
    """Else a guest that edits an old Ingress has all paths of the host, and ends what should go through."""
    world, mine = (
        World(replace(TLS, claims=ClaimOptions(shared_hosts=frozenset({HOST})))),
        domain("owner", 5, proto=proto),
    )
    world.read(mine)
    context = world.read(mine, app("guest", 1, "/"))
    assert served_by(context) == {"owner"}
    assert refused(context) == {("guest", TAKEN)}
    assert "its namespace has the host" in context.refused[0].detail
    assert served_by(world.read(mine, app("guest", 1, "/app"))) == {"owner", "guest"}, "the consent is for other paths"


@pytest.mark.parametrize("owner", ["ingress", "domain"])
def test_a_younger_ingress_adds_no_path_certificate_redirect_or_hsts(pair: KeyPair, owner: str) -> None:
    mine = app("victim", 1, "/") if owner == "ingress" else domain("victim", 1)
    annotations = {"pyconfd.io/hsts": "31536000"}
    theirs = [
        *app("thief", 2, "/login", tls=tls(), annotations=annotations),
        ingress("acme", {HOST: [path("/.well-known/acme-challenge", kind="Exact")]}, namespace="thief", day=2),
    ]
    context = World().read(secret("cert", pair, namespace="thief"), mine, theirs)
    assert served_by(context) == {"victim"}
    assert not context.names["ingress"]["certificates"]
    assert not context.files
    assert refused(context) == {("thief", TAKEN)}


@pytest.mark.parametrize("how", [app, domain])
def test_an_older_object_that_is_edited_takes_no_host(how: Any) -> None:
    world = World()
    assert served_by(world.read(app("thief", 1, host="other.test"), how("victim", 5))) == {"victim"}
    context = world.read(app("thief", 1), domain("thief", 1), how("victim", 5))
    assert served_by(context) == {"victim"}
    assert ("thief", TAKEN) in refused(context)
    assert served_by(world.read(app("thief", 1), how("victim", 9))) == {"victim"}, "its object was created again"


def test_of_two_new_claims_the_older_has_the_host() -> None:
    assert served_by(World().read(app("young", 2), domain("old", 1))) == {"old"}
    assert served_by(World().read(app("old", 1), domain("young", 2))) == {"old"}


def test_a_host_is_kept_for_its_namespace_and_then_free() -> None:
    world, waits = World(), domain("next", 5)
    world.read(app("first", 1), waits)
    gone = world.read(waits, now=10.0)
    assert served_by(gone) == set()
    assert ("next", RefusalReason.NAME_RESERVED) in refused(gone)
    assert served_by(world.read(app("first", 9), waits, now=20.0)) == {"first"}
    world.read(waits, now=30.0)
    assert served_by(world.read(waits, now=30.0 + KEEP_S)) == {"next"}
    assert served_by(world.read(app("first", 1), waits, now=40.0 + KEEP_S)) == {"next"}, "it came back too late"


def test_a_host_that_its_owner_gives_up_is_free_at_once() -> None:
    world = World()
    world.read(app("first", 1), domain("next", 5))
    assert served_by(world.read(app("first", 1, host="other.test"), domain("next", 5))) == {"next"}


def test_who_deletes_a_class_and_creates_it_again_moves_no_host() -> None:
    """As an upgrade of a chart does: no owner has given anything up."""
    world, thief, both = World(), domain("thief", 2), ingress("two", {HOST: [path("/")]}, namespace="victim", day=1)
    owner = [*service("web", "10.0.0.1", namespace="victim"), both]
    world.read(owner)
    world.read(owner, thief)
    assert served_by(world.read(owner, thief, now=2.0, classes=())) == set()
    assert served_by(world.read(owner, thief, now=3.0)) == {"victim"}
    other = ingress_class(controller="example.com/other")
    assert served_by(world.read(owner, thief, now=4.0, classes=[other])) == {"thief"}, "that is another controller's"


def test_a_host_that_is_misspelled_beside_others_is_not_given_up() -> None:
    world, thief, pods = World(), domain("thief", 2), service("web", "10.0.0.1", namespace="victim")

    def owner(*hosts: str) -> list[Obj]:
        rules = {host: [path("/")] for host in hosts}
        return [*pods, ingress("two", rules, namespace="victim", day=1)]

    world.read(owner(HOST, "other.test"))
    world.read(owner(HOST, "other.test"), thief)
    assert served_by(world.read(owner("app..victim.test", "other.test"), thief, now=2.0)) == set()
    assert served_by(world.read(owner(HOST, "other.test"), thief, now=3.0)) == {"victim"}
    assert served_by(world.read(owner("other.test"), thief, now=4.0)) == {"thief"}, "that is given up"


def test_who_deletes_a_class_of_gateways_and_creates_it_again_moves_no_address() -> None:
    made = {"kind": "GatewayClass", "metadata": {"name": "ours"}, "spec": {"controllerName": "pyconfd.io/gateway"}}
    listener = {"name": "web", "port": 80, "protocol": "HTTP"}
    head = {"name": "web", "namespace": "victim", "creationTimestamp": "2026-01-01T00:00:00Z"}
    gateway = {"kind": "Gateway", "metadata": head, "spec": {"gatewayClassName": "ours", "listeners": [listener]}}
    thief = service("lb", "10.0.0.2", namespace="thief", type="LoadBalancer", loadBalancerClass="pyconfd.io/lb")
    options = PresetOptions(addresses=AddressOptions(pool=("192.0.2.1",)))
    register = NameRegister()
    found = []
    for now, classes in enumerate(([made], [made], [], [made]), 1):
        names = FormerNames(register, now, KEEP_S)
        translator = Translator(("gateway", "loadbalancer"), options, None, names)
        context = translator.translate(snapshot(*classes, gateway, *(thief if now > 1 else ())))
        register = context.register
        found.append({each.namespace for each in context.owners.get(RESERVED, {}).values()})
    assert found == [{"victim"}, {"victim"}, set(), {"victim"}]


@pytest.mark.parametrize("consent", ["annotation", "everybody", "setting", "wildcard"])
def test_paths_of_another_namespace_need_consent(pair: KeyPair, consent: str) -> None:
    annotations = {SHARED_WITH: {"annotation": "team, other", "everybody": "*"}.get(consent, "")}
    shared = {"setting": {HOST}, "wildcard": {WILD}}.get(consent, set())
    world = World(replace(TLS, claims=ClaimOptions(shared_hosts=frozenset(shared))))
    certs = [secret("cert", pair, namespace=each) for each in ("owner", "team")]
    owner = app("owner", 2, "/", tls=tls(), annotations=annotations)
    context = world.read(certs, owner, app("team", 1, "/cart", tls=tls()), domain("team", 1))
    assert served_by(World(world.options).read(owner)) == {"owner"}
    # Without a record the older one has the host; with one it is a guest.
    assert served_by(context) == {"team"}
    world = World(world.options)
    world.read(certs, owner)
    context = world.read(certs, owner, app("team", 1, "/cart", tls=tls()), domain("team", 1))
    assert served_by(context) == {"owner", "team"}
    assert list(context.names["ingress"]["certificates"]) == ["owner/cert"]
    fields = {(each.ref.kind, each.field) for each in context.refused}
    assert fields == {("Service", "annotation domain"), ("Ingress", "spec.tls.hosts")}


def test_with_a_consent_the_owner_comes_before_an_older_guest() -> None:
    world = World(replace(TLS, claims=ClaimOptions(shared_hosts=frozenset({"*"}))))
    world.read(app("owner", 5))
    context = world.read(app("owner", 5), app("guest", 1))
    assert served_by(context) == {"owner"}
    assert ("guest", TAKEN) in refused(context)


def test_a_consent_is_for_the_namespaces_that_it_names() -> None:
    world, owner = World(), app("owner", 1, annotations={SHARED_WITH: "team"})
    assert served_by(world.read(owner, app("team", 2, "/a"), app("stranger", 2, "/b"))) == {"owner", "team"}
    assert served_by(world.read(app("owner", 1), app("team", 2, "/a"))) == {"owner"}, "it is taken back"


@pytest.mark.parametrize("how", ["ingress", "service"])
def test_a_consent_that_cannot_be_read_is_said_and_given_to_nobody(how: str) -> None:
    owner = (
        app("owner", 1, annotations={SHARED_WITH: "a b"})
        if how == "ingress"
        else domain("owner", 1, **{SHARED_WITH.partition("/")[2]: "a b"})
    )
    context = World().read(owner, app("team", 2, "/a"))
    assert served_by(context) == {"owner"}
    assert ("owner", RefusalReason.INVALID_VALUE) in refused(context)
    with pytest.raises(ValueError, match="names of namespaces"):
        shared_with("a b")


AUTH = "nginx.ingress.kubernetes.io/auth-url"


@pytest.mark.parametrize(("bad", "annotations"), [("/a//b", {}), ("(x)", {}), ("/", {AUTH: "http://auth"})])
def test_a_host_of_which_no_path_is_served_is_known(bad: str, annotations: dict[str, str]) -> None:
    """Or its requests would fall to an Ingress without a host, with cookies and credentials."""
    rules = {HOST: [path(bad, kind="ImplementationSpecific")]}
    made = ingress("app", rules, namespace="owner", annotations=annotations)
    everybody = ingress("all", {"": [path("/")]}, namespace="thief", day=0)
    names = World().read(service("web", "10.0.0.1", namespace="thief"), made, everybody).names
    # What is closed is served, with 403.
    own = [each for each in names["rules"]["backends"].values() if any(HOST in entry.key for entry in each.entries)]
    assert (HOST in names["named_virtual_hosts"], [each.policy.closed for each in own]) == (
        (False, [True]) if annotations else (True, [])
    )
    assert HOST in {**names["named_virtual_hosts"], **names["ingress"]["virtual_hosts"]}


@pytest.mark.parametrize(("host", "virtual_host"), [(HOST, HOST), (WILD, WILD[1:])])
@pytest.mark.parametrize("more", [{"hsts": "soon"}, {"port": "none"}])
def test_a_domain_of_which_nothing_is_served_is_known(host: str, virtual_host: str, more: dict[str, str]) -> None:
    world, everybody = World(), app("thief", 0, "/", host="")
    made = world.read(domain("owner", 1, host=host, **more), everybody).names["named_virtual_hosts"][host]
    assert (made.id, made.namespace, made.map) == (
        virtual_host,
        "owner",
        "wildcards-http" if host == WILD else "hosts-http",
    )
    served = domain("owner", 1, host=host)
    assert host not in world.read(served, everybody).names["named_virtual_hosts"]
    refused_too = service(
        "second", namespace="owner", annotations=served[0]["metadata"]["annotations"] | prefixed(more)
    )
    assert host not in world.read(served, list(refused_too), everybody).names["named_virtual_hosts"]


@pytest.mark.parametrize("names", [("domains",), ("domains", "gateway"), ("kube2lb", "domains"), PRESETS])
def test_a_domain_of_which_nothing_is_served_is_known_with_any_presets(names: tuple[str, ...]) -> None:
    context = only(names, domain("owner", 1, port="none"), domain("thief", 0, host=WILD))
    virtual_host = context.names["named_virtual_hosts"][HOST]
    assert (virtual_host.namespace, virtual_host.map, virtual_host.below_foreign) == ("owner", "hosts-http", True)
    assert list(context.names["named_virtual_hosts"]) == [HOST]


@pytest.mark.parametrize("proto", ["https", "redis"])
@pytest.mark.parametrize("wide", [WILD, ""])
@pytest.mark.parametrize("owner", ["thief", "owner"])
def test_requests_for_a_domain_without_http_are_no_other_namespaces(proto: str, wide: str, owner: str) -> None:
    """Or who has the wildcard answers an issuer of certificates in its name; its own wildcard may."""
    more = {"listen-port": "6379"} if proto == "redis" else {}
    virtual_host = domain("owner", 5, **more, proto=proto)
    wildcard = [*service(), ingress("wide", {wide: [path("/")]}, namespace=owner)]
    world = World()

    def known(*objects: Any) -> bool:
        return HOST in world.read(*objects).names["named_virtual_hosts"]

    assert not known(virtual_host)
    assert known(virtual_host, wildcard) is (owner == "thief")
    assert not known(virtual_host)
    assert not known(domain("owner", 5), wildcard), "with HTTP it has its own virtual host"


def test_a_host_with_a_certificate_is_known_though_only_its_domain_of_another_protocol_is_served(pair: KeyPair) -> None:
    """Or connections for it would serve the hosts of others."""
    virtual_host = domain("owner", 1, **{"listen-port": "6379"}, proto="redis")
    with_tls = ingress("app", {HOST: [path("/a//b")]}, namespace="owner", day=2, tls=tls())
    context = World().read(virtual_host, with_tls, secret("cert", pair, namespace="owner"))
    assert context.names["ingress"]["certificates"]
    assert context.names["named_virtual_hosts"][HOST].namespace == "owner"
    assert not World().read(virtual_host).names["named_virtual_hosts"]


def test_requests_for_a_wildcard_domain_without_http_are_no_other_namespaces() -> None:
    virtual_host, everybody = (
        domain("owner", 5, host=WILD, proto="https"),
        ingress("all", {"": [path("/")]}, namespace="thief"),
    )
    (found,) = (
        each
        for host, each in World().read(virtual_host, everybody).names["named_virtual_hosts"].items()
        if host == WILD
    )
    assert (found.map, found.map_key, found.below_foreign) == ("wildcards-http", ".victim.test", False)


def test_host_that_is_served_is_not_among_those_that_are_only_named() -> None:
    world, refused_one = World(), app("owner", 1, "/a//b")
    assert list(world.read(refused_one).names["named_virtual_hosts"]) == [HOST]
    assert not world.read(refused_one, app("owner", 1, "/b")).names["named_virtual_hosts"]
    assert list(world.read(refused_one).names["named_virtual_hosts"]) == [HOST]


def test_a_lost_wildcard_hides_nothing_of_its_owner() -> None:
    context = World().read(domain("owner", 1, host=WILD), app("thief", 2, host=WILD))
    assert WILD not in context.names["named_virtual_hosts"], "it would come before the owner's for one label"


@pytest.mark.parametrize("how", [app, domain])
@pytest.mark.parametrize(("owner", "expected"), [("thief", True), ("victim", False)])
def test_an_exact_host_below_a_wildcard_of_another_namespace_is_marked(how: Any, owner: str, *, expected: bool) -> None:
    world = World()
    exact = how("victim", 1)

    def is_marked(context: Context) -> bool:
        found = context.names["ingress"]["virtual_hosts"].get(HOST)
        return bool(found.below_foreign if found else context.names["domains"][HOST]["below_foreign"])

    assert not is_marked(world.read(exact))
    assert is_marked(world.read(exact, app(owner, 2, host=WILD))) is expected
    assert is_marked(world.read(exact, domain(owner, 2, host=WILD))) is expected
    assert not is_marked(world.read(exact, app("thief", 2, host="*.other.test")))


ABOVE = {
    "all hosts": lambda namespace: app(namespace, 2, "/", host=""),
    "an Ingress": lambda namespace: app(namespace, 2, "/", host=WILD),
    "a domain": lambda namespace: domain(namespace, 2, host=WILD),
}


@pytest.mark.parametrize("above", ABOVE)
@pytest.mark.parametrize(("stranger", "expected"), [("thief", True), ("victim", False)])
def test_a_host_that_is_kept_is_known_where_another_namespace_would_answer(
    above: str, stranger: str, *, expected: bool
) -> None:
    """Or who deletes and creates an Ingress hands requests, and the question of an issuer, to a stranger meanwhile."""
    world, others = World(), ABOVE[above](stranger)

    def is_known(context: Context) -> bool:
        return HOST in context.names["named_virtual_hosts"]

    world.read(app("victim", 1), others)
    gone = world.read(others, now=2.0)
    assert is_known(gone) is expected
    if expected and above != "all hosts":
        assert gone.names["named_virtual_hosts"][HOST].below_foreign, "nor is the wildcard's certificate for it"
    assert is_known(world.read(others, now=3.0)) is expected
    assert not is_known(world.read(others, now=2.0 + KEEP_S)), "free again"


def test_nobody_else_answers_only_where_the_owners_own_wildcard_does_not() -> None:
    """A wildcard of an Ingress is for one label: deeper hosts fall through it, to who has an Ingress without a host."""
    deep, others = f"deep.{HOST}", app("thief", 2, "/", host="")
    made = domain("victim", 1, host=deep, proto="https")

    def is_known(*objects: list[Obj]) -> bool:
        return deep in World().read(made, *objects).names["named_virtual_hosts"]

    assert is_known(app("victim", 2, "/", host=WILD), others)
    assert not is_known(app("thief", 2, "/", host=WILD))
    assert not is_known(domain("victim", 2, host=WILD), others)


NAMESPACES = ("a", "b", "c")
CLAIMS = st.fixed_dictionaries(
    {
        namespace: st.tuples(st.sampled_from(["none", "domain", "ingress", "https", "both"]), st.integers(1, 4))
        for namespace in NAMESPACES
    }
)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.floats(1.0, 900.0), CLAIMS), min_size=2, max_size=6))
def test_no_host_changes_hands_unless_its_namespace_gave_it_up(events: Any) -> None:
    """Older and younger objects, edited and deleted."""
    world, now, holder, gone_at = World(), 0.0, "", 0.0
    for pause, claims in events:
        now += pause
        objects: list[Obj] = []
        for namespace, (kind, day) in claims.items():
            if kind in {"domain", "https", "both"}:
                objects += domain(namespace, day, **({"proto": "https"} if kind == "https" else {}))
            if kind in {"ingress", "both"}:
                objects += app(namespace, day, f"/{namespace}")
        asking = {namespace for namespace, (kind, _) in claims.items() if kind != "none"}
        served = served_by(world.read(objects, now=now))
        if holder in asking:
            gone_at = 0.0
        elif holder:
            gone_at = gone_at or now
        if holder and (holder in asking or now < gone_at + KEEP_S):
            assert served == ({holder} if holder in asking else set())
            continue
        assert bool(served) == bool(asking)
        assert len(served) < 2
        holder, gone_at = next(iter(served), ""), 0.0


def test_the_register_names_the_namespace_and_nothing_of_paths() -> None:
    world = World()
    world.read(app("owner", 1), domain("other", 2, host="b.test"))
    (scope,) = world.register.reservations
    found = {name.name: each for name, each in world.register.reservations[scope].items()}
    assert {name: each.namespace for name, each in found.items()} == {HOST: "owner", "b.test": "other"}
    assert all(isinstance(each, Reservation) and not each.until for each in found.values())
    assert world.read().register.owners.get(scope, NO_OWNERS) == {}
