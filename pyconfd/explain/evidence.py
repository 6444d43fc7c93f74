"""What an explanation is made of: what was seen, what was made of it, and what runs. Pure."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from pyconfd.explain.configuration import Configuration, Places, ServerLine
from pyconfd.haproxy.readback import ServerNow
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
    past that are still known, oldest first. ``kept`` are addresses that are served only because the guard holds their
    removal, by preset and what it serves.
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

    def owner_of(self, line: ServerLine) -> Ask | None:
        """Say whose a server is, as far as it is known; of several the first that asks."""
        asking = (self._given[number] for number in self._given_at.of(line.address))
        return next((ask for ask, given in asking if line in lines_of(given, self.configuration)), None)

    def servers_of(self, ask: Ask) -> list[ServerLine]:
        """Give the servers that are taken for those of ``ask``, each once."""
        lines = dict.fromkeys(line for given in ask.given for line in lines_of(given, self.configuration))
        return [line for line in lines if self.owner_of(line) is ask]


def lines_of(given: Given, configuration: Configuration) -> list[ServerLine]:
    """Give the servers for what the templates got: at its addresses, in its own backend where one has its name."""
    found = [line for target in given.targets for line in configuration.at(target.address, target.port)]
    own = [line for line in found if given.section and given.section in line.backend]
    return own or found
