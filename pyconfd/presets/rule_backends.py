"""The backends of rules, as collections: of routes, and of Ingresses that ask for more than servers.

Rules with the same lines share a section with these, a *profile*, so that a backend has nothing but servers, and comes
and goes without a reload.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from pyconfd.derived import Collection, Derived, Grouped, Joined, Read, Spread, Tally
from pyconfd.model.reservation import Owner
from pyconfd.model.route_policy import POLICY_KIND
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import why_unread
from pyconfd.presets.objects import Objects
from pyconfd.presets.policies.pages import ErrorPages, error_pages
from pyconfd.presets.policies.users import UserList
from pyconfd.presets.routing.rules import EMPTY_OF, RuleBackend, RuleProfile
from pyconfd.presets.routing.table import entry_of
from pyconfd.presets.routing.weights import empty_share, weighted_servers

MOST_PROFILES = 32
"""Of a namespace: sections of rules with the same lines are spares of their own, and part of each reload."""


class RuleSection(NamedTuple):
    """A backend of a rule without its servers and the entries that lead to it, and whose it is."""

    owner: Owner
    backend: RuleBackend


class RuleBackends:
    """The ``backends`` of the rules of one preset, and ``all`` sections: these and their profiles.

    ``sections`` are those that it is made of. ``leading`` has, by route, the paths that lead there; ``error_pages``
    what ConfigMaps that words name have.
    """

    def __init__(
        self,
        objects: Objects,
        preset: str,
        asked: Collection[Any, RuleSection],
        leading: Collection[str, Any],
    ) -> None:
        self._objects, self._leading, self.sections = objects, leading, asked
        naming = Grouped(asked, _named_pages, f"sections of {preset} by their error pages")
        self.error_pages = Derived(naming, self._pages, f"error pages of {preset}")
        sections = Derived(asked, self._with_pages, f"sections of {preset} with error pages")
        self.page_files = Derived(
            self.error_pages, lambda _, __, found: found.files or None, f"files of pages of {preset}"
        )
        counts = Tally(sections, _profile_of, f"profiles of rules of {preset}")
        of_namespace = Grouped(
            counts, lambda at, _: (at[0],), f"profiles of {preset} by namespace", rank=lambda at, _: at[1].name
        )
        self._of_namespace = Derived(of_namespace, _shared_profiles, f"profiles of {preset} that are shared")
        shared = Tally(
            self._of_namespace, lambda _, found: ((each, 1) for each in found), f"namespaces by profile of {preset}"
        )
        rules = Tally(counts, lambda at, count: ((at[1], count),), f"rules by profile of {preset}")
        self._rules = Derived(rules, _rounded_up, f"rules by profile of {preset}, rounded up")
        with_rules = Derived(shared, self._section_of_profile, f"profiles of {preset} with their rules")
        self.profiles = Spread(with_rules, lambda _, section: ((section.name, section),), f"profiles of {preset}")
        led_to = Derived(sections, self._led_to, f"sections of {preset} with what leads to them")
        self.backends = Derived(led_to, self._backend, f"backends of rules of {preset}")
        self.limited = Tally(sections, _limited, f"sections of {preset} with limits")
        secrets = Tally(sections, _secrets_of, f"Secrets with users of {preset}")
        self.users = Derived(secrets, self._users, f"users of {preset}")
        self.mirrored = Tally(sections, _mirrored, f"sections of {preset} with copies")
        self.verifying = Tally(sections, _verifying, f"sections of {preset} with certificates of clients")
        self.all = Joined[Any, RuleBackend](self.profiles, self.backends, name=f"sections of rules of {preset}")

    def _users(self, read: Read, secret: Key, _: int) -> UserList | None:
        return read(self._objects.read.user_lists, secret)

    def _pages(self, read: Read, key: Key, _: object) -> ErrorPages:
        tls = read.value(self._objects.tls)
        if unread := why_unread(tls, key.namespace, "ConfigMaps"):
            return ErrorPages(fault=unread)
        return error_pages(read(self._objects.config_maps, key), key, tls.directory)

    def _with_pages(self, read: Read, _: object, section: RuleSection) -> RuleSection:
        policy = section.backend.policy
        found = read(self.error_pages, policy.error_pages) if policy.error_pages is not None else None
        if found is None:
            return section
        backend = msgspec.structs.replace(section.backend, policy=policy._replace(pages=found.pages))
        return section._replace(backend=backend)

    def _section_of_profile(self, read: Read, profile: RuleProfile, _: int) -> RuleBackend:
        return profile.section(read(self._rules, profile) or 0)

    def _led_to(self, read: Read, _: object, section: RuleSection) -> RuleBackend:
        backend = section.backend
        paths, lines = read(self._leading, backend.route) or (), backend.lines
        is_shared = lines is not None and lines in (read(self._of_namespace, section.owner.namespace) or ())
        return msgspec.structs.replace(
            backend,
            entries=tuple(entry_of(*path) for path, _ in paths),
            asking="/".join((*section.owner[:3], *_limiting(backend))),
            profile=lines.name if lines is not None and is_shared else "",
        )

    def _backend(self, read: Read, _: object, backend: RuleBackend) -> RuleBackend:
        """Add the servers, which change far more often than all else of a rule."""
        references = [(weight, self._objects.servers(read, at)) for weight, at in backend.ports]
        empty = empty_share(references, EMPTY_OF) if backend.divided else 0
        return msgspec.structs.replace(backend, servers=weighted_servers(references), empty=empty)


def _profile_of(_: object, section: RuleSection) -> tuple[tuple[tuple[str, RuleProfile], int], ...]:
    lines = section.backend.lines
    return (((section.owner.namespace, lines), 1),) if lines is not None else ()


def _limiting(backend: RuleBackend) -> tuple[str, ...]:
    """Return what tells limits of policies from others of the object: a policy may be for one of its rules only."""
    sources = sorted(
        {source for word, source in backend.said if word.startswith("limit-") and source.startswith(POLICY_KIND)}
    )
    return (hashlib.sha256("\n".join(sources).encode()).hexdigest()[:16],) if sources else ()


def _named_pages(_: object, section: RuleSection) -> tuple[Key, ...]:
    named = section.backend.policy.error_pages
    return (named,) if named is not None else ()


def _limited(_: object, section: RuleSection) -> tuple[tuple[bool, int], ...]:
    return ((True, 1),) if section.backend.policy.limits else ()


def _secrets_of(_: object, section: RuleSection) -> tuple[tuple[Key, int], ...]:
    auth = section.backend.policy.auth
    return ((auth.secret, 1),) if auth is not None and auth.users and not section.backend.policy.closed else ()


def _verifying(_: object, section: RuleSection) -> tuple[tuple[bool, int], ...]:
    return ((True, 1),) if section.backend.policy.clients else ()


def _mirrored(_: object, section: RuleSection) -> tuple[tuple[bool, int], ...]:
    return ((True, 1),) if section.backend.mirrors else ()


def _shared_profiles(
    _: Read, __: str, profiles: Sequence[tuple[tuple[str, RuleProfile], int]]
) -> frozenset[RuleProfile]:
    """Return the profiles of a namespace that have sections of their own; rules with others have their own lines."""
    return frozenset(profile for (_namespace, profile), _count in profiles[:MOST_PROFILES])


def _rounded_up(_: Read, __: RuleProfile, count: int) -> int:
    """Return the next power of two, so that the section stays the same while one rule after the other comes."""
    return 1 << (count - 1).bit_length()


def rank_of_section(name: str) -> tuple[bool, str]:
    """Return the place of a section among all: profiles come first, since the others are from these."""
    return "_" in name, name  # as names of rules have it, and those of profiles do not
