"""From a Snapshot to a Context: names stay reserved for former owners, and nothing binds what is taken on this host."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from types import MappingProxyType

from pyconfd.model.context import Context, RefusalReason, left_out
from pyconfd.model.gateway_api import Gateway
from pyconfd.model.ingress import Ingress
from pyconfd.model.kubernetes import AnyObject
from pyconfd.model.listener import Listener, asked_for
from pyconfd.model.rendering import Rendering
from pyconfd.model.reservation import NEVER, NO_OWNERS, NameRegister, Owner, Reservations
from pyconfd.model.snapshot import KIND_OF, Key, Snapshot
from pyconfd.presets import addresses, conflicts, registry
from pyconfd.presets.ingress.claims import HOST_FIELD
from pyconfd.presets.ingress.classes import class_of
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from pyconfd.render.engine import Rendered

NOTHING_TAKEN: Mapping[Listener, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class FormerNames:
    """Who had which name, as of ``now`` (seconds since the epoch); a name without owner stays reserved ``keep_s``.

    ``held_back`` are objects that are there and left out: what was theirs stays reserved for them.
    """

    register: NameRegister = field(default_factory=NameRegister)
    now: float = 0.0
    keep_s: float = 0.0
    held_back: frozenset[Key] = frozenset()


@dataclass(frozen=True, slots=True)
class ConflictFree:
    """A rendering that binds nothing that is taken; ``port_conflict`` where an object lost a listener for that."""

    context: Context
    rendered: Rendered
    port_conflict: bool = False


@dataclass(frozen=True, slots=True)
class Translator:
    """The presets in use and what they obey.

    ``memo`` is that of the former translations: with it, what did not change is the same object as before. ``names`` is
    who had which name before.
    """

    presets: tuple[str, ...]
    options: PresetOptions = field(default_factory=PresetOptions)
    memo: Memo | None = None
    names: FormerNames = field(default_factory=FormerNames)

    def translate(self, snapshot: Snapshot, taken: Mapping[Listener, str] = NOTHING_TAKEN) -> Context:
        """Return what the presets make of a Snapshot, without the claims to listeners that are ``taken``.

        No name goes to another namespace while it is reserved for that of its former owner. The ``register`` of the
        result is what to remember of that for the next translation.
        """
        names = self.names
        faulty = self.memo.faulty if self.memo is not None else frozenset()
        held_back = names.held_back | faulty
        before = conflicts.current_register(names.register, names.now, names.keep_s, held_back)
        context, after = self._read(snapshot, taken, before, before.reservations)
        if conflicts.freed(before, after):
            # What an owner gave up may go to the next claim, and only this reading knows that it did.
            context, after = self._read(snapshot, taken, after, after.reservations)
        return replace(context, register=after)

    def _read(
        self,
        snapshot: Snapshot,
        taken: Mapping[Listener, str],
        before: NameRegister,
        reservations: Mapping[str, Reservations],
    ) -> tuple[Context, NameRegister]:
        options = self.options
        if taken or reservations:
            options = replace(options, taken_listeners=taken, reservations=reservations)
        had = before.owners.get(addresses.RESERVED, NO_OWNERS)
        context = registry.translate(snapshot, self.presets, options, self.memo, had=had)
        # One object may give up a thousand names at once.
        is_released = cache(partial(_is_released, snapshot, context))
        now, keep_s = self.names.now, self.names.keep_s
        after = conflicts.register_after(before, context.reserved, is_released=is_released, now=now, keep_s=keep_s)
        return context, after


def render_without_conflicts(
    context: Context,
    translate: Callable[[Mapping[Listener, str]], Context],
    *,
    render: Callable[[Context], Rendered],
    conflicts_of: Callable[[Rendering], Mapping[Listener, str]],
    is_applied: Callable[[Rendering], bool],
    rounds: int,
) -> ConflictFree:
    """Render ``context``, and translate again without the listeners that another process has (``conflicts_of``).

    A rendering that is applied has none. What one preset loses another may get, and not have either, so there are as
    many rounds as presets; what is still taken then is found by the check of the binds. Raises what ``render`` raises.
    """
    rendered = render(context)
    taken: dict[Listener, str] = {}
    for _ in range(rounds):
        if not context.listeners or is_applied(rendered.rendering):
            break
        more = asked_for(conflicts_of(rendered.rendering), context.listeners)
        if not more:
            break
        taken |= more
        context = translate(taken)
        rendered = render(context)
    return ConflictFree(context, rendered, bool(taken))


_LOST = frozenset({RefusalReason.NAME_TAKEN, RefusalReason.NAME_RESERVED, RefusalReason.NOT_ALLOWED})
"""Why an object whose claim is valid does not have a name."""


def _is_released(snapshot: Snapshot, context: Context, scope: str, owner: Owner) -> bool:
    """Return whether the very object that had a name is still there and valid, so that it gave the name up."""
    resource = next((each for each, kind in KIND_OF.items() if kind == owner.kind), None)
    found = getattr(snapshot, resource.field).get(Key(owner.namespace, owner.name)) if resource else None
    if found is None or (found.metadata.creation_timestamp or NEVER) != owner.since:
        return False
    ref = (owner.kind, owner.namespace, owner.name)
    refused = [each for each in left_out(context.refused) if (each.ref.kind, each.ref.namespace, each.ref.name) == ref]
    is_misspelled = any(each.field == HOST_FIELD and each.reason not in _LOST for each in refused)
    if owner in context.reserved.get(scope, {}).values() and not is_misspelled:
        return True  # it has another name now, whatever else of it is refused
    if _lacks_its_class(found, snapshot):
        return False  # who deletes a class, to create it again, gives nothing up for others
    return all(each.reason in _LOST for each in refused)


def _lacks_its_class(found: AnyObject, snapshot: Snapshot) -> bool:
    """Return whether an object names a class that is not there."""
    if isinstance(found, Ingress):
        name = class_of(found)
        return name is not None and Key("", name) not in snapshot.ingressclasses
    return isinstance(found, Gateway) and Key("", found.spec.gateway_class_name) not in snapshot.gatewayclasses
