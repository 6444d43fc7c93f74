"""The oracle by itself: what it knows of ingress-nginx, and from where."""

import ast
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.moving import oracle
from tests.moving.oracle import CHOICES, NUMBER, OUT_OF, Made, documented, generated, seen_by_pod


def test_it_knows_nothing_of_pyconfd() -> None:
    found = list(ast.walk(ast.parse(Path(oracle.__file__).read_text())))
    modules = {each.module or "" for each in found if isinstance(each, ast.ImportFrom)}
    modules |= {alias.name for each in found if isinstance(each, ast.Import) for alias in each.names}
    assert "random" in modules
    assert {each.partition(".")[0] for each in modules} <= sys.stdlib_module_names


def test_annotations_are_as_frequent_as_in_public_manifests() -> None:
    seeds = 20
    counts = Counter(name for seed in range(seeds) for made in generated(seed) for name in made.counted)
    for choice in CHOICES:
        share = counts[choice.name] / (seeds * NUMBER)
        assert share == pytest.approx(choice.often / OUT_OF, abs=0.015), choice.name


@pytest.mark.parametrize(
    ("said", "path", "kind", "asked", "seen"),
    [
        ({}, "/app", "Prefix", "/app/x", "/app/x"),
        ({}, "/app", "Prefix", "/appendix", None),
        ({}, "/app", "ImplementationSpecific", "/appendix", "/appendix"),
        ({}, "/app", "Prefix", "/APP", None),
        ({"rewrite-target": "/"}, "/app", "Prefix", "/APPendix", "/"),
        ({"rewrite-target": "/"}, "/", "Prefix", "/app", "/app"),
        ({"rewrite-target": "/$2"}, "/App(/|$)(.*)", "ImplementationSpecific", "/app/a/b", "/a/b"),
        ({"rewrite-target": "/$2"}, "/App(/|$)(.*)", "ImplementationSpecific", "/appendix", None),
        ({"use-regex": "true"}, "/App/[a-z]+", "ImplementationSpecific", "/app/x1", "/app/x1"),
        ({"canary": "true", "rewrite-target": "/"}, "/app", "Prefix", "/app/x", "/app/x"),
    ],
)
def test_what_pods_are_asked(said: dict[str, str], path: str, kind: str, asked: str, seen: str | None) -> None:
    assert seen_by_pod(Made(1, said, path, kind, has_tls=False), asked) == seen


def test_each_restriction_is_asked_with_all_else_that_is_needed() -> None:
    said = {
        "whitelist-source-range": "192.0.2.0/24",
        "auth-type": "basic",
        "auth-secret": "users-md5",
        "auth-realm": "Please",
    }
    asks = list(documented(Made(1, said, "/", "Prefix", has_tls=False)))
    (outside,) = (each for each in asks if each.statuses == (403,))
    assert (outside.client, outside.headers) == ("198.51.100.2", {"Authorization": oracle.USER})
    nobody, stranger = (each for each in asks if each.statuses == (401,))
    assert (nobody.client, nobody.headers, nobody.found) == (oracle.INSIDE, {}, {"www-authenticate": "Please"})
    assert stranger.headers == {"Authorization": oracle.STRANGER}
