"""The servers behind a reference of a route: how HAProxy speaks with them."""

from collections.abc import Sequence
from typing import NamedTuple

from pyconfd.model.gateway_api import SubjectAltName
from pyconfd.presets import values
from pyconfd.presets.views import PortAt

_SAN_TAGS = {"Hostname": 0x82, "URI": 0x86}
"""How DER marks these names in a certificate. Source: RFC 5280, 4.2.1.6, GeneralName."""
_LONGEST_NAME = 127
"""In bytes: DER writes the length of longer ones in another way."""


_MOST_NAMES = 16
"""More than the CRD takes; HAProxy reads at most 64 words in a line."""


class BackendTls(NamedTuple):
    """TLS to servers: ``hostname`` is asked for (SNI), and the certificate is verified with the CAs in ``ca_file``.

    ``sans`` are names of which the certificate needs one beside ``hostname``. ``certificate`` is the file with what
    HAProxy shows to servers, "" for nothing. ``h2``: they speak HTTP/2.
    """

    ca_file: str
    hostname: str
    sans: tuple[SubjectAltName, ...] = ()
    certificate: str = ""
    h2: bool = False


class Reference(NamedTuple):
    """What a reference leads to. ``resolved`` is False where it leads nowhere, so that its share of requests fails.

    ``options`` are words for each of its servers: :func:`server_options`. ``sans``: :func:`san_digits`.
    """

    weight: int
    port: PortAt | None = None
    options: str = ""
    sans: tuple[str, ...] = ()
    resolved: bool = True


def server_options(tls: BackendTls | None, *, h2: bool = False) -> str:
    """Return the words of a server line for servers with this TLS, or with ``h2`` without TLS."""
    if tls is None:
        return "proto h2" if h2 else ""
    # HAProxy verifies the name that it asks for, whatever `verifyhost` says.
    words = [f"ssl verify required ca-file {tls.ca_file} sni str({tls.hostname})"]
    if tls.certificate:
        words.append(f"crt {tls.certificate}")
    if tls.h2 or h2:
        words.append("alpn h2")
    return " ".join(words)


def san_digits(tls: BackendTls | None) -> tuple[str, ...]:
    """Return the names of which a certificate needs one, as hexadecimal digits of its DER.

    Return nothing where ``hostname`` is one of them: HAProxy verifies that. Of other names it can only say whether the
    certificate has them, and only when the server has answered: then it withholds the answer.
    """
    if tls is None or any(san.type == "Hostname" and san.hostname == tls.hostname for san in tls.sans):
        return ()
    found = []
    for san in tls.sans:
        name = (san.hostname if san.type == "Hostname" else san.uri).encode()
        found.append((bytes([_SAN_TAGS[san.type], len(name)]) + name).hex().upper())
    return tuple(found)


def san_fault(sans: Sequence[SubjectAltName], hostname: str) -> str:
    """Return why the names of a BackendTLSPolicy cannot be verified, "" where they can."""
    if len(sans) > _MOST_NAMES:
        return f"more than {_MOST_NAMES} names"
    for name in (hostname, *(san.hostname for san in sans if san.type == "Hostname")):
        try:
            if values.host_name(name) != name or name.startswith("*"):
                return f"{values.shortened(name)} is no host name in lower case"
        except ValueError as error:
            return f"{values.shortened(name)}: {error}"
    for san in sans:
        if san.type not in _SAN_TAGS:
            return f"{values.shortened(san.type)} is no type of names: expected Hostname or URI"
        if san.type == "URI" and not (
            san.uri.isascii() and san.uri.isprintable() and 0 < len(san.uri) <= _LONGEST_NAME
        ):
            return f"{values.shortened(san.uri)} is no URI of at most {_LONGEST_NAME} characters"
    return ""
