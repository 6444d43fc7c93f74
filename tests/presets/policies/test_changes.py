"""Texts of words that change requests and answers."""

import pytest

from pyconfd.presets.policies.words import KINDS, NOTHING_ASKED, WORDS, asked_by
from pyconfd.presets.routing.rules import Filters, HeaderEdit, PathEdit, Redirect


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("request-headers", ""),
        ("request-headers", "X-A"),
        ("request-headers", "X-A: b\rX-B: c"),
        ("request-headers", "X A: b"),
        ("request-headers", "Connection: close"),
        ("request-headers", f"X-A: {'b' * 2001}"),
        ("request-headers", "\n".join(f"X-{number}: a" for number in range(65))),
        ("remove-request-headers", "Host"),
        ("remove-response-headers", "if"),
        ("response-headers", "Transfer-Encoding: chunked"),
        ("upstream-host", "*.example.com"),
        ("upstream-host", "a.example\nmode tcp"),
        ("rewrite-path", "a"),
        ("rewrite-path", "/a b"),
        ("rewrite-path", "/%[src]"),
        ("app-root", "//evil.example"),
        ("app-root", "/"),
        ("app-root", "https://a.example/"),
        ("redirect", "//evil.example/"),
        ("redirect", "javascript://a.example/"),
        ("redirect", "https://user@a.example/"),
        ("redirect", "https://a.example/?b=c"),
        ("redirect", "https://a.example:99999/"),
        ("redirect", "https://a.example/ /b"),
        ("redirect", "https://[a/"),
        ("cors-allow-origins", "https://a.example/path"),
        ("cors-allow-origins", "https://a.example';"),
        ("cors-allow-origins", " ".join(f"https://{number}.example" for number in range(65))),
    ],
)
def test_hostile_text(word: str, text: str) -> None:
    asked, (fault,) = asked_by([(word, text)])
    assert asked == NOTHING_ASKED
    assert fault.name == word
    assert fault.restricts is WORDS[word].restricts


@pytest.mark.parametrize("word", ["redirect-code", "cors-allow-methods", "cors-max-age", "cors-allow-credentials"])
def test_part_without_its_whole(word: str) -> None:
    asked, faults = asked_by([(word, {"redirect-code": "301", "cors-max-age": "1"}.get(word, "true"))])
    assert asked == NOTHING_ASKED
    assert [each.name for each in faults] == [word]


def test_redirect_excludes_rewrite() -> None:
    asked, faults = asked_by([("rewrite-path", "/a"), ("redirect", "/b")])
    assert [each.name for each in faults] == ["rewrite-path"]
    assert asked.filters.path == PathEdit("", "/b")


@pytest.mark.parametrize("kind", KINDS)
def test_kinds(kind: str) -> None:
    _, faults = asked_by([(word.name, word.example) for word in WORDS.values() if word.name != "rewrite-path"], kind)
    others = {name for name, word in WORDS.items() if kind not in word.kinds} - {"rewrite-path"}
    assert {each.name for each in faults} == others | ({"upstream-host"} if kind != "GRPCRoute" else set())


def test_rule_comes_before_words() -> None:
    mine, usual = HeaderEdit("set", "X-A", "mine"), HeaderEdit("set", "X-A", "usual")
    redirect = Redirect(302, "", "", None)
    own = Filters(request=(mine,), redirect=redirect)
    found = own.beside(Filters(request=(usual,), path=PathEdit("", "/usual"), host="usual.example"))
    assert found == Filters(request=(usual, mine), redirect=redirect, host="usual.example")
