"""CA certificates in ConfigMaps."""

from functools import lru_cache

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from pyconfd.model.kubernetes import ConfigMap, why_left_out
from pyconfd.model.snapshot import Key
from pyconfd.presets.gateway.listeners import ResolvedCertificate

CA_KEY = "ca.crt"
"""Where a ConfigMap has its certificates. Source: the Gateway API, ``caCertificateRefs``."""

_MOST_BYTES = 1 << 20


def ca_bundle(config_map: ConfigMap | None, key: Key) -> ResolvedCertificate:
    """Return the CA certificates of the ConfigMap with this key, or why there are none."""
    if config_map is None:
        return ResolvedCertificate(fault=f"there is no ConfigMap {key.namespace}/{key.name}")
    text = (config_map.data or {}).get(CA_KEY, "")
    if not text:
        return ResolvedCertificate(fault=f"the ConfigMap has no key {CA_KEY}")
    if reason := why_left_out(CA_KEY, text):
        return ResolvedCertificate(fault=reason)
    return _parsed(text)


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ResolvedCertificate:
    if len(text) > _MOST_BYTES:
        return ResolvedCertificate(fault=f"{CA_KEY} is larger than 1 MB")
    try:
        certificates = x509.load_pem_x509_certificates(text.encode())
        # Written again: the file has nothing but certificates.
        return ResolvedCertificate("".join(each.public_bytes(Encoding.PEM).decode() for each in certificates))
    except ValueError:
        return ResolvedCertificate(fault=f"{CA_KEY} holds no PEM certificates")
