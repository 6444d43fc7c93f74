"""TLS of a host is its namespace's alone: what clients are presented, with a real haproxy."""

import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from pyconfd.daemon.translation import FormerNames, Translator
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import TlsOptions
from tests.fragments.shipped import HAPROXY, OPTIONS, service_of, start_shipped
from tests.presets.ingress.objects import (
    PRESETS,
    Obj,
    ingress,
    ingress_class,
    path,
    secret,
    snapshot,
)
from tests.world.backends import Backends
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.pki import CertificateAuthority, KeyPair

pytestmark = [pytest.mark.haproxy, pytest.mark.skipif(not HAPROXY, reason="there is no haproxy")]

OWN, BARE, PASSED, WILD = "own.victim.test", "bare.victim.test", "passed.victim.test", "*.victim.test"
DEEP = "bare.deep.victim.test"


def web(namespace: str, pods: Backends, name: str = "web", **annotations: str) -> list[Obj]:
    address = next((each.address for each in pods.pods.values() if each.name == namespace), "")
    address = address or pods.add(namespace, f"127.26.1.{len(pods.pods) + 1}").address
    made = service_of(pods, name, address, namespace=namespace, day=5)
    made[0]["metadata"]["annotations"] = {f"pyconfd.io/{key}": value for key, value in annotations.items()}
    return made


TAKEN_OVER = "kept.victim.test"
PASSED_ON = "through.victim.test"


def tenants(pods: Backends, pairs: Mapping[str, KeyPair]) -> list[Obj]:
    """A victim with three hosts, and an older neighbour with a wildcard above them, twice: ended and passed through."""
    rules = {host: [path("/")] for host in (OWN, BARE, PASSED, DEEP)}
    victim = ingress("web", rules, namespace="victim", day=2, tls=[{"hosts": [OWN], "secretName": "tls"}])
    neighbour = ingress(
        "wild", {WILD: [path("/")]}, namespace="thief", day=1, tls=[{"hosts": [WILD], "secretName": "tls"}],
        annotations={"pyconfd.io/hsts": "31536000"},
    )  # fmt: skip
    others = [
        *web("victim", pods, "through", domain=PASSED_ON, proto="https"),
        ingress("all", {"": [path("/")]}, namespace="thief", day=1),
        *web("thief", pods, "exact", domain=BARE, proto="https"),
        *web("thief", pods, "deep", domain="*.deep.victim.test", proto="https"),
        *web("thief", pods, "ended", domain=PASSED, proto="http", **{"tls-secret": "tls"}),
    ]
    secrets = [secret("tls", pairs[each], namespace=each) for each in ("victim", "thief", "operator")]
    return [ingress_class(), *web("victim", pods), *web("thief", pods), victim, neighbour, *others, *secrets]


@contextmanager
def served(folder: Path, *, default: bool) -> Iterator[dict[str, int]]:
    ports = {"http": free_port(), "https": free_port()}
    with Backends() as pods, HaproxyProcess(folder) as haproxy:
        authority = CertificateAuthority(folder / "ca")
        pairs = {each: authority.server(each, [f"{each}.test", WILD, OWN]) for each in ("victim", "thief")}
        pairs["operator"] = authority.server("operator", ["operator.test"])
        tls = TlsOptions(str(folder / "secrets"), ("*",), Key("operator", "tls") if default else None)
        translator = Translator(PRESETS, replace(OPTIONS, tls=tls))
        objects = tenants(pods, pairs)
        victims = [each for each in objects if each["metadata"].get("namespace") != "thief"]
        victims.append(ingress("kept", {TAKEN_OVER: [path("/")]}, namespace="victim", day=2))
        # The victim is there first; its neighbour is older, and has everything of the host that he could ask for.
        register = translator.translate(snapshot(*victims)).register
        context = replace(translator, names=FormerNames(register, 1.0, 600.0)).translate(snapshot(*objects))
        start_shipped(haproxy, context, ports, folder)
        yield ports


def presented(port: int, sni: str) -> str:
    """Return the common name of whose certificate a client is presented, "" for none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 30) as raw,
            context.wrap_socket(raw, server_hostname=sni) as connection,
        ):
            found = connection.getpeercert(binary_form=True)
    except (ssl.SSLError, ConnectionError):
        return ""
    names = x509.load_der_x509_certificate(found or b"").extensions
    return names.get_extension_for_class(x509.SubjectAlternativeName).value.get_values_for_type(x509.DNSName)[0]


def reaches_a_pod(port: int, sni: str) -> bool:
    """Return whether a hello goes through to a pod: those of this test answer it with a text that is no TLS."""
    context = ssl.create_default_context()
    with socket.create_connection(("127.0.0.1", port), 30) as raw:
        try:
            context.wrap_socket(raw, server_hostname=sni).close()
        except ssl.SSLError as error:
            return error.reason == "WRONG_VERSION_NUMBER"
        except ConnectionError:
            return False
    raise AssertionError("no pod of this test ends TLS")


def plain(port: int, host: str) -> tuple[str, bool]:
    """Return the status line over plain HTTP, and whether browsers are told to come by HTTPS only."""
    with socket.create_connection(("127.0.0.1", port), 30) as raw:
        raw.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        head = b"".join(iter(lambda: raw.recv(65536), b"")).partition(b"\r\n\r\n")[0].decode()
    return head.split(" ")[1], "strict-transport-security" in head.lower()


@pytest.mark.parametrize("default", [True, False])
def test_clients_get_no_certificate_of_another_namespace(tmp_path: Path, *, default: bool) -> None:
    with served(tmp_path, default=default) as ports:
        assert presented(ports["https"], OWN) == "victim.test"
        for host in (BARE, PASSED, DEEP):
            assert presented(ports["https"], host) == ("operator.test" if default else "")
            assert plain(ports["http"], host) == ("200", False)
        assert presented(ports["https"], "other.victim.test") == "thief.test", "the wildcard serves what is left"


def test_what_a_host_does_not_serve_is_answered_by_nobody_else(tmp_path: Path) -> None:
    """Else a stranger's wildcard, or Ingress without a host, answers the question of a certificate's issuer."""
    with served(tmp_path, default=False) as ports:
        for host in (PASSED_ON, TAKEN_OVER):
            assert plain(ports["http"], host) == ("404", False)
        assert presented(ports["https"], TAKEN_OVER) == ""
        assert plain(ports["http"], "other.victim.test")[0] == "308"
        assert plain(ports["http"], "other.test")[0] == "200", "an Ingress without a host serves what is left"


@pytest.mark.parametrize("presets", [("domains",), PRESETS, ("domains", "kube2lb")])
@pytest.mark.parametrize("proto", ["http", "https"])
@pytest.mark.parametrize("wrong", [{"port": "none"}, {"hsts": "soon"}])
def test_a_domain_of_which_nothing_is_served_is_nobody_elses(
    tmp_path: Path, presets: tuple[str, ...], proto: str, wrong: dict[str, str]
) -> None:
    """Else who has the wildcard is sent its cookies, or the whole of its TLS, whichever presets are in use."""
    ports = {"http": free_port(), "https": free_port()}
    with Backends() as pods, HaproxyProcess(tmp_path) as haproxy:
        pair = CertificateAuthority(tmp_path / "ca").server("thief", ["thief.test", WILD])
        tls = {"tls-secret": "tls"} if proto == "http" else {}
        objects = [
            *web("victim", pods, domain=OWN, proto="http", **wrong),
            *web("thief", pods, domain=WILD, proto=proto, **tls),
            *web("thief", pods, "none-of-tls", domain="plain.test", proto="http"),
            secret("tls", pair, namespace="thief"),
        ]
        translator = Translator(presets, replace(OPTIONS, tls=TlsOptions(str(tmp_path / "secrets"), ("*",))))
        start_shipped(haproxy, translator.translate(snapshot(*objects)), ports, tmp_path)
        assert plain(ports["http"], OWN) == ("404", False)
        assert presented(ports["https"], OWN) == ""
        assert plain(ports["http"], "plain.test")[0] == "200"
        if proto == "http":
            assert presented(ports["https"], "other.victim.test") == "thief.test", "the wildcard serves what is left"
        else:
            assert not reaches_a_pod(ports["https"], OWN)
            assert reaches_a_pod(ports["https"], "other.victim.test"), "the wildcard serves what is left"


@pytest.mark.parametrize("host", [OWN, "*.deep.victim.test"])
@pytest.mark.parametrize("day_of_ingress", [1, 3, None])
def test_a_domain_that_its_namespaces_ingress_took_is_nobody_elses(
    tmp_path: Path, host: str, day_of_ingress: int | None
) -> None:
    """Else a neighbour's wildcard that goes through gets the TLS of a host with a refused domain of its own."""
    name = host.replace("*", "x")
    ports = {"http": free_port(), "https": free_port()}
    with Backends() as pods, HaproxyProcess(tmp_path) as haproxy:
        pair = CertificateAuthority(tmp_path / "ca").server("thief", ["thief.test", WILD])
        through = web("victim", pods, "through", domain=host, proto="https")
        through[0]["metadata"]["creationTimestamp"] = "2026-03-02T00:00:00Z"
        took = [ingress("web", {host: [path("/")]}, namespace="victim", day=day_of_ingress)] if day_of_ingress else []
        for each in took:
            each["metadata"]["creationTimestamp"] = f"2026-03-0{day_of_ingress}T00:00:00Z"
        goes_through = day_of_ingress != 1
        theirs = {"proto": "http", "tls-secret": "tls"} if goes_through else {"proto": "https"}
        objects = [
            *(ingress_class(), *took, *through, *web("thief", pods, domain=WILD, **theirs)),
            *web("thief", pods, "none-of-tls", domain="plain.test", proto="http"),
            secret("tls", pair, namespace="thief"),
        ]
        options = replace(OPTIONS, tls=TlsOptions(str(tmp_path / "secrets"), ("*",)))
        start_shipped(haproxy, Translator(PRESETS, options).translate(snapshot(*objects)), ports, tmp_path)
        assert reaches_a_pod(ports["https"], name) == goes_through
        if goes_through:
            assert presented(ports["https"], "other.victim.test") == "thief.test"
        else:
            assert reaches_a_pod(ports["https"], "other.victim.test")
