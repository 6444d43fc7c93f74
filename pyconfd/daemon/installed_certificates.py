"""Which installed certificate came from which Secret, for as long as the right to read that Secret is missing.

A restarted daemon that may not read a namespace's Secrets goes on with the certificates that it installed before. Only
names and paths are kept: the keys stay in the installed files, and nowhere else.
"""

import base64
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from pyconfd.model.context import Context
from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.system.state_file import StateFile

log = structlog.get_logger(__name__)

FILE = "certificates.json"
_MOST_BYTES = 1 << 20
_TLS = "kubernetes.io/tls"


class _Entry(msgspec.Struct, frozen=True, order=True):
    namespace: str
    name: str
    path: str


class InstalledCertificates:
    """One file of the state directory, none without one; what cannot be read counts as nothing."""

    def __init__(self, state_dir: str = "") -> None:
        effect = "after a restart, certificates of Secrets that may not be read are not served"
        path = Path(state_dir) / FILE
        self._file = StateFile(path, list[_Entry], mode=0o600, effect=effect) if state_dir else None
        self._written: list[_Entry] | None = None
        self._seen: tuple[Snapshot, Snapshot] | None = None

    def keep(self, context: Context, rendering: Rendering | None) -> None:
        """Remember the certificates of this context that the applied rendering installed; None changes nothing."""
        if rendering is None or self._file is None:
            return
        installed = {file.content: file.path for file in rendering.files if file.kind is FileKind.CERTIFICATE}
        view = context.names.get("cluster")
        entries = sorted(
            _Entry(each.namespace, each.name, installed[each.pem])
            for each in (view.certificates if installed and view is not None else ())
            if each.pem in installed
        )
        if self._written is None:
            self._written = self._file.load() or []
        if entries != self._written and self._file.save(entries):
            self._written = entries

    def restored(self, snapshot: Snapshot) -> Snapshot:
        """Return a Snapshot with the installed certificates in place of Secrets that are denied; itself without any."""
        denied = {each.namespace for each in snapshot.denied if each.resource is Resource.SECRETS and not each.name}
        if not denied:
            return snapshot
        if self._seen is None or self._seen[0] is not snapshot:
            found = dict(self._secrets(denied))
            self._seen = snapshot, replace(snapshot, secrets={**snapshot.secrets, **found}) if found else snapshot
        return self._seen[1]

    def _secrets(self, namespaces: set[str]) -> Iterator[tuple[Key, Secret]]:
        for entry in (self._file.load() if self._file else None) or ():
            if entry.namespace not in namespaces:
                continue
            try:
                pem = _read(entry.path)
            except OSError as error:
                log.warning("certificate.unreadable", path=entry.path, error=error.strerror)
                continue
            # Key and chain are in one file; each is found by its label.
            encoded = base64.b64encode(pem).decode()
            meta = ObjectMeta(name=entry.name, namespace=entry.namespace)
            yield Key(entry.namespace, entry.name), Secret(meta, _TLS, {"tls.key": encoded, "tls.crt": encoded})


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST_BYTES)
