"""A name whose owner is gone stays with its namespace for a while, in every preset and across a restart."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.daemon.name_register import NameRegisterFile
from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.kubernetes import Pod, Service, ServicePort, ServiceSpec
from pyconfd.model.records import ObjectMeta
from pyconfd.model.reservation import Name, NameRegister, Reservation, owned_by
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.predecessors.hosts import HostsOptions
from pyconfd.predecessors.kubefigurator.claims import KubefiguratorOptions
from pyconfd.presets.origins import ObjectOrigin, owners_among
from pyconfd.presets.preset import PresetOptions, own_options
from pyconfd.presets.registry import Memo
from tests.presets.objects import endpoint, slice_
from tests.presets.pods import pod

KEEP_S = 600.0
NAME = "shop.example.com"
OPTIONS = PresetOptions(
    node_ports=False,
    own=own_options(KubefiguratorOptions(node_ports=False), HostsOptions(selector={"tier": "web"})),
)
ANNOTATIONS = {
    "domain": NAME,
    "proto": "http",
    "kube2lb/external-domains": NAME,
    "haproxy-kubefigurator.web.hostname": NAME,
    "haproxy-kubefigurator.web.use-ssl": "false",
    "haproxy-kubefigurator.web.listen-port": "80",
}


def created(day: int) -> str:
    return f"2026-01-{day:02}T00:00:00Z"


def claimant(namespace: str, day: int, **more: str) -> list[Service | Pod]:
    """A Service and a pod that ask for the name in every preset; born on this day of January."""
    meta = ObjectMeta(
        "shop",
        namespace,
        creation_timestamp=created(day),
        labels={"haproxy-kubefigurator.enabled": "yes"},
        annotations=ANNOTATIONS | more,
    )
    port = ServicePort("web", 80, "web", 30080)
    labels = {"app": "shop", "tier": "web"}
    return [
        Service(meta, ServiceSpec((port,), "NodePort")),
        pod("shop-1", "10.0.0.1", labels, namespace=namespace, created=created(day)),
    ]


def silent(namespace: str, day: int) -> list[Service | Pod]:
    """The same objects, which ask for nothing."""
    meta = ObjectMeta("shop", namespace, creation_timestamp=created(day))
    return [Service(meta, ServiceSpec((ServicePort("web", 80, "web"),)))]


def snapshot(objects: Sequence[Service | Pod]) -> Snapshot:
    def of(kind: type) -> dict[Key, Any]:
        return {Key(o.metadata.namespace, o.metadata.name): o for o in objects if isinstance(o, kind)}

    slices = [slice_("shop", endpoint("10.0.0.1"), namespace=key.namespace) for key in of(Service)]
    return Snapshot(
        services=of(Service),
        pods=of(Pod),
        endpointslices={Key(each.metadata.namespace, each.metadata.name): each for each in slices},
    )


def of_domains(context: Context) -> str:
    return str(context.names["domains"].get(NAME, {}).get("namespace", ""))


def of_kube2lb(context: Context) -> str:
    found = [s.namespace for s in context.names["services"] if NAME in context.names["ServerNames"](s, "x")]
    return found[0] if found else ""


def of_kubefigurator(context: Context) -> str:
    routes = {route.backend for each in context.names["listeners"] for route in each.routes if route.hostname == NAME}
    return next((each.namespace for each in context.names["backends"] if each.name in routes), "")


def of_hosts(context: Context) -> str:
    owner = next(iter(context.owners.get("hosts", {}).values()), None)
    assert bool(owner) == bool(context.names["hosts"].get("shop"))
    return owner.namespace if owner else ""


OWNER: dict[str, Callable[[Context], str]] = {
    "domains": of_domains,
    "kube2lb": of_kube2lb,
    "kubefigurator": of_kubefigurator,
    "hosts": of_hosts,
}


@dataclass
class World:
    """One preset that is asked again and again, with what it remembered."""

    preset: str
    keep_s: float = KEEP_S
    register: NameRegister = field(default_factory=NameRegister)
    memo: Memo = field(default_factory=Memo)
    context: Context = field(default_factory=lambda: Context({}))

    def owner(self, now: float, *objects: list[Service | Pod], held_back: frozenset[Key] = frozenset()) -> str:
        """Return the namespace that has the name."""
        seen = snapshot([each for some in objects for each in some])
        remembered = FormerNames(self.register, now, self.keep_s, held_back)
        self.context = Translator((self.preset,), OPTIONS, self.memo, remembered).translate(seen)
        fresh = Translator((self.preset,), OPTIONS, names=remembered).translate(seen)
        assert OWNER[self.preset](fresh) == OWNER[self.preset](self.context), "a memo changes nothing"
        assert fresh.refused == self.context.refused
        self.register = self.context.register
        return OWNER[self.preset](self.context)

    def reasons(self) -> set[tuple[str, RefusalReason]]:
        return {(each.ref.namespace, each.reason) for each in self.context.refused}


presets = pytest.mark.parametrize("preset", OWNER)


@presets
@pytest.mark.parametrize("day", [1, 9])
def test_a_stranger_does_not_get_the_name_while_its_owner_is_made_again(preset: str, day: int) -> None:
    world, waits = World(preset), claimant("stranger", 5)
    assert world.owner(0, claimant("prod", 1), waits) == "prod"
    assert world.owner(10, waits) == ""
    assert ("stranger", RefusalReason.NAME_RESERVED) in world.reasons()
    assert "namespace prod has this" in str(world.context.refused)
    assert world.owner(300, claimant("prod", 20 + day), waits) == "prod", "younger than the stranger, and yet"
    assert world.owner(300 + 10 * KEEP_S, claimant("prod", 20 + day), waits) == "prod", "for good"


@presets
def test_whoever_waits_gets_it_when_the_time_is_over_without_an_event(preset: str) -> None:
    world, waits = World(preset), claimant("stranger", 5)
    world.owner(0, claimant("prod", 1), waits)
    assert world.owner(10, waits) == ""
    assert world.owner(9 + KEEP_S, waits) == ""
    assert not world.register.is_due(9 + KEEP_S)
    assert world.register.is_due(10 + KEEP_S)
    assert world.owner(10 + KEEP_S, waits) == "stranger"
    assert not world.register.is_due(10 + KEEP_S), "or the loop would never rest"
    assert world.owner(20 + KEEP_S, claimant("prod", 25), waits) == "stranger", "it came back too late"


@presets
def test_what_is_left_out_for_a_time_loses_nothing(preset: str) -> None:
    """An object in quarantine is not in what is read, and still there."""
    world, waits, prod = World(preset), claimant("stranger", 5), frozenset({Key("prod", "shop")})
    world.owner(0, claimant("prod", 1), waits)
    for now in (10.0, KEEP_S, 5 * KEEP_S):
        assert world.owner(now, waits, held_back=prod) == ""
    assert world.owner(5 * KEEP_S + 1, claimant("prod", 1), waits) == "prod"
    assert world.owner(6 * KEEP_S, waits, held_back=prod) == ""
    assert world.owner(6 * KEEP_S + 1, waits) == "", "deleted in quarantine: its time begins"
    assert world.owner(7 * KEEP_S, waits) == "stranger"


@presets
def test_an_object_in_quarantine_keeps_no_name_of_another_one(preset: str) -> None:
    world, waits, other = World(preset), claimant("stranger", 5), frozenset({Key("prod", "other")})
    world.owner(0, claimant("prod", 1), waits)
    assert world.owner(10, waits, held_back=other) == ""
    assert world.owner(9 + KEEP_S, waits, held_back=other) == ""
    assert world.owner(10 + KEEP_S, waits, held_back=other) == "stranger"


def test_a_pod_in_quarantine_keeps_the_name_of_its_app() -> None:
    (_, mine), key = claimant("prod", 1), Key("prod", "shop-1")
    there = snapshot([mine])
    found = {ObjectOrigin(Resource.PODS, key), ObjectOrigin(Resource.SERVICES, Key("prod", "x"))}
    assert owners_among(there, found) == {Key("prod", "shop"), Key("prod", "x")}
    assert owners_among(Snapshot(), found) == {key, Key("prod", "x")}


def test_an_owner_that_took_another_name_gives_the_former_one_up_whatever_else_of_it_is_refused() -> None:
    port = {"proto": "redis", "pyconfd.io/listen-port": "5000"}
    world, waits = World("domains"), claimant("stranger", 5)
    older = claimant("older", 1, domain="db.example.com", **port)
    assert world.owner(0, older, claimant("prod", 2), waits) == "prod"
    assert world.owner(10, older, claimant("prod", 2, domain="other.example.com", **port), waits) == "stranger"
    assert ("prod", RefusalReason.PORT_TAKEN) in world.reasons()


def test_what_a_newer_pyconfd_noted_beside_what_this_one_knows_is_ignored(tmp_path: Path) -> None:
    owner = ["domains", "", NAME, "Service", "prod", "shop", created(1), 0.0]
    kept = ["domains", "", "other.example.com", "Service", "prod", "shop", created(1), 50.0]
    (tmp_path / "owners.json").write_text(json.dumps({"names": [owner, kept]}))
    known = NameRegisterFile(str(tmp_path), KEEP_S).at(10.0).register
    assert known.owners
    assert known.waiting == {("domains", Name("", "other.example.com"))}
    more = {"names": [[*owner, "more"], [*kept, "more"]], "more": [1]}
    (tmp_path / "owners.json").write_text(json.dumps(more))
    assert NameRegisterFile(str(tmp_path), KEEP_S).at(10.0).register == known


@presets
def test_another_object_of_the_namespace_succeeds(preset: str) -> None:
    world = World(preset)
    world.owner(0, claimant("prod", 1), claimant("stranger", 5))
    assert world.owner(1, claimant("prod", 9), claimant("stranger", 5)) == "prod", "in one step"


@pytest.mark.parametrize("preset", ["domains", "kube2lb", "kubefigurator"])
def test_an_object_that_gives_the_name_up_gives_it_up_at_once(preset: str) -> None:
    world = World(preset)
    world.owner(0, claimant("prod", 1), claimant("stranger", 5))
    assert world.owner(1, silent("prod", 1), claimant("stranger", 5)) == "stranger"


@pytest.mark.parametrize(
    ("preset", "mistake"),
    [
        ("domains", {"domain": "no good"}),
        ("kubefigurator", {"haproxy-kubefigurator.web.hostname": "no good"}),
    ],
)
def test_a_slip_of_the_pen_gives_nothing_away(preset: str, mistake: dict[str, str]) -> None:
    world = World(preset)
    world.owner(0, claimant("prod", 1), claimant("stranger", 5))
    assert world.owner(1, claimant("prod", 1, **mistake), claimant("stranger", 5)) == ""
    assert world.owner(2, claimant("prod", 1), claimant("stranger", 5)) == "prod"


@presets
def test_no_time_to_wait_means_the_next_in_line_at_once(preset: str) -> None:
    world = World(preset, keep_s=0)
    world.owner(0, claimant("prod", 1), claimant("stranger", 5))
    assert world.owner(1, claimant("stranger", 5)) == "stranger"


@presets
def test_a_clock_that_is_set_back_keeps_nothing_longer(preset: str) -> None:
    world = World(preset)
    world.owner(10_000_000, claimant("prod", 1), claimant("stranger", 5))
    assert world.owner(10_000_000, claimant("stranger", 5)) == ""
    assert world.owner(1000, claimant("stranger", 5)) == ""
    assert world.owner(1000 + KEEP_S, claimant("stranger", 5)) == "stranger"


def test_a_port_is_kept_as_a_name_is() -> None:
    def redis(namespace: str, day: int) -> list[Service | Pod]:
        return claimant(namespace, day, domain=f"{namespace}.example.com", proto="redis", **{PORT: "6379"})

    def bound(world: World) -> dict[str, int | None]:
        return {each["namespace"]: each["listen_port"] for each in world.context.names["domains"].values()}

    world = World("domains")
    world.owner(0, redis("prod", 1), redis("stranger", 5))
    assert bound(world) == {"prod": 6379, "stranger": None}
    world.owner(1, redis("stranger", 5))
    assert bound(world) == {"stranger": None}
    world.owner(1 + KEEP_S, redis("stranger", 5))
    assert bound(world) == {"stranger": 6379}


PORT = "pyconfd.io/listen-port"


@pytest.mark.parametrize(
    ("preset", "mode"),
    [
        ("kube2lb", {"kube2lb/port-mode": '{"web": "tcp"}'}),
        ("kubefigurator", {"haproxy-kubefigurator.web.haproxy-mode": "tcp"}),
    ],
)
def test_nobody_takes_the_whole_port_while_a_name_on_it_is_kept(preset: str, mode: dict[str, str]) -> None:
    world, greedy = World(preset), claimant("stranger", 5, **mode)
    world.owner(0, claimant("prod", 1), greedy)
    world.owner(1, greedy)
    assert not world.context.names["services" if preset == "kube2lb" else "backends"]
    assert ("stranger", RefusalReason.NAME_RESERVED) in world.reasons()
    world.owner(1 + KEEP_S, greedy)
    assert world.context.names["services" if preset == "kube2lb" else "backends"]


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    waits = claimant("stranger", 5)
    seen, gone = snapshot([*claimant("prod", 1), *waits]), snapshot(waits)
    names = tuple(OWNER)

    def read(what: Snapshot, now: float) -> Context:
        name_register = NameRegisterFile(str(tmp_path), KEEP_S)
        context = Translator(names, OPTIONS, names=name_register.at(now)).translate(what)
        name_register.keep(context.register)
        name_register.flush()
        return context

    first = read(seen, 0)
    assert read(seen, 1).register == first.register
    assert read(gone, 2).names["domains"] == {}, "deleted while nobody looked"
    late = read(gone, 1 + KEEP_S)
    assert late.names["domains"] == {}
    assert {each.ref.namespace for each in late.refused if each.reason is RefusalReason.NAME_RESERVED} == {"stranger"}
    assert of_domains(read(gone, 3 + KEEP_S)) == "stranger"
    assert NameRegisterFile(str(tmp_path), KEEP_S).at(0).register.owners.keys() == {
        "shared-hosts",
        "listeners",
        "kube2lb",
        "hosts",
    }


@pytest.mark.parametrize("content", [b"", b"[]", b'{"names": [[1]]}', b"\xff"])
def test_a_damaged_file_is_said_and_stops_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "owners.json").write_bytes(content)
    name_register = NameRegisterFile(str(tmp_path), KEEP_S)
    assert name_register.at(0).register == NameRegister()
    name_register.keep(NameRegister({"domains": {}}))
    name_register.flush()
    assert name_register.problems() == ()


def test_what_cannot_be_written_is_a_problem_that_passes(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file in the way")
    name_register = NameRegisterFile(str(tmp_path / "state"), KEEP_S)
    name_register.keep(NameRegister.of({"domains": {Name("", NAME): Reservation(owned_by("prod"))}}))
    name_register.flush()
    assert "across a restart" in str(name_register.problems())
    (tmp_path / "state").unlink()
    name_register.flush()
    assert name_register.problems() == ()


EVENTS = st.lists(
    st.tuples(st.floats(1, 900), st.fixed_dictionaries({n: st.sampled_from([0, 1, 2, 3]) for n in ("a", "b", "c")})),
    min_size=1,
    max_size=6,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(OWNER)), EVENTS)
def test_a_name_changes_hands_only_when_its_namespace_gave_it_up(preset: str, events: Any) -> None:
    """Each namespace has an object of one of three ages, or (0) none."""
    world, now = World(preset), 0.0
    owner, gone_at = "", 0.0
    for pause, objects in events:
        now += pause
        asking = {namespace: day for namespace, day in objects.items() if day}
        found = world.owner(now, *(claimant(namespace, day) for namespace, day in asking.items()))
        if owner in asking:
            gone_at = 0.0
        elif owner:
            gone_at = gone_at or now
        if owner and (owner in asking or now < gone_at + KEEP_S):
            assert found == (owner if owner in asking else ""), "older or younger, nobody else gets it"
            continue
        assert bool(found) == bool(asking), "a free name goes to the oldest claim"
        assert not found or asking[found] == min(asking.values())
        owner, gone_at = found, 0.0
