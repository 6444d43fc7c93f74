"""Earlier states of TLS Secrets, for as long as the present ones may not be read or cannot be used.

A restarted daemon that may not read a namespace's Secrets goes on with the certificates that it installed before, and a
Secret whose new state is broken (half renewed, expired, no PEM) keeps the former one in use. Only names and paths are
stored: the keys stay in the installed files, and nowhere else.
"""

import base64
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog

from pyconfd.admission.removal_protection import SavedHold
from pyconfd.model.context import Context
from pyconfd.model.kubernetes import Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.model.versioned import differing
from pyconfd.presets.certificates import TLS, read_secret
from pyconfd.system.state_file import StateFile

log = structlog.get_logger(__name__)

FILE = "certificates.json"
_MOST_BYTES = 1 << 20


class _Entry(msgspec.Struct, frozen=True, order=True):
    namespace: str
    name: str
    path: str


class InstalledCertificates:
    """One file of the state directory, none without one; what cannot be read counts as nothing.

    ``holds`` says whether the former process ended while objects were held, which its successor lacks as well.
    """

    def __init__(self, state_dir: str = "", holds: StateFile[SavedHold] | None = None) -> None:
        effect = "after a restart, certificates of Secrets that may not be read are not served"
        path = Path(state_dir) / FILE
        self._file = StateFile(path, list[_Entry], mode=0o600, effect=effect) if state_dir else None
        self._holds = holds
        self._written: list[_Entry] | None = None
        self._kept: tuple[object, object] = (None, None)
        self._seen = self._result = Snapshot()
        self._former: Mapping[Key, Secret | None] = {}
        """The last usable state of each Secret that cannot be used now, None where there is none.

        So are Secrets that vanished with most others; until they are back, or this process ends while nothing is held.
        """

    def keep(self, context: Context, rendering: Rendering | None) -> None:
        """Remember the certificates of this context that the applied rendering installed; None changes nothing."""
        if rendering is None or self._file is None:
            return
        view = context.names.get("cluster")
        certificates = view.certificates if view is not None else ()
        if self._kept[0] is rendering.files and self._kept[1] is certificates:
            return
        self._kept = rendering.files, certificates
        installed = {file.content: file.path for file in rendering.files if file.kind is FileKind.CERTIFICATE}
        entries = sorted(
            _Entry(each.namespace, each.name, installed[each.pem]) for each in certificates if each.pem in installed
        )
        if self._written is None:
            self._written = self._file.load() or []
        if entries != self._written and self._file.save(entries):
            self._written = entries

    def restored(self, snapshot: Snapshot) -> Snapshot:
        """Return a Snapshot with earlier states of Secrets that are denied or cannot be used; itself without any."""
        if snapshot is self._seen:
            return self._result
        if self._holds is not None:
            self._former, self._holds = self._missing_since_restart(snapshot, self._holds), None
        self._former = self._unusable(snapshot)
        denied = {each.namespace for each in snapshot.denied if each.resource is Resource.SECRETS and not each.name}
        found = {key: secret for key, secret in self._former.items() if secret is not None}
        found |= self._installed(denied, set()) if denied else {}
        self._seen, former = snapshot, self._result.former_secrets
        same = former.keys() == found.keys() and all(former[key] is found[key] for key in found)
        self._result = replace(snapshot, former_secrets=former if same else found) if found else snapshot
        return self._result

    def _unusable(self, snapshot: Snapshot) -> Mapping[Key, Secret | None]:
        """Return the Secrets that cannot be used as they are, each with its last usable state where that was seen."""
        before, now, hour = self._seen.secrets, snapshot.secrets, snapshot.host.hour
        changed = differing(before, now) if hour == self._seen.host.hour else now.keys() | before.keys()
        if not changed:
            return self._former
        former, unknown = dict(self._former), set()
        vanished = _vanished_at_once(before, snapshot, changed)
        for key in changed:
            secret, old = now.get(key), before.get(key)
            if key in vanished:
                former.setdefault(key, old)
            elif secret is None or secret.type != TLS or not read_secret(secret, hour).fault:
                former.pop(key, None)
            elif key not in former:
                # What expires where it is stays in use as well.
                former[key] = old
                if old is None:
                    unknown.add(key)
        return former | self._installed(set(), unknown) if unknown else former

    def _missing_since_restart(self, snapshot: Snapshot, holds: StateFile[SavedHold]) -> dict[Key, Secret]:
        """Return the installed ones whose Secrets the first Snapshot lacks, where it is most of them during a hold."""
        entries = (self._file.load() if self._file else None) or ()
        keys = {Key(each.namespace, each.name) for each in entries if not snapshot.denies_secrets_of(each.namespace)}
        gone = keys - snapshot.secrets.keys()
        if not _is_most(gone, keys):
            return {}
        saved = holds.load()
        return self._installed(set(), gone) if saved is not None and saved.hold is not None else {}

    def _installed(self, namespaces: set[str], keys: set[Key]) -> dict[Key, Secret]:
        found = {}
        for entry in (self._file.load() if self._file else None) or ():
            key = Key(entry.namespace, entry.name)
            if not ({entry.namespace, ""} & namespaces or key in keys):
                continue
            try:
                pem = _read(entry.path)
            except OSError as error:
                log.warning("certificate.unreadable", path=entry.path, error=error.strerror)
                continue
            # Key and chain are in one file; each is found by its label.
            encoded = base64.b64encode(pem).decode()
            meta = ObjectMeta(name=entry.name, namespace=entry.namespace)
            found[key] = Secret(meta, TLS, {"tls.key": encoded, "tls.crt": encoded})
        return found


def _vanished_at_once(before: Mapping[Key, Secret], snapshot: Snapshot, changed: Iterable[Key]) -> set[Key]:
    """Return the TLS Secrets that are gone, where it is most of them between two Snapshots.

    Who deletes Secrets deletes one after the other, and each deletion is an event of its own. So many at once are
    missing in a list: after a change of rights, or where the API server was restored from a backup. The only Secret of
    a cluster is missing in a list where no event said that it was deleted.
    """
    now = snapshot.secrets
    gone = {key for key in changed if key not in now and key in before and before[key].type == TLS}
    if len(gone) == 1:
        uid = before[next(iter(gone))].metadata.uid
        if not uid or any(uid in each for each in snapshot.terminating):
            return set()
    known = [key for key, secret in before.items() if secret.type == TLS] if gone else ()
    return gone if _is_most(gone, known) else set()


def _is_most(gone: Collection[Key], known: Collection[object]) -> bool:
    return 2 * len(gone) > len(known) > 0


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as file:
        return file.read(_MOST_BYTES)
