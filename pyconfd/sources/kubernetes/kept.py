"""What is kept of Secrets and ConfigMaps that are read by namespace: a tenant writes them, and they stay in memory."""

import re
from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from pyconfd.model.kubernetes import LARGEST_PEM, NO_ROOM, ROOM_OF_NAMESPACE, TOO_LARGE, AnyObject, ConfigMap, Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Named, Resource
from pyconfd.presets.policies.pages import is_page
from pyconfd.presets.policies.users import FILE_KEY, OPAQUE

CA_KEY = "ca.crt"
"""The key of a ConfigMap that is read by namespace, beside error pages. Source: ``caCertificateRefs`` in the API."""
_KEYS: Mapping[Resource, tuple[str, ...]] = MappingProxyType(
    {Resource.SECRETS: ("tls.crt", "tls.key"), Resource.CONFIGMAPS: (CA_KEY,)}
)
_HASH = re.compile(r"J[A-P][A-Za-z0-9+/]{20,200}={0,2}", re.ASCII)
"""Base64 of what begins with a $, as hashes of passwords do, and is no longer than one."""


class Keeper:
    """Keeps the used keys of what ``scope`` reads, and of each namespace only so much; all of an object that is named.

    A value that is not kept is :data:`TOO_LARGE` or :data:`NO_ROOM`, which no base64 and no PEM file can be.
    """

    def __init__(self, scope: Named) -> None:
        self._keys = _KEYS.get(scope.resource, ()) if not scope.name else ()
        self._sizes: dict[Key, int] = {}
        self._totals: dict[str, int] = {}
        """How much is kept of each object, and of each namespace."""

    def kept(self, record: AnyObject) -> AnyObject:
        """Return what to keep of a record."""
        if not self._keys or not isinstance(record, Secret | ConfigMap):
            return record
        meta, data = record.metadata, record.data or {}
        short = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            creation_timestamp=meta.creation_timestamp if isinstance(record, Secret) else None,
        )
        keys = self._keys
        if isinstance(record, Secret) and record.type == OPAQUE:
            # Each key may be a user: of all that such Secrets hold, hashes of passwords are kept and nothing else.
            keys = tuple(name for name, value in data.items() if name == FILE_KEY or _HASH.fullmatch(value))
        if isinstance(record, ConfigMap):
            keys = (*keys, *filter(is_page, data))
        used = {key: value if len(value) <= LARGEST_PEM else TOO_LARGE for key in keys if (value := data.get(key))}
        key = Key(meta.namespace, meta.name)
        self.dropped(key)  # what was kept of its former state
        size = sum(map(len, used.values()))
        total = self._totals.get(key.namespace, 0) + size
        if total > ROOM_OF_NAMESPACE:
            used = dict.fromkeys(used, NO_ROOM)
        elif size:
            self._sizes[key], self._totals[key.namespace] = size, total
        return msgspec.structs.replace(record, metadata=short, data=used or None)

    def dropped(self, key: Key) -> None:
        """Free the room of a deleted object for others."""
        if key in self._sizes:
            self._totals[key.namespace] -= self._sizes.pop(key)
