"""Which names this node keeps: those of the settings, and those of the cluster's annotation.

An annotated name comes with the first applied generation that has it. It goes only when the daemon said, all being
well, for the whole time of grace that the annotation has it no more: a daemon that is away, holds changes back or has
old data takes no name away.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from pyconfd.dns.activity import Activity
from pyconfd.dns.node import host_name
from pyconfd.dns.planner import Wish
from pyconfd.dns.records import LABEL, NoZoneError, Zone, zone_of
from pyconfd.dns.route53 import Route53
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.settings import DnsSettings, NameSettings, Settings, dns_name, name_of, names_of
from pyconfd.system.clock import SystemClock
from pyconfd.system.files import problem_of, replace_shared, unlink_shared
from pyconfd.system.state_file import StateFile

WITHDRAWN = "dns-withdrawn"
"""The name of a file in the runtime or in the state directory; while it is there, this node publishes nothing."""


@dataclass(frozen=True, slots=True)
class AnnotatedName:
    """``missed_since`` is the monotonic time at which the annotation was first without it; ``gone``: withdraw."""

    name: str
    missed_since: float | None = None
    gone: bool = False


def annotated(
    former: Mapping[str, AnnotatedName], names: tuple[str, ...] | None, dns: DnsSettings, *, sure: bool, now: float
) -> tuple[dict[str, AnnotatedName], dict[str, str]]:
    """Return the annotated names after one more look at the daemon's status, and why others are refused.

    ``names`` is None where the daemon does not know, ``sure`` False where it may know too few.
    """
    known = {name: entry for name, entry in former.items() if _allowed(name, dns)}
    refused: dict[str, str] = {}
    wanted = {}
    for text in names or ():
        name = _parse(text)
        if not name:
            refused[text] = "is no name"
        elif not _allowed(name, dns):
            refused[text] = "is not below one of dns.annotation_suffixes"
        else:
            wanted[name] = AnnotatedName(name)
    for name in sorted(wanted.keys() - known.keys()):
        if len(known) >= dns.annotation_names:
            refused[name] = f"there are {len(known)} names already, and dns.annotation_names is {dns.annotation_names}"
        else:
            known[name] = wanted[name]
    for name, entry in known.items():
        if name in wanted:
            known[name] = wanted[name]
        elif not entry.gone and (names is None or not sure):
            known[name] = replace(entry, missed_since=None)
        elif not entry.gone:
            since = now if entry.missed_since is None else entry.missed_since
            known[name] = replace(entry, missed_since=since, gone=now - since >= dns.annotation_grace_s)
    return dict(sorted(known.items())), refused


def _allowed(name: str, dns: DnsSettings) -> bool:
    return any(name == suffix or name.endswith(f".{suffix}") for suffix in dns.annotation_suffixes)


def _parse(text: str) -> str:
    try:
        name = dns_name(text)
    except ValueError:
        return ""
    return "" if name.startswith(f"{LABEL}.") else name


@dataclass(frozen=True, slots=True)
class KeptName:
    """One name and how it is kept; ``annotated`` is None for a name of the settings themselves."""

    spec: NameSettings
    annotated: AnnotatedName | None = None

    @property
    def gone(self) -> bool:
        """Return whether the annotation has it no more."""
        return self.annotated is not None and self.annotated.gone


class DnsNames:
    """The names of this node, and the hosted zones of the provider; they are listed once, until one is gone."""

    def __init__(self, settings: Settings, provider: Route53, node: str) -> None:
        self.settings, self.provider, self.node = settings, provider, node
        self._zones: tuple[Zone, ...] = ()

    def kept(self, annotated: Mapping[str, AnnotatedName]) -> tuple[KeptName, ...]:
        """Return the names of the settings, and the annotated ones beside them."""
        dns = self.settings.dns
        own = tuple(map(KeptName, names_of(dns)))
        known = {each.spec.name for each in own}
        more = (KeptName(name_of(dns, name), entry) for name, entry in annotated.items() if name not in known)
        return (*own, *more)

    @contextmanager
    def zone(self, spec: NameSettings) -> Iterator[str]:
        """Return the id of the hosted zone of a name; the list is forgotten where the zone turns out to be gone.

        Raises:
            ConfigurationError: there is none, or more than one.
            RejectedInput: it is none that the name may be in, or does not exist.
        """
        found = self._zone_id(spec)
        try:
            yield found
        except NoZoneError as error:
            self._zones = ()  # it may exist again, with another id
            listed = f"aws route53 list-hosted-zones-by-name --dns-name {spec.name}"
            remedy = (
                f"set dns.zone_id to the id of an existing zone: {listed}"
                if spec.zone_id
                else f"create a hosted zone that has {spec.name}; it is found without a restart"
            )
            raise NoZoneError(Problem(spec.name, f"its hosted zone {found} does not exist", remedy)) from error

    def _zone_id(self, spec: NameSettings) -> str:
        found = spec.zone_id
        if not found:
            self._zones = self._zones or self.provider.zones()
            try:
                found = zone_of(spec.name, self._zones, private=spec.private).zone_id
            except ConfigurationError:
                self._zones = ()  # list again: the operator may create it
                raise
        if spec.annotation_zones and found not in spec.annotation_zones:
            remedy = "add it there, or take the name out of the annotation"
            raise RejectedInput(Problem(spec.name, f"its zone {found} is not among dns.annotation_zones", remedy))
        return found


def dns_names(settings: Settings, before_request: Callable[[], None] | None = None) -> DnsNames:
    """Return the names of some settings; nothing is requested yet. ``before_request`` is called before each request.

    Raises:
        ConfigurationError: there are no names, and none can come.
    """
    dns = settings.dns
    if not (dns.names or dns.records or dns.annotation_suffixes):
        problem = Problem("dns.names", "there is no name to publish", "set dns.names; docs/route53.md has an example")
        raise ConfigurationError(problem)
    provider = Route53(dns.endpoint_url, read_timeout_s=dns.timeout_s, before_request=before_request)
    return DnsNames(settings, provider, dns.node or host_name())


def of_name(kept: Iterable[KeptName], name: str) -> tuple[KeptName, ...]:
    """Return how a name is kept: in a public zone, in a private one, or in both.

    Raises:
        ConfigurationError: it is none of those that are kept.
    """
    wanted = name.lower().removesuffix(".")
    every = tuple(kept)
    found = tuple(each for each in every if each.spec.name == wanted)
    if found:
        return found
    known = ", ".join(dict.fromkeys(each.spec.name for each in every)) or "none"
    message = f"{name} is not among the names that are kept"
    raise ConfigurationError(Problem("", message, f"these are: {known}"))


def floating(settings: Settings) -> frozenset[str]:
    """Return all floating addresses that the settings name: whichever node holds one, it is no node's own."""
    names = (*names_of(settings.dns), name_of(settings.dns, ""))
    return settings.vip.floating.union(name.vip for name in names) - {""}


def _in_file(activity: Activity, at: Callable[[float], float]) -> Activity:
    return replace(activity, withdrawn_at=at(activity.withdrawn_at), joins=tuple(map(at, activity.joins)))


def stored_activities(settings: Settings, clock: SystemClock) -> dict[str, Activity]:
    """Return each floating address's activity ("" for the node's) as a former process left it."""
    return {vip: _in_file(each, clock.recalled) for vip, each in (activity_file(settings).load() or {}).items()}


def store_activities(settings: Settings, activities: Mapping[str, Activity], clock: SystemClock) -> None:
    """Keep the activities over a restart."""
    activity_file(settings).save({vip: _in_file(each, clock.stored) for vip, each in activities.items()})


def activity_file(settings: Settings) -> StateFile[dict[str, Activity]]:
    """Return the file of the activities; its times are seconds since the epoch."""
    return StateFile(Path(settings.state_dir) / "dns.json", dict[str, Activity], effect="a node may join sooner")


def annotation_file(settings: Settings) -> StateFile[list[AnnotatedName]]:
    """Return the file of the annotated names; its times are seconds since the epoch."""
    path = Path(settings.state_dir) / "dns-names.json"
    return StateFile(path, list[AnnotatedName], effect="names of the annotation wait for the daemon")


def stored_annotated(settings: Settings, clock: SystemClock) -> dict[str, AnnotatedName]:
    """Return the annotated names that were stored; none where the settings allow none."""
    stored = annotation_file(settings).load() if settings.dns.annotation_suffixes else None
    return {entry.name: _missed(entry, clock.recalled) for entry in stored or ()}


def store_annotated(settings: Settings, names: Iterable[AnnotatedName], clock: SystemClock) -> None:
    """Keep the annotated names over a restart."""
    annotation_file(settings).save([_missed(entry, clock.stored) for entry in names])


def _missed(entry: AnnotatedName, at: Callable[[float], float]) -> AnnotatedName:
    return entry if entry.missed_since is None else replace(entry, missed_since=at(entry.missed_since))


def wish_of(*, active: bool | None, withdrawn: bool) -> Wish | None:
    """Return what a node wants; None where nothing is known yet."""
    if withdrawn or active is False:
        return Wish.WITHDRAW
    return Wish.PUBLISH if active else None


def _files(settings: Settings) -> tuple[Path, Path]:
    return Path(settings.runtime_dir) / WITHDRAWN, Path(settings.state_dir) / WITHDRAWN


def is_withdrawn(settings: Settings) -> bool:
    """Return whether this node was withdrawn by command."""
    return any(path.exists() for path in _files(settings))


def set_withdrawn(settings: Settings, *, until_boot: bool) -> None:
    """Withdraw this node until ``pyconfd dns publish`` or until the next boot.

    Raises:
        TransientError: it cannot be written.
    """
    until_next_boot, for_good = _files(settings)
    replace_shared(str(until_next_boot if until_boot else for_good), b"")


def set_published(settings: Settings) -> None:
    """Lift the withdrawal; the node joins when it can serve.

    Raises:
        TransientError: it cannot be written.
    """
    for path in _files(settings):
        try:
            unlink_shared(path)
        except OSError as error:
            raise TransientError(problem_of(str(path), error)) from error
