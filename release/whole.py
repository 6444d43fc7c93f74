"""``make release``: everything that is given away, with its checksums, in ``dist``."""

import hashlib
import shutil
from pathlib import Path

from release.changelog import problem
from release.deb import build_deb
from release.project import ROOT, ReleaseError, source_date_epoch, version
from release.sbom import bill_of_materials
from release.wheelhouse import build_wheelhouse

CHECKSUMS = "SHA256SUMS"


def build_release(target: Path) -> Path:
    """Put the artefacts into ``target``; give the list of their checksums, which ``sha256sum -c`` reads.

    Raises:
        ReleaseError: when the changelog does not know this version, or a part cannot be had.
    """
    number = version()
    lacking = problem((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), number)
    if lacking:
        raise ReleaseError(lacking)
    own = build_wheelhouse(target / "wheelhouse")
    wheel = Path(shutil.copyfile(own, target / own.name))
    package = build_deb(target / "wheelhouse", target)
    sbom = target / f"pyconfd-{number}.cdx.json"
    sbom.write_text(bill_of_materials(own.parent.glob("*.whl"), source_date_epoch()), encoding="utf-8")
    lock = Path(shutil.copyfile(own.parent / "requirements.txt", target / f"pyconfd-{number}.lock"))
    sums = target / CHECKSUMS
    artefacts = (wheel, package, sbom, lock)
    wheels = sorted(own.parent.iterdir())
    sums.write_text("".join(_line(path, target) for path in (*artefacts, *wheels)), encoding="utf-8")
    return sums


def _line(path: Path, below: Path) -> str:
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(below)}\n"
