"""Secrets with users, and clients who say that they are one."""

import base64
import ctypes
import ctypes.util
import json
from collections.abc import Mapping
from functools import lru_cache


@lru_cache
def hashed(password: str, salt: str = "$2y$04$abcdefghijklmnopqrstuu") -> str:
    """Return what `htpasswd -B -C 4` writes of a password; Python's own module is gone in 3.13."""
    library = ctypes.CDLL(ctypes.util.find_library("crypt") or "libcrypt.so.1")
    library.crypt.restype = ctypes.c_char_p
    found: bytes = library.crypt(password.encode(), salt.encode())
    return found.decode()


def secret(data: Mapping[str, str], name: str = "staff", kind: str = "Opaque") -> str:
    """Return a Secret."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return json.dumps({"kind": "Secret", "metadata": {"name": name}, "type": kind, "data": encoded})


def users(**passwords: str) -> str:
    """Return a Secret with an htpasswd file."""
    return secret({"auth": "".join(f"{user}:{hashed(each)}\n" for user, each in passwords.items())})


def basic(user: str, password: str) -> dict[str, str]:
    """Return the header of a client that says who it is."""
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
