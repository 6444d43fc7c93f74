"""A rendering with throw-away certificates, for a check on a machine that has none of the real ones."""

import datetime as dt
from functools import lru_cache
from pathlib import PurePosixPath

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from pyconfd.haproxy.sections import parse
from pyconfd.model.rendering import FileKind, OutputFile, Rendering

_VALID_DAYS = 3650
_FILE_KEYWORDS = frozenset({"crt", "ca-file", "ca-verify-file"})
_LINES = frozenset({"bind", "server", "default-server", "server-template", "load"})
_BUILT_IN = frozenset({"@system-ca"})


@lru_cache(maxsize=1)
def stub_pem() -> str:
    """Give a self-signed certificate and its key; both live as long as this process and are never installed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stub.invalid")])
    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + dt.timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    return (certificate.public_bytes(serialization.Encoding.PEM) + pem).decode()


def with_stubs(rendering: Rendering) -> Rendering:
    """Give ``rendering`` with a stub for each certificate: those declared, and those that its lines name by path.

    A path that ends with ``/`` is a directory: a stub stands in it. What stands in a ``crt-list`` is not seen.
    """
    declared = {file.path for file in rendering.files}
    files = [
        OutputFile(file.kind, file.path, stub_pem()) if file.kind is FileKind.CERTIFICATE else file
        for file in rendering.files
    ]
    for path in sorted(_named(rendering.text) - declared):
        # Without a suffix it is a directory: HAProxy's manual gives files none of their own, but everybody does.
        is_directory = path.endswith("/") or not PurePosixPath(path).suffix
        file_path = f"{path.rstrip('/')}/stub.pem" if is_directory else path
        if not is_directory or not any(known.startswith(f"{path.rstrip('/')}/") for known in declared):
            files.append(OutputFile(FileKind.CERTIFICATE, file_path, stub_pem()))
    return Rendering(rendering.pieces, tuple(sorted(files, key=lambda file: file.path)))


def _named(text: str) -> set[str]:
    """Give the absolute paths that stand behind ``crt`` and its relatives."""
    found = set()
    for section in parse(text):
        for line in section.lines:
            if line.words[0] not in _LINES:
                continue
            for word, value in zip(line.words, line.words[1:], strict=False):
                if word in _FILE_KEYWORDS and value.startswith("/") and "$" not in value and value not in _BUILT_IN:
                    found.add(value)
    return found
