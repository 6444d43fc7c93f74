"""That the fuzzer says every word, and finds a word that lets in whom it refuses."""

from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pyconfd.model.context import Context
from pyconfd.presets.policies import attached
from pyconfd.presets.policies.attached import field_of
from pyconfd.presets.policies.nginx import MEANINGS, PREFIX
from pyconfd.presets.policies.words import WORDS
from tests.fragments.shipped import HAPROXY
from tests.fuzz import injection, ownership
from tests.fuzz.haproxy_model import Config, Request, parse, route
from tests.fuzz.ownership import Seen, Story
from tests.fuzz.words import WAYS, annotations, fields, sound, sound_of_nginx

STORIES, CASES = 6, 8
MOST_STORIES = 60
"""Until something rare is found, which ends the search."""


@pytest.mark.parametrize("word", WORDS)
def test_each_word_has_texts_that_it_can_be(word: str) -> None:
    assert WORDS[word].example in sound(word)


def test_nearly_each_annotation_of_ingress_nginx_has_texts_that_are_words() -> None:
    """Others are said with texts of any word."""
    assert sum(bool(sound_of_nginx(name)) for name in MEANINGS) > 0.9 * len(MEANINGS)


def test_each_word_is_said_in_each_way() -> None:
    rng = Random(1)
    for way in WAYS:
        said = {name for _ in range(1_000) for kind in sorted(way.kinds) for name in way.annotations(rng, kind, 0.1)}
        wanted = {f"pyconfd.io/{each}" for each in WORDS}
        assert wanted <= said if not way.class_name else {f"{PREFIX}{each}" for each in MEANINGS} <= said


def test_each_word_is_a_field_of_a_policy() -> None:
    rng = Random(1)
    said = {name for _ in range(2_000) for name in fields(rng, 0.1)}
    assert {field_of(each) for each in WORDS} <= said


def test_words_of_other_classes_are_not_those_of_ingress_nginx() -> None:
    rng = Random(1)
    said = [annotations(rng, "Ingress", "pyconfd") for _ in range(200)]
    assert any(said)
    assert not any(name.startswith(PREFIX) for each in said for name in each)


def test_refused_clients_are_asked_for() -> None:
    """Without this the judge could find nothing, since nobody is refused."""
    for number in range(2):
        story = Story(1, number)
        assert list(story.run()) == []
        assert story.restrictions.refused > 20


@pytest.mark.parametrize("line", ["|allow|,txn.network", "|deny|,txn.network", "http-request deny deny_status 403\n"])
def test_the_fuzzer_finds_clients_that_are_let_in(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    real = parse

    def read(text: str, files: Mapping[str, str]) -> Config:
        kept = [each for each in f"{text}\n".splitlines(keepends=True) if line not in each]
        return real("".join(kept), files)

    monkeypatch.setattr(ownership, "parse", read)
    found = (each for each in ownership.run(1, range(STORIES)))
    assert any("is refused by" in each and "answered by" in each for each in found)


@pytest.mark.parametrize("kind", ["Ingress", "HTTPRoute", "Service", "Gateway"])
def test_the_fuzzer_finds_policies_that_are_passed_over(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    real = attached._reference

    def reference(given: Any, namespace: str) -> attached.TargetReference:
        found = real(given, namespace)
        return found._replace(target=None, wrong="planted") if found.kind == kind else found

    monkeypatch.setattr(attached, "_reference", reference)
    assert any("is refused by" in each for each in ownership.run(1, range(MOST_STORIES)))


def test_the_fuzzer_finds_restricted_paths_that_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that nobody serves leaves its requests to a shorter one."""
    real = parse

    def read(text: str, files: Mapping[str, str]) -> Config:
        config = real(text, files)
        closed = {
            each.name for each in config.sections if each.header[0] == "backend" and _is_closed(config, each.name)
        }
        kept = {
            path: "\n".join(line for line in content.split("\n") if line.rpartition(" ")[2] not in closed)
            for path, content in files.items()
        }
        return real(text, kept)

    monkeypatch.setattr(ownership, "parse", read)
    assert any("is refused by" in each for each in ownership.run(1, range(MOST_STORIES)))


def _is_closed(config: Config, name: str) -> bool:
    backend = config.backend(name)
    return backend is not None and ("http-request", "deny", "deny_status", "403") in backend.lines


@pytest.mark.parametrize(
    ("client", "served"),
    [("192.0.2.1", True), ("192.0.3.1", False), ("::ffff:192.0.2.1", True), ("2001:db8::1", True), ("c000::", False)],
)
def test_the_model_knows_networks_of_clients(client: str, served: bool) -> None:
    text = """
defaults profile
    http-request set-var(txn.network) src,hex
    http-request set-var-fmt(txn.network) 4%[var(txn.network),bytes(24)] if { var(txn.network) -m beg {mapped} }
    http-request set-var-fmt(txn.network) 4%[var(txn.network)] if { var(txn.network) -m len 8 }
    http-request set-var-fmt(txn.network) 6%[var(txn.network)] if { var(txn.network) -m len 32 }
    http-request deny deny_status 403 unless { str(b),concat(|allow|,txn.network),map_beg(/n.map) -m found }
frontend f
    bind *:80
    default_backend b
backend b from profile
    server s 1
"""
    text = text.replace("{mapped}", "0" * 20 + "FFFF")
    config = parse(text, {"/n.map": "b|allow|4C00002 1\nb|allow|620010DB8 1"})
    assert bool(route(config, Request("192.0.2.200", 80, "a.test", source=client)).servers) is served


def test_the_model_takes_the_first_expression_of_a_host() -> None:
    text = """
frontend f
    bind *:80
    http-request set-var(txn.path) path
    http-request set-var(txn.to) str(a.test),concat(,txn.path),map_reg(/e.map) if { var(txn.path),length le 4 }
    use_backend %[var(txn.to)] if { var(txn.to) -m found }
backend one
    server s 1
backend two
    server s 2
"""
    config = parse(text, {"/e.map": "(?i)^a\\.test/AB one\n(?i)^a\\.test/A two"})
    asked = {
        path: set(route(config, Request("192.0.2.1", 80, "a.test", path)).servers) for path in ("/a", "/abcde", "/x")
    }
    assert asked == {"/a": {"2"}, "/abcde": set(), "/x": set()}


def test_hostile_texts_write_no_line_of_their_own() -> None:
    assert list(injection.run(1, range(CASES))) == []


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
def test_haproxy_accepts_hostile_texts(tmp_path: Path) -> None:
    assert list(injection.run(2, range(CASES), str(tmp_path))) == []


_ENDING: Mapping[str, Mapping[str, str]] = {
    "redirect": {"redirect": "https://www.example.com/new"},
    "closed": {"allow-networks": "none"},
}
"""Words after which a request goes to no pod."""


@pytest.mark.haproxy
@pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")
@pytest.mark.parametrize("ending", _ENDING)
def test_haproxy_warns_of_no_rule_behind_the_last_one(tmp_path: Path, ending: str) -> None:
    said = [
        (kind, "pyconfd", {f"pyconfd.io/{name}": text for name, text in {**_ENDING[ending], word: each}.items()})
        for kind in ("Ingress", "HTTPRoute")
        for word in WORDS
        for each in sound(word)[:1]
        if kind in WORDS[word].kinds and word not in _ENDING[ending]
    ]
    story, seen = injection.rendered(said, str(tmp_path))
    assert list(story.checked(seen)) == []


def _with_line(text: str) -> str:
    return text.replace("http-request deny deny_status 403 if", "http-request deny deny_status 403 if TRUE or", 1)


def _with_expression(text: str) -> str:
    return text.replace("%[var(txn.port)]%[pathq]", "%[env(PATH)]%[pathq]")


def _with_variable(text: str) -> str:
    return text.replace("location https://", "location %cihttps://")


@pytest.mark.parametrize("hole", [_with_line, _with_expression, _with_variable])
def test_the_fuzzer_finds_lines_of_another_form(monkeypatch: pytest.MonkeyPatch, hole: Callable[[str], str]) -> None:
    injection.sound_shapes()
    real = Story.rendered

    def leaky(story: Story, context: Context) -> Seen:
        seen = real(story, context)
        return Seen(seen.context, seen.rendering, parse(hole(seen.rendering.text), seen.config.files))

    monkeypatch.setattr(Story, "rendered", leaky)
    assert any("a line of a form" in each for each in injection.run(1, range(CASES)))


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("backend-values", "http-request deny"),
        ("policy-networks", "other|00000000|allow|4 1"),
        ("path-expressions", "(?i)^/x|/app ing_b_web_80_o1"),
    ],
)
def test_the_fuzzer_finds_entries_of_others(monkeypatch: pytest.MonkeyPatch, name: str, line: str) -> None:
    real = Story.rendered

    def leaky(story: Story, context: Context) -> Seen:
        seen = real(story, context)
        files = {path: f"{line}\n{text}" if name in path else text for path, text in seen.config.files.items()}
        return Seen(seen.context, seen.rendering, parse(seen.rendering.text, files))

    monkeypatch.setattr(Story, "rendered", leaky)
    assert any(line.partition(" ")[0] in each for each in injection.run(1, range(CASES)))
