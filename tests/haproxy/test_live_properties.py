"""``diff(a, b)`` executed on a process at ``a`` gives ``b``, or is a reload; piece by piece or as a whole."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import Abilities
from pyconfd.haproxy.config.diff import Comparison, plan
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import Piece, Rendering
from tests.haproxy.process_model import Place, ProcessModel, states

CAN = Abilities(runtime=True, why="", cookies=True, backends=True)
PLACE = Place()
renderings = states.map(lambda state: state.rendering(PLACE))


def carried_out(process: ProcessModel, made: Reload | RuntimeUpdate, desired: Rendering) -> ProcessModel:
    if isinstance(made, Reload):
        return ProcessModel.of(desired)
    for command in made.commands:
        process.execute(command)
    return process


@settings(max_examples=100)
@given(st.lists(renderings, min_size=2, max_size=5))
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
@given(renderings, renderings)
def test_judging_pieces_gives_what_judging_everything_gives(old: Rendering, new: Rendering) -> None:
    by_pieces = plan(new, old, None, comparison=Comparison(), abilities=CAN)
    joined = [Rendering((Piece("all", one.text),), one.files) for one in (old, new)]
    whole = plan(joined[1], joined[0], None, comparison=Comparison(), abilities=CAN)
    if isinstance(whole, Reload) and isinstance(by_pieces, Reload):
        assert by_pieces.reasons == whole.reasons
    else:
        assert by_pieces == whole


@settings(max_examples=100)
@given(renderings, renderings)
def test_what_goes_live_before_a_reload_is_what_the_file_says_then(old: Rendering, new: Rendering) -> None:
    comparison = Comparison()
    made = plan(new, old, None, comparison=comparison, abilities=CAN)
    if isinstance(made, Reload) and made.live is not None:
        process = ProcessModel.of(old)
        for command in made.live.commands:
            process.execute(command)
        partial = comparison.partial(old).rendering
        assert process.comparable() == ProcessModel.of(partial).comparable()
        # and from there the same rest is left, now without anything to be done before
        rest = plan(new, partial, None, comparison=Comparison(), abilities=CAN)
        assert not isinstance(rest, Noop)
        if isinstance(rest, Reload):
            assert rest.live is None
