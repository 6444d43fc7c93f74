"""What an explanation is made of: what was seen, what was made of it, and what runs. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from types import MappingProxyType

from pyconfd.explain.configuration import Configuration, Places, ServerLine
from pyconfd.haproxy.runtime.readback import ServerNow
from pyconfd.model.changes import Change
from pyconfd.model.context import Context, Refusal
from pyconfd.model.explanation import Standing
from pyconfd.model.rendering import Rendering
from pyconfd.model.snapshot import Snapshot
from pyconfd.presets.asks import Ask, Given, asks
from pyconfd.presets.reading import PresetOptions


@dataclass(frozen=True, slots=True)
class Age:
    """Since when something is so, in seconds since the epoch; ``at_least`` where it was so when that was first seen."""

    since: float
    at_least: bool = False


@dataclass(frozen=True)
class Evidence:
    """``desired`` is what the newest Snapshot gave (None where nothing could be rendered), ``serving`` what serves.

    ``live`` gives the servers of a backend by name as HAProxy shows them, None where it could not be asked.
    ``fragments`` are the texts of the template directory by name. ``refused`` are all refusals, also those of objects
    that cannot be read. ``haproxy`` is False where only other load balancers are served, whose configurations nobody
    can read here. ``secrets`` are texts that no line may be shown with, longest first. ``changes`` are those of the
    past that are still known, oldest first. ``kept`` are addresses that are served only because their
    removal is held, by preset and what it serves. ``secret_namespaces`` are those whose TLS Secrets are read.
    """

    now: float
    snapshot: Snapshot
    context: Context
    presets: Sequence[str]
    options: PresetOptions
    desired: Rendering | None
    serving: Rendering | None
    refused: Sequence[Refusal]
    ages: Mapping[Refusal, Age] = field(default_factory=lambda: MappingProxyType({}))
    standing: Standing = field(default_factory=Standing)
    live: Callable[[str], Mapping[str, ServerNow] | None] = lambda _: None
    fragments: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    haproxy: bool = True
    secrets: Sequence[str] = field(default=(), repr=False)
    changes: Sequence[Change] = ()
    kept: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))
    secret_namespaces: Sequence[str] = ()

    @cached_property
    def asks(self) -> tuple[Ask, ...]:
        """Everything that asks to be served."""
        return asks(self.snapshot, self.context, self.presets, self.options)

    @cached_property
    def configuration(self) -> Configuration:
        """What serves; empty where nothing does."""
        return Configuration(self.serving or Rendering(()))

    @cached_property
    def wanted(self) -> Configuration:
        """What was rendered last."""
        return Configuration(self.desired or Rendering(()))

    @cached_property
    def _given(self) -> Sequence[tuple[Ask, Given]]:
        return tuple((ask, given) for ask in self.asks for given in ask.given)

    @cached_property
    def _given_at(self) -> Places[str]:
        """What was given with an address, by its number."""
        return Places((address, number) for number, (_, each) in enumerate(self._given) for address, _ in each.ends())

    @cached_property
    def _given_by_section(self) -> Places[str]:
        """What was given under the name of a section, by its number."""
        return Places((each.section, number) for number, (_, each) in enumerate(self._given) if each.section)

    def _owners_of(self, line: ServerLine) -> list[tuple[Ask, Given]]:
        """Return whose a server is: of those with its address the ones that its backend is named after, else all.

        Two Services may select the same pods, so the address alone does not tell them apart.
        """
        for section in _sections_in(line.backend):
            named = [self._given[number] for number in self._given_by_section.of(section)]
            if owners := [(ask, given) for ask, given in named if given.is_at(line.address, line.port)]:
                return owners
        at = (self._given[number] for number in self._given_at.of(line.address))
        return [each for each in at if not each[1].unreachable and each[1].is_at(line.address, line.port)]

    def owner_of(self, line: ServerLine) -> Ask | None:
        """Return whose a server is, as far as it is known; of several the first that asks."""
        return next((ask for ask, _ in self._owners_of(line)), None)

    def lines_of(self, given: Given, configuration: Configuration) -> list[ServerLine]:
        """Return the servers that lead to what the templates got, none where no listener does."""
        if given.unreachable:
            return []
        found = (line for target in given.targets for line in configuration.at(target.address, target.port))
        return [line for line in found if any(owner is given for _, owner in self._owners_of(line))]

    def servers_of(self, ask: Ask) -> list[ServerLine]:
        """Return the servers that are taken for those of ``ask``, each once."""
        lines = dict.fromkeys(line for given in ask.given for line in self.lines_of(given, self.configuration))
        return [line for line in lines if self.owner_of(line) is ask]


@lru_cache(maxsize=4096)
def _sections_in(backend: str) -> tuple[str, ...]:
    """Return the parts of a backend's name that begin and end where a word does, the longest first."""
    starts = [at for at in range(len(backend)) if not at or not backend[at - 1].isalnum()]
    ends = [at for at in range(1, len(backend) + 1) if at == len(backend) or not backend[at].isalnum()]
    parts = {backend[start:end] for start in starts for end in ends if start < end}
    return tuple(sorted(parts, key=lambda part: (-len(part), part)))
