"""Names stay with their namespace while an owner is replaced: a pure function of claims, former owners and the time.

Who deletes an object and creates it anew comes back younger than whoever waits for its name. Its namespace therefore
keeps the name for a while, and its seniority with it. An object that still exists and asks for something else gives
its name up at once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime

from pyconfd.model.layered import differing
from pyconfd.model.snapshot import Key
from pyconfd.model.tenure import NO_OWNERS, NO_TENURES, Name, Owner, Owners, Tenancy, Tenure, Tenures, covers, ground

IsReleased = Callable[[Owner], bool]
"""Says whether an object that had a name still exists, and gave it up."""


class Seats:
    """Whom tenures keep from a name; ``asked`` are all claims, first in rank first: the name, namespace, and who.

    What is kept on all addresses is kept on each of them.
    """

    def __init__(self, tenures: Tenures, asked: Callable[[], Iterable[tuple[Name, str, object]]]) -> None:
        self._heirs: dict[Name, object] = {}
        self._by_name: defaultdict[tuple[object, str], list[tuple[Name, Tenure]]] = defaultdict(list)
        self._kept_at: defaultdict[object, list[tuple[str, Tenure]]] = defaultdict(list)
        if tenures:
            for name, namespace, who in asked():
                if name in tenures and tenures[name].namespace == namespace:
                    self._heirs.setdefault(name, who)
            for name, tenure in tenures.items():
                self._by_name[ground(name.place), name.name].append((name, tenure))
                if tenure.until:
                    self._kept_at[ground(name.place)].append((name.place, tenure))

    def barred(self, name: Name, namespace: str, created: str) -> str:
        """Return who keeps a claim from ``name``, or ""; what ends the sentence ``this name ...`` follows."""
        for known, tenure in self._by_name.get((ground(name.place), name.name), ()):
            # A part of what is asked for may be another's where all of a listener is meant ("").
            same = covers(known.place, name.place) or (bool(name.name) and covers(name.place, known.place))
            if not same or tenure.namespace == namespace:
                continue
            heir = self._heirs.get(known)
            if heir is None:
                if tenure.until:
                    return kept(tenure)
            elif created >= tenure.since:
                since = f"its namespace has it since {tenure.since}"
                return f"{heir} has this already ({since}, before this object)"
        return ""

    def barred_from_place(self, place: str, namespace: str) -> str:
        """Say for whom something at ``place`` is kept, so that nobody else may have all of it, or ""."""
        at_port = self._kept_at.get(ground(place), ())
        others = (each for where, each in at_port if each.namespace != namespace and covers(where, place))
        return next(map(kept, others), "")


def kept(tenure: Tenure) -> str:
    """Say for whom a name without an owner is kept, and until when."""
    until = datetime.fromtimestamp(int(tenure.until), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"this was the namespace {tenure.namespace}'s, whose object is gone and may come back: it is kept for it until"
        f" {until} (setting claims.reserve_s), and is free after that, without a change of anything"
    )


def standing(former: Tenancy, now: float, keep_s: float, held_back: Collection[Key] = ()) -> Tenancy:
    """Return what is remembered at ``now``, without what was kept long enough; a clock that was set back is no reason.

    What objects had that are ``held_back`` begins anew.
    """
    if not former.tenures:
        return former
    tenures: dict[str, Tenures] = {}
    for preset, mine in former.tenures.items():
        mine_still = {
            name: tenure._replace(until=now + keep_s) if _begins_anew(tenure, now + keep_s, held_back) else tenure
            for name, tenure in mine.items()
            if not 0 < tenure.until <= now or _is_held_back(tenure, held_back)
        }
        tenures[preset] = mine if mine_still == mine else mine_still
    unchanged = all(tenures[preset] is mine for preset, mine in former.tenures.items())
    return former if unchanged else Tenancy(former.owners, tenures)


def _begins_anew(tenure: Tenure, until: float, held_back: Collection[Key]) -> bool:
    return tenure.until > until or (tenure.until > 0 and _is_held_back(tenure, held_back))


def _is_held_back(tenure: Tenure, held_back: Collection[Key]) -> bool:
    if tenure.owner:
        return Key(tenure.namespace, tenure.owner) in held_back
    return any(key.namespace == tenure.namespace for key in held_back)  # noted by an older pyconfd


def succeeded(
    former: Tenancy, owners: Mapping[str, Owners], *, is_released: IsReleased, now: float, keep_s: float
) -> Tenancy:
    """Return what to remember once ``owners`` have the names, where ``former`` was remembered before."""
    same = former.owners.keys() == owners.keys() and all(former.owners[each] is mine for each, mine in owners.items())
    if same and not former.tenures:
        return former
    tenures = {}
    for preset in sorted({*former.owners, *former.tenures, *owners}):
        before, after = former.owners.get(preset, NO_OWNERS), owners.get(preset, NO_OWNERS)
        mine = former.tenures.get(preset, NO_TENURES)
        changed = [name for name in differing(before, after) if before.get(name) != after.get(name)]
        found = dict(mine)
        for name in changed:
            tenure = _succeeded(before.get(name), after.get(name), mine.get(name), is_released, now + keep_s)
            if tenure is not None and (keep_s > 0 or not tenure.until):
                found[name] = tenure
            else:
                found.pop(name, None)
        tenures[preset] = mine if found == mine else found
    return Tenancy(owners, {preset: mine for preset, mine in tenures.items() if mine})


def _succeeded(
    old: Owner | None, new: Owner | None, known: Tenure | None, is_released: IsReleased, until: float
) -> Tenure | None:
    """Return the tenure of one name after its owner changed, came or went."""
    if old is not None:
        since = known.since if known is not None and known.namespace == old.namespace else old.since
        known = Tenure(old.namespace, min(since, old.since), until, old.name)
    if known is None:
        return None
    if new is not None and new.namespace == known.namespace:
        return known._replace(until=0.0, owner="") if new.since > known.since else None
    if old is None:
        # What was kept stays so until somebody else has it, who could only get it when it was kept no more.
        return known if new is None else None
    return None if is_released(old) else known


def contradicted(tenancy: Tenancy, owners: Mapping[str, Owners]) -> bool:
    """Return whether somebody was given a name that is another namespace's."""
    return bool(tenancy.tenures) and any(
        name in owners.get(preset, NO_OWNERS) and owners[preset][name].namespace != tenure.namespace
        for preset, mine in tenancy.tenures.items()
        for name, tenure in mine.items()
        if tenure.until
    )
