"""What the service and the commands have in common: the names, their zones, and who wants what on this node."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pyconfd.dns.asked import AskedName
from pyconfd.dns.ownership import Mode
from pyconfd.dns.planning import Wish
from pyconfd.dns.provider import Provider
from pyconfd.dns.readers import host_name
from pyconfd.dns.records import Zone
from pyconfd.dns.route53 import Route53
from pyconfd.dns.view import Spec
from pyconfd.dns.zones import zone_of
from pyconfd.errors import ConfigurationError, Problem, RejectedInput, TransientError
from pyconfd.settings import NameSettings, Settings, name_of, names_of
from pyconfd.system.files import problem_of, replace_shared, unlink_shared

WITHDRAWN = "dns-withdrawn"
"""The name of a file in the runtime or in the state directory; while it is there, this node publishes nothing."""


@dataclass(frozen=True, slots=True)
class Kept:
    """One name, how it is kept, and its settings; ``asked`` is None for a name of the settings themselves."""

    spec: Spec
    own: NameSettings
    asked: AskedName | None = None


@dataclass(slots=True)
class Site:
    """The names of the settings, and the provider that has them; zones are listed once."""

    settings: Settings
    provider: Provider
    node: str
    _zones: tuple[Zone, ...] = field(default=())

    def kept(self, asked: Mapping[str, AskedName]) -> tuple[Kept, ...]:
        """Return the names of the settings, and those that the cluster ``asked`` for beside them."""
        dns = self.settings.dns
        own = tuple(Kept(spec_of(name), name) for name in names_of(dns))
        known = {each.spec.name for each in own}
        more = ((entry, name_of(dns, name)) for name, entry in asked.items() if name not in known)
        return own + tuple(Kept(spec_of(name, dns.annotation_zones), name, entry) for entry, name in more)

    def zone_id(self, spec: Spec) -> str:
        """Return the id of the hosted zone of a name.

        Raises:
            ConfigurationError: there is none, or more than one.
            RejectedInput: it is none that the name may be in.
        """
        found = spec.zone_id or self._longest(spec)
        if spec.may_be_in and found not in spec.may_be_in:
            remedy = "add it there, or take the name out of the annotation"
            raise RejectedInput(Problem(spec.name, f"its zone {found} is not among dns.annotation_zones", remedy))
        return found

    def _longest(self, spec: Spec) -> str:
        if not self._zones:
            self._zones = self.provider.zones()
        try:
            return zone_of(spec.name, self._zones, private=spec.private).zone_id
        except ConfigurationError:
            self._zones = ()  # somebody may make it
            raise


def site_of(settings: Settings, before_request: Callable[[], None] | None = None) -> Site:
    """Return the site of some settings; nothing is asked yet. ``before_request`` is called before each request.

    Raises:
        ConfigurationError: there are no names, and none can come.
    """
    dns = settings.dns
    if not (dns.names or dns.records or dns.annotation_suffixes):
        problem = Problem("dns.names", "there is no name to publish", "set dns.names; docs/route53.md has an example")
        raise ConfigurationError(problem)
    provider = Route53(dns.endpoint_url, read_timeout_s=dns.timeout_s, before_request=before_request)
    return Site(settings, provider, dns.node or host_name())


def spec_of(own: NameSettings, may_be_in: tuple[str, ...] = ()) -> Spec:
    """Return how a name is kept; in one of these zones, where any are given."""
    return Spec(
        own.name,
        own.owner,
        Mode(own.mode),
        own.ttl_s,
        own.weight,
        own.health_check_id,
        own.min_records,
        own.zone_id,
        own.private,
        may_be_in,
    )


def _files(settings: Settings) -> tuple[Path, Path]:
    return Path(settings.runtime_dir) / WITHDRAWN, Path(settings.state_dir) / WITHDRAWN


def floating(settings: Settings) -> frozenset[str]:
    """Return all addresses that the settings know as floating: whoever holds one now, it is no node's own."""
    names = (*names_of(settings.dns), name_of(settings.dns, ""))
    return settings.vip.floating.union(name.vip for name in names) - {""}


def is_withdrawn(settings: Settings) -> bool:
    """Return whether somebody withdrew this node by command."""
    return any(path.exists() for path in _files(settings))


def set_withdrawn(settings: Settings, *, until_boot: bool) -> None:
    """Keep this node out, until ``pyconfd dns publish`` or until the next boot.

    Raises:
        TransientError: it cannot be written.
    """
    until_next_boot, for_good = _files(settings)
    replace_shared(str(until_next_boot if until_boot else for_good), b"")


def set_published(settings: Settings) -> None:
    """Let this node in again, as far as it can serve.

    Raises:
        TransientError: it cannot be written.
    """
    for path in _files(settings):
        try:
            unlink_shared(path)
        except OSError as error:
            raise TransientError(problem_of(str(path), error)) from error


def wish_of(*, active: bool | None, withdrawn: bool) -> Wish | None:
    """Return what a node wants; None where nothing is known yet."""
    if withdrawn or active is False:
        return Wish.WITHDRAW
    return Wish.PUBLISH if active else None


def of_name(kept: Iterable[Kept], name: str) -> tuple[Kept, ...]:
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
