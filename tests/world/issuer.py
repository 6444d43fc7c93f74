"""Writes TLS Secrets as cert-manager and other issuers do."""

import base64
from pathlib import Path

from cryptography import x509

from tests.world.appliance import NAMESPACE, Appliance
from tests.world.pki import CertificateAuthority, KeyPair


class Issuer:
    """An authority that clients trust by the file ``ca``; the appliance may read the Secrets."""

    def __init__(self, appliance: Appliance) -> None:
        self._appliance = appliance
        self._authority = CertificateAuthority(appliance.folder / "pki")
        self._made = 0
        self.ca = str(self._authority.cert)
        appliance.cluster.add_namespace(NAMESPACE)
        appliance.values["kubernetes"]["secret_namespaces"] = [NAMESPACE]

    def pair(self, host: str, *, expired: bool = False) -> KeyPair:
        """Return a new certificate with its key."""
        self._made += 1
        return self._authority.server(f"{host}-{self._made}", (host,), expired=expired)

    def write(self, name: str, key: Path, cert: Path) -> None:
        """Write the Secret, whatever its halves are."""
        data = {"tls.key": key, "tls.crt": cert}
        encoded = {each: base64.b64encode(path.read_bytes()).decode() for each, path in data.items()}
        meta = {"name": name, "namespace": NAMESPACE}
        self._appliance.cluster.put("secrets", {"metadata": meta, "type": "kubernetes.io/tls", "data": encoded})

    def renew(self, name: str, host: str) -> int:
        """Write a new certificate; return its serial number."""
        pair = self.pair(host)
        self.write(name, pair.key, pair.cert)
        return serial(pair)


def serial(pair: KeyPair) -> int:
    """Return the serial number of a certificate."""
    return x509.load_pem_x509_certificate(pair.cert.read_bytes()).serial_number
