"""Words that say who may ask, by what clients show of themselves.

What a tenant can do to others with certificates of clients: his own hosts only ask for them, and the CAs of a host are
those of the namespace that has it. No connection of anybody resumes a session while some host asks: each handshake is a
whole one.
"""

import re

from pyconfd.model.snapshot import Key
from pyconfd.presets import values

_REALM = re.compile(r"[ !#-\[\]-~]{1,100}", re.ASCII)
"""What can stand in quotes of a header."""


def object_name(text: str) -> str:
    """Parse the name of an object of the namespace, which may stand before it; raise ValueError."""
    name = text.strip()
    if not all(map(values.is_object_name, name.split("/", 1))):
        raise ValueError(_OF_NAMESPACE)
    return name


_OF_NAMESPACE = "expected the name of an object of this namespace"


def in_own_namespace(named: Key) -> Key:
    """Return the object that is named, which may have its namespace before its name; raise ValueError."""
    namespace, slash, name = named.name.rpartition("/")
    if slash and namespace != named.namespace:
        raise ValueError(_OF_NAMESPACE)
    return Key(named.namespace, name)


def realm(text: str) -> str:
    """Parse what clients show when they ask for a password; raise ValueError."""
    found = text.strip()
    if not _REALM.fullmatch(found):
        raise ValueError("expected up to 100 ASCII characters, without quotes and backslashes")
    return found


def is_optional(text: str) -> bool:
    """Parse whether clients may show no certificate; raise ValueError."""
    if text.strip() not in {"required", "optional"}:
        raise ValueError("expected required or optional")
    return text.strip() == "optional"
