from collections.abc import Callable
from dataclasses import replace

import pytest

from pyconfd import printable
from pyconfd.errors import Problem
from pyconfd.model.context import Refusal, RefusalReason
from pyconfd.model.kubernetes import ObjectRef
from pyconfd.model.snapshot import Resource
from pyconfd.model.status import (
    ApiServerState,
    CredentialState,
    NextAttempt,
    Phase,
    Quarantined,
    QuarantineStatus,
    ResourceState,
    SourceHealth,
    Status,
    StatusWriterState,
    WriterRole,
)
from pyconfd.status.document import Freshness, StatusReport, decode, encode
from pyconfd.status.text import render_text

DAY, HOUR = 86400.0, 3600.0


def shown(status: Status, *, colour: bool = False) -> str:
    return render_text(StatusReport(Freshness.LIVE, status.now, status), colour=colour)


def test_the_phase_comes_first(make_status: Callable[..., Status]) -> None:
    assert shown(make_status()).splitlines()[0] == "SERVING  generation 12, applied 3 m ago, verified"


def test_the_headline_says_which_right_is_missing(make_status: Callable[..., Status]) -> None:
    problem = Problem("services", "ResolvedRefs=False: forbidden", "grant it")
    status = make_status(phase=Phase.SERVING_LAST_GOOD)
    text = shown(replace(status, source=replace(status.source, problems=(problem,))))
    assert text.splitlines()[1] == "because of services: ResolvedRefs=False: forbidden"


def test_it_fits_a_screen(make_status: Callable[..., Status]) -> None:
    assert len(shown(make_status()).splitlines()) <= 40


def test_columns_stand_under_each_other_with_and_without_colour(make_status: Callable[..., Status]) -> None:
    for colour in (False, True):
        lines = shown(make_status(), colour=colour).splitlines()
        first, second = (line for line in lines if ":6443" in line)
        assert first.replace("\033[32m", "").replace("\033[0m", "").index("in use") == len(
            "  https://10.0.0.1:6443  down  "
        )
        assert "connection refused (40 s ago)" in second


def test_etcd_stands_beside_the_cluster_with_what_this_producer_does(make_status: Callable[..., Status]) -> None:
    lines = shown(make_status()).splitlines()
    start = lines.index("etcd")
    assert "https://10.0.1.1:2379  up    in use  answered 5 s ago" in lines[start + 1]
    assert "https://10.0.1.2:2379  down          no answer in time (40 s ago)" in lines[start + 2]
    assert lines[start + 3] == "  stands by: lb-1/77 publishes"


def test_a_consumer_blames_etcd_and_no_api_server(make_status: Callable[..., Status]) -> None:
    source = replace(make_status().source, api_servers=(), last_sync_at=make_status().now - 1000)
    text = shown(make_status(source=source))
    assert "no etcd confirms it" in text
    assert "API server" not in text


def test_colour_only_when_asked(make_status: Callable[..., Status]) -> None:
    assert "\033[" not in shown(make_status())
    assert shown(make_status(), colour=True).startswith("\033[32mSERVING\033[0m")


def test_problems_come_with_their_remedy(make_status: Callable[..., Status]) -> None:
    problem = str(Problem("02-http.tmpl line 3", "no such name", "spell it domains"))
    lines = shown(make_status(phase=Phase.REJECTED, problems=(problem,))).splitlines()
    at = lines.index("  ! 02-http.tmpl line 3: no such name")
    assert lines[at + 1] == "      -> spell it domains"


def test_a_held_change_names_the_command_that_lets_it_through(make_status: Callable[..., Status]) -> None:
    assert "pyconfd allow h-7" in shown(make_status(phase=Phase.HELD, hold_id="h-7"))


def test_the_command_for_a_held_change_is_said_once(make_status: Callable[..., Status]) -> None:
    problem = str(
        Problem(
            "removal protection", "all 10 ready endpoints are gone at once", "if this is meant, run: pyconfd allow h-7"
        )
    )
    text = shown(make_status(phase=Phase.HELD, hold_id="h-7", problems=(problem,)))
    assert text.count("pyconfd allow h-7") == 1


def test_one_object_is_not_objects(make_status: Callable[..., Status]) -> None:
    source = SourceHealth(resources=(ResourceState(Resource.NODES, synced=True, objects=1),))
    text = shown(make_status(source=source))
    assert "1 object " in text
    assert "1 objects" not in text


def test_what_the_cluster_does_not_serve_is_one_line(make_status: Callable[..., Status]) -> None:
    states = [ResourceState(each, served=False) for each in (Resource.GATEWAYS, Resource.HTTPROUTES)]
    gone = ResourceState(Resource.TCPROUTES, synced=True, objects=2, served=False)
    servers = (ApiServerState("https://a", in_use=True, healthy=True, last_ok_at=1.0),)
    text = shown(make_status(source=SourceHealth(resources=(*states, gone), api_servers=servers)))
    assert "not served by this cluster, and looked for: gateways, httproutes\n" in text
    assert "tcproutes: no longer served; 2 read before stay until a restart\n" in text
    assert "not listed yet" not in text


def test_a_spare_api_server_that_was_not_asked_yet_is_not_down(make_status: Callable[..., Status]) -> None:
    servers = (ApiServerState("https://a", in_use=True, healthy=True, last_ok_at=1.0), ApiServerState("https://b"))
    text = shown(make_status(source=SourceHealth(api_servers=servers)))
    assert "https://b  unknown          not asked yet" in text
    assert "down" not in text


def test_next_attempt_says_when_and_why(make_status: Callable[..., Status]) -> None:
    attempt = NextAttempt("retry the failed configuration", make_status().now + 12)
    assert "next attempt in 12 s: retry the failed configuration\n" in shown(make_status(next_attempt=attempt))


def test_a_change_that_waits_says_for_how_long(make_status: Callable[..., Status]) -> None:
    assert "a change has waited for 5 s" in shown(make_status(pending_since=make_status().now - 5))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (200 * DAY, "expires in 200 d"),
        (29 * DAY, "WARNING: expires in 29 d"),
        (3 * DAY, "CRITICAL: expires in 3 d"),
        (-2 * DAY, "EXPIRED 2 d ago"),
    ],
)
def test_credentials_near_their_end(make_status: Callable[..., Status], left: float, words: str) -> None:
    status = make_status()
    source = replace(status.source, credentials=(CredentialState("certificate", status.now + left),))
    assert f"certificate  {words}\n" in shown(replace(status, source=source))


@pytest.mark.parametrize(
    ("lifetime", "left", "words"),
    [
        (2 * HOUR, HOUR, "expires in 1 h"),
        (HOUR, 12 * 60, "expires in 12 m"),
        (HOUR, 8 * 60, "WARNING: expires in 8 m"),
        (HOUR, 2 * 60, "CRITICAL: expires in 2 m"),
        (365 * DAY, 29 * DAY, "WARNING: expires in 29 d"),
    ],
)
def test_a_short_token_is_judged_by_its_lifetime(
    make_status: Callable[..., Status], lifetime: float, left: float, words: str
) -> None:
    status = make_status()
    token = CredentialState("token", status.now + left, issued_at=status.now + left - lifetime)
    source = replace(status.source, credentials=(token,))
    assert f"token  {words}\n" in shown(replace(status, source=source))


def test_credentials_that_cannot_be_used_are_why_nothing_was_read(make_status: Callable[..., Status]) -> None:
    status = make_status()
    lacking = CredentialState("credentials", problem="/etc/pyconfd/token: cannot be read: Permission denied")
    source = replace(status.source, credentials=(lacking,), last_sync_at=0.0, synced=False)
    problems, _, rest = shown(replace(status, source=source)).partition("API servers")
    assert "Permission denied" in problems
    assert "Permission denied" in rest


def test_refused_objects_by_reason_the_first_ten_and_how_many_more(make_status: Callable[..., Status]) -> None:
    def refusal(name: str, reason: RefusalReason) -> Refusal:
        return Refusal(ObjectRef("Service", "demo", name), "domain", "x", reason, "is wrong")

    many = tuple(refusal(f"bad-{index:03}", RefusalReason.INVALID_VALUE) for index in range(25))
    text = shown(make_status(refused=(*many, refusal("rare", RefusalReason.PORT_TAKEN))))
    assert "Left out (26)" in text
    assert "Accepted=False InvalidValue (25)" in text
    assert "Service demo/rare  domain x: is wrong" in text  # a rare reason is not drowned by a common one
    assert text.count(": is wrong") == 6
    assert "... and 20 more" in text


def test_notes_are_no_objects_that_are_left_out(make_status: Callable[..., Status]) -> None:
    ref = ObjectRef("Ingress", "demo", "shop")
    note = Refusal(ref, "metadata.annotations", "", RefusalReason.IGNORED_ANNOTATION, "without effect: a.example/b")
    text = shown(decode(encode(make_status(refused=(), notes=(note,)))))
    assert "Notes (1)\n  Ingress demo/shop  without effect: a.example/b\n" in text
    assert "Left out" not in text


def test_certificates_that_end_soon_are_shown_the_most_urgent_first(make_status: Callable[..., Status]) -> None:
    ref = ObjectRef("Ingress", "demo", "shop")
    soon = Refusal(ref, "spec.tls.secretName", "a", RefusalReason.CERTIFICATE_EXPIRES_SOON, "the one of a expires")
    gone = Refusal(ref, "spec.tls.secretName", "b", RefusalReason.CERTIFICATE_EXPIRED, "the one of b expired")
    text = shown(make_status(notes=(soon, gone)))
    assert (
        "Certificates (2)\n"
        "  CRITICAL: Ingress demo/shop  the one of b expired\n"
        "  WARNING: Ingress demo/shop  the one of a expires\n"
    ) in text
    assert "Notes" not in text


def test_reloads_by_reason_the_most_frequent_first(make_status: Callable[..., Status]) -> None:
    assert "servers_changed 9, first_configuration 1\n" in shown(make_status())


def test_text_from_strangers_cannot_drive_the_terminal(make_status: Callable[..., Status]) -> None:
    text = shown(make_status(problems=("\033]0;owned\a\033[2J\r\x9b2J\u202e",)))
    assert all(char.isprintable() or char == "\n" for char in text)


def test_starting_is_not_blamed_for_what_it_cannot_have_yet() -> None:
    status = Status(now=100.0, version="1", pid=1, started_at=99.0, heartbeat_at=99.5)
    text = shown(status)
    assert text.startswith("STARTING  nothing applied yet")
    assert "Problems" not in text


@pytest.mark.parametrize(
    ("seconds", "short", "long"),
    [
        (-1, "0 s", "0 seconds"),
        (0.4, "0 s", "0 seconds"),
        (1, "1 s", "1 second"),
        (59.9, "59 s", "59 seconds"),
        (60, "1 m", "1 minute"),
        (720, "12 m", "12 minutes"),
        (3600, "1 h", "1 hour"),
        (7500, "2 h 5 m", "2 hours"),
        (86400, "1 d", "1 day"),
        (40 * 86400 + 5, "40 d", "40 days"),
    ],
)
def test_durations_in_words(seconds: float, short: str, long: str) -> None:
    assert printable.short_duration(seconds) == short
    assert printable.long_duration(seconds) == long


def test_an_unreachable_api_server_is_explained_once(make_status: Callable[..., Status]) -> None:
    url = "https://10.0.0.1:6443"
    error = f"{url}/api/v1/nodes: cannot connect: Connection refused -> does the network let this machine reach it?"
    status = make_status()
    source = replace(
        status.source,
        api_servers=(ApiServerState(url, last_error=error, last_error_at=status.now - 3),),
        resources=tuple(replace(resource, problem=error) for resource in status.source.resources),
    )
    lines = shown(replace(status, source=source)).splitlines()
    at = next(index for index, line in enumerate(lines) if url in line)
    assert lines[at] == f"  {url}  down  /api/v1/nodes: cannot connect: Connection refused (3 s ago)"
    assert lines[at + 1] == "    -> does the network let this machine reach it?"
    assert sum("cannot connect" in line for line in lines) == 1


def test_what_one_resource_lacks_is_said_beside_it(make_status: Callable[..., Status]) -> None:
    assert any("nodes" in line and "403 Forbidden" in line for line in shown(make_status()).splitlines())


def test_who_is_in_quarantine_is_told_once_with_the_reason_and_since_when(make_status: Callable[..., Status]) -> None:
    ref = ObjectRef("Service", "demo", "bad")
    told = "06-raw.tmpl rendered line 7: balance only supports ..."
    entry = Quarantined(ObjectRef("ConfigMap", "lb", "services"), "shop", "render", "division\nby zero", 0.0)
    now = make_status().now
    status = make_status(
        quarantine=QuarantineStatus((entry, Quarantined(ref, "", "check", told, now - 180)), {"check": 1, "render": 1}),
        refused=(Refusal(ref, "", "", RefusalReason.QUARANTINED, f"quarantined: {told}"),),
    )
    text = shown(status)
    assert "In quarantine (2)" in text
    assert f"  Service demo/bad, for 3 m: {told}" in text
    assert "ConfigMap lb/services shop, for" in text
    assert "division\\nby zero" in text
    assert text.count("balance only supports") == 1
    assert "quarantine" not in shown(make_status())


@pytest.mark.parametrize(
    ("writer", "line"),
    [
        pytest.param(
            StatusWriterState(WriterRole.WRITER, "lb1", 3, 1200),
            "written by this balancer: 1,200 since the start, 3 wait",
        ),
        pytest.param(StatusWriterState(WriterRole.STANDBY, "lb2_0c7a94d2"), "written by lb2_0c7a94d2"),
        pytest.param(StatusWriterState(WriterRole.STANDBY), "written by nobody: no balancer holds the Lease"),
    ],
)
def test_who_writes_the_status_of_objects(
    make_status: Callable[..., Status], writer: StatusWriterState, line: str
) -> None:
    lines = shown(make_status(status_writer=writer)).splitlines()
    assert lines[lines.index("Status of objects") + 1] == f"  {line}"
    assert "Status of objects" not in shown(make_status())
