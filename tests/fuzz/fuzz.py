"""Judges what hostile tenants got into a configuration. Deterministic: a case is its scene, seed and number."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from tests.fuzz.haproxy_model import SECTIONS, Config, route
from tests.fuzz.scenes import EVIL_POD, OWN_ADDRESSES, SCENES, VICTIM_POD, Object, Rendered, Scene, render, tenant

BENIGN_CLUSTERS = 150
"""How many clusters without hostile values say which lines a scene may have."""
_CONDITIONS = frozenset({"if", "unless", "or", "||", "{", "}", "!", "&&"})
_NOT_SERVED = ("127.", "169.254.", "0.", "224.", "::1", "fe80", *OWN_ADDRESSES)

Shape = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """One cluster: the victim's objects and those of the others."""

    scene: Scene
    seed: int
    number: int
    rules: bool
    victim: list[Object]
    others: list[Object]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a hostile tenant achieved."""

    case: Case
    what: str

    def __str__(self) -> str:
        own = self.case
        return f"{own.scene.name} seed {own.seed} case {own.number}: {self.what}\n  objects: {own.others}"


def case_of(scene: Scene, seed: int, number: int, *, hostile: bool = True) -> Case:
    """Return the case of that number: few hostile values, which reach deep, or many at once."""
    rng = Random(f"{scene.name}/{seed}/{number}/{hostile}")
    hostility = rng.choice((0.02, 0.06, 0.2)) if hostile else 0.0
    victim = scene.victim(rng)
    others = [each for index in range(rng.randint(1, 4)) for each in tenant(scene, rng, hostility, index)]
    return Case(scene, seed, number, rng.random() < 0.5, victim, others)


def judge(case: Case) -> Iterator[Finding]:
    """Return what is wrong with the configuration of a case."""
    alone = render(case.scene, case.victim, rules=case.rules)
    attacked = render(case.scene, [*case.victim, *case.others], rules=case.rules)
    for what in (*_lost_requests(case, alone.config, attacked.config), *_added(case, attacked)):
        yield Finding(case, what)


def _lost_requests(case: Case, alone: Config, attacked: Config) -> Iterator[str]:
    for request in case.scene.requests:
        before, after = route(alone, request), route(attacked, request)
        if before.servers and after.servers != before.servers:
            yield f"{request} is answered by {set(after.servers)} instead of {set(before.servers)}"
        if before.certificates and after.certificates != before.certificates:
            yield f"{request} is shown {set(after.certificates)} instead of {set(before.certificates)}"


def _added(case: Case, attacked: Rendered) -> Iterator[str]:
    known = _shapes_of(case.scene.name)
    for shape in sorted(_shapes(attacked) - known, key=repr):
        yield f"a line of a form that no sound object gives: {shape}"
    for address in _servers(attacked.config):
        if address.strip("[").startswith(_NOT_SERVED):
            yield f"a server at {address}"


def _servers(config: Config) -> Iterator[str]:
    for section in config.sections:
        yield from (line[2] for line in section.lines if line[0] == "server" and len(line) > 2)


@cache
def _shapes_of(name: str) -> frozenset[Shape]:
    """Return the forms of all lines that tenants without hostile values get, the victim's among them."""
    scene = SCENES[name]
    found: set[Shape] = set()
    for number in range(BENIGN_CLUSTERS):
        case = case_of(scene, 0, number, hostile=False)
        found |= _shapes(render(scene, [*case.victim, *case.others], rules=False))
    return frozenset(found)


def _shapes(rendered: Rendered) -> set[Shape]:
    found: set[Shape] = set()
    for section in rendered.config.sections:
        kind = section.header[0]
        found.add((kind, len(section.header)))
        for line in section.lines:
            conditions = tuple(word for word in line if word in _CONDITIONS)
            marks = tuple(
                sorted({mark for word in line for mark in ("%[", "%{", "${", "\n", "\r", "\0") if mark in word})
            )
            count = 0 if line[0] in {"bind", "balance"} else len(line)
            options = tuple(word for word in line[1:] if word.startswith("-") or word in SECTIONS)
            found.add((kind, line[0], count, conditions, marks, options))
    for content in rendered.config.files.values():
        found |= {("file", *_kinds(entry)) for entry in content.split("\n")}
    return found


def _kinds(entry: str) -> Iterator[str]:
    """Return what the words of a line of a map or list are; names that follow one another count once."""
    former = ""
    for word in entry.split():
        kind = "path" if word.startswith("/") else "options" if word.startswith("[") else "name"
        if kind != former:
            yield kind
        former = kind


def run(scene: Scene, seed: int, numbers: range) -> Iterator[Finding]:
    """Return the findings of these cases."""
    for number in numbers:
        yield from judge(case_of(scene, seed, number))


__all__ = ["EVIL_POD", "SCENES", "VICTIM_POD", "Finding", "case_of", "judge", "run"]
