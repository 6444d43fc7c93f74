"""Pairs of key and certificate that HAProxy would not load: each is refused by name, none takes the others along."""

import base64
import datetime as dt
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa
from cryptography.x509.oid import NameOID

from pyconfd.haproxy.config.certificates import fault_of
from pyconfd.presets.certificates import pair
from tests.presets.pods import certificate, config_map, read, refusals, secret
from tests.world.haproxy import BINARY

KEY, CHAIN = certificate("good.example.com")


def of(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | dsa.DSAPrivateKey) -> tuple[str, str]:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x")])
    now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=36500))
    signed = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), signed.decode()


@cache
def signed_with_sha1() -> tuple[str, str]:
    """Return a pair that an authority signed as OpenSSL at level 2 refuses it; cryptography does not make such."""
    with tempfile.TemporaryDirectory() as folder:
        for arguments in (
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -subj /CN=ca -out ca.pem",
            "req -newkey rsa:2048 -nodes -keyout key -subj /CN=x -out csr",
            "x509 -req -sha1 -in csr -CA ca.pem -CAkey ca.key -CAcreateserial -out crt",
        ):
            subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True)
        return Path(folder, "key").read_text(), Path(folder, "crt").read_text()


def with_version(version: int) -> str:
    der = x509.load_pem_x509_certificate(CHAIN.encode()).public_bytes(serialization.Encoding.DER)
    changed = der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01" + bytes([version]), 1)
    return f"-----BEGIN CERTIFICATE-----\n{base64.encodebytes(changed).decode()}-----END CERTIFICATE-----\n"


GARBAGE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
SHORT_RSA = of(rsa.generate_private_key(65537, 1024))
UNFIT = {
    "a link of the chain is garbage": (KEY, CHAIN + GARBAGE),
    "a link of the chain has no such version": (KEY, CHAIN + with_version(9)),
    "there is no version 2": (KEY, with_version(1)),
    "there is no version 10": (KEY, with_version(9)),
    "a short RSA key": SHORT_RSA,
    "a link of the chain has a short key": (KEY, CHAIN + SHORT_RSA[1]),
    "a key of another kind": of(dsa.generate_private_key(2048)),
    "a signature with SHA-1": signed_with_sha1(),
    "a short EC key": of(ec.generate_private_key(ec.SECP192R1())),
}


@pytest.mark.parametrize("case", UNFIT)
def test_it_is_refused_by_name_and_the_others_stay(case: str) -> None:
    key, chain = UNFIT[case]
    context = read(
        "configmap",
        config_map("config", {"template": "x"}),
        config_map("certificates", {"good": CHAIN, "unfit": chain}),
        secret("keys", {"good": KEY, "unfit": key}),
    )
    assert context.names["certificates"] == ["good"]
    assert [file.path.rpartition("/")[2] for file in context.files] == ["good.pem"]
    told = [refusal for refusal in refusals(context) if "unfit" in str(refusal)]
    assert len(told) == 1


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("key", "chain"),
    [
        (KEY, CHAIN),
        (KEY, CHAIN.replace("\n", " ")),
        (KEY.replace("\n", "\r\n"), CHAIN.replace("\n", "\r\n")),
        (KEY.rstrip(), CHAIN.rstrip()),
        (KEY, CHAIN * 2),
        (f"Bag Attributes\n  x: y\n{KEY}", f"subject=CN = x\n{CHAIN}"),
    ],
)
def test_whatever_the_lines_are_haproxy_loads_it(key: str, chain: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pem"
    path.write_text(pair(key, chain, key_name="k", chain_name="c"))
    text = (
        "defaults\n mode http\n timeout connect 1s\n timeout client 1s\n timeout server 1s\n"
        f"listen l\n bind 127.0.0.1:1 ssl crt {path}\n"
    )
    done = subprocess.run([BINARY, "-c", "-f", "/dev/stdin"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("pem", "fault"),
    [
        ("".join(SHORT_RSA), "OpenSSL refuses RSA keys of less than 2048 bits"),
        (KEY + CHAIN + GARBAGE, "the certificate cannot be read"),
        (KEY + with_version(9), "the certificate cannot be read"),
        (KEY + CHAIN, ""),
    ],
)
def test_files_of_the_operator_are_judged_alike(pem: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "x.pem"
    path.write_text(pem)
    assert fault_of(str(path)) == fault
