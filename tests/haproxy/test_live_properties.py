"""``diff(a, b)`` executed on a process at ``a`` gives ``b``, or is a reload; piece by piece or as a whole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.compare import Comparison
from pyconfd.haproxy.diff import plan
from pyconfd.haproxy.live import Abilities
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from tests.haproxy.process_model import ProcessModel

CAN = Abilities(runtime=True, why="", cookies=True, backends=True)
MAP, CERTIFICATE = "/m/hosts.map", "/c/site.pem"
HEAD = f"""global
    maxconn 100
defaults base
    mode http
    balance {{balance}}
    default-server check inter 3s{{default}}
defaults last
    mode http
    default-server check inter 5s weight 7
frontend fe
    bind :80 ssl crt /c/
    use_backend %[req.hdr(host),map_str({MAP})]
"""

words = st.sampled_from(["", " weight 0", " weight 20", " disabled", " backup", " weight 20 disabled", " maxconn 5"])
servers = st.dictionaries(
    st.sampled_from("abcdef"), st.tuples(st.sampled_from(["10.0.0.1:80", "10.0.0.2:80"]), words), max_size=4
)
backends = st.dictionaries(
    st.sampled_from(["b1", "b2", "b3", "b4"]),
    st.tuples(servers, st.sampled_from([" from base", " from last", ""]), st.sampled_from(["", "    option x\n"])),
    max_size=4,
)
maps = st.dictionaries(st.sampled_from(["h1", "h2", "h3"]), st.sampled_from(["b1", "b2"]), max_size=3)
certificates = st.dictionaries(st.sampled_from(["/c/site.pem", "/c/two.pem"]), st.sampled_from(["P\n", "Q\n"]))


@st.composite
def renderings(draw: st.DrawFn) -> Rendering:
    """A configuration of a few backends, a map and certificates, each backend in a piece of its own."""
    rare = st.integers(0, 9).map(lambda number: number == 0)
    head = HEAD.format(balance="source" if draw(rare) else "roundrobin", default=" rise 1" if draw(rare) else "")
    pieces = [Piece("01", head)]
    for name, (members, inherits, extra) in draw(backends).items():
        lines = "".join(f"    server {one} {at} id {ord(one)}{word}\n" for one, (at, word) in members.items())
        pieces.append(Piece("02", f"# {name}\nbackend {name}{inherits}\n{extra}{lines}\n"))
    content = "".join(f"{key} {value}\n" for key, value in draw(maps).items())
    files = [OutputFile(FileKind.MAP, MAP, content)]
    files += [OutputFile(FileKind.CERTIFICATE, path, pem) for path, pem in draw(certificates).items()]
    return Rendering(tuple(pieces), tuple(sorted(files, key=lambda file: file.path)))


def carried_out(process: ProcessModel, made: Reload | RuntimeUpdate, desired: Rendering) -> ProcessModel:
    if isinstance(made, Reload):
        return ProcessModel.of(desired)
    for command in made.commands:
        process.execute(command)
    return process


@settings(max_examples=100)
@given(st.lists(renderings(), min_size=2, max_size=5))
def test_executing_the_difference_gives_the_rendering(states: list[Rendering]) -> None:
    comparison = Comparison()
    process, applied = ProcessModel.of(states[0]), states[0]
    for desired in states[1:]:
        made = plan(desired, applied, None, comparison=comparison, abilities=CAN)
        if isinstance(made, Noop):
            assert desired == applied
        else:
            process = carried_out(process, made, desired)
        assert process.comparable() == ProcessModel.of(desired).comparable()
        applied = desired


@settings(max_examples=100)
@given(renderings(), renderings())
def test_judging_pieces_gives_what_judging_everything_gives(old: Rendering, new: Rendering) -> None:
    by_pieces = plan(new, old, None, comparison=Comparison(), abilities=CAN)
    joined = [Rendering((Piece("all", one.text),), one.files) for one in (old, new)]
    whole = plan(joined[1], joined[0], None, comparison=Comparison(), abilities=CAN)
    if isinstance(whole, Reload) and isinstance(by_pieces, Reload):
        assert by_pieces.reasons == whole.reasons
    else:
        assert by_pieces == whole


@settings(max_examples=100)
@given(renderings(), renderings())
def test_what_goes_live_before_a_reload_is_what_the_file_says_then(old: Rendering, new: Rendering) -> None:
    comparison = Comparison()
    made = plan(new, old, None, comparison=comparison, abilities=CAN)
    if isinstance(made, Reload) and made.live is not None:
        process = ProcessModel.of(old)
        for command in made.live.commands:
            process.execute(command)
        partial = comparison.partial(old)
        assert process.comparable() == ProcessModel.of(partial).comparable()
        # and from there the same rest is left, now without anything to be done before
        rest = plan(new, partial, None, comparison=Comparison(), abilities=CAN)
        assert not isinstance(rest, Noop)
        if isinstance(rest, Reload):
            assert rest.live is None
