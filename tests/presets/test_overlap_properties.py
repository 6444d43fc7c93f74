"""Whatever younger namespaces ask for, each connection that an older one was given stays its own.

What answers is found as Linux and HAProxy find it: the listener that names the address before one on all addresses,
then the host name.
"""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.model.context import Context
from pyconfd.model.listener import Listener
from pyconfd.presets import registry
from pyconfd.presets.conflicts import covering
from pyconfd.presets.preset import PresetOptions
from tests.presets.objects import Named, snapshot
from tests.presets.test_overlaps import exposed, labelled

ADDRESSES = ("192.0.2.1", "192.0.2.2", "2001:db8::1")
EVERYWHERE = ("*", "0.0.0.0", "::")
NAMES = ("a.example.com", "b.example.com")
PRESETS = ("kubefigurator", "kube2lb")

Asked = tuple[str, str, str, str, bool]
"""The preset, the address, the host name, the mode, and whether kubefigurator's ends TLS."""
ASKED = st.tuples(
    st.sampled_from(PRESETS),
    st.sampled_from([*EVERYWHERE, *ADDRESSES, "::ffff:192.0.2.1"]),
    st.sampled_from(NAMES),
    st.sampled_from(["http", "tcp"]),
    st.booleans(),
)


def objects(asked: Sequence[Asked], prefix: str, created: str) -> list[Named]:
    made: list[Named] = []
    for number, (preset, address, name, mode, tls) in enumerate(asked):
        if preset == "kube2lb":
            place = None if address == "*" else address
            made += exposed(f"{prefix}{number}", created, place, name, mode)
            continue
        options = {"listen-port": "80", "haproxy-mode": mode, "use-ssl": str(tls).lower()}
        made.append(labelled(f"{prefix}{number}", created, address, name, **options))
    return made


def answering(context: Context) -> dict[tuple[str, str], str]:
    """Return who answers for each address and name on port 80, "" for nobody."""
    bound: dict[Listener, dict[str, str]] = {}
    for listener in context.names["listeners"]:
        found = dict.fromkeys(NAMES, listener.default_backend)
        # The first rule that fits counts.
        found |= {route.hostname: route.backend for route in reversed(listener.routes)}
        bound[Listener.at(listener.address, listener.port)] = found
    for port, services in context.names["by_port"]:
        found = dict.fromkeys(NAMES, "")
        for service in services:
            wanted = NAMES if port.mode == "tcp" else context.names["ServerNames"](service, context.names["domain"])
            for name in wanted:
                found[name] = found.get(name) or str(service)
        there = Listener.at(port.ip, port.port)
        assert there not in bound, "two presets bind one address and port"
        bound[there] = found
    answers: dict[tuple[str, str], str] = {}
    for address in ADDRESSES:
        reached = next((bound[each] for each in covering(Listener(address, 80)) if each in bound), {})
        answers |= {(address, name): reached.get(name, "") for name in NAMES}
    return answers


def read(given: Sequence[Named], presets: Sequence[str]) -> Context:
    return registry.translate(snapshot(*given), presets, PresetOptions())


@given(st.lists(ASKED, max_size=4), st.lists(ASKED, max_size=4), st.permutations(PRESETS))
@settings(max_examples=120, deadline=None)
def test_nothing_of_the_older_ones_goes_to_the_younger(
    older: list[Asked], younger: list[Asked], presets: list[str]
) -> None:
    mine = objects(older, "old", "2026-01-01T00:00:00Z")
    alone = answering(read(mine, presets))
    both = answering(read([*mine, *objects(younger, "young", "2026-02-01T00:00:00Z")], presets))

    assert {place: who for place, who in both.items() if alone[place]} == {
        place: who for place, who in alone.items() if who
    }


@given(st.lists(ASKED, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_certificate_is_presented_for_one_owner(asked: list[Asked]) -> None:
    context = read(objects(asked, "s", "2026-01-01T00:00:00Z"), PRESETS)
    for listener in context.names["listeners"]:
        presented = [name for each in listener.certificate_list for name in each.names]
        assert len(presented) == len(set(presented))
        assert set(presented) <= {route.hostname for route in listener.routes} | {"!*"} or listener.mode == "tcp"
