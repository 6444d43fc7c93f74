"""The certificates that the operator keeps on disk, and throw-away ones for a check on a machine that has none.

One file that cannot be loaded makes HAProxy refuse the whole configuration, so it has to be known before.
"""

import datetime as dt
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from pathlib import Path, PurePosixPath
from types import MappingProxyType

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from pyconfd.haproxy.config.text import parse
from pyconfd.model.rendering import FileKind, OutputFile, Rendering
from pyconfd.system.files import exists

GRACE_S = 10.0

_MOST_BYTES = 1024 * 1024
_MAX_DEPTH = 4
_SHORTEST_RSA = 2048
"""What OpenSSL takes at security level 2, Debian's. Source: ``SSL_CTX_set_security_level(3)``."""
_BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.+?-----END \1-----", re.DOTALL)


class CertificateFiles:
    """The files below ``directory`` (links followed), and the ``extra`` ones, which hold certificates without keys.

    A good file is read again when it changed, a bad one each time. One that was good counts as bad only ``grace_s``
    after it was last seen good: it may just be written, and HAProxy has the former one in memory.
    """

    def __init__(
        self,
        directory: str = "",
        extra: Iterable[str] = (),
        *,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = GRACE_S,
    ) -> None:
        self._directory = directory.rstrip("/")
        self._extra = tuple(path for path in extra if path.startswith("/"))
        self._clock = clock
        self._grace_s = grace_s
        self._good: dict[str, tuple[tuple[int, int, int], float]] = {}
        """Modification time, size and inode of the files that were good, and when that was last so."""

    def read(self) -> Mapping[str, str] | None:
        """Return each file's path with "" or what is wrong with it; None where the directory may not be listed."""
        try:
            paths = list(_files(self._directory, 0))
        except PermissionError:
            return None
        except OSError:
            paths = []
        found = {path: self.fault(path) for path in paths}
        found |= {path: self.fault(path, _fault_of_bundle) for path in self._extra if exists(path)}
        gone = [path for path in self._good if path not in found]
        return found | {path: "" for path in gone if not self.fault(path)}

    def fault(self, path: str, judge: Callable[[str], str] | None = None) -> str:
        """Return why HAProxy could not load a file, as ``crt`` unless ``judge`` says; "" where nothing is known."""
        signature = 0, 0, 0
        try:
            status = Path(path).stat()
            signature = status.st_mtime_ns, status.st_size, status.st_ino
            known = path in self._good and self._good[path][0] == signature
            wrong = "" if known else (judge or fault_of)(path)
        except PermissionError:
            return ""  # haproxy reads it as root; what cannot be judged is not called bad
        except OSError as error:
            wrong = error.strerror or str(error)
        now = self._clock()
        if not wrong:
            self._good[path] = signature, now
        elif path in self._good and now - self._good[path][1] < self._grace_s:
            return ""
        else:
            self._good.pop(path, None)
        return wrong


def _files(directory: str, depth: int) -> Iterator[str]:
    """Return the regular files below a directory. Raises: OSError: the directory itself cannot be listed."""
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.startswith("."):
                continue
            with suppress(OSError):
                mode = entry.stat().st_mode
                if stat.S_ISREG(mode):
                    yield entry.path
                elif stat.S_ISDIR(mode) and depth < _MAX_DEPTH:
                    yield from _files(entry.path, depth + 1)


def fault_of(path: str) -> str:
    """Return why HAProxy could not load a file as ``crt``; "" where nothing is known to be wrong.

    Raises:
        OSError: it cannot be read.
    """
    text = _read(path)
    fault = _fault_of_chain(text)
    if fault:
        return fault
    keys = [block[0] for block in _BLOCK.finditer(text) if block[1].endswith(b"PRIVATE KEY")]
    if not keys:
        # HAProxy also takes the key from a file beside it.
        beside = (f"{path}.key", str(Path(path).with_suffix(".key")))
        return "" if any(exists(each) for each in beside) else "the file has no private key"
    try:
        public = load_pem_private_key(keys[0], password=None).public_key()
        chain = [block[0] for block in _BLOCK.finditer(text) if block[1] == b"CERTIFICATE"]
        own = x509.load_pem_x509_certificate(chain[0]).public_key()
        same = _bytes_of(public) == _bytes_of(own)
    except TypeError:
        return "the private key has a passphrase"
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return "the private key cannot be read"
    short = isinstance(own, rsa.RSAPublicKey) and own.key_size < _SHORTEST_RSA
    fault = "OpenSSL refuses RSA keys of less than 2048 bits" if short else ""
    return fault if same else "the private key does not belong to the certificate"


def expiry_of(path: str) -> float:
    """Return when the certificate in a file ends, in seconds since the epoch.

    Raises:
        OSError: it cannot be read.
        ValueError: there is none in it.
    """
    return leaf_expiry(_read(path))


def leaf_expiry(text: bytes) -> float:
    """Return when the first certificate of a PEM text ends: the server's own, whatever of its chain follows.

    Raises:
        ValueError: there is none in it.
    """
    first = next((block[0] for block in _BLOCK.finditer(text) if block[1] == b"CERTIFICATE"), None)
    if first is None:
        raise ValueError("no certificate in PEM")
    return x509.load_pem_x509_certificate(first).not_valid_after_utc.timestamp()


def _fault_of_bundle(path: str) -> str:
    return _fault_of_chain(_read(path))


def _fault_of_chain(text: bytes) -> str:
    chain = [block[0] for block in _BLOCK.finditer(text) if block[1] == b"CERTIFICATE"]
    if not chain:
        return "the file has no certificate in PEM"
    try:
        for certificate in chain:
            x509.load_pem_x509_certificate(certificate)
    except (ValueError, x509.InvalidVersion):
        return "the certificate cannot be read"
    return ""


def _read(path: str) -> bytes:
    with Path(path).open("rb") as file:
        return file.read(_MOST_BYTES)


def _bytes_of(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


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
