"""The names of pyconfd's keys in etcd. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """All keys below one prefix; a prefix without a slash at its end gets one."""

    prefix: str

    @property
    def pointer(self) -> bytes:
        """The one key that says what is current."""
        return f"{self._base}current".encode()

    @property
    def campaign(self) -> bytes:
        """The key that the producer holds with its lease."""
        return f"{self._base}producer".encode()

    @property
    def chunks(self) -> bytes:
        """What the keys of all chunks begin with."""
        return f"{self._base}chunks/".encode()

    def chunk(self, stored: str, index: int) -> bytes:
        """Return the key of one chunk of what has the SHA-256 ``stored``."""
        return self.chunks + f"{stored}/{index:04}".encode()

    def stored_of(self, key: bytes) -> str:
        """Return the SHA-256 that the key of a chunk names."""
        return key.removeprefix(self.chunks).partition(b"/")[0].decode("ascii", "replace")

    @property
    def _base(self) -> str:
        return self.prefix.rstrip("/") + "/"
