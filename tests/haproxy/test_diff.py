from hashlib import sha256
from itertools import pairwise
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.haproxy.config import diff
from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import MAX_DETAILS, Comparison, differences, plan
from pyconfd.haproxy.config.index import Index, index_of
from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process.observation import NotRunning, Observation, Running, RunningState, UnknownProcess
from pyconfd.model.operations import (
    AddCertificate,
    AddListLines,
    ChangeMapEntries,
    Command,
    RemoveCertificate,
    RemoveListLines,
    ReplaceMap,
    UpdateCertificate,
)
from pyconfd.model.plan import Noop, Reload, ReloadReason, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering

BASE = """global
    maxconn 10
defaults
    mode http
frontend fe
    bind :80
    default_backend be_x
backend be_x
    balance roundrobin
    server a 10.0.0.1:80
"""


def rendering(text: str, *files: OutputFile) -> Rendering:
    return Rendering((Piece("01.tmpl", text),), files)


def level_with(applied: Rendering, running: RunningState | None = None) -> Observation:
    return Observation(
        mark(applied.text, applied.digest),
        running or Running(applied.digest, 2),
        MappingProxyType({file.path: sha256(file.content.encode()).hexdigest() for file in applied.files}),
    )


def reload(old: str, new: str) -> Reload:
    made = plan(rendering(new), rendering(old), level_with(rendering(old)))
    assert isinstance(made, Reload)
    return made


def test_nothing_to_do_when_all_agree_or_the_process_cannot_be_asked() -> None:
    applied = rendering(BASE)
    assert plan(rendering(BASE), applied, level_with(applied)) == Noop()
    assert plan(rendering(BASE), applied, level_with(applied, UnknownProcess())) == Noop()


@given(st.text(), st.lists(st.tuples(st.sampled_from(FileKind), st.text(min_size=1), st.text()), max_size=3))
def test_a_rendering_against_itself_is_a_noop(text: str, files: list[tuple[FileKind, str, str]]) -> None:
    unique = {path: OutputFile(kind, path, content) for kind, path, content in files}
    same = rendering(text, *unique.values())
    assert plan(same, same, level_with(same)) == Noop()


@given(st.text(), st.text())
def test_another_text_is_never_a_noop(old: str, new: str) -> None:
    if old != new:
        assert not isinstance(plan(rendering(new), rendering(old), level_with(rendering(old))), Noop)


@pytest.mark.parametrize(
    ("new", "reason", "detail"),
    [
        (BASE.replace("maxconn 10", "maxconn 11"), ReloadReason.GLOBAL_CHANGED, "global changed"),
        (BASE.replace("mode http", "mode tcp"), ReloadReason.DEFAULTS_CHANGED, "defaults changed"),
        (BASE.replace("bind :80", "bind :81"), ReloadReason.BINDS_CHANGED, "frontend fe: 1 bind added, 1 bind removed"),
        (
            BASE + "    server b 10.0.0.2:80\n    server c 10.0.0.3:80\n",
            ReloadReason.NOT_LIVE,
            "backend be_x: 2 servers added",
        ),
        (
            BASE.replace("10.0.0.1", "10.0.0.9"),
            ReloadReason.SERVER_RENAMED,
            "backend be_x: 1 server changed (a has another address)",
        ),
        (
            BASE + "    server  10.0.0.2:80\n",
            ReloadReason.SERVERS_CHANGED,
            "backend be_x: 1 server added (a server line has no address)",
        ),
        (BASE.replace("roundrobin", "leastconn"), ReloadReason.SECTION_CHANGED, "backend be_x changed"),
        (BASE + "backend be_y\n    server a 10.0.0.2:80\n", ReloadReason.SECTION_ADDED, "backend be_y added"),
        (BASE.partition("\nbackend be_x\n")[0], ReloadReason.SECTION_REMOVED, "backend be_x removed"),
    ],
)
def test_each_change_has_its_reason_and_is_told(new: str, reason: ReloadReason, detail: str) -> None:
    assert reload(BASE, new) == Reload((reason,), (detail,))
    assert differences(rendering(BASE), rendering(new)) == (detail,)


ONE = "defaults one\n    mode http\n"
TWO = "defaults two\n    mode tcp\n"
FRONTEND, BACKEND = "frontend f\n    bind :80\n", "backend x\n    server s 192.0.2.1:80\n"


@pytest.mark.parametrize(
    ("old", "new", "moved"),
    [
        ((ONE, TWO, BACKEND), (ONE, BACKEND, TWO), "backend x"),
        ((ONE, BACKEND, TWO, FRONTEND), (ONE, FRONTEND, TWO, BACKEND), "frontend f"),
        ((ONE, FRONTEND, BACKEND), (FRONTEND, BACKEND, ONE), "frontend f"),
        # What says from which section it inherits inherits from that wherever it stands.
        (
            (ONE, TWO, BACKEND.replace("backend x", "backend x from one")),
            (ONE, BACKEND.replace("backend x", "backend x from one"), TWO),
            "",
        ),
        ((ONE, FRONTEND, BACKEND), (ONE, BACKEND, FRONTEND), ""),
        # Without names they differ by their lines alone, also by one that says nothing of servers.
        (
            ("defaults\n mode http\n", "defaults\n mode tcp\n", BACKEND),
            ("defaults\n mode http\n", BACKEND, "defaults\n mode tcp\n"),
            "backend x",
        ),
    ],
)
def test_a_section_that_moves_below_other_defaults_needs_a_reload(
    old: tuple[str, ...], new: tuple[str, ...], moved: str
) -> None:
    made = plan(rendering("".join(new)), rendering("".join(old)), level_with(rendering("".join(old))))
    assert made == (
        Reload((ReloadReason.DEFAULTS_CHANGED,), (f"{moved} inherits from another section",))
        if moved
        else RuntimeUpdate((), ("comments, blanks or the order of sections",))
    )


def test_comments_change_the_file_alone() -> None:
    old = rendering(BASE)
    made = plan(rendering("# hello\n" + BASE), old, level_with(old))
    assert made == RuntimeUpdate((), ("comments, blanks or the order of sections",))


def test_several_reasons_are_sorted_and_details_are_bounded() -> None:
    more = "".join(f"backend be_{number}\n    server a 10.0.0.2:80\n" for number in range(100))
    made = reload(BASE, BASE.replace("maxconn 10", "maxconn 11") + more)
    assert made.reasons == (ReloadReason.GLOBAL_CHANGED, ReloadReason.SECTION_ADDED)
    assert len(made.details) == MAX_DETAILS + 1
    assert made.details[-1] == "and 51 more"


def test_maps_and_certificates() -> None:
    text = f"{BASE}    server s 192.0.2.9:443 ssl crt /k/c\n"
    old = rendering(text, OutputFile(FileKind.MAP, "/m", "a"), OutputFile(FileKind.CERTIFICATE, "/k/c", "x"))
    new = rendering(text, OutputFile(FileKind.MAP, "/m", "b"), OutputFile(FileKind.CERTIFICATE, "/k/d", "x"))
    assert plan(new, old, level_with(old)) == Reload(
        (ReloadReason.CERTIFICATES_CHANGED, ReloadReason.MAPS_CHANGED),
        ("certificate /k/c removed", "certificate /k/d added", "map /m changed"),
    )


BY_LIST = "\nfrontend tls\n    bind :443 ssl strict-sni crt-list /m/list\n"


def listed(lines: str, *names: str, text: str = BY_LIST) -> Rendering:
    files = (OutputFile(FileKind.CERTIFICATE, f"/k/{name}", f"{name}\n") for name in names)
    return rendering(BASE + text, OutputFile(FileKind.MAP, "/m/list", lines), *files)


@pytest.mark.parametrize(
    ("old", "new", "commands"),
    [
        (("", ()), ("/k/a x\n", ("a",)), (AddCertificate("/k/a", "a\n"), AddListLines("/m/list", ("/k/a x",)))),
        (("/k/a x\n", ("a",)), ("", ()), (RemoveListLines("/m/list", ("/k/a x",)), RemoveCertificate("/k/a"))),
        (
            ("/k/a x\n/k/b y\n", ("a", "b")),
            ("/k/a x\n/k/b x *.z\n", ("a", "b")),
            (AddListLines("/m/list", ("/k/b x *.z",)), RemoveListLines("/m/list", ("/k/b y",))),
        ),
        # Nothing names it.
        (("/k/a x\n", ("a",)), ("/k/a x\n", ("a", "b")), ()),
    ],
)
def test_a_list_of_certificates_changes_without_a_reload(
    old: tuple[str, tuple[str, ...]], new: tuple[str, tuple[str, ...]], commands: tuple[Command, ...]
) -> None:
    before, after = (listed(lines, *names) for lines, names in (old, new))
    made = plan(after, before, level_with(before), abilities=Abilities(runtime=True))
    assert isinstance(made, RuntimeUpdate)
    assert made.commands == commands


def test_the_default_certificate_of_a_bind_is_renewed_without_a_reload() -> None:
    text = BASE + BY_LIST.replace("strict-sni", "crt /k/a")
    before, after = (
        rendering(text, OutputFile(FileKind.MAP, "/m/list", ""), OutputFile(FileKind.CERTIFICATE, "/k/a", pem))
        for pem in ("a\n", "b\n")
    )
    made = plan(after, before, level_with(before), abilities=Abilities(runtime=True))
    assert isinstance(made, RuntimeUpdate)
    assert made.commands == (UpdateCertificate("/k/a", "b\n"),)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("/k/a x\n", "/k/a [alpn h2] x\n", BY_LIST),
        ("/k/a x\n", "/k/a x\n/k/a !y\n", BY_LIST),
        ("/k/a x\n/k/a x\n", "/k/a x\n", BY_LIST),
        ("/k/a x\n", "/k/a y\n", BY_LIST.replace(" strict-sni", "")),
        ("/k/a x\n", "/k/a y\n", f"{BY_LIST}    use_backend %[path,map(/m/list)]\n"),
    ],
)
def test_a_list_with_options_or_a_default_needs_a_reload(old: str, new: str, text: str) -> None:
    before, after = listed(old, "a", text=text), listed(new, "a", text=text)
    made = plan(after, before, level_with(before), abilities=Abilities(runtime=True))
    assert isinstance(made, Reload)
    assert made.reasons == (ReloadReason.CERTIFICATES_CHANGED,)


def test_how_a_map_is_read_is_asked_again_after_a_section_changed() -> None:
    """Entries of a map that is read by expressions have an order, and are replaced all at once."""
    text = BASE.replace("default_backend be_x", "use_backend %[path,map_str(/m)]")
    ordered = text.replace("map_str", "map_reg")

    def made(written: str, entries: str) -> Rendering:
        head, front = written.split("frontend")
        pieces = (Piece("01.tmpl", head), Piece("02.tmpl", f"frontend{front}"))
        return Rendering(pieces, (OutputFile(FileKind.MAP, "/m", entries),))

    states = [made(text, "a b\n"), made(text, "a c\n"), made(ordered, "a c\n"), made(ordered, "a d\n")]
    comparison, found = Comparison(), list[Command]()
    for old, new in pairwise(states):
        changes = comparison.compare(old, new, Abilities(runtime=True))
        assert changes is not None
        found += changes.commands
    assert found == [ChangeMapEntries("/m", (("a", "c"),)), ReplaceMap("/m", (("a", "d"),))]


def test_the_first_configuration() -> None:
    made = plan(rendering(BASE), None, Observation())
    assert made == Reload((ReloadReason.FIRST_CONFIGURATION,), ("the first configuration",))


@pytest.mark.parametrize("text", [None, BASE, "edited\n"])
def test_an_installed_file_that_is_not_ours_is_written_again(text: str | None) -> None:
    applied = rendering(BASE)
    observed = Observation(text, Running(applied.digest, 2))
    made = plan(applied, applied, observed)
    assert isinstance(made, Reload)
    assert made.reasons == (ReloadReason.FILE_EDITED,)


@pytest.mark.parametrize("digests", [{}, {"/m": sha256(b"other").hexdigest()}])
def test_a_declared_file_that_is_not_ours_is_written_again(digests: dict[str, str]) -> None:
    applied = rendering(BASE, OutputFile(FileKind.MAP, "/m", "a"))
    observed = Observation(mark(applied.text, applied.digest), UnknownProcess(), MappingProxyType(digests))
    made = plan(applied, applied, observed)
    assert isinstance(made, Reload)
    assert made.reasons == (ReloadReason.FILE_EDITED,)


@pytest.mark.parametrize("running", [NotRunning(), Running(None, 2), Running("f" * 64, 2)])
def test_a_process_that_is_behind_is_reloaded(running: RunningState) -> None:
    applied = rendering(BASE)
    made = plan(applied, applied, level_with(applied, running))
    assert isinstance(made, Reload)
    assert made.reasons == (ReloadReason.PROCESS_BEHIND,)


def test_a_process_that_runs_what_was_applied_is_no_second_reason_for_a_change() -> None:
    assert reload(BASE, BASE.replace("maxconn 10", "maxconn 11")).reasons == (ReloadReason.GLOBAL_CHANGED,)


def test_equal_rendering_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event that changes nothing, as of Endpoints beside a slice, gives an equal rendering of other objects."""

    def made(*servers: str) -> Rendering:
        blocks = [f"backend be_{number}\n    server a {server}\n" for number, server in enumerate(servers)]
        return Rendering((Piece("00.conf", BASE), Piece("01.tmpl", *blocks)))

    comparison, parsed = Comparison(), list[str]()

    def counted(text: str) -> Index:
        parsed.append(text)
        return index_of(text)

    monkeypatch.setattr(diff, "index_of", counted)
    before, after, again = made("10.0.0.1:80", "10.0.0.2:80"), *(made("10.0.0.1:80", "10.0.0.3:80") for _ in range(2))
    assert comparison.compare(before, after, Abilities(runtime=True)) is not None
    del parsed[:]
    assert comparison.compare(after, again, Abilities(runtime=True)) is None
    assert comparison.index(again).text == again.text
    assert parsed == []


def test_blocks_are_not_searched_for_sections_where_a_defaults_section_comes_or_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All between it and the last change would be, in vain: it concerns what stands below."""

    def never(*_: object) -> None:
        raise AssertionError("the blocks are cut")

    head, backend = "defaults a\n    mode http\n", "backend be from a\n    server s 10.0.0.1:80 id 1\n"
    without, more = Piece("1.tmpl", head, backend), Piece("1.tmpl", head, "# x\ndefaults b from a\n", backend)
    monkeypatch.setattr(diff, "_span", never)
    for old, new in ((without, more), (more, without)):
        found = Comparison().compare(Rendering((old,)), Rendering((new,)), Abilities(runtime=True))
        assert found is not None
        assert found.commands == []
    other = Piece("1.tmpl", head, backend.replace("id 1", "id 1 weight 2"))
    with pytest.raises(AssertionError, match="are cut"):
        Comparison().compare(Rendering((without,)), Rendering((other,)), Abilities(runtime=True))
