"""``python -m release.image IMAGE WHEELHOUSE``: the bill of materials of what was baked, beside its manifest."""

import hashlib
import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from release.project import source_date_epoch
from release.sbom import bill_of_materials


def with_packages(document: str, manifest: Mapping[str, Any]) -> str:
    """Add the machine's Debian packages to a CycloneDX document; both as JSON.

    Source: CycloneDX 1.6 JSON reference; purl specification, type ``deb``.
    """
    bill = json.loads(document)
    bill["components"] += [_component(package) for package in manifest["packages"]]
    bill["metadata"]["properties"] = [{"name": "pyconfd:system", "value": manifest["system"]}]
    # The same content has the same number.
    del bill["serialNumber"]
    digest = hashlib.sha256(json.dumps(bill, sort_keys=True).encode()).hexdigest()
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}"
    return json.dumps(bill, indent=1, sort_keys=True) + "\n"


def _component(package: Mapping[str, str]) -> dict[str, Any]:
    name, version = package["name"], package["version"]
    purl = f"pkg:deb/debian/{quote(name)}@{quote(version)}?arch={package['architecture']}&distro=bookworm"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}


def write_bill(image: Path, wheelhouse: Path) -> Path:
    """Write ``sbom.cdx.json`` beside the manifest of an image; give its path."""
    manifest = json.loads((image / "manifest.json").read_text(encoding="utf-8"))
    wheels = [path for path in sorted(wheelhouse.glob("*.whl")) if path.name in manifest["wheels"]]
    target = image / "sbom.cdx.json"
    bill = bill_of_materials(wheels, source_date_epoch())
    target.write_text(with_packages(bill, manifest), encoding="utf-8")
    return target


if __name__ == "__main__":
    print(write_bill(Path(sys.argv[1]), Path(sys.argv[2])))  # noqa: T201 - the answer
