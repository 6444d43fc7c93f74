"""Who may read the status page: who has its bearer token, over TLS; both are files that may change at any time."""

import hashlib
import hmac
import os
import re
import ssl
import stat
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import structlog

from pyconfd.errors import Problem, TransientError
from pyconfd.model.status import CredentialState
from pyconfd.settings.sections import StatusSettings
from pyconfd.system.secrecy import hide

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,4096}=*", re.ASCII)
"""Source: RFC 6750, 2.1 (b68token); a shorter one could be guessed."""
_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_MAX_FILE_BYTES = 1 << 20
_FOR_OTHERS = stat.S_IRWXO


class _WatchedFile(Generic[_T]):
    """What a file says, read again at each use: the former content stays in use while the new one cannot be used."""

    def __init__(self, path: str, parse: Callable[[str, bytes], _T]) -> None:
        self._path, self._parse = path, parse
        self._lock = threading.Lock()
        self._digest = b""
        self._parsed: _T | None = None
        self.problem: Problem | None = None
        """Why the former content is in use."""

    def current(self) -> _T:
        """Return what the file says now.

        Raises:
            TransientError: it cannot be used, and never could.
        """
        with self._lock:
            try:
                # The digest is of what was read before parsing, which may read the file again: what is written in
                # between is noticed by the next use.
                content = read_secret_file(self._path)
                digest = hashlib.sha256(content).digest()
                if digest != self._digest or self._parsed is None:
                    self._parsed = self._parse(self._path, content)
                    self._digest = digest
            except TransientError as error:
                if self._parsed is None:
                    raise
                self._tell(error.problems[0])
            else:
                self._tell(None)
            return self._parsed

    def _tell(self, problem: Problem | None) -> None:
        if problem is not None and problem != self.problem:
            log.warning(
                "status_page.file_rejected", place=problem.place, problem=problem.message, remedy=problem.remedy
            )
        self.problem = problem


class _ServerCertificate(NamedTuple):
    """What connections are secured with, and from when to when its certificate is valid."""

    context: ssl.SSLContext
    starts: float
    ends: float


class PageAccess:
    """What protects the page by ``status.token_file`` and ``status.tls_certificate``; both may be ""."""

    def __init__(self, settings: StatusSettings | None = None, now: Callable[[], float] = time.time) -> None:
        self._now = now
        token = settings.token_file if settings is not None else ""
        certificate = settings.tls_certificate if settings is not None else ""
        self._token = _WatchedFile(token, read_token) if token else None
        self._path = certificate
        self._certificate = _WatchedFile(certificate, _server_certificate) if certificate else None

    @property
    def scheme(self) -> str:
        """How the page is asked."""
        return "https" if self._certificate is not None else "http"

    def check(self) -> None:
        """Read the files.

        Raises:
            TransientError: one of them cannot be used, and never could; it names all of these.
        """
        problems: list[Problem] = []
        for each in self._files:
            try:
                each.current()
            except TransientError as error:
                problems += error.problems
        if problems:
            raise TransientError(*problems)

    def problems(self) -> tuple[Problem, ...]:
        """Read the files; return why one cannot be used, or is not used as it is now: expired, say."""
        found: list[Problem] = []
        try:
            self.check()
        except TransientError as error:
            found += error.problems
        found += (each.problem for each in self._files if each.problem is not None)
        for each in self.credentials():
            if each.problem:
                found.append(Problem(self._path, each.problem, "write the renewed chain and key"))
        return tuple(found)

    def credentials(self) -> tuple[CredentialState, ...]:
        """Return the state of the certificate in use; empty without one."""
        try:
            used = self._certificate.current() if self._certificate is not None else None
        except TransientError:
            used = None
        if used is None:
            return ()
        problem = ""
        if used.ends <= self._now():
            problem = f"expired on {datetime.fromtimestamp(used.ends, UTC):%Y-%m-%d %H:%M} UTC"
            problem += "; who verifies it refuses the page"
        return (CredentialState("status.tls_certificate", used.ends, problem, used.starts),)

    def tls(self) -> ssl.SSLContext | None:
        """Return what a new connection is secured with; None for plain HTTP."""
        return self._certificate.current().context if self._certificate is not None else None

    @property
    def needs_token(self) -> bool:
        """Whether requests have to show a token."""
        return self._token is not None

    def admits(self, authorizations: Sequence[str]) -> bool:
        """Return whether a request with these Authorization headers has the token, or none is needed."""
        if self._token is None:
            return True
        scheme, _, given = authorizations[0].partition(" ") if len(authorizations) == 1 else ("", "", "")
        token = self._token.current()
        hide([token])  # again: of many credentials the oldest are forgotten
        # In time that says nothing of how much of a guess is right.
        is_right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
        return scheme.lower() == "bearer" and is_right

    @property
    def _files(self) -> "list[_WatchedFile[str] | _WatchedFile[_ServerCertificate]]":
        files: list[_WatchedFile[str] | _WatchedFile[_ServerCertificate] | None] = [self._token, self._certificate]
        return [each for each in files if each is not None]


OPEN = PageAccess()
"""Everybody who reaches the page may read it."""


def read_secret_file(path: str) -> bytes:
    """Return the content of a file that no other user of this machine may read.

    Raises:
        TransientError: it cannot be read, or by others too.
    """
    try:
        with Path(path).open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = file.read(_MAX_FILE_BYTES)
    except OSError as error:
        raise TransientError(Problem(path, f"cannot be read: {error.strerror}", _remedy(path, error))) from error
    if mode & _FOR_OTHERS:
        message = f"every user of this machine may use it (mode {mode:04o})"
        raise TransientError(Problem(path, message, f"chmod o-rwx {path}"))
    return content


def _remedy(path: str, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "write it, or correct the setting that names it"
    if isinstance(error, PermissionError):
        return f"use sudo or join the group pyconfd, which has to read it: chgrp pyconfd {path} && chmod 0640 {path}"
    return "name a file that the user of pyconfd may read"


def read_token(path: str, content: bytes) -> str:
    """Return the bearer token that a file holds.

    Raises:
        TransientError: it is none, or could be guessed.
    """
    token = content.decode("utf-8", "replace").strip()
    if not _TOKEN.fullmatch(token):
        message = "holds no token: expected one word of 16 characters or more, of letters, digits and . _ ~ + / -"
        raise TransientError(Problem(path, message, f"openssl rand -hex 32 > {path}"))
    hide([token])
    return token


def leaf_certificate(path: str, content: bytes) -> bytes:
    """Return the first certificate of a PEM file, that of the server, as DER.

    Raises:
        TransientError: there is none.
    """
    text = content.decode("ascii", "replace")
    try:
        return ssl.PEM_cert_to_DER_cert(text[text.index(_BEGIN) : text.index(_END) + len(_END)])
    except ValueError as error:
        raise TransientError(_no_certificate(path, "there is no certificate in it")) from error


def _server_certificate(path: str, content: bytes) -> _ServerCertificate:
    from cryptography import x509  # noqa: PLC0415 - commands that ask a page need none of it

    leaf = leaf_certificate(path, content)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(path, password="")  # an encrypted key fails, and asks nobody at the terminal
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else None
        words = "key and certificate do not fit together, or the key is encrypted or missing"
        raise TransientError(_no_certificate(path, f"{words} ({reason})" if reason else words)) from error
    try:
        own = x509.load_der_x509_certificate(leaf)
    except (ValueError, x509.InvalidVersion) as error:
        raise TransientError(_no_certificate(path, "its certificate cannot be read")) from error
    return _ServerCertificate(context, own.not_valid_before_utc.timestamp(), own.not_valid_after_utc.timestamp())


def _no_certificate(path: str, why: str) -> Problem:
    return Problem(path, why, "write the chain, the server's certificate first, and the key without a password, as PEM")
