"""Rules with the same filters share the lines for them, so that one more rule with these needs no reload."""

import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from pyconfd.fragments import directory
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison, plan
from pyconfd.haproxy.config.spares import Spares
from pyconfd.model.context import Context
from pyconfd.model.operations import AddBackend, AddMapEntries, FillSpare, LeadToSpare, RemoveMapEntries
from pyconfd.model.plan import Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import Fragment, FragmentSet, Rendering
from pyconfd.model.snapshot import Key
from pyconfd.model.spares import spare_name
from pyconfd.presets.gateway.http_rules import ParsedRule, sections_of
from pyconfd.presets.gateway.servers import Reference
from pyconfd.presets.policies.sessions import Session
from pyconfd.presets.policies.types import NO_POLICY
from pyconfd.presets.registry import Memo
from pyconfd.presets.routing.rules import AS_USUAL, NO_FILTERS, RuleBackend, RuleProfile
from pyconfd.presets.rule_backends import MOST_PROFILES
from pyconfd.presets.views import PortAt
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.settings.sections import ApplySettings
from pyconfd.sources.fragments import read_fragments
from tests.presets.gateway.objects import CLASS, snapshot
from tests.presets.gateway.test_preset import APP, GATEWAY, SERVICE, given, read, route

HAPROXY = os.environ.get("PYCONFD_TEST_HAPROXY", "haproxy")
ADDED = 'filters: [{type: RequestHeaderModifier, requestHeaderModifier: {add: [{name: %s, value: "%s"}]}}]'


def filtered(name: str, value: str = "a", header: str = "x-by", more: str = "", service: str = "app") -> str:
    """Return a route that adds a header."""
    rules = f"[{{backendRefs: [{{name: {service}, port: 80}}], {ADDED % (header, value)}{more}}}]"
    return route(name, rules, f"hostnames: [{name}.example.com]")


def context_of(*routes: str) -> Context:
    return read(snapshot(CLASS, GATEWAY, APP, *routes))


def rendered(context: Context, files_dir: str = "/etc/haproxy/files", spares: int = 8) -> Rendering:
    variables = {"http_bind": "", "https_bind": "", "stats_bind": "", "runtime_socket": "/run/haproxy/p.sock"}
    options = RenderOptions(files_dir, variables=variables, spare_backends=spares)
    names = {"domains": {}, "tls": {"default_certificate": "", "in_use": False}, **context.names}
    return Renderer(read_fragments(directory()), options).render(Context(names), curdate="").rendering


def values_of(context: Context) -> dict[str, str]:
    """Return the entries of the map of values, without the part of their keys that is the profile's."""
    (content,) = (each.content for each in rendered(context).files if each.path.endswith("/backend-values.map"))
    lines = (line.partition(" ") for line in content.splitlines())
    return {"|".join(key.split("|")[::2]): value for key, _, value in lines}


def profiles_of(context: Context) -> list[str]:
    return [name for name, each in given(context)["backends"].items() if each.is_profile]


def test_rules_with_the_same_filters_share_a_section_and_have_servers_only() -> None:
    context = context_of(
        filtered("one"), filtered("two", "b"), filtered("other", "b", "x-with"), route("plain", "[{}]")
    )
    backends = given(context)["backends"]
    assert backends["gw_http_shop_one_0"].profile == backends["gw_http_shop_two_0"].profile != ""
    assert backends["gw_http_shop_other_0"].profile not in {"", backends["gw_http_shop_one_0"].profile}
    assert len(profiles_of(context)) == given(context)["profiles"] == 3  # and that of a rule without references
    text = rendered(context).text
    lines = text.partition("backend gw_http_shop_two_0 from ")[2].partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["mode", "server"]
    assert text.count("add-header x-by ") == 1
    assert values_of(context) == {
        "gw_http_shop_one_0|request0": "a",
        "gw_http_shop_two_0|request0": "b",
        "gw_http_shop_other_0|request0": "b",
    }
    assert list(backends)[:3] == profiles_of(context), "they come before what is from them"


def test_what_follows_inherits_from_the_base_as_before() -> None:
    text = rendered(context_of(filtered("one"))).text
    after = text.rpartition("defaults gateway-profile-")[2]
    assert "\ndefaults from base\n" in after
    assert "defaults from base" in text.partition("defaults gateway-profile-")[0]


def spares_of(rendering: Rendering) -> Spares:
    """Return the spares of a worker that has loaded ``rendering``."""
    names = [line.split()[1] for line in rendering.text.splitlines() if line.startswith("backend spare-")]
    path = next(file.path for file in rendering.files if file.path.endswith("/spare-backends.map"))
    return Spares(path, frozenset(names))


def test_one_more_rule_with_known_filters_is_served_by_a_spare_of_that_profile() -> None:
    before = rendered(context_of(filtered("one")))
    after = rendered(context_of(filtered("one"), filtered("two")))
    can = Abilities(runtime=True, spares=spares_of(before))
    found = plan(after, before, None, abilities=can)
    assert isinstance(found, RuntimeUpdate), found
    (filled,) = (each for each in found.commands if isinstance(each, FillSpare))
    (profile,) = profiles_of(context_of(filtered("one")))
    assert (filled.backend, filled.defaults, filled.spare) == ("gw_http_shop_two_0", profile, spare_name(profile, 1))
    on_newer = plan(after, before, None, abilities=Abilities(runtime=True, backends=True))
    assert isinstance(on_newer, RuntimeUpdate)
    assert [each.defaults for each in on_newer.commands if isinstance(each, AddBackend)] == [profile]


def test_filters_that_are_new_are_one_reload() -> None:
    before = rendered(context_of(filtered("one")))
    after = rendered(context_of(filtered("one"), filtered("two", "b", "x-with")))
    found = plan(after, before, None, abilities=Abilities(runtime=True, spares=spares_of(before)))
    assert isinstance(found, Reload)
    assert found.reasons == (ReloadReason.DEFAULTS_CHANGED, ReloadReason.SECTION_ADDED)


def test_the_last_rule_with_some_filters_goes_without_a_reload() -> None:
    before = rendered(context_of(filtered("one"), filtered("two", "b", "x-with")))
    after = rendered(context_of(filtered("one")))
    for can in (Abilities(runtime=True, spares=spares_of(before)), Abilities(runtime=True, backends=True)):
        found = plan(after, before, None, abilities=can)
        assert isinstance(found, RuntimeUpdate), found


def test_a_namespace_shares_so_many_and_more_have_their_own_lines() -> None:
    routes = [filtered(f"r{number}", f"v{number}", f"x-{number}") for number in range(MOST_PROFILES + 3)]
    context = context_of(*routes)
    assert len(profiles_of(context)) == MOST_PROFILES
    own = [each for name, each in given(context)["backends"].items() if not each.is_profile and not each.profile]
    assert len(own) == 3
    text = rendered(context).text
    assert all(f"add-header x-{number} " in text for number in range(MOST_PROFILES + 3))
    assert len(values_of(context)) == MOST_PROFILES


def test_what_haproxy_answers_for_a_rule_with_lines_of_its_own_is_logged() -> None:
    routes = [
        filtered(f"r{number}", more=f", timeouts: {{request: 1s}}, retry: {{attempts: {number}}}").replace(
            f"name: r{number},", f'name: r{number}, annotations: {{pyconfd.io/access-log: "off"}},', 1
        )
        for number in range(1, MOST_PROFILES + 4)
    ]
    sections = rendered(context_of(*routes)).text.split("\nbackend ")
    found = [[line for line in each.splitlines() if "http-response" in line] for each in sections]
    left_out = [lines for lines in found if any("set-log-level silent" in line for line in lines)]
    assert len(left_out) == len(routes)
    assert [("set-log-level silent" in line) for lines in left_out for line in lines[:-1]].count(True) == 0
    assert sum(any("return status 504" in line for line in lines) for lines in left_out) == 3


def test_another_value_is_an_entry_of_a_map() -> None:
    before, after = (rendered(context_of(filtered("one", value))) for value in ("a", "50% of {"))
    found = plan(after, before, None, abilities=Abilities(runtime=True))
    assert isinstance(found, RuntimeUpdate), found
    assert values_of(context_of(filtered("one", "50% of {")))["gw_http_shop_one_0|request0"] == "50% of {"
    assert values_of(context_of(filtered("one", "}")))["gw_http_shop_one_0|request0"] == "}"


REWRITE = (
    "filters: [{type: URLRewrite, urlRewrite: {hostname: %s, path: {type: ReplaceFullPath, replaceFullPath: %s}}}]"
)
REDIRECT = "filters: [{type: RequestRedirect, requestRedirect: {hostname: %s, statusCode: 301}}]"


@pytest.mark.parametrize(
    ("filters", "one", "two", "values"),
    [
        (REWRITE, ("a.com", "/a"), ("b.com", "/b%41"), {"host": "b.com", "path": "/b%41"}),
        (REDIRECT, ("a.com",), ("b.com",), {"redirect": "b.com"}),
    ],
)
def test_hosts_and_paths_are_entries_too(
    filters: str, one: tuple[str, ...], two: tuple[str, ...], values: dict[str, str]
) -> None:
    references = "" if filters is REDIRECT else "backendRefs: [{name: app, port: 80}], "
    contexts = [context_of(route("r", f"[{{{references}{filters % each}}}]")) for each in (one, two)]
    before, after = map(rendered, contexts)
    assert isinstance(plan(after, before, None, abilities=Abilities(runtime=True)), RuntimeUpdate)
    assert values_of(contexts[1]) == {f"gw_http_shop_r_0|{name}": value for name, value in values.items()}


def test_a_mirror_is_a_matter_of_one_backend() -> None:
    more = ", filters: [{type: RequestMirror, requestMirror: {backendRef: {name: app, port: 80}}}]"
    context = context_of(route("m", f"[{{backendRefs: [{{name: app, port: 80}}]{more}}}]"))
    assert profiles_of(context) == []


@pytest.mark.parametrize("spares", [0, 8])
def test_haproxy_takes_it_without_a_warning(tmp_path: Path, spares: int) -> None:
    timeouts = ", timeouts: {request: 5s}, retry: {attempts: 2, codes: [503]}"
    context = context_of(filtered("one"), filtered("two", more=timeouts), filtered("gone", service="missing"))
    rendering = rendered(context, str(tmp_path), spares)
    for file in rendering.files:
        Path(file.path).parent.mkdir(parents=True, exist_ok=True)
        Path(file.path).write_text(file.content)
    conf = tmp_path / "haproxy.cfg"
    conf.write_text(rendering.text.replace("/run/haproxy/p.sock", str(tmp_path / "p.sock")))
    done = subprocess.run([HAPROXY, "-c", "-f", str(conf)], capture_output=True, check=False, text=True)
    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize("value", ["a" * 2_001, "\U0001f600" * 501])
def test_no_value_is_longer_than_haproxy_reads_of_a_line(value: str) -> None:
    context = context_of(filtered("one", value), filtered("two"))
    (refused,) = context.refused
    assert (refused.ref.name, refused.field) == (
        "one",
        "rules[0].filters[0].requestHeaderModifier.add[0].value",
    )
    assert "longer than 2,000 bytes" in refused.detail
    assert set(values_of(context)) == {"gw_http_shop_two_0|request0"}
    assert context_of(filtered("one", value[: 2_000 // len(value[0].encode())])).refused == ()


def test_filters_that_are_gone_for_a_while_are_no_reload() -> None:
    """Their profile is still in the process, and a spare of it serves a rule that has other filters again."""
    plain = route("r", "[{backendRefs: [{name: app, port: 80}]}]", "hostnames: [r.example.com]")
    # A route without references is in all of them: it is answered with 500.
    with_filters, without = (rendered(context_of(each)) for each in (filtered("r"), plain))
    assert profiles_of(context_of(plain)) == []
    comparison, applied = Comparison(), with_filters
    can = Abilities(runtime=True, spares=spares_of(with_filters))
    for desired in (without, with_filters, without, with_filters):
        found = plan(desired, applied, None, comparison=comparison, abilities=can)
        assert isinstance(found, RuntimeUpdate), found
        (fill,) = (each for each in found.commands if isinstance(each, FillSpare))
        assert fill.changed
        ranks = [type(each) for each in found.commands]
        of_values = {AddMapEntries} if desired is with_filters else {RemoveMapEntries}
        assert of_values <= set(ranks)
        if desired is with_filters:
            assert ranks.index(AddMapEntries) < ranks.index(LeadToSpare), "what its lines read is there before"
        else:
            assert ranks.index(LeadToSpare) < ranks.index(RemoveMapEntries), "what its lines read is there until then"
        applied = desired
    comparison.forget_unused()
    assert isinstance(plan(without, applied, None, comparison=comparison, abilities=can), RuntimeUpdate)
    comparison.forget_unused()
    assert isinstance(plan(with_filters, without, None, comparison=comparison, abilities=can), Reload)
    newer = Abilities(runtime=True, backends=True)
    assert isinstance(plan(without, with_filters, None, abilities=newer), Reload), "it has a section of that name"


def test_many_profiles_leave_two_spares_to_each() -> None:
    text = rendered(context_of(*(filtered(f"r{number}", header=f"x-{number}") for number in range(9))), spares=8).text
    assert text.count("backend spare-gateway-profile-") == 18
    assert "backend spare-" not in rendered(context_of(filtered("one")), spares=0).text


@pytest.mark.parametrize(("rules", "spares"), [(1, 10), (3, 40), (8, 80), (65, 80)])
def test_a_profile_has_ten_spares_for_each_rule_that_uses_it(rules: int, spares: int) -> None:
    context = context_of(*(filtered(f"r{number}") for number in range(rules)))
    assert rendered(context, spares=8).text.count("backend spare-gateway-profile-") == spares
    assert "backend spare-" not in rendered(context, spares=0).text


@pytest.mark.parametrize(("profiles", "rules", "spares"), [(2, 3, 40), (2, 33, 64), (9, 1, 2)])
def test_profiles_share_ten_times_the_setting_unless_more_rules_use_them(
    profiles: int, rules: int, spares: int
) -> None:
    routes = (filtered(f"r{n}-{profile}", header=f"x-{profile}") for n in range(rules) for profile in range(profiles))
    assert rendered(context_of(*routes), spares=8).text.count("backend spare-gateway-profile-") == profiles * spares


def spares_in(template: str) -> Spares:
    """Return the spares of a worker that has loaded what a template makes with the default settings."""
    fragments = FragmentSet((Fragment("spares.tmpl", "{% do map_file('spare-backends') %}" + template),))
    options = RenderOptions("/etc/haproxy/files", spare_backends=ApplySettings().spare_backends)
    return spares_of(Renderer(fragments, options).render(Context({}), curdate="").rendering)


def test_the_first_refill_of_a_profile_lasts_ten_times_as_long_as_what_was_there() -> None:
    """So that of many routes in turn only the first few come before the reload that the next hundreds need."""

    def filled(rules: int) -> Spares:
        # Two rules with filters of their own for each route, as in the probe of gateway-api-bench.
        return spares_in(f"{{{{ spare_backends('web', 2, {1 << (rules - 1).bit_length()}) }}}}")

    spares, refilled_at = filled(1), list[int]()
    for rules in range(2, 1_001):
        spares = spares.using(f"be-{rules}", next(iter(spares.free)))
        if spares.are_scarce:
            refilled_at.append(rules)
            spares = filled(rules)
    assert refilled_at == [77, 828]


def test_one_more_rule_leaves_the_section_of_its_profile_alone_until_they_have_doubled() -> None:
    memo = Memo()
    routes = [filtered(f"r{number}") for number in range(5)]
    found = [given(read(snapshot(CLASS, GATEWAY, APP, *routes[:count]), memo))["backends"] for count in (3, 4, 5)]
    three, four, five = (
        next(each for each in backends.values() if each.is_profile and each.rules) for backends in found
    )
    assert four is three
    assert (four.rules, five.rules) == (4, 8)


def test_weights_make_no_profile_of_their_own() -> None:
    def lines(*references: Reference) -> RuleProfile | None:
        (backend,) = sections_of(ParsedRule(()), references, "b", "o").backends
        return backend.lines

    at = PortAt(Key("shop", "app"), 0)
    assert lines(Reference(1, at), Reference(1, at)) == lines(Reference(99, at), Reference(0, at))
    failing = Reference(1, resolved=False)
    assert lines(Reference(1), failing) != lines(Reference(99), failing)


DIVIDED = """[{backendRefs: [{name: app, port: 80, weight: 30}, {name: canary, port: 80, weight: %d}], %s}]"""


@pytest.mark.parametrize("weight", [0, 10])
@pytest.mark.parametrize("filters", [ADDED % ("x-by", "a"), ""])
def test_a_reference_that_loses_its_endpoints_is_no_reload(filters: str, weight: int) -> None:
    """Their share becomes an entry of the map."""
    canary = SERVICE.format(name="canary", address="10.0.0.2")
    without = canary.partition("---")[0]
    rules = route("web", DIVIDED % (weight, filters))
    full, empty = context_of(canary, rules), context_of(without, rules)
    assert profiles_of(full) == profiles_of(empty)
    before, after = rendered(full), rendered(empty)
    for new, running in ((after, before), (before, after)):
        assert isinstance(plan(new, running, None, abilities=Abilities(runtime=True)), RuntimeUpdate)
    shares = {key.rpartition("|")[2]: value for key, value in values_of(empty).items()}
    assert shares.get("empty") == ("250000" if weight else None)
    assert "empty" not in {key.rpartition("|")[2] for key in values_of(full)}


def test_no_session_is_answered_for_another_reference() -> None:
    kept = ParsedRule((), policy=NO_POLICY._replace(session=Session("sid")))
    references = (Reference(1, PortAt(Key("shop", "app"), 0)),) * 2
    (backend,) = sections_of(kept, references, "b", "o").backends
    assert not backend.divided


def test_one_reference_needs_no_lines_for_its_share() -> None:
    one = context_of(route("web", "[{backendRefs: [{name: app, port: 80}]}]"))
    assert profiles_of(one) == []
    assert "txn.empty" not in rendered(one).text


def test_a_backend_that_says_nothing_of_its_own_has_no_profile() -> None:
    assert RuleBackend("b", "o", "", "", (), ()).lines is None
    assert RuleBackend("b", "o", "", "", (), (), mode="tcp", failing=1).lines is None
    failing = RuleBackend("b", "o", "", "", (), (), failing=1)
    assert failing.lines == RuleProfile(NO_FILTERS, 1, 1, AS_USUAL, "", ())
    plain = RuleBackend("b", "o", "", "", (), ())
    for more in ({"options": "ssl"}, {"sans": ("aa",)}, {"handling": AS_USUAL._replace(timeout_ms=1)}):
        assert msgspec.structs.replace(plain, **more).lines is not None


def test_without_a_section_base_nothing_is_from_it() -> None:
    """An operator may have one defaults section without a name: then no rule shares lines."""
    shipped = read_fragments(directory())
    own = Fragment("01-defaults.conf", "defaults\n    mode http\n")
    fragments = tuple(own if each.name == own.name else each for each in shipped.fragments)
    variables = {"http_bind": "", "https_bind": "", "stats_bind": ""}
    context = context_of(filtered("one"))
    names = {"domains": {}, "tls": {"default_certificate": "", "in_use": False}, **context.names}
    renderer = Renderer(FragmentSet(fragments, shipped.includable), RenderOptions("/files", variables=variables))
    text = renderer.render(Context(names), curdate="").rendering.text
    assert "backend gw_http_shop_one_0" in text
    assert "from base" not in text
