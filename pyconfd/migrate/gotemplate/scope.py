"""Go's variables and their names in Jinja."""

import keyword
import re
from dataclasses import dataclass

from pyconfd.migrate.gotemplate.expressions import Expression
from pyconfd.migrate.gotemplate.types import Schema, Struct

_JINJA = frozenset(
    [
        "and",
        "block",
        "break",
        "call",
        "caller",
        "continue",
        "cycler",
        "dict",
        "do",
        "elif",
        "else",
        "endfor",
        "endif",
        "extends",
        "extra",
        "False",
        "filter",
        "for",
        "from",
        "go",
        "if",
        "import",
        "in",
        "include",
        "is",
        "joiner",
        "kwargs",
        "loop",
        "macro",
        "map_file",
        "certificate_file",
        "missing",
        "name",
        "namespace",
        "none",
        "None",
        "not",
        "or",
        "print",
        "range",
        "raw",
        "recursive",
        "scoped",
        "self",
        "set",
        "super",
        "True",
        "true",
        "false",
        "varargs",
        "vars",
        "with",
        "without",
        "environment",
        "context",
        "cluster",
        "domains",
        "hosts",
        "configmap",
        "kubefigurator",
        "kube2lb",
    ]
)
_WORDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def snake(name: str) -> str:
    """Write ``serverName`` as ``server_name``; characters that no name in Jinja can have become ``_``."""
    plain = re.sub(r"[^A-Za-z0-9_]", "_", _WORDS.sub("_", name)).lower()
    return plain if plain[:1].isalpha() else f"v{plain}"


@dataclass(slots=True)
class Binding:
    """A variable: ``declared_at`` tells it from others of its name; ``is_mutable`` ones live in a namespace()."""

    name: str
    value: Expression
    declared_at: int
    is_mutable: bool = False
    is_used: bool = False


class Scope:
    """The variables that a place sees, innermost last, and the names that are taken there."""

    def __init__(self, schema: Schema, taken: set[str]) -> None:
        root = set(_fields(schema.root)) | set(schema.functions) | {schema.root_code}
        self._reserved = _JINJA | root | set(keyword.kwlist)
        self._taken = taken
        self.bindings: list[Binding] = []
        self.names: list[str] = []

    def find(self, name: str) -> Binding | None:
        """Return the innermost variable of a name."""
        for binding in reversed(self.bindings):
            if binding.name == name:
                binding.is_used = True
                return binding
        return None

    def fresh(self, wanted: str) -> str:
        """Take a name that nothing here has."""
        base = snake(wanted)
        name, number = base, 2
        while name in self._reserved or name in self._taken or name in self.names:
            name, number = f"{base}{number}", number + 1
        self.names.append(name)
        return name

    def mark(self) -> tuple[int, int]:
        """Return what :meth:`release` goes back to."""
        return len(self.bindings), len(self.names)

    def release(self, mark: tuple[int, int]) -> None:
        """Forget what was declared since."""
        del self.bindings[mark[0] :]
        del self.names[mark[1] :]


def _fields(kind: object) -> list[str]:
    return [code for code, _type in kind.fields.values()] if isinstance(kind, Struct) else []
