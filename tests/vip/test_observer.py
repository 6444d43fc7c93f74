"""What the evidence of the failover tests is made of: parsed lines, and the time with two holders."""

from datetime import datetime

import pytest

from tests.vip.observer import Event, double_s, parsed, settled_s

AT = "2026-11-22T04:00:41.175452"
SECONDS = datetime.fromisoformat(AT).timestamp()
VIP = "10.77.0.100"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("3: eth0    inet 10.77.0.100/24 scope global secondary eth0\\  valid_lft forever", (VIP, "here")),
        ("Deleted 3: eth0    inet 10.77.0.100/24 scope global eth0\\  valid_lft forever", (VIP, "")),
        ("3: eth0    inet6 fd77::100/64 scope global nodad \\  valid_lft forever", ("fd77::100", "here")),
        ("3: eth0@if5: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 state UP \\  link/ether 5e", ("link", "up")),
        ("3: eth0@if5: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 \\  link/ether 5e", ("link", "")),
        ("Deleted 3: eth0@if5: <BROADCAST,MULTICAST> mtu 1500 \\  link/ether 5e", ("link", "")),
    ],
)
def test_lines_of_the_monitor(line: str, expected: tuple[str, str]) -> None:
    assert parsed(f"[{AT}] {line}\n") == (SECONDS, *expected)
    assert parsed(f"[2026-11-22T04:00:00.000001] [{AT}] {line}\n") == (SECONDS, *expected)


@pytest.mark.parametrize("line", ["", f"[{AT}] ", "no stamp", f"[{AT}] 3: eth0"])
def test_lines_that_say_nothing(line: str) -> None:
    assert parsed(line) is None


def events(*changes: tuple[float, str, str, str]) -> list[Event]:
    start = [Event(0, node, key, value) for node in ("a", "b") for key, value in (("link", "up"), ("segment", "all"))]
    return [*start, *(Event(*change) for change in changes)]


@pytest.mark.parametrize(
    ("changes", "double", "settled"),
    [
        ([(1, "a", VIP, "here"), (11, "a", VIP, ""), (12, "b", VIP, "here")], 0, 2),
        ([(1, "a", VIP, "here"), (11, "b", VIP, "here"), (12.5, "a", VIP, "")], 1.5, 2.5),
        ([(1, "a", VIP, "here"), (2, "b", VIP, "here")], 10, 0),
        ([(1, "a", VIP, "here"), (11, "b", VIP, "here")], 9, 1),
        ([(1, "a", VIP, "here"), (11, "a", "link", ""), (12, "b", VIP, "here")], 0, 2),
        ([(1, "a", VIP, "here"), (11, "a", "segment", "a"), (12, "b", VIP, "here"), (14, "a", "segment", "all")], 6, 4),
        ([(1, "a", VIP, "here"), (11, "b", "fd77::100", "here")], 0, 0),
    ],
    ids=["moved", "overlapped", "always", "since", "unplugged", "parted and healed", "another address"],
)
def test_how_long_two_hold_it_and_when_it_is_settled(
    changes: list[tuple[float, str, str, str]], double: float, settled: float
) -> None:
    assert double_s(events(*changes), VIP, 10, 20) == pytest.approx(double)
    assert settled_s(events(*changes), [VIP], 10) == pytest.approx(settled)
