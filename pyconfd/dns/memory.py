"""What a restart must not forget, in files of the state directory: what was believed, which names were asked for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from pyconfd.dns.activity import Standing
from pyconfd.dns.asked import AskedName, as_document, from_document
from pyconfd.errors import TransientError, first_line
from pyconfd.settings import Settings
from pyconfd.system.files import replace_shared

log = structlog.get_logger(__name__)

STANDINGS = "dns.json"
ASKED = "dns-names.json"


def stored_standings(settings: Settings) -> dict[str, Standing]:
    """Return what a former process believed, by floating address: that it withdrew, and how often it joined.

    What is not as this version writes it is left out, and named in the log.
    """
    document = _stored(Path(settings.state_dir) / STANDINGS)
    found = {}
    for vip, values in document.items() if isinstance(document, dict) else ():
        try:
            found[vip] = _standing(values)
        except (ValueError, TypeError, KeyError) as error:
            log.warning("dns_memory.left_out", path=STANDINGS, entry=vip, error=str(error))
    return found


def _stored(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("dns_memory.unreadable", path=str(path), error=str(error))
        return None


def _standing(values: Mapping[str, Any]) -> Standing:
    joins = tuple(float(item) for item in values["joins"])
    return Standing(False if values["active"] is False else None, 0, float(values["withdrawn_at"]), joins)


def store_standings(settings: Settings, standings: Mapping[str, Standing]) -> None:
    """Write down what is believed."""
    document = {
        vip: {"active": each.active, "withdrawn_at": each.withdrawn_at, "joins": each.joins}
        for vip, each in standings.items()
    }
    write(Path(settings.state_dir) / STANDINGS, document)


def stored_asked(settings: Settings) -> dict[str, AskedName]:
    """Return the names that the cluster asked for."""
    return from_document(_stored(Path(settings.state_dir) / ASKED))


def store_asked(settings: Settings, names: Mapping[str, AskedName]) -> None:
    """Write down which names the cluster asked for."""
    write(Path(settings.state_dir) / ASKED, as_document(names.values()))


def write(path: Path, values: object) -> None:
    """Write a document; a full disk is told, and stops nothing."""
    write_text(path, json.dumps(values, indent=2) + "\n")


def write_text(path: Path, text: str, mode: int = 0o640) -> None:
    """Write a file; a full disk is told, and stops nothing."""
    try:
        replace_shared(str(path), text.encode(), mode=mode)
    except TransientError as error:
        log.warning("file.refused", problem=first_line(error.problems))
