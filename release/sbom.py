"""The bill of materials of what is in the wheelhouse, as CycloneDX 1.6."""

import hashlib
import json
import re
import uuid
import zipfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

from release.wheelhouse import normalised

_REQUIREMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)")


def bill_of_materials(wheels: Iterable[Path], epoch: int) -> str:
    """Return the document as JSON; ``epoch`` is its date, seconds since 1970.

    The dependencies are those that are in the wheelhouse: what another system or an extra would need is not.

    Source: CycloneDX 1.6 JSON reference.
    """
    found = {normalised(meta["Name"]): (wheel, meta) for wheel, meta in ((path, metadata(path)) for path in wheels)}
    components = {name: _component(wheel, meta) for name, (wheel, meta) in sorted(found.items())}
    own = components.pop("pyconfd")
    links = [
        {
            "ref": {"pyconfd": own, **components}[name]["bom-ref"],
            "dependsOn": sorted({"pyconfd": own, **components}[other]["bom-ref"] for other in _needs(meta, found)),
        }
        for name, (_, meta) in sorted(found.items())
    ]
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(epoch, UTC).isoformat().replace("+00:00", "Z"),
            "component": {**own, "type": "application"},
        },
        "components": list(components.values()),
        "dependencies": links,
    }
    # The same content has the same number.
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
    number = uuid.uuid5(uuid.NAMESPACE_OID, digest)
    return json.dumps({**document, "serialNumber": f"urn:uuid:{number}"}, indent=1, sort_keys=True) + "\n"


def metadata(wheel: Path) -> Message:
    """Return a wheel's metadata."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        return HeaderParser().parsestr(archive.read(name).decode("utf-8"))


def _component(wheel: Path, meta: Message) -> dict[str, Any]:
    purl = f"pkg:pypi/{normalised(meta['Name'])}@{meta['Version']}"
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": meta["Name"],
        "version": meta["Version"],
        "purl": purl,
        "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(wheel.read_bytes()).hexdigest()}],
        "properties": [{"name": "pyconfd:wheel", "value": wheel.name}],
    }
    if meta["Summary"]:
        component["description"] = meta["Summary"]
    licences = _licences(meta)
    return {**component, "licenses": licences} if licences else component


def _licences(meta: Message) -> list[dict[str, Any]]:
    """Return the licence as its author states it: an expression, else the classifiers, else the old free field."""
    if meta["License-Expression"]:
        return [{"expression": meta["License-Expression"]}]
    classifiers = [text for text in meta.get_all("Classifier", []) if text.startswith("License ::")]
    names = [text.split(" :: ")[-1] for text in classifiers if text != "License :: OSI Approved"]
    free = (meta["License"] or "").strip().splitlines()
    return [{"license": {"name": name}} for name in names or free[:1]]


def _needs(meta: Message, found: Mapping[str, object]) -> set[str]:
    needed = set()
    for text in meta.get_all("Requires-Dist", []):
        match = _REQUIREMENT.match(text)
        name = normalised(match[1]) if match else ""
        if name in found and "extra ==" not in text:
            needed.add(name)
    return needed
