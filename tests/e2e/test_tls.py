"""TLS with certificates of Secrets, from the cluster to real clients; ``make tls-test`` is the long form."""

import http.client
import os
import socket
import ssl
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.runtime.sockets import NoAnswer
from pyconfd.haproxy.runtime.sockets import ask as socket_ask
from tests.e2e import browser
from tests.e2e.expect import all_is_well
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import TlsCrowd, ask, ask_tls, failures, presented_to
from tests.world.issuer import Issuer, serial

pytestmark = pytest.mark.haproxy

ROUNDS = int(os.environ.get("PYCONFD_TEST_TLS_ROUNDS", "1"))
CLIENTS = 32
HOST, BLOG = "shop.example.com", "blog.example.com"


def annotations(host: str, **tls: str) -> dict[str, str]:
    given = {f"pyconfd.io/{name.replace('_', '-')}": value for name, value in tls.items()}
    return {"domain": host, "proto": "http"} | given


def conditions(appliance: Appliance, name: str) -> str:
    said = appliance.command("explain", "service", f"{NAMESPACE}/{name}")
    return said.stdout


def until_presented(appliance: Appliance, host: str, number: int) -> float:
    """Wait until clients get this certificate, 0 for none; return the seconds."""
    what = f"{host} has the certificate {number}"
    return appliance.until(lambda: presented_to(appliance.https, host) == number, what)


def reasons(appliance: Appliance) -> list[str]:
    return [each["reason"] for each in appliance.status()["refused"]]


def served_with(appliance: Appliance, secret: str, number: int) -> None:
    """Serve shop with TLS; it is there when this returns."""
    appliance.serve("shop", annotations(HOST, tls_secret=secret))
    appliance.start()
    until_presented(appliance, HOST, number)
    appliance.until(appliance.settled, "all is applied")


@pytest.mark.timeout(600)
def test_the_life_of_a_secret_fails_no_handshake_and_reloads_nothing(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    first = issuer.renew("shop-tls", HOST)
    appliance.serve("blog")
    served_with(appliance, "shop-tls", first)
    worker, took = appliance.haproxy.worker(), []
    with ExitStack() as stack:
        crowds = [TlsCrowd(appliance.https, HOST, issuer.ca, CLIENTS // 2, keep_alive=each) for each in (False, True)]
        for crowd in crowds:
            stack.callback(crowd.stop)
        for _ in range(ROUNDS):
            number = issuer.renew("shop-tls", HOST)
            took.append(until_presented(appliance, HOST, number))
            half, other = issuer.pair(HOST), issuer.pair(HOST)
            issuer.write("shop-tls", half.key, other.cert)
            appliance.until(lambda: "no_certificate" in reasons(appliance), "a half renewed one is refused")
            assert presented_to(appliance.https, HOST) == number
            issuer.write("shop-tls", half.key, half.cert)
            until_presented(appliance, HOST, serial(half))
            # Another host: its certificate comes and goes.
            appliance.cluster.annotate("services", NAMESPACE, "blog", {"pyconfd.io/tls-secret": "blog-tls"})
            number = issuer.renew("blog-tls", BLOG)
            until_presented(appliance, BLOG, number)
            assert ask_tls(appliance.https, BLOG, issuer.ca) == "blog-1"
            appliance.cluster.delete("secrets", NAMESPACE, "blog-tls")
            until_presented(appliance, BLOG, 0)
            appliance.cluster.annotate("services", NAMESPACE, "blog", {"pyconfd.io/tls-secret": None})
        answers = [crowd.stop() for crowd in crowds]
    appliance.until(appliance.settled, "all is applied")
    assert [failures(each) for each in answers] == [[], []]
    assert min(each.total() for each in answers) > CLIENTS
    assert crowds[1].reused > CLIENTS
    assert appliance.haproxy.worker() == worker, "nothing was reloaded"
    print(f"{len(took)} renewals: median {sorted(took)[len(took) // 2]:.3f} s, longest {max(took):.3f} s")
    print(f"{sum(each.total() for each in answers)} requests, {answers[0].total()} with a handshake")
    all_is_well(appliance)


def test_the_first_host_that_goes_through_brings_the_inspection_with_one_reload(appliance: Appliance) -> None:
    """And the last one takes it away again: TLS ends on the port itself where no name has to be read before."""
    issuer = Issuer(appliance)
    served_with(appliance, "shop-tls", issuer.renew("shop-tls", HOST))
    conf, before = appliance.haproxy.conf, reloads(appliance)
    assert "frontend https-in" not in conf.read_text()
    with ExitStack() as stack:
        crowds = [TlsCrowd(appliance.https, HOST, issuer.ca, 4, keep_alive=each) for each in (False, True)]
        for crowd in crowds:
            stack.callback(crowd.stop)
        appliance.serve("vault", {"domain": "vault.example.com", "proto": "https"})
        appliance.until(lambda: goes_through(appliance.https, "vault.example.com"), "its TLS reaches the pod")
        appliance.until(appliance.settled, "all is applied")
        assert "frontend https-in" in conf.read_text()
        assert reloads(appliance) == before + 1
        appliance.cluster.delete("services", NAMESPACE, "vault")
        appliance.until(lambda: not goes_through(appliance.https, "vault.example.com"), "it is gone")
        appliance.until(lambda: "frontend https-in" not in conf.read_text(), "TLS ends on the port again")
        appliance.until(appliance.settled, "all is applied")
        answers = [crowd.stop() for crowd in crowds]
    assert [failures(each) for each in answers] == [[], []]
    assert min(each.total() for each in answers) > 8
    all_is_well(appliance)


def reloads(appliance: Appliance) -> int:
    """Return how often the master process was reloaded; it takes no connection for a moment after a reload."""
    answers: list[str] = []

    def answered() -> bool:
        with suppress(NoAnswer):
            answers.append(socket_ask(appliance.haproxy.master_socket, "show proc"))
        return bool(answers)

    appliance.until(answered, "the master answers")
    (answer,) = answers
    return int(next(line for line in answer.splitlines() if " master " in line).split()[2])


def goes_through(port: int, host: str) -> bool:
    """Return whether a ClientHello reaches a pod: those of the tests answer it with a text that is no TLS."""
    context = ssl.create_default_context()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except ssl.SSLError as error:
        return error.reason == "WRONG_VERSION_NUMBER"
    except ConnectionError:
        return False
    raise AssertionError("no pod of this test ends TLS")


def test_a_broken_secret_keeps_its_certificate_over_a_restart(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    number = issuer.renew("shop-tls", HOST)
    served_with(appliance, "shop-tls", number)
    expired = issuer.pair(HOST, expired=True)
    issuer.write("shop-tls", expired.key, expired.cert)
    appliance.until(lambda: "no_certificate" in reasons(appliance), "an expired one is refused")
    worker = appliance.haproxy.worker()
    appliance.stop()
    appliance.spawn()
    appliance.until(appliance.settled, "it serves again")
    appliance.until(lambda: "no_certificate" in reasons(appliance), "the expired one is still refused")
    assert presented_to(appliance.https, HOST) == number
    assert appliance.haproxy.worker() == worker
    told = conditions(appliance, "shop")
    assert "ResolvedRefs" in told
    assert "expired" in told
    assert f"certificate for {HOST}, until " in told
    assert "issued by CN=fake-ca" in told


def location(appliance: Appliance, host: str, path: str) -> tuple[int, str]:
    with closing(http.client.HTTPConnection("127.0.0.1", appliance.http, timeout=30)) as connection:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Location", "")


def asked(appliance: Appliance, host: str, ca: str, sni: str = "") -> Any:
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2", "http/1.1"])
    with ExitStack() as stack:
        plain = stack.enter_context(socket.create_connection(("127.0.0.1", appliance.https), timeout=30))
        wrapped = stack.enter_context(context.wrap_socket(plain, server_hostname=sni or host))
        return wrapped.selected_alpn_protocol(), wrapped.version()


def test_the_default_certificate_is_for_all_other_names_and_renewed_too(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    appliance.values["tls"] = {"default_certificate": f"{NAMESPACE}/edge"}
    default, own = issuer.renew("edge", "edge.example.com"), issuer.renew("shop-tls", HOST)
    appliance.serve("plain")
    served_with(appliance, "shop-tls", own)
    worker = appliance.haproxy.worker()
    for name in ("plain.example.com", "unknown.example.net", "edge.example.com"):
        assert presented_to(appliance.https, name) == default
    default = issuer.renew("edge", "edge.example.com")
    until_presented(appliance, "unknown.example.net", default)
    assert presented_to(appliance.https, HOST) == own
    assert appliance.haproxy.worker() == worker


def test_a_name_that_goes_through_is_not_served_over_a_connection_of_another(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    pair = issuer.pair("*.example.com")
    issuer.write("wild", pair.key, pair.cert)
    appliance.serve("vault", {"domain": "vault.example.com", "proto": "https"})
    appliance.serve("others", {"domain": "*.example.org", "proto": "https"})
    served_with(appliance, "wild", serial(pair))
    context = ssl.create_default_context(cafile=issuer.ca)
    with (
        socket.create_connection(("127.0.0.1", appliance.https), timeout=30) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as wrapped,
    ):
        connection = http.client.HTTPConnection(HOST)
        connection.sock = wrapped
        answers = []
        for host in (HOST, "vault.example.com", "any.example.org", "unknown.example.net"):
            connection.request("GET", "/", headers={"Host": host})
            answer = connection.getresponse()
            answer.read()
            answers.append(answer.status)
    assert answers == [200, 421, 421, 404]


def test_a_name_that_is_ended_here_comes_before_a_wildcard_of_another_that_goes_through(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    pair = issuer.pair("*.example.com")
    issuer.write("wild", pair.key, pair.cert)
    appliance.serve("wide", {"domain": "*.example.com", "proto": "https"})
    served_with(appliance, "wild", serial(pair))
    # Names of which nobody asked for a certificate go through: there is no TLS behind.
    assert presented_to(appliance.https, "other.example.com") == 0


def test_plain_http_is_redirected_and_names_of_others_get_no_certificate(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    pair = issuer.pair("*.example.com")
    issuer.write("wild", pair.key, pair.cert)
    appliance.serve("plain")
    appliance.serve("both", annotations("both.example.com", tls_secret="wild", ssl_redirect="false", hsts="300"))
    served_with(appliance, "wild", serial(pair))
    assert location(appliance, HOST, "/cart?id=1") == (308, f"https://{HOST}/cart?id=1")
    assert location(appliance, HOST, "/.well-known/acme-challenge/x")[0] == 200
    assert location(appliance, "plain.example.com", "/") == (200, "")
    assert location(appliance, "both.example.com", "/") == (200, "")
    assert (
        ask(appliance.http, "both.example.com") == ask_tls(appliance.https, "both.example.com", issuer.ca) == "both-1"
    )
    # Of the same certificate, for a name that nobody claims with it.
    assert presented_to(appliance.https, "plain.example.com") == presented_to(appliance.https, "127.0.0.1") == 0
    assert asked(appliance, HOST, issuer.ca) == ("h2", "TLSv1.3")


def test_nobody_is_redirected_before_there_is_a_certificate_for_the_host(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    appliance.serve("shop", annotations(HOST, tls_secret="shop-tls"))
    appliance.start()
    appliance.until(lambda: location(appliance, HOST, "/") == (200, ""), "the host is served")
    worker = appliance.haproxy.worker()
    other = issuer.pair("other.example.com")
    issuer.write("shop-tls", other.key, other.cert)
    until_presented(appliance, HOST, serial(other))
    assert location(appliance, HOST, "/") == (200, "")
    appliance.until(
        lambda: [each["reason"] for each in appliance.status()["notes"]] == ["certificate_mismatch"],
        "the host is missed",
    )
    number = issuer.renew("shop-tls", HOST)
    until_presented(appliance, HOST, number)
    appliance.until(lambda: location(appliance, HOST, "/")[0] == 308, "clients are redirected")
    assert appliance.haproxy.worker() == worker, "nothing was reloaded"


@pytest.mark.skipif(not browser.CHROMIUM, reason="there is no chromium")
@pytest.mark.timeout(300)
def test_chromium_opens_a_page_over_http_2(appliance: Appliance) -> None:
    issuer = Issuer(appliance)
    pair, unknown = issuer.pair(HOST), issuer.pair(HOST)
    issuer.write("shop-tls", pair.key, pair.cert)
    served_with(appliance, "shop-tls", serial(pair))

    def seen(profile: str, trusted: Path) -> str:
        folder = appliance.folder / profile
        return browser.page(f"https://{HOST}", profile=folder, host=HOST, port=appliance.https, trusted=trusted)

    assert "shop-1" in seen("one", pair.cert)
    assert f'"host":"{HOST}","path":"\\/","version":"HTTP/2.0"' in appliance.haproxy.log.read_text(encoding="utf-8")
    # With another certificate it would not have opened the page.
    assert "shop-1" not in seen("two", unknown.cert)
