"""Error pages: answers of a ConfigMap instead of those of pods and of HAProxy.

HAProxy reads each from a file as it is, so nothing in it is a format or a line of the configuration. A tenant replaces
answers to requests for his own paths only; pages of one ConfigMap are few and small, as each is in HAProxy's memory,
once for each profile: backends beyond the profiles of a namespace have none.
"""

import re
from typing import NamedTuple

from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ConfigMap, ObjectRef
from pyconfd.model.rendering import FileKind, OutputFile
from pyconfd.model.snapshot import Key
from pyconfd.presets import values
from pyconfd.presets.certificates import pem_path

_TYPES = {"": "text/html", "html": "text/html", "json": "application/json", "txt": "text/plain"}
_STATUSES = frozenset({400, 403, 404, 405, 408, 410, 413, 429, 500, 501, 502, 503, 504})
"""Those that HAProxy has errors for, without 401 and 407: these ask for a name and password by a header."""
_KEY = re.compile(r"([45][0-9]{2})(?:\.(html|json|txt))?", re.ASCII)
_MOST_BYTES = 8 << 10
"""Of a page: it has to fit into HAProxy's buffer (16 KiB) with its headers."""
_MOST_TOGETHER = 64 << 10


class ErrorPage(NamedTuple):
    """What answers with a status are replaced with."""

    status: int
    content_type: str
    path: str


class ErrorPages(NamedTuple):
    """The pages of a ConfigMap, their files, and why something of it is none."""

    pages: tuple[ErrorPage, ...] = ()
    files: tuple[OutputFile, ...] = ()
    fault: str = ""


def fault_of_pages(ref: ObjectRef, source: str, key: Key, found: ErrorPages) -> Refusal:
    """Return what the owner of an object is told of the pages that a word names, which ``source`` says."""
    detail = f"{found.fault}; such errors stay as they are"
    return Refusal(ref, source, key.name, RefusalReason.INVALID_VALUE, detail)


def is_page(key: str) -> bool:
    """Return whether a ConfigMap may have an error page under this key."""
    found = _KEY.fullmatch(key)
    return found is not None and int(found[1]) in _STATUSES


def config_map(text: str) -> str:
    """Parse the name of a ConfigMap; raise ValueError."""
    return values.object_name(text, "a ConfigMap of the same namespace, with pages such as 503.html")


def error_pages(found: ConfigMap | None, key: Key, directory: str) -> ErrorPages:
    """Return the pages of the ConfigMap with this key; ``directory`` is where their files are."""
    if found is None:
        return ErrorPages(fault=f"there is no ConfigMap {key.namespace}/{key.name}")
    pages: dict[int, ErrorPage] = {}
    files, faults, room = [], [], _MOST_TOGETHER
    for name, text in sorted((found.data or {}).items()):
        parts = _KEY.fullmatch(name)
        if parts is None or not is_page(name) or int(parts[1]) in pages:
            continue
        size = len(text.encode())
        if not 0 < size <= min(_MOST_BYTES, room):
            most = f"at most {_MOST_BYTES >> 10} KiB, and {_MOST_TOGETHER >> 10} KiB with all others"
            faults.append(f"{name} is no page of {most}")
            continue
        path = pem_path(directory, "page_of", *key, parts[1]).removesuffix(".pem") + ".page"
        room -= size
        pages[int(parts[1])] = ErrorPage(int(parts[1]), _TYPES[parts[2] or ""], path)
        files.append(OutputFile(FileKind.MAP, path, text))
    if not pages and not faults:
        faults.append("the ConfigMap has no page, such as 503.html")
    return ErrorPages(tuple(pages.values()), tuple(files), "; ".join(faults[:3]))
