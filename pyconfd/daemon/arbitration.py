"""Leaves out what asks for an address and port that somebody else on this host has, so that it stops nobody else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

from pyconfd.model.context import Context, RefusalReason
from pyconfd.model.listener import Listener, asked_for
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import NEVER, NameRegister, Owner, Reservations
from pyconfd.model.snapshot import KIND_OF, Key, Snapshot
from pyconfd.presets import conflicts, registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
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


@dataclass(frozen=True, slots=True)
class FormerNames:
    """Who had which name, as of ``now`` (seconds since the epoch); what has no owner is kept ``keep_s``.

    ``held_back`` are objects that are there and left out: what was theirs is kept on.
    """

    register: NameRegister = field(default_factory=NameRegister)
    now: float = 0.0
    keep_s: float = 0.0
    held_back: frozenset[Key] = frozenset()


NOTHING_TAKEN: Mapping[Listener, str] = MappingProxyType({})


def translate(
    snapshot: Snapshot,
    presets: Sequence[str],
    options: PresetOptions,
    memo: Memo | None = None,
    former_names: FormerNames = FormerNames(),
    *,
    taken: Mapping[Listener, str] = NOTHING_TAKEN,
) -> Context:
    """Return what the presets make of a Snapshot, without the claims to listeners that are ``taken``.

    No name goes to another namespace while it is reserved for that of its former owner. The ``register`` of the result
    is what to remember of that for the next translation.
    """
    now, keep_s = former_names.now, former_names.keep_s
    before = conflicts.current_register(former_names.register, now, keep_s, former_names.held_back)

    def read(reservations: Mapping[str, Reservations]) -> tuple[Context, NameRegister]:
        asked_with = replace(options, contested=taken, reservations=reservations) if taken or reservations else options
        context = registry.translate(snapshot, presets, asked_with, memo)
        is_released = partial(_is_released, snapshot, context)
        after = conflicts.register_after(before, context.owners, is_released=is_released, now=now, keep_s=keep_s)
        return context, after

    context, after = read(before.reservations)
    if conflicts.contradicted(after, context.owners):
        # An owner that has just gone left a reservation, which the first reading could not know.
        context, after = read(after.reservations)
    return replace(context, register=after)


_LOST = frozenset({RefusalReason.NAME_TAKEN, RefusalReason.NAME_RESERVED, RefusalReason.NOT_ALLOWED})
"""Why an object that asks for something sound does not have it."""


def _is_released(snapshot: Snapshot, context: Context, owner: Owner) -> bool:
    """Return whether the very object that had a name is still there and in order, so that it gave the name up."""
    resource = next((each for each, kind in KIND_OF.items() if kind == owner.kind), None)
    found = getattr(snapshot, resource.field).get(Key(owner.namespace, owner.name)) if resource else None
    if found is None or (found.metadata.creation_timestamp or NEVER) != owner.since:
        return False
    ref = (owner.kind, owner.namespace, owner.name)
    return all(
        (each.ref.kind, each.ref.namespace, each.ref.name) != ref or each.reason in _LOST for each in context.refused
    )
