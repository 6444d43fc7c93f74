"""Certificates of ``spec.tls``: for which hosts, whose, and what is refused of them."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from pyconfd.fragments import directory
from pyconfd.model.context import AUTOMATIC_PRESETS, Context, RefusalReason, left_out
from pyconfd.model.snapshot import HostFacts, Key
from pyconfd.presets.certificates import TlsOptions
from pyconfd.presets.preset import PresetOptions
from pyconfd.presets.registry import Memo, translate
from pyconfd.render.engine import Renderer, RenderOptions
from pyconfd.sources.fragments import read_fragments
from tests.fragments.shipped import write_rendering
from tests.presets.ingress.objects import (
    ADDRESSES,
    PRESETS,
    Obj,
    ingress,
    ingress_class,
    path,
    read,
    refusals,
    secret,
    service,
    snapshot,
)
from tests.world.haproxy import BINARY
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
            {"demo/none": ("", ())},
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
            [("team/thief", "spec.rules.http.paths.path", "name_taken"), ("team/thief", HOSTS, "name_taken")],
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


DAY = 24


@pytest.mark.parametrize(
    ("left_h", "reasons"),
    [
        (15 * DAY, []),
        (14 * DAY - 1, ["certificate_expires_soon"]),
        (3 * DAY, ["certificate_expires_soon"]),
        (3 * DAY - 1, ["certificate_expires_now"]),
        (1, ["certificate_expires_now"]),
    ],
)
def test_a_certificate_that_ends_soon_is_said_by_the_time_of_the_host(
    pair: KeyPair, left_h: int, reasons: list[str]
) -> None:
    objects = [*WEB, secret("one", pair), ingress(rules=hosts(A), tls=[tls("one", A)])]
    end = end_of(pair) // 3600
    memo = Memo()
    read(*objects, options=OPTIONS, memo=memo)
    context = translate(replace(snapshot(*objects), host=HostFacts(hour=end - left_h)), PRESETS, OPTIONS, memo)
    assert [each.reason.value for each in context.refused] == reasons
    assert left_out(context.refused) == ()
    assert lines(context) == {"demo/one": (A, (A,))}


def test_one_that_expires_in_use_stays_and_is_said_each_time(pair: KeyPair) -> None:
    made = snapshot(*WEB, secret("one", pair), ingress(rules=hosts(A, B), tls=[tls("one")]))
    late = replace(made, host=HostFacts(hour=10_000_000), former_secrets=made.secrets)
    context = translate(late, PRESETS, OPTIONS)
    expired = [each for each in context.refused if each.reason is RefusalReason.CERTIFICATE_EXPIRED]
    assert [(str(each.ref), each.value) for each in expired] == [("Ingress demo/web", "one")]
    assert lines(context) == {"demo/one": (f"{A} {B}", (A, B))}


def test_a_certificate_for_another_host_is_said_and_nobody_is_sent_to_it(pair: KeyPair) -> None:
    made = ingress(rules=hosts(A, "a.example.org"), tls=[tls("one")])
    context = read(*WEB, secret("one", pair), made, options=OPTIONS)
    assert lines(context) == {"demo/one": (f"{A} a.example.org", (A,))}
    assert refusals(context) == [("demo/web", HOSTS, "certificate_mismatch")]
    assert "is for *.example.com" in context.refused[0].detail


def test_who_relies_on_https_alone_is_redirected_without_a_certificate_too() -> None:
    annotations = {"nginx.ingress.kubernetes.io/force-ssl-redirect": "true"}
    context = read(*WEB, ingress(rules=hosts(A), tls=[tls("none", A)], annotations=annotations), options=OPTIONS)
    assert lines(context) == {"demo/none": ("", (A,))}


def test_what_is_presented_follows_secrets_and_hosts(pair: KeyPair) -> None:
    memo = Memo()
    first, both = ingress(rules=hosts(A), tls=[tls("one")]), ingress(rules=hosts(A, B), tls=[tls("one")])
    for made, names, expected in [
        (first, ["one"], [A]),
        (both, ["one"], [A, B]),
        (both, [], []),
        (first, ["one"], [A]),
    ]:
        objects = [*WEB, made, *(secret(name, pair) for name in names)]
        for context in (read(*objects, options=OPTIONS, memo=memo), read(*objects, options=OPTIONS)):
            found = [each for part in context.certificates for each in part.values()]
            assert sorted(each.host for each in found) == expected
            assert {(each.namespace, each.secret, each.not_after) for each in found} <= {("demo", "one", end_of(pair))}


def test_the_default_certificate_is_presented_and_judged_without_a_host(pair: KeyPair) -> None:
    options = replace(OPTIONS, tls=TlsOptions("/tls", ("demo",), Key("demo", "one")))
    made = replace(snapshot(*WEB, secret("one", pair)), host=HostFacts(hour=end_of(pair) // 3600 - 24))
    context = translate(made, PRESETS, options)
    assert [each.host for part in context.certificates for each in part.values()] == [""]
    assert [(str(each.ref), each.reason.value) for each in context.refused] == [
        ("Secret demo/one", "certificate_expires_now")
    ]


def test_a_secret_that_nothing_names_is_no_fault() -> None:
    unusable = {
        "kind": "Secret",
        "metadata": {"name": "odd", "namespace": "demo"},
        "type": "kubernetes.io/tls",
        "data": {"tls.crt": "eA==", "tls.key": "eA=="},
    }
    made = ingress(rules=hosts(A))
    context = translate(snapshot(*WEB, unusable, made), tuple(map(str, AUTOMATIC_PRESETS)), OPTIONS)
    assert context.refused == ()
    named = translate(snapshot(*WEB, unusable, ingress(rules=hosts(A), tls=[tls("odd", A)])), PRESETS, OPTIONS)
    assert [(str(each.ref), each.field) for each in named.refused] == [("Ingress demo/web", SECRET)]


def end_of(pair: KeyPair) -> int:
    return int(x509.load_pem_x509_certificate(pair.cert.read_bytes()).not_valid_after_utc.timestamp())


def test_keys_are_nowhere_but_in_files(pair: KeyPair) -> None:
    context = read(*WEB, secret("one", pair), ingress(rules=hosts(A), tls=[tls("one", A)]), options=OPTIONS)
    key = Path(pair.key).read_text().splitlines()[1]
    assert key in context.files[0].content
    assert key not in repr(context)
    assert key not in repr(context.names["ingress"]["certificates"])


def test_a_redirect_follows_the_default_certificate(pair: KeyPair) -> None:
    options, memo = replace(OPTIONS, tls=TlsOptions("/tls", ("demo",), Key("demo", "edge"))), Memo()
    made = ingress(rules=hosts(A), tls=[tls("none", A)])
    for secrets, expected in [((), ()), ((secret("edge", pair),), (A,)), ((), ())]:
        [line] = read(*WEB, made, *secrets, options=options, memo=memo).names["ingress"]["certificates"].values()
        assert line.redirects == expected


@pytest.mark.haproxy
def test_names_of_one_secret_take_as_many_lines_as_haproxy_reads(pair: KeyPair, tmp_path: Path) -> None:
    names = [f"h{number}.example.com" for number in range(2_100)]
    made = [
        ingress(f"i{start}", rules=hosts(*names[start : start + 300]), tls=[tls("one", *names[start : start + 300])])
        for start in range(0, len(names), 300)
    ]
    options = replace(OPTIONS, tls=TlsOptions(str(tmp_path / "tls"), ("demo",)))
    context = read(*WEB, *made, secret("one", pair), options=options)
    variables = {"http_bind": "", "https_bind": "127.0.0.1:18443", "runtime_socket": str(tmp_path / "socket")}
    renderer = Renderer(read_fragments(directory()), RenderOptions(str(tmp_path), variables=variables))
    rendering = renderer.render(Context({"domains": {}, **context.names}, files=context.files), curdate="").rendering
    (content,) = (file.content for file in rendering.files if file.path.endswith("/https-certificates.map"))
    rows = [line.split(" ") for line in content.splitlines()]
    assert sorted(name for _, *some in rows for name in some) == sorted(names)
    assert max(map(len, content.splitlines())) < 4_000
    write_rendering(rendering, tmp_path / "haproxy.cfg")
    command = [BINARY, "-c", "-f", str(tmp_path / "haproxy.cfg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "ALERT" in done.stderr) == (0, False), done.stderr
