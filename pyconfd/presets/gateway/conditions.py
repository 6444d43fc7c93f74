"""What a request has to be: matches of rules, parsed, and as HAProxy reads them in a condition.

What reaches the text is validated while it is parsed: no value can add a word, a condition or a line.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile

from pyconfd.model.gateway_api import GrpcMatch, HttpMatch, HttpPathMatch, ValueMatch
from pyconfd.presets import values
from pyconfd.presets.gateway import patterns
from pyconfd.presets.gateway.faults import refuse
from pyconfd.presets.gateway.frontends import Choice
from pyconfd.presets.routing.paths import decoded, routed_path
from pyconfd.presets.routing.table import place_of
from pyconfd.presets.routing.types import EXACT_PATHS, PathKind, RouteGroup, RouteMatch, RouteRule, ValueCondition

_MOST_WORDS = 52
"""Of the conditions in a line: HAProxy reads at most 64 words, and ten stand before them."""
_MOST_VALUES = 32
"""Of headers and query parameters of a match; the API has at most 16 of each."""
_WORDS_OF_METHOD, _WORDS_OF_PATH, _WORDS_OF_VALUE, _WORDS_OF_PATTERN = 4, 8, 7, 13
SHORT_PATH = "txn.short_path"
"""The variable of the path, for regular expressions: it is not there where the path is too long for one."""
PATH_TOO_LONG = "gateway-path-too-long"
"""The section for a path that is too long for the expression that decides: a rule behind it may restrict less."""

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"})
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}", re.ASCII)
"""Fewer characters than HTTP allows: the others mean something in the arguments of a sample fetch."""
_PATH = re.compile(r"/(?:[A-Za-z0-9/_.~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2}){0,1023}", re.ASCII)
_GRPC_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,1023}", re.ASCII)
_CONDITION_WORDS = values.CONDITION_WORDS | {"{", "}", "!", "||"}


def header_name(value: str, field: str) -> str:
    """Return the name of a header or query parameter.

    Raises:
        InvalidRule: it has other characters than a name usually has.
    """
    if not _NAME.fullmatch(value) or value.lower() in _CONDITION_WORDS:
        refuse(field, value, "not a usual name: expected letters, digits, '-', '_' and '.'")
    return value


def path(value: str, field: str) -> str:
    """Return a path.

    Raises:
        InvalidRule: it is none.
    """
    if not _PATH.fullmatch(value):
        refuse(field, value, "not a path: expected / and up to 1,023 characters that may stand in one")
    return value


def pattern(value: str, field: str, *, lines: bool = False) -> str:
    """Return a regular expression that HAProxy takes, and that takes no long time whatever it is compared with.

    Raises:
        InvalidRule: it is none.
    """
    if fault := patterns.fault_of(value, lines=lines):
        refuse(field, value, fault)
    return value


def http_match(match: HttpMatch, field: str) -> RouteMatch:
    """Parse one match of an HTTPRoute.

    Raises:
        InvalidRule: a value of it is not taken.
    """
    kind, text = _path_match(match.path, f"{field}.path")
    method = match.method or ""
    if method and method not in _METHODS:
        refuse(f"{field}.method", method, f"not a method: expected one of {', '.join(sorted(_METHODS))}")
    headers = _conditions(match.headers, f"{field}.headers", str.lower)
    query = _conditions(match.query_params, f"{field}.queryParams", str, lines=True)
    return _limited(RouteMatch(kind, text, method, headers, query), field)


def grpc_match(match: GrpcMatch, field: str) -> RouteMatch:
    """Parse one match of a GRPCRoute: a method is the path ``/SERVICE/METHOD``.

    Raises:
        InvalidRule: a value of it is not taken.
    """
    headers = _conditions(match.headers, f"{field}.headers", str.lower)
    asked = match.method
    if asked is None or not (asked.service or asked.method):
        return _limited(RouteMatch(headers=headers), field)
    if asked.type == "RegularExpression":
        service, method = (
            pattern(text, f"{field}.method.{name}") if text else "[^/]+"
            for name, text in (("service", asked.service), ("method", asked.method))
        )
        both = pattern(f"/({service})/({method})", f"{field}.method")
        return _limited(RouteMatch(PathKind.REGEX, both, headers=headers), field)
    if asked.type != "Exact":
        refuse(f"{field}.method.type", asked.type, "expected Exact or RegularExpression")
    for name, text in (("service", asked.service), ("method", asked.method)):
        if text and not _GRPC_NAME.fullmatch(text):
            refuse(f"{field}.method.{name}", text, "not a name of gRPC: expected letters, digits, '_' and '.'")
    if asked.service and asked.method:
        return _limited(RouteMatch(PathKind.EXACT, f"/{asked.service}/{asked.method}", headers=headers), field)
    if asked.service:
        return _limited(RouteMatch(PathKind.PREFIX, f"/{asked.service}", headers=headers), field)
    return _limited(RouteMatch(PathKind.REGEX, f"/[^/]+/{asked.method}", headers=headers), field)


def _path_match(match: HttpPathMatch, field: str) -> tuple[PathKind, str]:
    if match.type == "RegularExpression":
        return PathKind.REGEX, pattern(match.value, f"{field}.value")
    if match.type not in {"Exact", "PathPrefix"}:
        refuse(f"{field}.type", match.type, "expected Exact, PathPrefix or RegularExpression")
    found = decoded(path(match.value, f"{field}.value"))
    if routed_path(found) != found:
        refuse(f"{field}.value", match.value, "no request has a path with //, /./ or /.. here: leave them out")
    return PathKind.EXACT if match.type == "Exact" else PathKind.PREFIX, found


def _conditions(
    matches: Iterable[ValueMatch] | None, field: str, spelling: Callable[[str], str], *, lines: bool = False
) -> tuple[ValueCondition, ...]:
    """Return the conditions by name; the first of several for one name counts, as the specification says."""
    found: dict[str, ValueCondition] = {}
    for place, match in enumerate(matches or ()):
        name = spelling(header_name(match.name, f"{field}[{place}].name"))
        if match.type == "RegularExpression":
            condition = ValueCondition(name, pattern(match.value, f"{field}[{place}].value", lines=lines), True)
        elif match.type == "Exact":
            condition = ValueCondition(name, _exact(match.value, f"{field}[{place}].value"))
        else:
            refuse(f"{field}[{place}].type", match.type, "expected Exact or RegularExpression")
        found.setdefault(name, condition)
    return tuple(found.values())


def _exact(value: str, field: str) -> str:
    if not value or not value.isprintable():
        refuse(field, value, "expected a value of printable characters")
    return value


def _limited(match: RouteMatch, field: str) -> RouteMatch:
    if (number := len(match.headers) + len(match.query)) > _MOST_VALUES:
        refuse(field, number, f"expected at most {_MOST_VALUES} headers and query parameters")
    return match


def choices_of(groups: Iterable[RouteGroup]) -> tuple[Choice, ...]:
    """Return the rules of one virtual host's groups for a frontend, the most specific group first.

    A group ends with the rules of a less specific one, as a rule: it goes on there, lest the conditions of paths below
    one another stand in the configuration again for each of them.
    """
    # The least specific first, so that those to go on to are known.
    ordered = sorted(groups, key=lambda group: (group.entry.map == EXACT_PATHS, len(group.entry.key)))
    known: dict[tuple[RouteRule, int], RouteGroup] = {}
    made: list[list[Choice]] = []
    for group in ordered:
        own = sum(1 for _ in takewhile(partial(_same_place, group.rules[0]), group.rules))
        rest = group.rules[own:]
        less_specific = known.get((rest[0], len(rest))) if len(rest) > 1 else None
        same = less_specific is not None and less_specific.rules == rest
        rules = group.rules[:own] if same else group.rules
        choices = list[Choice]()
        by_expression = False
        for number, rule in enumerate(rules):
            if rule.match.kind is PathKind.REGEX and not by_expression:
                by_expression = True
                is_long = f"{{ var(txn.routed_path),length gt {patterns.LONGEST_VALUE} }}"
                choices.append(Choice(group.id, is_long, PATH_TOO_LONG))
            choices += _choices_of_rule(group.id, number, conditions_of(rule.match), rule.backend)
        if less_specific is not None and same:
            choices.append(Choice(group.id, "", less_specific.id))
        known[group.rules[0], len(group.rules)] = group
        made.append(choices)
    return tuple(choice for choices in reversed(made) for choice in choices)


def _same_place(first: RouteRule, rule: RouteRule) -> bool:
    return place_of(first.match) == place_of(rule.match)


def _choices_of_rule(route: str, number: int, conditions: Sequence[str], to: str) -> Iterator[Choice]:
    """Return the choices that lead to a rule, a line each; a request that fails at a later one is led back."""
    steps = [route, *(f"{route}-{number}-{place}" for place in range(1, len(conditions)))]
    for place, condition in enumerate(conditions):
        yield Choice(steps[place], condition, steps[place + 1] if place + 1 < len(steps) else to)
    for step in steps[1:]:
        yield Choice(step, "", route)


def conditions_of(match: RouteMatch) -> tuple[str, ...]:
    """Return what of a match the maps do not decide, in as many lines as HAProxy needs; one that is "" for nothing."""
    found = []
    if match.kind is PathKind.REGEX:
        found.append((_WORDS_OF_PATH, _matched(f"var({SHORT_PATH})", match.path)))
    if match.method:
        found.append((_WORDS_OF_METHOD, f"{{ method {match.method} }}"))
    # The whole header: one with a comma is one value here.
    samples = [(f"req.fhdr({each.name})", each) for each in match.headers]
    samples += [(f"url_param({each.name}),url_dec(1)", each) for each in match.query]
    samples += [(f"req.cook({each.name})", each) for each in match.cookies]
    for sample, each in samples:
        found.append((_WORDS_OF_PATTERN if each.regex else _WORDS_OF_VALUE, _value(sample, each)))
    lines: list[list[str]] = [[]]
    left = _MOST_WORDS
    for words, condition in found:
        if words > left:
            lines.append([])
            left = _MOST_WORDS
        lines[-1].append(condition)
        left -= words
    return tuple(" ".join(line) for line in lines)


def shares(route: str, sections: Sequence[tuple[str, int]]) -> tuple[Choice, ...]:
    """Return how requests are divided among sections by weights.

    That of one without usable servers is answered by HAProxy, with 503.
    """
    left = [(name, weight) for name, weight in sections if weight]
    found = []
    for place, (name, weight) in enumerate(left[:-1]):
        rest = sum(each for _, each in left[place:])
        found.append(Choice(route, f"{{ rand({rest}) lt {weight} }}", name))
    return (*found, *(Choice(route, "", name) for name, _ in left[-1:]))


def _value(sample: str, wanted: ValueCondition) -> str:
    if wanted.regex:
        return f"{{ {sample},length le {patterns.LONGEST_VALUE} }} {_matched(sample, wanted.value)}"
    if "'" not in wanted.value and wanted.value not in _CONDITION_WORDS:
        return f"{{ {sample} -m str -- '{wanted.value}' }}"
    # These words and this quote keep their meaning in single quotes: as a pattern they have another spelling.
    return _matched(sample, re.sub(r"[^A-Za-z0-9 ]", lambda found: _escaped(found[0]), wanted.value))


def _matched(sample: str, pattern_text: str) -> str:
    case = "-i " if pattern_text.startswith(patterns.ANY_CASE) else ""
    return f"{{ {sample} {case}-m reg -- '^({pattern_text.removeprefix(patterns.ANY_CASE)})$' }}"


def _escaped(character: str) -> str:
    return f"\\x{ord(character):02x}" if ord(character) < 128 else character
