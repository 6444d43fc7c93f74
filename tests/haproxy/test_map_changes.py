"""A map that changes entry by entry ends as the new one, and only what differs is looked at."""

from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import MAX_ENTRY_BYTES, _single, changed_files, differing_lines, entries_of
from pyconfd.haproxy.config.index import index_of
from pyconfd.model.operations import AddMapEntries, ChangeMapEntries, Command, RemoveMapEntries, ReplaceMap
from pyconfd.model.rendering import FileKind, OutputFile

KEYS = st.lists(
    st.sampled_from([*(f"k{number}/" for number in range(30)), "a", "a-b", "ab", "gw_a|b.example.com/~x/"]), unique=True
)
MAPS = st.builds(
    lambda keys, values: "".join(f"{key} {values[number % len(values)]}\n" for number, key in enumerate(sorted(keys))),
    KEYS,
    st.lists(st.sampled_from(["x", "xy", "y"]), min_size=1, max_size=3),
)


def applied(content: str, commands: Sequence[Command]) -> dict[str, str]:
    entries = dict(line.split(" ", 1) for line in content.splitlines())
    for command in commands:
        match command:
            case AddMapEntries():
                assert not entries.keys() & dict(command.entries).keys()
                entries |= dict(command.entries)
            case ChangeMapEntries():
                assert entries.keys() >= dict(command.entries).keys()
                entries |= dict(command.entries)
            case RemoveMapEntries():
                for key in command.keys:
                    del entries[key]
    return entries


@settings(max_examples=300)
@given(MAPS, MAPS)
def test_single_changes_lead_from_one_map_to_the_other(old: str, new: str) -> None:
    if commands := _single("/maps/x.map", old, new):
        assert applied(old, commands) == applied(new, [])


@settings(max_examples=300)
@given(MAPS, MAPS)
def test_lines_outside_of_the_difference_are_the_same(old: str, new: str) -> None:
    before, after = differing_lines(old, new)
    rest = old.replace(before, "", 1) if before else old
    assert rest == (new.replace(after, "", 1) if after else new)


@pytest.mark.parametrize(
    ("old", "new", "differing"),
    [
        ("", "", ("", "")),
        ("a 1\n", "a 1\n", ("", "")),
        ("a 1\nc 1\n", "a 1\nb 1\nc 1\n", ("c 1\n", "b 1\nc 1\n")),
        ("a 1\nb 1\n\n", "a 1\nx 1\n\n", ("b 1\n", "x 1\n")),
        ("a 1\nb 2\nc 1\n", "a 1\nb 3\nc 1\n", ("b 2\n", "b 3\n")),
        # The first line break of the old text is where its common end begins.
        ("\na 1\n", "b 1\n\na 1\n", ("\n", "b 1\n\n")),
        ("aa 1\n", "ba 1\n", ("aa 1\n", "ba 1\n")),
        ("a 1", "a 1\nb 1", ("a 1", "a 1\nb 1")),
        ("", "a 1\n", ("", "a 1\n")),
        ("a 1\n", "", ("a 1\n", "")),
    ],
)
def test_whole_lines_that_differ_are_looked_at(old: str, new: str, differing: tuple[str, str]) -> None:
    assert differing_lines(old, new) == differing


@pytest.mark.parametrize(
    ("content", "entries"),
    [
        ("", ()),
        ("a 1\nb  2 3 \r\n", (("a", "1"), ("b", "2 3"))),
        ("# comment\n\n #k v\n\ta\t1\n", (("#k", "v"), ("a", "1"))),
        ("a\xa0b 1\n", (("a\xa0b", "1"),)),
        ("a\n", None),
        ("a 1\x00\n", None),
        ("a 1\nb\n", None),
        (f"a {'v' * (MAX_ENTRY_BYTES - 2)}\n", (("a", "v" * (MAX_ENTRY_BYTES - 2)),)),
        (f"a {'v' * (MAX_ENTRY_BYTES - 1)}\n", None),
        (f"a {'é' * (MAX_ENTRY_BYTES // 2)}\n", None),
    ],
)
def test_entries_are_read_as_haproxy_reads_them(content: str, entries: tuple[tuple[str, str], ...] | None) -> None:
    assert entries_of(content) == entries


@pytest.mark.parametrize(("changes", "is_single"), [(8, True), (9, False)])
def test_a_small_map_is_replaced_where_more_than_eight_entries_change(changes: int, is_single: bool) -> None:
    old = "".join(f"k{number:02} x\n" for number in range(20))
    new = "".join(f"k{number:02} {'y' if number < changes else 'x'}\n" for number in range(20))
    entries = tuple((f"k{number:02}", "y") for number in range(changes))
    assert _single("/m", old, new) == ([ChangeMapEntries("/m", entries)] if is_single else [])


@pytest.mark.parametrize(("changes", "is_single"), [(25, True), (26, False)])
def test_a_big_map_is_replaced_where_more_than_a_quarter_changes(changes: int, is_single: bool) -> None:
    old = "".join(f"k{number:03} x\n" for number in range(100))
    new = "".join(f"k{number:03} {'y' if number < changes else 'x'}\n" for number in range(100))
    assert bool(_single("/m", old, new)) is is_single


def test_one_entry_of_many_is_one_command() -> None:
    lines = [f"k{number:05d} x\n" for number in range(10_000)]
    old, new = "".join(lines), "".join([*lines[:5_000], "k04999/ y\n", *lines[5_001:]])
    assert _single("/maps/x.map", old, new) == [
        AddMapEntries("/maps/x.map", (("k04999/", "y"),)),
        RemoveMapEntries("/maps/x.map", ("k05000",)),
    ]
    assert sum(map(len, differing_lines(old, new))) < 100


def test_a_key_that_stands_elsewhere_too_has_the_map_replaced() -> None:
    assert _single("/maps/x.map", "a x\nb x\nc x\n", "a x\nb y\nb x\nc x\n") == []


def test_a_path_of_a_gateway_is_a_single_change() -> None:
    old, new = "gw_a|b.example.com/ be_1\n", "gw_a|b.example.com/ be_1\ngw_a|b.example.com/~x/ be_2\n"

    assert _single("/maps/x.map", old, new) == [AddMapEntries("/maps/x.map", (("gw_a|b.example.com/~x/", "be_2"),))]


def test_a_request_between_two_entries_never_finds_the_shorter_prefix_alone() -> None:
    """A new route has two paths: what is for one of them is answered by it, or as if there was none."""
    path, without, both = "/maps/path-prefixes.map", "a/ be\nc/ be\n", "a/ be\nb/ be-all\nb/1/ be-one\nc/ be\n"
    assert _single(path, without, both) == [AddMapEntries(path, (("b/1/", "be-one"), ("b/", "be-all")))]
    assert _single(path, both, without) == [RemoveMapEntries(path, ("b/", "b/1/"))]
    turned = "a/ be\nb/1/ be-one\nb/ be-all\nc/ be\n"
    assert _single(path, turned, without) == [RemoveMapEntries(path, ("b/", "b/1/"))]
    assert _single(path, without, turned) == [AddMapEntries(path, (("b/1/", "be-one"), ("b/", "be-all")))]


FRONTEND = """
frontend http-in
    http-request set-var(txn.host) req.hdr(host),host_only,rtrim(.),lower
    http-request set-var(txn.site) var(txn.host),map_str(/m/hosts.map)
    http-request set-var(txn.site) var(txn.host),map_end(/m/wildcards.map) unless { var(txn.site) -m found }
    http-request set-var(txn.site) str(*),map_str(/m/hosts.map) unless { var(txn.site) -m found }
    http-request set-var(txn.path) path
    http-request set-var(txn.route) var(txn.site),concat(,txn.path),map_str(/m/exact.map)
    http-request set-var(txn.route) var(txn.site),concat(,txn.path,/),map_beg(/m/prefixes.map) unless { found }
    http-request set-var(txn.site) var(txn.site),map_str(/m/above.map) unless { var(txn.route) -m found }
    use_backend %[var(txn.route)] if { var(txn.route) -m found }

defaults headers
    http-response set-header x %[var(txn.route),map_str(/m/values.map)]
"""
Maps = Mapping[str, Mapping[str, str]]
Routes = frozenset[tuple[str, str, str]]
"""Of paths: the site, the path with "=" before one that is exact, and the backend."""
SITES, PATHS = ("a.example.com", ".example.com", "*"), ("/", "/x/", "/x/y/", "=/x", "=/x/y")
ROUTES = st.dictionaries(
    st.tuples(st.sampled_from(SITES), st.sampled_from(PATHS)), st.sampled_from(["one", "other"]), max_size=8
).map(lambda found: frozenset((*at, backend) for at, backend in found.items()))


def maps_of(routes: Routes) -> Maps:
    """Return the maps that lead to these backends, as the shipped fragments write them."""
    sites = {site for site, _, _ in routes}
    return {
        "hosts": {site: site for site in sites if not site.startswith(".")},
        "wildcards": {site: site for site in sites if site.startswith(".")},
        "exact": {site + path[1:]: backend for site, path, backend in routes if path.startswith("=")},
        "prefixes": {site + path: backend for site, path, backend in routes if not path.startswith("=")},
        "values": {backend: f"of-{backend}" for _, _, backend in routes},
    }


def answered(maps: Maps, host: str, path: str) -> tuple[str, str]:
    """Return the backend of a request and the value of its header, "" for none, by the lines of ``FRONTEND``."""
    wildcard = next((site for end, site in maps["wildcards"].items() if host.endswith(end)), "")
    site = maps["hosts"].get(host) or wildcard or maps["hosts"].get("*", "")
    begins = [key for key in maps["prefixes"] if site and f"{site}{path}/".startswith(key)]
    longest = maps["prefixes"][max(begins, key=len)] if begins else ""
    route = maps["exact"].get(f"{site}{path}") or longest
    return route, maps["values"].get(route, "")


def files_of(maps: Maps) -> tuple[OutputFile, ...]:
    texts = {name: "".join(f"{key} {value}\n" for key, value in sorted(each.items())) for name, each in maps.items()}
    return tuple(OutputFile(FileKind.MAP, f"/m/{name}.map", text) for name, text in sorted(texts.items()))


def steps(before: Maps, after: Maps) -> Iterator[Maps]:
    """Return the maps after each single change that HAProxy is sent, in the order of the plan."""
    maps = {name: dict(entries) for name, entries in before.items()}
    found = changed_files(files_of(before), files_of(after), index_of(FRONTEND))
    assert not found.reload_causes
    for command in sorted(found.commands, key=attrgetter("rank")):
        assert isinstance(command, AddMapEntries | ChangeMapEntries | RemoveMapEntries | ReplaceMap)
        entries = maps[command.path.removeprefix("/m/").removesuffix(".map")]
        if isinstance(command, ReplaceMap):
            entries.clear()
            entries |= dict(command.entries)
            yield maps
            continue
        for each in command.keys if isinstance(command, RemoveMapEntries) else command.entries:
            if isinstance(each, str):
                del entries[each]
            else:
                entries[each[0]] = each[1]
            yield maps
    assert maps == after


def assert_old_or_new(before: Maps, after: Maps) -> None:
    for maps in steps(before, after):
        for host in ("a.example.com", "b.example.com", "example.org"):
            for path in ("/", "/x", "/x/y", "/x/y/z"):
                found = answered(maps, host, path)
                assert found in {answered(each, host, path) for each in (before, after)}, (host, path, maps)


def test_what_leads_to_other_entries_is_added_after_them() -> None:
    index, maps = index_of(FRONTEND), ["above", "exact", "hosts", "prefixes", "values", "wildcards"]
    in_order = sorted(maps, key=lambda name: index.use_of_map(f"/m/{name}.map").place)
    assert in_order == ["values", "exact", "prefixes", "above", "hosts", "wildcards"]


@pytest.mark.parametrize(
    ("more", "kept"),
    [
        ([("a.example.com", "/", "one"), ("a.example.com", "=/x", "other")], []),
        ([("a.example.com", "/", "one"), ("a.example.com", "=/x", "other")], [("a.example.com", "/x/y/", "one")]),
        ([("a.example.com", "/x/", "one"), ("a.example.com", "=/x", "other")], [("a.example.com", "/", "one")]),
        # A host of its own beside that of a wildcard.
        ([("a.example.com", "/x/", "other")], [(".example.com", "/", "one")]),
        ([("a.example.com", "/", "other"), (".example.com", "/", "one")], []),
        # So many that maps are replaced.
        ([("a.example.com", f"/x/{each}", f"be-{each}") for each in ("", *"yabcdefghijkl")], []),
    ],
)
def test_a_request_between_two_maps_is_answered_as_before_or_as_from_now_on(
    more: list[tuple[str, str, str]], kept: list[tuple[str, str, str]]
) -> None:
    fewer, all_ = maps_of(frozenset(kept)), maps_of(frozenset([*kept, *more]))
    assert_old_or_new(fewer, all_)
    assert_old_or_new(all_, fewer)


@settings(max_examples=300)
@given(ROUTES, ROUTES, st.sampled_from(SITES))
def test_where_one_site_changes_no_request_is_answered_by_what_no_configuration_says(
    before: Routes, other: Routes, site: str
) -> None:
    """All paths of a site, or some, come, go or lead elsewhere; the sites of other hosts stay."""
    after = frozenset(each for each in before if each[0] != site) | {each for each in other if each[0] == site}
    assert_old_or_new(maps_of(before), maps_of(after))


def test_longer_keys_are_added_first() -> None:
    (added,) = _single("/maps/x.map", "", "b x\naaa y\ncc z\n")
    assert added == AddMapEntries("/maps/x.map", (("aaa", "y"), ("cc", "z"), ("b", "x")))
