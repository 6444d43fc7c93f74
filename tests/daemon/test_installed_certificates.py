"""Certificates that are installed go on where the Secrets that they came from may not be read."""

from pathlib import Path

from pyconfd.daemon.installed_certificates import FILE, InstalledCertificates
from pyconfd.model.context import Context
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.model.snapshot import Key, Named, Resource, Snapshot
from pyconfd.presets import cluster
from pyconfd.presets.views import CertificateView, ClusterView
from tests.presets.pods import certificate

DENIED = Snapshot(denied=(Named(Resource.SECRETS, "shop", ""),))


def _kept(at: Path, *, named: bool = True) -> str:
    """Install the certificate of Secret shop/cert, remember it, and return its text."""
    key, chain = certificate("shop")
    pem = key + chain
    path = at / "cert.pem"
    path.write_text(pem, encoding="ascii")
    view = ClusterView("", {}, (), (CertificateView("shop", "cert", pem),) if named else ())
    rendering = Rendering((), (OutputFile(FileKind.CERTIFICATE, str(path), pem),))
    InstalledCertificates(str(at)).keep(Context({"cluster": view}), rendering)
    return pem


def test_the_installed_certificate_stands_for_its_secret(tmp_path: Path) -> None:
    pem = _kept(tmp_path)
    known = InstalledCertificates(str(tmp_path))
    restored = known.restored(DENIED)
    assert cluster.read(restored).view.certificates == (CertificateView("shop", "cert", pem),)
    assert known.restored(DENIED) is restored
    assert restored.denied == DENIED.denied


def test_only_secrets_of_denied_namespaces_are_restored(tmp_path: Path) -> None:
    _kept(tmp_path)
    known = InstalledCertificates(str(tmp_path))
    for denied in ((), (Named(Resource.SECRETS, "other", ""),), (Named(Resource.SECRETS, "shop", "keys"),)):
        assert known.restored(Snapshot(denied=denied)).secrets == {}


def test_a_file_that_is_gone_or_a_link_is_not_restored(tmp_path: Path) -> None:
    _kept(tmp_path)
    (tmp_path / "cert.pem").rename(tmp_path / "elsewhere.pem")
    assert InstalledCertificates(str(tmp_path)).restored(DENIED) is DENIED
    (tmp_path / "cert.pem").symlink_to(tmp_path / "elsewhere.pem")
    assert InstalledCertificates(str(tmp_path)).restored(DENIED) is DENIED


def test_no_key_is_kept_and_what_is_served_no_more_is_forgotten(tmp_path: Path) -> None:
    pem = _kept(tmp_path)
    kept = tmp_path / FILE
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not any(line in kept.read_text(encoding="utf-8") for line in pem.splitlines())
    _kept(tmp_path, named=False)
    assert Key("shop", "cert") not in InstalledCertificates(str(tmp_path)).restored(DENIED).secrets


def test_a_broken_memory_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    assert InstalledCertificates(str(tmp_path)).restored(DENIED) is DENIED
