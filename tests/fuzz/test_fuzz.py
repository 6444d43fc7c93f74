"""The short form of ``make fuzz``, and proof that the fuzzer sees what it is for."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

import pytest

from pyconfd.daemon.translation import FormerNames
from pyconfd.model.reservation import Owners
from pyconfd.presets.address_ownership import AddressOwners, _Before
from pyconfd.presets.addresses import RESERVED
from pyconfd.presets.gateway import serving
from pyconfd.presets.gateway.grants import Grants
from pyconfd.presets.host_ownership import HostRights
from pyconfd.presets.policy import AllowedAddresses
from pyconfd.presets.preset import PresetOptions
from tests.fragments.shipped import HAPROXY
from tests.fuzz import edge, fuzz, neighbours, ownership, pods, scenes
from tests.fuzz.clusters import API_SERVERS
from tests.fuzz.haproxy_model import Config, Request, is_inner, parse, route, words_of
from tests.fuzz.ownership import Story

CASES = 50
STORIES = 4
MOST_STORIES = 40
"""Until something rare is found, which ends the search."""


def missing(reports: Iterable[str], *texts: str) -> set[str]:
    """Return which texts no report has; it reads no more of them than that takes."""
    left = set(texts)
    for each in reports:
        left = {text for text in left if text not in each}
        if not left:
            break
    return left


@pytest.mark.parametrize("name", fuzz.SCENES)
def test_tenants_take_nothing_from_the_victim(name: str) -> None:
    assert [str(each) for each in fuzz.run(fuzz.SCENES[name], 1, range(CASES))] == []


def test_nothing_changes_hands_without_consent() -> None:
    assert list(ownership.run(1, range(STORIES))) == []


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
def test_haproxy_accepts_what_tenants_ask_for(tmp_path: Path) -> None:
    assert list(ownership.run(2, range(STORIES), str(tmp_path))) == []


def test_one_object_changes_nothing_of_its_neighbours() -> None:
    assert list(neighbours.run(1, range(STORIES))) == []


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
def test_haproxy_accepts_what_one_object_adds(tmp_path: Path) -> None:
    assert list(neighbours.run(2, range(STORIES), str(tmp_path))) == []


def test_the_fuzzer_finds_a_neighbours_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostRights, "may_add_paths", _everybody_owns)
    assert any(" instead of " in each for each in neighbours.run(1, (6, *range(STORIES))))


def test_the_fuzzer_finds_a_budget_that_neighbours_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_budget_of", lambda _: "")
    assert any("httproutes a/h0" in each for each in neighbours.run(1, (2, *range(STORIES))))


def test_the_fuzzer_finds_more_addresses_than_a_namespace_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    real = Story.__post_init__

    def unbounded(story: Story) -> None:
        story.per_namespace = 0
        real(story)

    monkeypatch.setattr(Story, "__post_init__", unbounded)
    assert any("addresses of the pool" in each for each in neighbours.run(1, (15, *range(2 * STORIES))))


def test_the_fuzzer_finds_an_absent_address_that_stops_haproxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "parse", lambda text, files: parse(text.replace(" transparent", ""), files))
    assert missing(neighbours.run(1, range(STORIES)), "gw_a_g0_80 cannot be started", "fe-lb-") == set()


def test_the_fuzzer_finds_an_object_that_leads_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "BYTES_FOR_EACH", 1)
    assert any("bytes are written for its" in each for each in neighbours.run(1, range(STORIES)))


def test_the_fuzzer_finds_gateways_that_need_no_grant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Grants, "permits", lambda *_: True)
    assert missing(ownership.run(1, range(STORIES)), " leads to 10.", " presents ") == set()


def _everybody_owns(*_: object) -> bool:
    return True


@pytest.mark.parametrize("rule", ["is_owner", "may_add_paths"])
def test_the_fuzzer_finds_an_owner_that_is_not_asked(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setattr(HostRights, rule, _everybody_owns)
    assert any(ownership.run(1, range(STORIES)))


def test_the_fuzzer_finds_hosts_and_addresses_that_are_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ownership, "FormerNames", lambda *_: FormerNames())
    assert missing(ownership.run(1, range(STORIES)), "is answered by", "192.0.2.2") == set()


def test_the_fuzzer_finds_other_settings_that_forget_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    def see(self: AddressOwners, options: PresetOptions, had: Owners) -> None:
        self._options.set(options.addresses)
        self._waiting = _Before(had, options.reservations_of(RESERVED))
        if not (self._before.items and self._is_recorded(self._waiting)):
            self._count()

    monkeypatch.setattr(AddressOwners, "see", see)
    assert any(ownership.run(1, range(2 * STORIES)))


def _without(monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """Leave lines out of the configuration that the fuzzer reads."""
    real = parse

    def read(text: str, files: Mapping[str, str]) -> Config:
        return real("\n".join(line for line in text.split("\n") if not any(each in line for each in lines)), files)

    monkeypatch.setattr(ownership, "parse", read)


@pytest.mark.parametrize("rule", ["client[-_]cert", "proxy)$", "del-header Connection"])
def test_the_fuzzer_finds_forged_headers_that_are_passed(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    _without(monkeypatch, rule)
    assert missing(ownership.run(1, range(1)), "http-in passes ", "gw_") == set()


def test_the_fuzzer_finds_requests_for_hosts_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _without(monkeypatch, "status 421")
    assert missing(ownership.run(1, (9, *range(MOST_STORIES))), "a connection for ", "a connection to gw_") == set()


_QUESTIONS = "frontend gw_a_g0_80.auth\n mode http\n bind unix@/run/auth-a mode 600 accept-proxy name _auth\n"


@pytest.mark.parametrize(
    "planted",
    [" bind 192.0.2.1:80 name _auth", " bind unix@/run/auth-b mode 600 name l0", " bind :80 transparent name _auth"],
)
def test_a_frontend_with_another_bind_is_not_inner(planted: str) -> None:
    inner, other = parse(_QUESTIONS, {}).sections[-1], parse(_QUESTIONS + planted, {}).sections[-1]
    assert (is_inner(inner), is_inner(other)) == (True, False)


def test_the_fuzzer_finds_a_server_that_leads_to_questions() -> None:
    planted = "backend x\n server a unix@/run/auth-a\n server b unix@/run/tls\n"
    assert list(edge.targets(parse(_QUESTIONS + planted, {}))) == ["x has the server unix@/run/auth-a"]


@pytest.mark.parametrize(("rule", "count"), [(" http-request deny deny_status 403\n", 1), ("", 0)])
def test_the_fuzzer_finds_questions_beyond_what_clients_reach(rule: str, count: int) -> None:
    leads = " mode http\n default_backend x\n"
    text = f"frontend http-in\n bind :80\n{rule}{leads}frontend auth-hosts\n bind unix@/run/a name _auth\n{leads}"
    found = {each.rpartition(" reaches ")[2] for each in edge.questions(parse(f"{text}{_POD}", {}), Random(1))}
    assert len(found) == count


_POD = "backend x\n server a 10.1.0.1:8080\n"


def test_the_fuzzer_finds_endpoints_at_api_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AllowedAddresses, "wrong", lambda *_: "")
    servers = tuple(f"has the server {address}:" for address in API_SERVERS)
    assert any(server in each for each in ownership.run(1, range(2 * STORIES)) for server in servers)


@pytest.mark.parametrize("preset", pods.PRESETS)
def test_pods_and_entries_take_nothing_from_their_neighbour(preset: str) -> None:
    found = [each for number in range(CASES) for each in pods.judge(pods.case_of(preset, 1, number))]
    assert found == []


@pytest.mark.parametrize("preset", pods.PRESETS)
def test_the_fuzzer_of_pods_finds_a_planted_hole(monkeypatch: pytest.MonkeyPatch, preset: str) -> None:
    real = pods._config
    pods._sound(preset)

    def leaky(name: str, values: tuple[tuple[str, str], ...]) -> Config:
        config = real(name, values)
        extra = parse("program evil\n    command /bin/sh", {}).sections[1:]
        return Config((*config.sections, *extra), config.files)

    monkeypatch.setattr(pods, "_config", leaky)
    assert list(pods.judge(pods.case_of(preset, 1, 0)))


@pytest.mark.parametrize("name", fuzz.SCENES)
def test_most_cases_serve_the_victim(name: str) -> None:
    """Without this the first test could pass because nothing is ever served."""
    scene = fuzz.SCENES[name]
    served = 0
    for number in range(40):
        case = fuzz.case_of(scene, 1, number)
        config = scenes.render(scene, case.victim, rules=case.rules).config
        served += any(route(config, request).servers == {f"{fuzz.VICTIM_POD}:8080"} for request in scene.requests)
    assert served == 40


@pytest.mark.parametrize("name", fuzz.SCENES)
def test_tenants_are_served_too(name: str) -> None:
    scene = fuzz.SCENES[name]
    texts = [_attacked(scene, number) for number in range(60)]
    assert sum("10.66.0." in text or "2001:db8:66::" in text for text in texts) > 5


def _attacked(scene: scenes.Scene, number: int) -> str:
    case = fuzz.case_of(scene, 1, number)
    return scenes.render(scene, [*case.victim, *case.others], rules=False).text


def _stolen(text: str) -> str:
    return text.replace("10.1.0.1:8080", "10.66.0.1:8080")


def _injected(text: str) -> str:
    return f"{text}\nprogram evil\n    command /bin/sh\n"


def _intercepted(text: str) -> str:
    return f"{text}\nfrontend evil\n    mode tcp\n    bind 192.0.2.10:80\n"


@pytest.mark.parametrize("hole", [_stolen, _injected, _intercepted])
def test_the_fuzzer_finds_planted_holes(monkeypatch: pytest.MonkeyPatch, hole: Callable[[str], str]) -> None:
    real = scenes.render

    def leaky(scene: scenes.Scene, objects: list[scenes.Object], *, rules: bool) -> scenes.Rendered:
        made = real(scene, objects, rules=rules)
        if not any(each["metadata"]["namespace"] == scenes.EVIL for _, each in objects):
            return made
        text = hole(made.text)
        return scenes.Rendered(parse(text, made.config.files), text, made.refused)

    scene = fuzz.SCENES["domains"]
    fuzz._shapes_of(scene.name)
    monkeypatch.setattr(fuzz, "render", leaky)
    assert list(fuzz.run(scene, 1, range(20)))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a  b # c", ["a", "b"]),
        ("a\\ b 'c d'", ["a b", "c d"]),
        ('a "b\\"c" \\x41', ["a", 'b"c', "A"]),
        ("'a\\b'", ["a\\b"]),
        ("a\\nb", ["a\nb"]),
    ],
)
def test_words_are_split_as_haproxy_does(line: str, words: list[str]) -> None:
    assert [*words_of(line)] == words


def _config(*binds: str) -> Config:
    frontends = [
        f"frontend f{number}\n bind {bind}\n default_backend b{number}\nbackend b{number}\n server s {number}"
        for number, bind in enumerate(binds)
    ]
    return parse("\n".join(frontends), {})


@pytest.mark.parametrize(
    ("binds", "address", "servers"),
    [
        (("*:80", "192.0.2.1:80"), "192.0.2.1", {"1"}),
        (("*:80", "192.0.2.1:80"), "192.0.2.2", {"0"}),
        (("*:80", "0.0.0.0:80"), "192.0.2.2", {"0", "1"}),
        (("*:80", "[::]:80"), "192.0.2.2", {"0"}),
        (("*:80", "[::]:80"), "2001:db8::1", {"1"}),
        ((":::80",), "192.0.2.2", {"0"}),
        (("[::]:80 v6only",), "192.0.2.2", set()),
        (("*:81",), "192.0.2.2", set()),
    ],
)
def test_the_more_specific_bind_answers(binds: tuple[str, ...], address: str, servers: set[str]) -> None:
    assert route(_config(*binds), Request(address, 80, "a.com")).servers == servers
