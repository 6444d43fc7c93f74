"""Rules of HTTPRoutes in a real haproxy: requests, and what servers and clients see."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.fragments.shipped import HAPROXY
from tests.presets.gateway import stage
from tests.presets.gateway.stage import Routes, ask, gateway, parsed, pods, running
from tests.world.haproxy import free_port

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]


def on(path: str, **more: Any) -> dict[str, Any]:
    """A rule for a prefix."""
    return {"matches": [{"path": {"type": "PathPrefix", "value": path}}], **more}


def modifier(kind: str, remove: list[str], **edits: dict[str, str]) -> dict[str, Any]:
    named = {action: [{"name": name, "value": edits[action][name]} for name in edits[action]] for action in edits}
    return {"type": kind, kind[0].lower() + kind[1:]: {**named, "remove": remove}}


def rewrite(**more: Any) -> dict[str, Any]:
    return {"type": "URLRewrite", "urlRewrite": more}


def redirect(**more: Any) -> dict[str, Any]:
    return {"type": "RequestRedirect", "requestRedirect": more}


def full(path: str) -> dict[str, Any]:
    return {"type": "ReplaceFullPath", "replaceFullPath": path}


def prefix(path: str) -> dict[str, Any]:
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}


REF = {"backendRefs": [{"name": "web", "port": 80}]}
EDITS = {"set": {"X-Set": "a 'b\" 100% $HOME"}, "add": {"X-Add": "two", "X-If": "if"}}
MATCH = {"path": {"type": "PathPrefix", "value": "/match"}}
MANY = [*({"name": f"n{number}", "value": f"v {number}"} for number in range(14))]
MANY += [{"name": name, "value": "(?i)[a-z]+", "type": "RegularExpression"} for name in ("n14", "n15")]
MANY_HEADERS = [*((f"n{number}", f"v {number}") for number in range(14)), ("n14", "A"), ("n15", "b")]
MANY_PARAMETERS = "&".join(f"{name}={value.replace(' ', '+')}" for name, value in MANY_HEADERS)
RULES = [
    on("/", **REF),
    on("/edit", **REF, filters=[modifier("RequestHeaderModifier", ["X-Remove"], **EDITS)]),
    on("/answer", **REF, filters=[modifier("ResponseHeaderModifier", ["X-Remove"], **EDITS)]),
    on("/host", **REF, filters=[rewrite(hostname="one.example.org")]),
    on("/full", **REF, filters=[rewrite(path=full("/all/50%25"))]),
    on("/old.x", **REF, filters=[rewrite(path=prefix("/new"))]),
    on("/strip/", **REF, filters=[rewrite(path=prefix("/"))]),
    on("/to/host", filters=[redirect(hostname="example.org")]),
    on("/to/https", filters=[redirect(scheme="https", statusCode=301)]),
    on("/to/port", filters=[redirect(port=8080, hostname="example.org", statusCode=307)]),
    on("/to/443", filters=[redirect(scheme="https", port=443, statusCode=308)]),
    on("/to/8443", filters=[redirect(scheme="https", port=8443, statusCode=303)]),
    on("/to/80", filters=[redirect(port=80)]),
    on("/to/prefix", filters=[redirect(path=prefix("/there"))]),
    on("/to/full", filters=[redirect(path=full("/there"))]),
    on("/none"),
    *(
        {"matches": [match], **REF, "filters": [rewrite(path=full(to))]}
        for to, match in {
            "/by-header": {**MATCH, "headers": [{"name": "Version", "value": "it's two, 2"}]},
            "/by-word": {**MATCH, "headers": [{"name": "mode", "value": "or"}]},
            "/by-pattern": {
                **MATCH,
                "headers": [{"name": "version", "value": "[0-9]+", "type": "RegularExpression"}],
            },
            "/by-query": {**MATCH, "queryParams": [{"name": "animal", "value": "a whale"}]},
            "/by-method": {**MATCH, "method": "DELETE"},
            "/by-many": {**MATCH, "method": "PUT", "headers": MANY, "queryParams": MANY},
            "/by-path": {"path": {"type": "RegularExpression", "value": "/match/[a-z]+/end"}},
            "/by-exact": {"path": {"type": "Exact", "value": "/exact"}},
            "/by-case": {"path": {"type": "RegularExpression", "value": "(?i)/Any/Case[0-9](/|$)(.*)"}},
            "/by-parameter": {
                **MATCH,
                "queryParams": [{"name": "letters", "value": "(?i)[A-Z]+", "type": "RegularExpression"}],
            },
        }.items()
    ),
]


@dataclass(frozen=True)
class Case:
    """A request and what comes of it: of a value None it is not looked at."""

    path: str
    status: int = 200
    method: str = "GET"
    host: str = "shop.example.com"
    headers: list[tuple[str, str]] = field(default_factory=list)
    seen: str | None = None
    seen_host: str | None = None
    seen_headers: dict[str, list[str] | None] = field(default_factory=dict)
    answered: dict[str, list[str] | None] = field(default_factory=dict)


CASES = [
    Case("/", seen="/"),
    Case("/?a=b", seen="/?a=b"),
    Case(
        "/edit",
        headers=[("X-Set", "old"), ("X-Add", "one"), ("X-Remove", "gone")],
        seen_headers={"x-set": ["a 'b\" 100% $HOME"], "x-add": ["one", "two"], "x-if": ["if"], "x-remove": None},
    ),
    Case(
        "/answer",
        headers=[("X-Answer", "X-Set=old"), ("X-Answer", "X-Add=one"), ("X-Answer", "X-Remove=gone")],
        answered={"x-set": ["a 'b\" 100% $HOME"], "x-add": ["one", "two"], "x-remove": None},
    ),
    Case("/host/a", seen="/host/a", seen_host="one.example.org"),
    Case("/full/a?q=1", seen="/all/50%25?q=1"),
    Case("/old.x", seen="/new"),
    Case("/old.x/", seen="/new/"),
    Case("/old.x/a/b?c=d", seen="/new/a/b?c=d"),
    Case("/oldyx/a", seen="/oldyx/a"),
    Case("/strip", seen="/"),
    Case("/strip/", seen="/"),
    Case("/strip/a/b", seen="/a/b"),
    Case("/stripped", seen="/stripped"),
    Case("/to/host/a?b=c", 302, answered={"location": ["http://example.org:PORT/to/host/a?b=c"]}),
    Case("/to/https", 301, answered={"location": ["https://shop.example.com/to/https"]}),
    Case("/to/https", 301, host="SHOP.example.com:PORT", answered={"location": ["https://shop.example.com/to/https"]}),
    Case("/to/port", 307, answered={"location": ["http://example.org:8080/to/port"]}),
    Case("/to/443", 308, answered={"location": ["https://shop.example.com/to/443"]}),
    Case("/to/8443", 303, answered={"location": ["https://shop.example.com:8443/to/8443"]}),
    Case("/to/80", 302, answered={"location": ["http://shop.example.com/to/80"]}),
    Case("/to/prefix/a", 302, answered={"location": ["http://shop.example.com:PORT/there/a"]}),
    Case("/to/full/a", 302, answered={"location": ["http://shop.example.com:PORT/there"]}),
    Case("/none", 500),
    Case("/match", headers=[("version", "it's two, 2")], seen="/by-header"),
    Case("/match", headers=[("version", "it's two")], seen="/match"),
    Case("/match", headers=[("mode", "or")], seen="/by-word"),
    Case("/match", headers=[("version", "22")], seen="/by-pattern"),
    Case("/match", headers=[("version", "v22")], seen="/match"),
    Case("/match?animal=a+whale", seen="/by-query?animal=a+whale"),
    Case("/match?animal=a%20whale&x=y", seen="/by-query?animal=a%20whale&x=y"),
    Case("/match?animal=a%20whales", seen="/match?animal=a%20whales"),
    Case("/match/deep", method="DELETE", seen="/by-method"),
    # What fails at the last of many conditions goes on to later rules.
    Case(f"/match?{MANY_PARAMETERS}", method="PUT", headers=MANY_HEADERS, seen=f"/by-many?{MANY_PARAMETERS}"),
    Case("/match?n0=v", method="PUT", headers=MANY_HEADERS, seen="/match?n0=v"),
    Case(
        f"/match?{MANY_PARAMETERS[:-1]}4",
        method="PUT",
        headers=[*MANY_HEADERS, ("mode", "or")],
        seen=f"/by-word?{MANY_PARAMETERS[:-1]}4",
    ),
    Case(
        f"/match?{MANY_PARAMETERS}",
        method="PUT",
        headers=[*MANY_HEADERS[1:], ("version", "22")],
        seen=f"/by-pattern?{MANY_PARAMETERS}",
    ),
    Case("/match/abc/end", seen="/by-path"),
    Case("/match/abc1/end", seen="/match/abc1/end"),
    Case("/match/" + "a" * 1013 + "/end", seen="/by-path"),
    Case("/match/" + "a" * 1014 + "/end", status=414),
    Case("/match", headers=[("version", "2" * 1024)], seen="/by-pattern"),
    Case("/match", headers=[("version", "2" * 1025)], seen="/match"),
    Case("/match?letters=" + "a" * 1024, seen="/by-parameter?letters=" + "a" * 1024),
    Case("/match?letters=" + "a" * 1025, seen="/match?letters=" + "a" * 1025),
    Case("/ANY/case7", seen="/by-case"),
    Case("/any/CASE7/x/y", seen="/by-case"),
    Case("/any/cases", seen="/any/cases"),
    Case("/exact", seen="/by-exact"),
    Case("/exact/", seen="/exact/"),
]


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    listen = free_port()
    with pods("web") as (web,):
        routes = Routes("gw_demo_web_80")
        for rule in RULES:
            routes.add(parsed(rule), *([stage.reference(1, (web.endpoint,))] if "backendRefs" in rule else []))
        front, backends = gateway("gw_demo_web_80", [routes], port=listen)
        with running([front], backends, tmp_path_factory.mktemp("haproxy")):
            yield listen


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method} {case.path} {case.headers}")
def test_a_request_is_matched_edited_and_answered(port: int, case: Case) -> None:
    def here(text: str) -> str:
        return text.replace("PORT", str(port))

    answer = ask(port, case.path, method=case.method, host=here(case.host), headers=case.headers)
    assert answer.status == case.status, answer.body
    for name, values in case.answered.items():
        assert answer.headers.get(name) == (None if values is None else [here(each) for each in values])
    if case.seen is not None:
        assert answer.echo["path"] == case.seen
    if case.seen_host is not None:
        assert answer.echo["headers"]["host"] == [case.seen_host]
    for name, values in case.seen_headers.items():
        assert answer.echo["headers"].get(name) == values
