"""Certificates that are installed go on where the Secrets that they came from may not be read."""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd import wiring
from pyconfd.admission.removal_protection import SavedHold
from pyconfd.daemon.installed_certificates import FILE, InstalledCertificates
from pyconfd.daemon.protection import hold_file
from pyconfd.model.context import Context
from pyconfd.model.hold import Hold, HoldKind
from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.model.snapshot import HostFacts, Key, Named, Resource, Snapshot, Terminating
from pyconfd.presets.views import CertificateView, ClusterView
from pyconfd.settings import KubernetesSettings, Settings
from tests.presets import cluster
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
    (view,) = cluster.read(restored).view.certificates
    assert (view.namespace, view.name, view.pem) == ("shop", "cert", pem)
    assert known.restored(DENIED) is restored
    assert restored.denied == DENIED.denied


def test_only_secrets_of_denied_namespaces_are_restored(tmp_path: Path) -> None:
    _kept(tmp_path)
    known = InstalledCertificates(str(tmp_path))
    for denied in ((), (Named(Resource.SECRETS, "other", ""),), (Named(Resource.SECRETS, "shop", "keys"),)):
        assert known.restored(Snapshot(denied=denied)).former_secrets == {}


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
    assert Key("shop", "cert") not in InstalledCertificates(str(tmp_path)).restored(DENIED).former_secrets


def _secret(key: str, chain: str) -> Secret:
    data = {"tls.key": b64encode(key.encode()).decode(), "tls.crt": b64encode(chain.encode()).decode()}
    return Secret(ObjectMeta(name="cert", namespace="shop"), "kubernetes.io/tls", data)


KEY = Key("shop", "cert")
GOOD = _secret(*certificate("shop"))
OTHER = _secret(*certificate("other"))
HALF = _secret(certificate("shop")[0], certificate("other")[1])


def test_a_half_renewed_secret_keeps_its_former_certificate() -> None:
    known = InstalledCertificates()
    known.restored(Snapshot(secrets={KEY: GOOD}))
    broken = known.restored(Snapshot(secrets={KEY: HALF}))
    assert broken.former_secrets == {KEY: GOOD}
    again = known.restored(replace(broken, former_secrets={}, services={}))
    assert again.former_secrets is broken.former_secrets
    assert known.restored(Snapshot(secrets={KEY: OTHER})).former_secrets == {}
    assert known.restored(Snapshot(secrets={})).former_secrets == {}


def test_secrets_that_vanish_together_keep_their_certificates() -> None:
    known, third = InstalledCertificates(), Key("shop", "third")
    all_three = {KEY: GOOD, Key("shop", "other"): OTHER, third: GOOD}
    known.restored(Snapshot(secrets=all_three))
    one_left = known.restored(Snapshot(secrets={third: GOOD}))
    assert one_left.former_secrets == {KEY: GOOD, Key("shop", "other"): OTHER}
    read = cluster.read(one_left).secrets[KEY]
    assert read.view is not None
    assert "vanished" in read.fault
    assert known.restored(Snapshot(secrets=all_three)).former_secrets == {}
    known.restored(Snapshot(secrets={KEY: GOOD, third: GOOD}))
    assert known.restored(Snapshot(secrets={KEY: GOOD})).former_secrets == {}
    assert known.restored(Snapshot(secrets={})).former_secrets == {}


def test_the_only_secret_keeps_its_certificate_when_a_list_lacks_it() -> None:
    only = Secret(ObjectMeta("cert", "shop", uid="u1"), GOOD.type, GOOD.data)
    terminating = Terminating()
    known = InstalledCertificates()
    known.restored(Snapshot(secrets={KEY: only}))
    assert known.restored(Snapshot(terminating=(terminating,))).former_secrets == {KEY: only}
    known.restored(Snapshot(secrets={KEY: only}))
    terminating.deleted("u1")
    assert known.restored(Snapshot(terminating=(terminating,))).former_secrets == {}, "somebody deleted it by name"


def test_a_restarted_daemon_finds_the_former_certificate_of_a_broken_secret(tmp_path: Path) -> None:
    pem = _kept(tmp_path)
    read = cluster.read(InstalledCertificates(str(tmp_path)).restored(Snapshot(secrets={KEY: HALF})))
    view = read.secrets[KEY].view
    assert view is not None
    assert view.pem == pem
    assert "does not belong" in read.secrets[KEY].fault


def test_a_certificate_that_expires_stays_in_use(tmp_path: Path) -> None:
    known = InstalledCertificates(str(tmp_path))
    expires = cluster.read(Snapshot(secrets={KEY: GOOD})).view.certificates[0].not_after
    valid, over = (HostFacts(hour=expires // 3600 + hours) for hours in (-1, 1))
    assert known.restored(Snapshot(secrets={KEY: GOOD}, host=valid)).former_secrets == {}
    late = known.restored(Snapshot(secrets={KEY: GOOD}, host=over))
    assert cluster.read(late).secrets[KEY].view is not None
    assert "expired" in cluster.read(late).secrets[KEY].fault


def test_a_certificate_that_had_expired_when_it_came_is_not_used() -> None:
    expires = cluster.read(Snapshot(secrets={KEY: GOOD})).view.certificates[0].not_after
    seen = InstalledCertificates().restored(Snapshot(secrets={KEY: GOOD}, host=HostFacts(hour=expires // 3600 + 1)))
    assert cluster.read(seen).secrets[KEY].view is None


def test_a_secret_that_was_never_usable_has_no_former_state(tmp_path: Path) -> None:
    seen = Snapshot(secrets={KEY: HALF})
    assert InstalledCertificates(str(tmp_path)).restored(seen) is seen


def test_a_broken_memory_counts_as_nothing(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{", encoding="utf-8")
    assert InstalledCertificates(str(tmp_path)).restored(DENIED) is DENIED


OF_SHOP = [Key("shop", name) for name in ("cert", "other", "third")]


def _restarted(at: Path, *, held: bool) -> InstalledCertificates:
    """Return what knows the certificates of a process that ended, and whether something was held then."""
    views, files = [], []
    for _, name in OF_SHOP:
        pem = "".join(certificate(name))
        (at / name).write_text(pem, encoding="ascii")
        views.append(CertificateView("shop", name, pem))
        files.append(OutputFile(FileKind.CERTIFICATE, str(at / name), pem))
    context = Context({"cluster": ClusterView("", {}, (), tuple(views))})
    InstalledCertificates(str(at)).keep(context, Rendering((), tuple(files)))
    holds = hold_file(str(at))
    assert holds.save(SavedHold(Hold("d9a9acc9", HoldKind.TOTAL, 1.0, 6, 6, 1) if held else None))
    return InstalledCertificates(str(at), holds)


def test_secrets_missing_after_a_restart_during_a_hold_keep_their_certificates(tmp_path: Path) -> None:
    known = _restarted(tmp_path, held=True)
    restored = known.restored(Snapshot(secrets={OF_SHOP[2]: GOOD}))
    assert restored.former_secrets.keys() == set(OF_SHOP[:2])
    read = cluster.read(restored).secrets[OF_SHOP[0]]
    assert read.view is not None
    assert "vanished" in read.fault
    back = known.restored(Snapshot(secrets={OF_SHOP[2]: GOOD, OF_SHOP[0]: OTHER}))
    assert back.former_secrets.keys() == {OF_SHOP[1]}
    gone = known.restored(Snapshot(secrets={OF_SHOP[2]: GOOD}, services={}))
    assert gone.former_secrets.keys() == {OF_SHOP[1]}, "it was deleted by itself"


@pytest.mark.parametrize(
    ("present", "held"), [((), False), (OF_SHOP[:2], True)], ids=["nothing was held", "most are there"]
)
def test_a_secret_missing_after_a_restart_is_gone(tmp_path: Path, present: Sequence[Key], *, held: bool) -> None:
    known = _restarted(tmp_path, held=held)
    assert known.restored(Snapshot(secrets=dict.fromkeys(present, GOOD))).former_secrets == {}


def test_what_was_denied_during_a_hold_is_gone_once_it_is_allowed(tmp_path: Path) -> None:
    known = _restarted(tmp_path, held=True)
    assert known.restored(DENIED).former_secrets.keys() == set(OF_SHOP)
    assert known.restored(Snapshot()).former_secrets == {}


def test_what_reads_the_cluster_knows_what_was_held(tmp_path: Path) -> None:
    _restarted(tmp_path, held=True)
    settings = Settings(kubernetes=KubernetesSettings(api_servers=("http://127.0.0.1:1",)), state_dir=str(tmp_path))
    assert wiring.source(settings)._restored(Snapshot()).former_secrets.keys() == set(OF_SHOP)
