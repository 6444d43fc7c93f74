"""What is told of a cluster on loopback: who is behind an address, what can be asked, and what came of it."""

from pyconfd.fragments import directory
from pyconfd.model.context import Context
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering
from pyconfd.predecessors.kubefigurator.preset import KubefiguratorPreset
from pyconfd.presets import registry
from pyconfd.presets.preset import PresetOptions
from pyconfd.sources.file import read_snapshot
from pyconfd.trying.loopback import AddressOwner, EndpointOwners
from pyconfd.trying.table import (
    NOBODY,
    Front,
    ProbeAnswer,
    Question,
    Row,
    Table,
    asked,
    fronts,
    lines,
    names,
    questions,
    table,
)

SNAPSHOT, UNREADABLE = read_snapshot(f"{directory()}/tests/cluster.yaml")
CONTEXT = registry.translate(SNAPSHOT, ("domains",), PresetOptions())
NODES, _ = read_snapshot(f"{KubefiguratorPreset.fragments}/tests/services.yaml")

TEXT = """\
defaults base
    mode http
defaults plain from base
    mode tcp
frontend http-in from base
    bind 127.0.0.1:8080
    use_backend a if { hdr(host) -i one.example.com }
    http-request set-var(txn.host) req.hdr(host),lower
frontend tls-in from base
    bind 127.0.0.1:8443 ssl crt /x.pem
frontend sni-in from plain
    bind 127.0.0.1:9443,127.0.0.1:9444
    use_backend %[req.ssl_sni,map(/m)]
listen redis from plain
    bind 127.0.0.1:6379
frontend unix from base
    bind /run/x.sock
"""


def test_who_is_behind_an_address() -> None:
    owners = EndpointOwners(SNAPSHOT)
    assert owners.at("10.244.1.1", 8080) == AddressOwner("demo/shop-1", ("demo/shop",))
    assert owners.at("FD00:10:244:0::1%eth0", 8080) == AddressOwner("demo/six-1", ("demo/six",))
    assert owners.at("ldap.example.net", 389) == AddressOwner("ldap.example.net:389")
    nodes = EndpointOwners(NODES)
    assert nodes.at("192.0.2.1", 30001) == AddressOwner("demo/web through worker-1", ("demo/web",))
    assert nodes.at("192.0.2.1", 9) == AddressOwner("worker-1 port 9")


def test_what_can_be_asked() -> None:
    assert fronts(TEXT) == (
        Front("frontend http-in", 8080, http=True, tls=False, sni=False),
        Front("frontend tls-in", 8443, http=True, tls=True, sni=False),
        Front("frontend sni-in", 9443, http=False, tls=False, sni=True),
        Front("frontend sni-in", 9444, http=False, tls=False, sni=True),
        Front("listen redis", 6379, http=False, tls=False, sni=False),
    )


def test_a_frontend_without_a_mode_speaks_http_where_its_backend_does() -> None:
    """As in the README of ads-infra-haproxy, and as HAProxy has it since 2.4."""
    text = "frontend proxy\n bind 127.0.0.1:80\n default_backend {}\nbackend http\n mode http\nbackend db\n"
    for backend, http in (("http", True), ("db", False), ("nobody", False)):
        assert fronts(text.format(backend)) == (Front("frontend proxy", 80, http=http, tls=False, sni=False),)


def test_names_are_those_of_presets_of_the_text_and_of_maps() -> None:
    files = (OutputFile(FileKind.MAP, "/m.map", "two.example.com be-two\n.example.org be-any\n10.0.0.1 x\n"),)
    found = names(Context({"domains": {"three.example.com": {}}}), Rendering((Piece("a", TEXT),), files))
    assert found == ("*.example.org", "one.example.com", "three.example.com", "two.example.com")
    assert asked("*.example.org") == "any.example.org"


def test_each_port_is_asked_for_what_it_knows() -> None:
    http, sni, plain = (
        Front("a", 1, True, False, False),
        Front("b", 2, False, False, True),
        Front("c", 3, False, False, False),
    )
    asked_of = list(questions((http, sni, plain), ("n",)))
    assert asked_of == [(http, NOBODY), (http, "n"), (sni, NOBODY), (sni, "n"), (sni, ""), (plain, "")]


HTTP = Front("frontend http-in", 8080, http=True, tls=False, sni=False)
SNI = Front("frontend sni-in", 8443, http=False, tls=False, sni=True)
REDIS = Front("listen redis", 6379, http=False, tls=False, sni=False)
OWNERS = {
    "demo/shop-1": AddressOwner("demo/shop-1", ("demo/shop",)),
    "demo/shop-2": AddressOwner("demo/shop-2", ("demo/shop",)),
    "demo/any-1": AddressOwner("demo/any-1", ("demo/any",)),
    "demo/vault-1": AddressOwner("demo/vault-1", ("demo/vault",)),
    "demo/cache-1": AddressOwner("demo/cache-1", ("demo/cache",)),
    "ldap:389": AddressOwner("ldap:389"),
}


def told(answers: dict[Question, ProbeAnswer]) -> Table:
    return table(answers, OWNERS, sorted({*CONTEXT.refused, *UNREADABLE}))


def test_rows_say_where_a_url_leads_and_how_to_ask() -> None:
    found = told(
        {
            (HTTP, NOBODY): ProbeAnswer(code=503),
            (HTTP, "*.example.com"): ProbeAnswer("demo/any-1", 200),
            (HTTP, "blog.example.com"): ProbeAnswer("demo/any-1", 200),
            (HTTP, "shop.example.com"): ProbeAnswer("demo/shop-1", 200),
            (HTTP, "old.example.org"): ProbeAnswer(code=301, location="https://new.example.org/"),
            (HTTP, "empty.example.org"): ProbeAnswer(code=503),
            (SNI, "vault.example.com"): ProbeAnswer("demo/vault-1", 200),
            (SNI, ""): ProbeAnswer(),
            (REDIS, ""): ProbeAnswer("demo/cache-1"),
        }
    )
    assert {row.url: row.where for row in found.rows} == {
        "http://*.example.com/": "demo/any, 1 pod",
        "http://shop.example.com/": "demo/shop, 2 pods",
        "http://old.example.org/": "a redirect to https://new.example.org/",
        "https://vault.example.com/": "demo/vault, 1 pod",
        "tcp port 6379 (listen redis)": "demo/cache, 1 pod",
    }
    commands = {row.url: row.command for row in found.rows}
    assert commands["http://shop.example.com/"] == "curl -H 'Host: shop.example.com' http://127.0.0.1:8080/"
    expected = "curl -k --connect-to vault.example.com:443:127.0.0.1:8443 https://vault.example.com/"
    assert commands["https://vault.example.com/"] == expected


def test_a_default_is_one_row_and_names_that_lead_there_are_none() -> None:
    found = told({(HTTP, NOBODY): ProbeAnswer("ldap:389", 200), (HTTP, "x.example.com"): ProbeAnswer("ldap:389", 200)})
    assert [(row.url, row.where) for row in found.rows] == [("http://127.0.0.1:8080/ (any other name)", "ldap:389")]
    stats = told({(HTTP, NOBODY): ProbeAnswer(code=200)})
    assert [row.where for row in stats.rows] == ["a page of HAProxy itself"]


def test_what_is_missing_is_said_in_words() -> None:
    names = ("shop.example.com", "empty.example.org", "six.example.com")
    codes = zip(names, (200, 503, 404), strict=True)
    found = told(
        {(HTTP, NOBODY): ProbeAnswer(code=503)} | {(HTTP, name): ProbeAnswer(code=code) for name, code in codes}
    )
    refused, unavailable = found.missing
    assert refused.startswith("Service other/thief annotation domain shop.example.com: Service demo/shop has this host")
    assert unavailable.startswith("empty.example.org: HAProxy answers 503; pyconfd explain empty.example.org")


def test_later_only_what_changed_is_told() -> None:
    one, two, three = (Row(f"http://{name}/", "a", "curl") for name in "abc")
    former, now = Table((one, two), ("x",)), Table((one, three, Row(two.url, "b", "curl")), ("x", "y"))
    assert list(lines(now, former)) == [
        "  now http://c/  ->  a",
        "      curl",
        "  now http://b/  ->  b",
        "      curl",
        "  not there y",
    ]
    assert list(lines(former, Table((one, two, three), ("x",)))) == ["  gone http://c/"]
    assert "  nothing answers" in list(lines(Table((), ()), None))
