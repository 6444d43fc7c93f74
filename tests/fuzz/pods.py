"""Hostile pods and entries for the presets whose template comes from the cluster.

The template is a predecessor's own; what is hostile are the values that it prints. Beside a crowd of attackers stands
one object that means no harm, and what it gets may not change.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random

from tests.fuzz.haproxy_model import Config, parse
from tests.fuzz.scenes import HOSTILE
from tests.presets.smuggling import BENIGN, GONE, OTHER, crowd, fields_of, rendered, snapshot

PRESETS = ("configmap", "hosts")
_BENIGN_CROWDS = 40
_NUMBERED = re.compile(r"host_\d+_\d+")
_BYSTANDER = ("fine", "10.0.0.9")


@dataclass(frozen=True, slots=True)
class PodCase:
    """One crowd: which field of which attacker has which value."""

    preset: str
    seed: int
    number: int
    values: tuple[tuple[str, str], ...]


def case_of(preset: str, seed: int, number: int) -> PodCase:
    """Return the case of that number."""
    rng = Random(f"{preset}/{seed}/{number}")
    fields = fields_of(preset)
    values = tuple((rng.choice(fields), rng.choice(HOSTILE)) for _ in range(rng.randint(1, 6)))
    return PodCase(preset, seed, number, values)


def judge(case: PodCase) -> Iterator[str]:
    """Return what is wrong with the configuration of a case."""
    attacked = _config(case.preset, case.values)
    for section, lines in _of_bystander(_alone(case.preset)).items():
        missing = [line for line in lines if line not in _of_bystander(attacked).get(section, ())]
        if missing:
            yield f"{case}: {' '.join(section)} of the bystander lost {missing}"
    for shape in sorted(_shapes(attacked) - _sound(case.preset), key=repr):
        yield f"{case}: a line of a form that no sound object gives: {shape}"


def _config(preset: str, values: tuple[tuple[str, str], ...]) -> Config:
    rendering, _ = rendered(preset, crowd(values))
    return parse(rendering.text, {file.path: file.content for file in rendering.files if file.path.endswith(".map")})


@cache
def _alone(preset: str) -> Config:
    rendering, _ = rendered(preset, snapshot({}, victim=False))
    return parse(rendering.text, {})


def _of_bystander(config: Config) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Return by section the lines that name it; of a ``bind``, which lists everybody's certificates, its own words."""

    def names_it(text: str) -> bool:
        return any(mark in text for mark in _BYSTANDER)

    found: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for section in config.sections:
        for line in section.lines:
            if names_it(" ".join(line)):
                own = line if line[0] != "bind" else tuple(word for word in line if names_it(word))
                own = tuple(_NUMBERED.sub("host_N", word) for word in own)  # the template counts its hosts
                found.setdefault(section.header, []).append(own)
    return found


@cache
def _sound(preset: str) -> frozenset[tuple[object, ...]]:
    """Return the forms of the lines that crowds of sound objects get."""
    found = _shapes(_alone(preset))
    for number in range(_BENIGN_CROWDS):
        rng = Random(f"sound/{preset}/{number}")
        fields = [rng.choice(fields_of(preset)) for _ in range(rng.randint(1, 6))]
        values = ((field, rng.choice((BENIGN[field], *OTHER.get(field, ()), GONE))) for field in fields)
        # Only these may be absent; a field that is part of every object has a value.
        sound = tuple(
            (field, value) for field, value in values if value != GONE or field in {"configmap.path", "route53"}
        )
        found |= _shapes(_config(preset, sound))
    return frozenset(found)


def _shapes(config: Config) -> set[tuple[object, ...]]:
    """Return keyword, operators and count of words of each line; the count is that of its conditions' patterns too."""
    found: set[tuple[object, ...]] = set()
    for section in config.sections:
        for line in section.lines:
            operators = tuple(word for word in line if word in {"if", "unless", "or", "||", "{", "}", "!"})
            expressions = sum(mark in word for word in line for mark in ("%[", "${", "\n", "\r", "\0"))
            found.add((section.header[0], line[0], operators, expressions))
    return found
