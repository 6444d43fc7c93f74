"""Chromium without a window, as a client that decides for itself what it trusts and speaks."""

import base64
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

CHROMIUM = shutil.which("chromium") or ""
_PATIENCE_S = 120.0


def pin_of(certificate: Path) -> str:
    """Return what names the key of a certificate for ``--ignore-certificate-errors-spki-list``."""
    key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    digest = hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()
    return base64.b64encode(digest).decode()


def page(url: str, *, profile: Path, host: str, port: int, trusted: Path) -> str:
    """Open a page and return what it shows; ``host`` is at ``port`` of 127.0.0.1.

    Of all certificates that no public authority signed, only one with the key of ``trusted`` is taken.
    """
    arguments = [
        "--headless=new",
        "--no-sandbox",  # the tests may run as root
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-dev-shm-usage",
        "--no-first-run",
        f"--user-data-dir={profile}",
        f"--host-resolver-rules=MAP {host}:443 127.0.0.1:{port}, MAP {host} 127.0.0.1, EXCLUDE 127.0.0.1",
        f"--ignore-certificate-errors-spki-list={pin_of(trusted)}",
        "--virtual-time-budget=10000",
        "--dump-dom",
    ]
    done = subprocess.run(
        [CHROMIUM, *arguments, url],
        capture_output=True,
        text=True,
        check=False,
        timeout=_PATIENCE_S,
        env={**os.environ, "HOME": str(profile)},
    )
    return done.stdout
