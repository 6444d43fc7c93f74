"""Certificates of ``spec.tls``: for which hosts, whose, and what is refused of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from pyconfd.model.context import Context
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo
from tests.presets.ingress.objects import (
    ADDRESSES,
    Obj,
    ingress,
    ingress_class,
    path,
    read,
    refusals,
    secret,
    service,
)
from tests.world.pki import CertificateAuthority, KeyPair

A, B, WILD = "a.example.com", "b.example.com", "*.example.com"
OPTIONS = PresetOptions(addresses=ADDRESSES, tls=TlsOptions("/tls", ("demo", "team")))
WEB = [ingress_class(), *service("web", "10.0.0.1")]
HOSTS = "spec.tls.hosts"
SECRET = "spec.tls.secretName"


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> KeyPair:
    return CertificateAuthority(tmp_path_factory.mktemp("ca")).server("web", ["*.example.com"])


def tls(name: str, *hosts: str) -> Obj:
    return {"secretName": name, "hosts": list(hosts)} if hosts else {"secretName": name}


def hosts(*names: str) -> Mapping[str, Sequence[Obj]]:
    return {name: [path("/")] for name in names}


def lines(context: Context) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Return the names and the redirected hosts of each Secret."""
    found = context.names["ingress"]["certificates"]
    assert [line.path for line in found.values() if line.path] == [file.path for file in context.files]
    return {key: (line.names, line.redirects) for key, line in found.items()}


@pytest.mark.parametrize(
    ("ingresses", "expected", "refused"),
    [
        ([ingress(rules=hosts(A), tls=[tls("one", A)])], {"demo/one": (A, (A,))}, []),
        ([ingress(rules=hosts(B, A), tls=[tls("one")])], {"demo/one": (f"{A} {B}", (A, B))}, []),
        ([ingress(rules=hosts(WILD), tls=[tls("one", WILD)])], {"demo/one": (WILD, (WILD,))}, []),
        (
            [ingress(rules=hosts(A, B), tls=[tls("one", A), tls("two", B)])],
            {"demo/one": (A, (A,)), "demo/two": (B, (B,))},
            [],
        ),
        (
            [ingress(rules=hosts(A), tls=[tls("one", A)], annotations={"pyconfd.io/ssl-redirect": "false"})],
            {"demo/one": (A, ())},
            [],
        ),
        (
            [ingress(rules=hosts(A), tls=[tls("one", A, B)])],
            {"demo/one": (A, (A,))},
            [("demo/web", HOSTS, "incomplete")],
        ),
        ([ingress(rules=hosts(""), tls=[tls("one")])], {}, [("demo/web", SECRET, "incomplete")]),
        (
            [ingress(rules=hosts(A), tls=[tls("none", A)])],
            {"demo/none": ("", (A,))},
            [("demo/web", SECRET, "no_certificate")],
        ),
        ([ingress(rules=hosts(A), tls=[{"hosts": [A]}])], {}, []),
        ([ingress(rules=hosts(A), tls=[tls("one two", A)])], {}, [("demo/web", SECRET, "invalid_value")]),
        # The same Secret in several objects is no conflict, another one is; so is a host that was lost.
        (
            [
                ingress("x", {A: [path("/x")]}, tls=[tls("one", A)], day=1),
                ingress("y", {A: [path("/y")]}, tls=[tls("one", A)], day=2),
                ingress("z", {A: [path("/z")]}, tls=[tls("two", A)], day=3),
            ],
            {"demo/one": (A, (A,))},
            [("demo/z", HOSTS, "name_taken")],
        ),
        (
            [
                ingress("x", hosts(A), day=1),
                ingress("thief", hosts(A), tls=[tls("one", A)], namespace="team", day=2),
            ],
            {},
            [("team/thief", "spec.rules.http.paths.path", "name_taken")],
        ),
    ],
)
def test_a_host_has_the_certificate_of_its_oldest_ingress(
    pair: KeyPair,
    ingresses: Sequence[Obj],
    expected: dict[str, tuple[str, tuple[str, ...]]],
    refused: list[tuple[str, str, str]],
) -> None:
    secrets = [secret("one", pair), secret("two", pair), secret("one", pair, namespace="team")]
    team = service("web", "10.0.0.2", namespace="team")
    context = read(*WEB, *team, *secrets, *ingresses, options=OPTIONS)
    assert lines(context) == expected
    assert refusals(context) == refused


def test_a_certificate_follows_its_secret_its_host_and_its_claimants(pair: KeyPair) -> None:
    memo = Memo()
    first = ingress("first", {A: [path("/")]}, tls=[tls("one", A)], day=1)
    second = ingress("second", {A: [path("/x")], B: [path("/")]}, tls=[tls("two", A, B)], day=2)
    steps = [
        ([first, second], ["one", "two"], {"demo/one": A, "demo/two": B}),
        ([second], ["one", "two"], {"demo/two": f"{A} {B}"}),
        ([second], [], {"demo/two": ""}),
        ([first, second], ["two"], {"demo/one": "", "demo/two": B}),
        ([first, second], ["one", "two"], {"demo/one": A, "demo/two": B}),
    ]
    for ingresses, names, expected in steps:
        objects = [*WEB, *ingresses, *(secret(name, pair) for name in names)]
        context = read(*objects, options=OPTIONS, memo=memo)
        assert {key: names for key, (names, _) in lines(context).items()} == expected
        assert refusals(context) == refusals(read(*objects, options=OPTIONS))


@pytest.mark.parametrize(("given", "seconds"), [("300", 300), ("0", 0), ("", None), ("soon", None)])
def test_an_annotation_says_how_long_browsers_come_by_https_only(
    pair: KeyPair, given: str, seconds: int | None
) -> None:
    made = ingress(rules=hosts(A, B), tls=[tls("one", A)], annotations={"pyconfd.io/hsts": given} if given else {})
    context = read(*WEB, secret("one", pair), made, options=OPTIONS)
    [line] = context.names["ingress"]["certificates"].values()
    assert line.hsts == (() if seconds is None else ((A, seconds),))
    assert refusals(context) == (
        [("demo/web", "annotation pyconfd.io/hsts", "invalid_value")] if given == "soon" else []
    )


def test_keys_are_nowhere_but_in_files(pair: KeyPair) -> None:
    context = read(*WEB, secret("one", pair), ingress(rules=hosts(A), tls=[tls("one", A)]), options=OPTIONS)
    key = Path(pair.key).read_text().splitlines()[1]
    assert key in context.files[0].content
    assert key not in repr(context)
    assert key not in repr(context.names["ingress"]["certificates"])
