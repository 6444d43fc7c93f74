"""Frames: what is built is understood, and agrees with the addresses and checksums of the standards."""

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.vip.frames import AddressClaim, Advert, announcements, checksum, farewell, parse, probe

OWN = bytes.fromhex("020000000001")


def ethernet(kind: int, body: bytes) -> bytes:
    return b"\xff" * 6 + OWN + kind.to_bytes(2, "big") + body


@pytest.mark.parametrize("address", ["192.0.2.10", "2001:db8::10"])
def test_an_announcement_is_a_claim_to_everybody(address: str) -> None:
    frames = announcements(OWN, address)
    assert {parse(frame) for frame in frames} == {AddressClaim(address, "02:00:00:00:00:01")}
    assert all(frame[0] & 1 for frame in frames), "broadcast or multicast"


def test_a_gratuitous_arp_goes_out_as_question_and_as_answer() -> None:
    assert [frame[20:22] for frame in announcements(OWN, "192.0.2.10")] == [b"\0\1", b"\0\2"]


def test_a_probe_changes_nobodys_tables() -> None:
    assert parse(probe(OWN, "192.0.2.10")) is None
    assert parse(probe(OWN, "192.0.2.10", "192.0.2.11")) == AddressClaim("192.0.2.11", "02:00:00:00:00:01")
    asked = probe(OWN, "2001:db8::1:2345")
    assert asked[:6] == bytes.fromhex("3333ff012345")
    assert asked[22:38] == bytes(16)
    assert IPv6Address(asked[38:54]) == IPv6Address("ff02::1:ff01:2345")


@pytest.mark.parametrize("frame", [*announcements(OWN, "2001:db8::10"), probe(OWN, "2001:db8::10")])
def test_the_checksum_of_icmpv6_adds_up(frame: bytes) -> None:
    message = frame[54:]
    assert checksum(frame[22:54] + len(message).to_bytes(4, "big") + (58).to_bytes(4, "big") + message) == 0


def test_an_advert_is_read_and_one_from_beyond_a_router_is_not() -> None:
    body = bytes([0x31, 51, 250, 1, 0, 10, 0, 0, 192, 0, 2, 10])
    head = bytes([0x45, 0, 0, 32, 0, 1, 0, 0, 255, 112, 0, 0, 192, 0, 2, 11, 192, 0, 2, 12])
    assert parse(ethernet(0x0800, head + body)) == Advert("192.0.2.11", 51, 250, "02:00:00:00:00:01")
    assert parse(ethernet(0x0800, head[:8] + b"\x40" + head[9:] + body)) is None
    assert parse(ethernet(0x0800, head[:9] + b"\x06" + head[10:] + body)) is None


def test_a_farewell_has_priority_zero_and_a_checksum_that_adds_up() -> None:
    said = farewell("192.0.2.11", "192.0.2.12", 51, 0.5, ["192.0.2.10"])
    assert said[:6] == bytes([0x31, 51, 0, 1, 0, 50])
    pseudo = bytes([192, 0, 2, 11, 192, 0, 2, 12, 0, 112]) + len(said).to_bytes(2, "big")
    assert checksum(pseudo + said) == 0
    assert len(farewell("2001:db8::1", "2001:db8::2", 51, 0.5, ["2001:db8::10"])) == 8 + 16


@given(st.binary(max_size=120), st.sampled_from([0x0806, 0x0800, 0x86DD, 0x8100]))
def test_any_bytes_are_read_without_a_fault(body: bytes, kind: int) -> None:
    parse(body)
    parse(ethernet(kind, body))
