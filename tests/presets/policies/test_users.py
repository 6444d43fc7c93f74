"""What is read of Secrets with users."""

import base64

import pytest

from pyconfd.model.kubernetes import NO_ROOM, TOO_LARGE, Secret
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key
from pyconfd.presets.policies.users import UserList, beyond_room, read_users

BCRYPT = "$2y$05${}".format("a" * 53)
SHA256, SHA512 = "$5$salt$" + "a" * 43, "$6$salt$" + "a" * 86


def read(data: dict[str, str], name: str = "staff", kind: str = "Opaque", since: str = "2026") -> UserList | None:
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return read_users(Secret(ObjectMeta(name, "shop", creation_timestamp=since), kind, encoded))


def of(text: str) -> UserList:
    found = read({"auth": text})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("hashed", "units"),
    [
        (BCRYPT, 1),
        (BCRYPT.replace("$05$", "$04$"), 1),
        (BCRYPT.replace("$05$", "$10$"), 32),
        (BCRYPT.replace("$2y$", "$2b$"), 1),
        (BCRYPT.replace("$2y$", "$2a$"), 1),
        (SHA256, 1),
        (SHA512, 1),
        (SHA512.replace("$6$", "$6$rounds=5001$"), 2),
        (SHA256.replace("$5$", "$5$rounds=100000$"), 20),
    ],
)
def test_hashes_that_haproxy_can_verify(hashed: str, units: int) -> None:
    found = of(f"ada:{hashed}")
    assert (found.users, found.units, found.notes, found.fault) == ((("ada", hashed),), units, "", "")


@pytest.mark.parametrize(
    "hashed",
    [
        "",
        "hunter2",
        "$apr1$abcdefgh$aaaaaaaaaaaaaaaaaaaaaa",
        "{SHA}0DPiKuNIrrVmD8IUCuw1hQxNqZc=",
        "$1$abcdefgh$aaaaaaaaaaaaaaaaaaaaaa",
        "$y$j9T$abcdefgh$aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        BCRYPT.replace("$05$", "$03$"),
        BCRYPT.replace("$05$", "$11$"),
        BCRYPT.replace("$2y$", "$2x$"),
        BCRYPT[:-1],
        BCRYPT + "a",
        BCRYPT[:-1] + " ",
        BCRYPT[:-1] + '"',
        BCRYPT[:-1] + "é",
        SHA512.replace("$6$", "$6$rounds=999$"),
        SHA512.replace("$6$", "$6$rounds=100001$"),
        SHA512.replace("$6$", "$6$rounds=999999999$"),
    ],
)
def test_hashes_that_it_cannot_are_left_out_and_not_told(hashed: str) -> None:
    found = of(f"ada:{BCRYPT}\nbob:{hashed}\n")
    assert found.users == (("ada", BCRYPT),)
    assert found.notes.startswith("line 2: ")
    assert not hashed or hashed not in found.notes
    alone = of(f"bob:{hashed}")
    assert (alone.users, alone.name) == ((), "")
    assert not hashed or hashed not in alone.fault


@pytest.mark.parametrize("user", ["a b", 'a"', "a\\", "a'", "a#", "$a", "%[src]", "é", "a" * 65, ""])
def test_users_that_are_none(user: str) -> None:
    found = of(f"ada:{BCRYPT}\n{user}:{BCRYPT}\n")
    assert found.users == (("ada", BCRYPT),)
    assert "line 2" in found.notes


def test_the_first_line_of_a_user_counts() -> None:
    found = of(f"ada:{BCRYPT}\r\nada:{SHA256}\n")
    assert found.users == (("ada", BCRYPT),)
    assert "line 2" in found.notes


def test_empty_lines_and_comments_are_passed_over() -> None:
    assert of(f"\n# staff\n  ada:{BCRYPT}:a note\n").users == (("ada", BCRYPT),)


def test_many_wrong_lines_are_named_by_the_first() -> None:
    found = of(f"ada:{BCRYPT}\n" + "x:y\n" * 9)
    assert found.notes.startswith("lines 2, 3, 4, 5, 6 and 4 more: ")


def test_each_key_is_a_user_without_a_file() -> None:
    found = read({"bob": SHA256, "ada": BCRYPT + "\n", "auth": BCRYPT})
    assert found is not None
    assert [user for user, _ in found.users] == ["ada", "auth", "bob"]


@pytest.mark.parametrize("value", ["!!!", TOO_LARGE, NO_ROOM, base64.b64encode(b"\xff\xfe").decode()])
def test_values_that_are_no_text(value: str) -> None:
    found = read_users(Secret(ObjectMeta("staff", "shop"), "Opaque", {"auth": value}))
    assert found is not None
    assert found.fault.startswith("auth ")


def test_secrets_of_other_types_have_no_users() -> None:
    assert read({"auth": f"ada:{BCRYPT}"}, kind="kubernetes.io/tls") is None


def test_too_many_lines() -> None:
    assert "more than 2,000 lines" in of(f"a:{BCRYPT}\n" * 2001).fault


def test_another_content_has_another_name() -> None:
    names = {of(f"ada:{BCRYPT}").name, of(f"bob:{BCRYPT}").name, of(f"ada:{SHA256}").name}
    other = read({"auth": f"ada:{BCRYPT}"}, "other")
    assert other is not None
    assert len({*names, other.name}) == 4
    assert of(f"ada:{BCRYPT}\n").name == of(f"ada:{BCRYPT}").name


@pytest.mark.parametrize(("cost", "failed", "new"), [("05", 40, 200), ("10", 1, 6)])
def test_how_many_are_verified_follows_from_what_they_take(cost: str, failed: int, new: int) -> None:
    found = of(f"ada:{BCRYPT}\nbob:{BCRYPT.replace('$05$', f'${cost}$')}")
    assert (found.failed, found.new) == (failed, new)


def test_the_oldest_secrets_have_the_room_of_a_namespace() -> None:
    dear = BCRYPT.replace("$05$", "$10$")
    lists = [
        each
        for name, users, since in (("c", 10, "2024"), ("b", 8, "2025"), ("a", 6, "2026"))
        if (each := read({f"u{number}": dear for number in range(users)}, name, since=since)) is not None
    ]
    assert [each.secret.name for each in sorted(lists, key=lambda each: each.rank)] == ["c", "b", "a"]
    assert beyond_room(lists) == {Key("shop", "b")}
