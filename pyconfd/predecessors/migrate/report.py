"""What a migration gives: texts to write, and what is to be said about each line."""

from dataclasses import dataclass, field
from enum import StrEnum


class System(StrEnum):
    """The predecessors."""

    PYTHON_CONFD = "python-confd"
    KUBE2LB = "kube2lb"
    KUBEFIGURATOR = "haproxy-kubefigurator"
    KUBERNETES_HAPROXY = "kubernetes-haproxy"
    ADS_INFRA_HAPROXY = "ads-infra-haproxy"


PRESETS = {
    System.PYTHON_CONFD: "domains",
    System.KUBE2LB: "kube2lb",
    System.KUBEFIGURATOR: "kubefigurator",
    System.KUBERNETES_HAPROXY: "configmap",
    System.ADS_INFRA_HAPROXY: "hosts",
}
"""The preset that reads what a predecessor read."""


class Effect(StrEnum):
    """What became of a line; LEFT is marked in the output and wants a person."""

    TRANSLATED = "translated"
    CHANGED = "changed"
    NOTED = "note"
    LEFT = "not translated"


@dataclass(frozen=True, slots=True, order=True)
class MigrationFinding:
    """One thing about a line of a file (0: about the whole file)."""

    file: str
    line: int
    effect: Effect
    message: str

    def __str__(self) -> str:
        place = f"{self.file} line {self.line}" if self.line else self.file
        return f"{place}: {self.message}"


@dataclass(frozen=True, slots=True)
class InputFile:
    """A predecessor's file, by its name (no path) and text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class OutputText:
    """A file to write, by its name (no path)."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class MigratedSetting:
    """One value for pyconfd.toml: ``path`` is ``section.key``; ``secret`` ones are not written."""

    path: str
    value: str | float | bool | tuple[str, ...]
    file: str
    line: int


@dataclass(slots=True)
class Findings:
    """Collects what is to be said of one file."""

    file: str
    found: list[MigrationFinding] = field(default_factory=list)

    def add(self, line: int, effect: Effect, message: str) -> None:
        """Add a finding about a line."""
        self.found.append(MigrationFinding(self.file, line, effect, message))


@dataclass(frozen=True, slots=True)
class Migration:
    """All texts, and findings in the order of files and lines."""

    outputs: tuple[OutputText, ...]
    findings: tuple[MigrationFinding, ...]

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left for a person."""
        return not any(finding.effect is Effect.LEFT for finding in self.findings)

    def of(self, effect: Effect) -> tuple[MigrationFinding, ...]:
        """Return the findings of one kind."""
        return tuple(finding for finding in self.findings if finding.effect is effect)
