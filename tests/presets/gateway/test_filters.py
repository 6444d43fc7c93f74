"""What filters of rules become: formats of HAProxy, redirects, copies of requests, cross-origin rules."""

from typing import Any

import msgspec
import pytest

from pyconfd.model.gateway_api import BackendRef, RouteFilter
from pyconfd.presets.gateway.faults import InvalidRule, RuleFault
from pyconfd.presets.gateway.filters import parse
from pyconfd.presets.routing.rules import NO_FILTERS, Cors, Filters, HeaderEdit, Mirror, PathEdit, Redirect, as_format
from pyconfd.presets.routing.types import PathKind, RouteMatch
from tests.presets.gateway.stage import http_rule

ORIGIN = "{ req.hdr(origin) -m str -i -- https://a }"
AT = RouteMatch(PathKind.PREFIX, "/a.b/")


def read(*filters: dict[str, Any], match: RouteMatch = AT) -> Filters:
    return parse(msgspec.convert(filters, tuple[RouteFilter, ...]), (match,), "filters")


def redirect(**fields: Any) -> dict[str, Any]:
    return {"type": "RequestRedirect", "requestRedirect": fields}


def mirror(**fields: Any) -> dict[str, Any]:
    return {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "m"}, **fields}}


def rewrite(**fields: Any) -> dict[str, Any]:
    return {"type": "URLRewrite", "urlRewrite": fields}


def cors(**fields: Any) -> dict[str, Any]:
    return {"type": "CORS", "cors": fields}


def full(path: str) -> dict[str, str]:
    return {"type": "ReplaceFullPath", "replaceFullPath": path}


def prefix(path: str) -> dict[str, str]:
    return {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}


@pytest.mark.parametrize(
    ("fields", "made", "path"),
    [
        ({}, Redirect(302, "", "", None), None),
        ({"scheme": "https"}, Redirect(302, "https", "", ""), None),
        ({"scheme": "https", "port": 443}, Redirect(302, "https", "", ""), None),
        ({"scheme": "http", "port": 443}, Redirect(302, "http", "", "443"), None),
        ({"port": 1}, Redirect(302, "", "", "1"), None),
        ({"port": 65535, "statusCode": 308}, Redirect(308, "", "", "65535"), None),
        *(({"statusCode": code}, Redirect(code, "", "", None), None) for code in (301, 303, 307)),
        *(({"statusCode": code}, None, None) for code in (300, 304, 305, 306, 309)),
        ({"hostname": "A.example"}, Redirect(302, "", "a.example", None), None),
        ({"path": full("/x%")}, None, None),
        ({"path": full("/x%20y")}, Redirect(302, "", "", None), PathEdit("", "/x%%20y")),
        ({"path": prefix("/new/")}, Redirect(302, "", "", None), PathEdit(r"^/a\.b(/.*)?$", r"/new\1")),
    ],
)
def test_a_redirect(fields: dict[str, Any], made: Redirect | None, path: PathEdit | None) -> None:
    if made is None:
        assert isinstance(http_rule({"filters": [redirect(**fields)]}), RuleFault)
    else:
        assert read(redirect(**fields)) == Filters(redirect=made, path=path)


@pytest.mark.parametrize(
    ("filters", "field", "value"),
    [
        ([redirect(), rewrite()], "filters", "RequestRedirect, URLRewrite"),
        ([redirect(), redirect()], "filters[1].type", "RequestRedirect"),
        ([redirect(scheme="ftp")], "filters[0].requestRedirect.scheme", "ftp"),
        ([redirect(port=65536)], "filters[0].requestRedirect.port", "65536"),
        ([redirect(statusCode=304)], "filters[0].requestRedirect.statusCode", "304"),
        ([redirect(path={"type": "Other"})], "filters[0].requestRedirect.path.type", "Other"),
        ([rewrite(hostname="*.a")], "filters[0].urlRewrite.hostname", "*.a"),
        ([mirror(percent=101)], "filters[0].requestMirror", "101/100"),
        ([cors(maxAge=-1)], "filters[0].cors.maxAge", "-1"),
        ([cors(allowOrigins=["https://a"] * 65)], "filters[0].cors.allowOrigins", "65"),
        ([cors(allowOrigins=["*", "a b"])], "filters[0].cors.allowOrigins[1]", "a b"),
        ([cors(exposeHeaders=["X-A", "a b"])], "filters[0].cors.exposeHeaders[1]", "a b"),
        ([{"type": "ExtensionRef"}], "filters[0].type", "ExtensionRef"),
        ([{"type": "CORS"}], "filters[0].type", "CORS"),
    ],
)
def test_what_is_refused_of_filters(filters: list[dict[str, Any]], field: str, value: str) -> None:
    found = http_rule({"filters": filters})
    assert isinstance(found, RuleFault)
    assert (found.field, found.value) == (field, value)


def test_a_prefix_is_replaced_in_a_rule_with_one_prefix_only() -> None:
    for matches in ((AT, AT), (RouteMatch(PathKind.EXACT, "/a"),), ()):
        with pytest.raises(InvalidRule) as raised:
            parse(msgspec.convert([rewrite(path=prefix("/b"))], tuple[RouteFilter, ...]), matches, "filters")
        assert raised.value.fault.field == "filters[0].urlRewrite.path.type"


@pytest.mark.parametrize(
    ("fields", "host", "path"),
    [
        ({}, "", None),
        ({"hostname": "in.example"}, "in.example", None),
        ({"path": full("")}, "", PathEdit("", "/")),
        ({"path": prefix("/")}, "", PathEdit(r"^/a\.b/?(.*)$", r"/\1")),
        ({"hostname": "b.example", "path": prefix("/n")}, "b.example", PathEdit(r"^/a\.b(/.*)?$", r"/n\1")),
    ],
)
def test_a_rewrite(fields: dict[str, Any], host: str, path: PathEdit | None) -> None:
    assert read(rewrite(**fields)) == Filters(host=host, path=path)


@pytest.mark.parametrize(
    ("fields", "shares"),
    [
        ({}, (100, 100)),
        ({"percent": 0}, (0, 100)),
        ({"percent": 42}, (42, 100)),
        ({"percent": 100}, (100, 100)),
        ({"fraction": {"numerator": 1}}, (1, 100)),
        ({"fraction": {"numerator": 1, "denominator": 1}}, (1, 1)),
        ({"fraction": {"numerator": 5, "denominator": 2**31 - 1}}, (5, 2**31 - 1)),
        ({"percent": 101}, None),
        ({"percent": -1}, None),
        ({"fraction": {"numerator": 0, "denominator": 0}}, None),
        ({"fraction": {"numerator": 1, "denominator": 2**31}}, None),
    ],
)
def test_a_share_of_the_requests_is_mirrored(fields: dict[str, Any], shares: tuple[int, int] | None) -> None:
    if shares is None:
        assert isinstance(http_rule({"filters": [mirror(**fields)]}), RuleFault)
    else:
        expected = Mirror("filters[0].requestMirror.backendRef", BackendRef(name="m"), *shares)
        assert read(mirror(**fields)).mirrors == (expected,)


def test_each_mirror_of_a_rule_is_kept_in_order() -> None:
    found = read(mirror(), mirror(percent=1)).mirrors
    assert [(each.field, each.share) for each in found] == [
        ("filters[0].requestMirror.backendRef", 100),
        ("filters[1].requestMirror.backendRef", 1),
    ]


def test_edits_of_headers_are_set_added_and_removed_in_this_order() -> None:
    edits = {"remove": ["X-C"], "add": [{"name": "X-B", "value": "50%"}], "set": [{"name": "Host", "value": "if"}]}
    expected: tuple[HeaderEdit, ...] = (
        HeaderEdit("set", "Host", "%[str(if)]"),
        HeaderEdit("add", "X-B", "50%%"),
        HeaderEdit("del", "X-C"),
    )
    assert read({"type": "RequestHeaderModifier", "requestHeaderModifier": edits}) == Filters(request=expected)
    edits["set"] = []
    expected = expected[1:]
    assert read({"type": "ResponseHeaderModifier", "responseHeaderModifier": edits}) == Filters(response=expected)


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), ("unless", "%[str(unless)]"), ("||", "%[str(||)]"), ("{ a", "{ a"), ("%[x]", "%%[x]")],
)
def test_a_format_is_the_text_itself(value: str, text: str) -> None:
    assert as_format(value) == text


@pytest.mark.parametrize(
    ("fields", "made"),
    [
        ({}, Cors((), False, "", "", "", 5)),
        (
            {"allowOrigins": ["*", "null", "HTTPS://A.example:8443"], "allowCredentials": True, "maxAge": 0},
            Cors(
                (
                    "{ req.hdr(origin) -m found }",
                    "{ req.hdr(origin) -m str null }",
                    "{ req.hdr(origin) -m str -i -- https://a.example:8443 }",
                ),
                True, "", "", "", 0,
            ),
        ),
        (
            {"allowOrigins": ["a+b://*.x.example:1"], "allowMethods": ["GET", "PUT"], "allowHeaders": ["X-A", "*"]},
            Cors(
                (r"{ req.hdr(origin) -m reg -i -- '^a\+b://[^/]+\.x\.example:1$' }",),
                False, "GET, PUT", "*", "", 5,
            ),
        ),
        ({"exposeHeaders": ["X-B"], "maxAge": 2**31 - 1}, Cors((), False, "", "", "X-B", 2**31 - 1)),
        ({"allowOrigins": ["https://a"] * 64}, Cors((ORIGIN,) * 64, False, "", "", "", 5)),
        ({"allowOrigins": ["https://a"] * 65}, None),
        ({"maxAge": -1}, None),
        ({"maxAge": 2**31}, None),
    ],
)  # fmt: skip
def test_cross_origin_rules(fields: dict[str, Any], made: Cors | None) -> None:
    if made is None:
        assert isinstance(http_rule({"filters": [cors(**fields)]}), RuleFault)
    else:
        assert read(cors(**fields)) == Filters(cors=made)


def test_filters_of_a_reference_come_after_those_of_its_rule_and_answers_the_other_way() -> None:
    one, two = HeaderEdit("set", "X-A", "1"), HeaderEdit("set", "X-A", "2")
    rules, mirrored = Cors((), False, "", "", "", 5), (Mirror("f", BackendRef(), 1, 2),)
    rule = Filters((one,), (one,), "a", PathEdit("", "/a"), Redirect(302, "", "", None), rules, mirrored)
    later = Filters((two,), (two,), "b", PathEdit("", "/b"))
    assert rule.followed_by(later) == rule._replace(
        request=(one, two), response=(two, one), host="b", path=PathEdit("", "/b")
    )
    assert rule.followed_by(NO_FILTERS) == rule
