"""Leaves out what asks for an address and port that somebody else on this host has, so that it stops nobody else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyconfd.model.context import Context
from pyconfd.model.listener import Listener, asked_for
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets import registry
from pyconfd.presets.memo import Memo
from pyconfd.presets.reading import PresetOptions
from pyconfd.render.engine import Rendered

Contested = Callable[[Rendering], Mapping[Listener, str]]
"""Gives the new binds of a rendering that somebody else has, and a sentence about who that is."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A rendering that asks for nothing that is taken; ``contested`` says whether an object goes without for that."""

    context: Context
    rendered: Rendered
    contested: bool = False


def settle(
    context: Context,
    translate: Callable[[Mapping[Listener, str]], Context],
    *,
    render: Callable[[Context], Rendered],
    contested: Contested,
    serves: Callable[[Rendering], bool],
    presets: int,
) -> Settled:
    """Render ``context``, and translate again without the claims that cannot be had at present.

    What ``serves`` is never asked about. What one of the ``presets`` loses another may
    get, and not have either, so there are as many rounds as presets; what is still taken then is found by the check
    of the binds. Raises what ``render`` raises.
    """
    rendered = render(context)
    taken: dict[Listener, str] = {}
    for _ in range(presets):
        if not context.listeners or serves(rendered.rendering):
            break
        more = asked_for(contested(rendered.rendering), context.listeners)
        if not more:
            break
        taken |= more
        context = translate(taken)
        rendered = render(context)
    return Settled(context, rendered, bool(taken))


def translator(
    snapshot: Snapshot, presets: Sequence[str], options: PresetOptions, memo: Memo | None = None
) -> Callable[[Mapping[Listener, str]], Context]:
    """Give what reads a Snapshot without the claims that are ``contested``."""

    def translate(taken: Mapping[Listener, str]) -> Context:
        return registry.translate(snapshot, presets, replace(options, contested=taken) if taken else options, memo)

    return translate
