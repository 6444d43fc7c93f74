"""A rendering with throw-away certificates, for a check on a machine that has none of the real ones."""

import datetime as dt
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import PurePosixPath
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyconfd.haproxy.sections import parse
from pyconfd.model.rendering import FileKind, OutputFile, Rendering

_VALID_DAYS = 3650
_BASES: Mapping[str, str] = MappingProxyType(
    {"crt": "crt-base", "ca-file": "ca-base", "ca-verify-file": "ca-base", "crl-file": "ca-base"}
)
"""Keywords before the path of a file, each with the setting that says where a relative one begins.

Source: HAProxy configuration manual, 3.1 (``ca-base``, ``crt-base``).
"""
_LIST = "crt-list"
_LINES = frozenset({"bind", "server", "default-server", "server-template", "load"})
_BUILT_IN = frozenset({"@system-ca"})


@lru_cache(maxsize=1)
def stub_pem() -> str:
    """Return a self-signed certificate, its key and an empty revocation list, for this process alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stub.invalid")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    end = start + dt.timedelta(days=_VALID_DAYS)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    revoked = x509.CertificateRevocationListBuilder(issuer_name=name, last_update=start, next_update=end)
    plain = serialization.NoEncryption()
    parts = (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
        revoked.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM),
    )
    return b"".join(parts).decode()


def with_stubs(rendering: Rendering) -> Rendering:
    """Return ``rendering`` with a stub for each certificate: those declared, and those that its lines name by path.

    Lines of a declared ``crt-list`` count too; one that is not declared gets a list with one stub. A path that ends
    with ``/`` is a directory: a stub stands in it.
    """
    declared = {file.path for file in rendering.files}
    files = [
        OutputFile(file.kind, file.path, stub_pem()) if file.kind is FileKind.CERTIFICATE else file
        for file in rendering.files
    ]
    named = _Named(rendering)
    for path in sorted(named.lists - declared):
        files.append(OutputFile(FileKind.MAP, path, f"{path}.stub.pem\n"))
        named.paths.add(f"{path}.stub.pem")
    for path in sorted(named.paths - declared):
        # Without a suffix it is a directory: HAProxy's manual gives files none of their own, but everybody does.
        is_directory = path.endswith("/") or not PurePosixPath(path).suffix
        file_path = f"{path.rstrip('/')}/stub.pem" if is_directory else path
        if not is_directory or not any(known.startswith(f"{path.rstrip('/')}/") for known in declared):
            files.append(OutputFile(FileKind.CERTIFICATE, file_path, stub_pem()))
    return Rendering(rendering.pieces, tuple(sorted(files, key=lambda file: file.path)))


class _Named:
    """The absolute ``paths`` behind ``crt`` and its relatives, and those of the ``lists`` of certificates."""

    def __init__(self, rendering: Rendering) -> None:
        self.paths: set[str] = set()
        sections = parse(rendering.text)
        lines = [line.words for section in sections for line in section.lines]
        known = set(_BASES.values())
        self._bases = {words[0]: words[1] for words in lines if len(words) > 1 and words[0] in known}
        found = [words for words in lines if words[0] in _LINES]
        self.lists = {
            value
            for words in found
            for word, value in pairwise(words)
            if word == _LIST and value.startswith("/") and "$" not in value
        }
        for words in found:
            self._take(words)
        for file in rendering.files:
            if file.path in self.lists:
                self._read_list(file.content)

    def _take(self, words: Sequence[str]) -> None:
        for word, value in pairwise(words):
            if word in _BASES:
                self._add(word, value)

    def _add(self, keyword: str, value: str) -> None:
        if "$" in value or value in _BUILT_IN:
            return
        base = self._bases.get(_BASES[keyword], "")
        if value.startswith("/"):
            self.paths.add(value)
        elif base.startswith("/") and "$" not in base:
            self.paths.add(f"{base.rstrip('/')}/{value}")
            # So that the base itself is looked for among the stubs.
            self.paths.add(f"{base.rstrip('/')}/stub.pem")

    def _read_list(self, content: str) -> None:
        """Read ``FILE [OPTIONS] NAME...`` of each line. Source: HAProxy configuration manual, 5.1 (``crt-list``)."""
        for line in content.splitlines():
            words = line.replace("[", " ").replace("]", " ").split()
            if words and not words[0].startswith("#"):
                self._add("crt", words[0])
                self._take(words)
