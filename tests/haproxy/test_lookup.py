import pytest

from pyconfd.errors import RejectedInput
from pyconfd.haproxy.runtime.readback import ServerNow, find_servers


def server(backend: str, name: str, address: str = "10.0.0.1", port: int = 80) -> ServerNow:
    return ServerNow(backend, name, address, port, 1, maint=False, drain=False)


SERVERS = [
    server("shop", "web-1"),
    server("shop", "web-2", "10.0.0.2"),
    server("blog", "web-2", "10.0.0.3"),
    server("blog", "six", "2001:db8::1"),
    server("api", "shop/web-9", "10.0.0.2", 81),
]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("shop/web-2", 1),
        ("web-1", 0),
        ("10.0.0.1", 0),
        ("10.0.0.1:80", 0),
        ("10.0.0.2:81", 4),
        ("2001:db8::1", 3),
        ("[2001:db8::1]:80", 3),
        ("[2001:db8::1]", 3),
    ],
)
def test_a_server_is_found_by_name_or_address(name: str, found: int) -> None:
    assert find_servers(name, SERVERS) == [SERVERS[found]]


@pytest.mark.parametrize("name", ["web-2", "10.0.0.2"])
def test_what_stands_for_several_is_refused_with_the_candidates(name: str) -> None:
    with pytest.raises(RejectedInput, match=r"stands for 2 servers: .*shop/web-2 \(10\.0\.0\.2:80\)") as caught:
        find_servers(name, SERVERS)
    assert "--all" in caught.value.problems[0].remedy
    assert len(find_servers(name, SERVERS, several=True)) == 2


def test_many_candidates_are_cut_short() -> None:
    many = [server(f"b{number}", "a") for number in range(30)]
    with pytest.raises(RejectedInput, match=r"stands for 30 servers: .*b9/a .*, and 20 more"):
        find_servers("a", many)


def test_what_does_not_exist_is_refused_with_what_is_like_it() -> None:
    with pytest.raises(RejectedInput, match="no server 'shop/web-3'") as caught:
        find_servers("shop/web-3", SERVERS)
    assert "shop/web-1" in caught.value.problems[0].remedy
    with pytest.raises(RejectedInput, match="no server ''"):
        find_servers("", SERVERS, several=True)


def test_a_pod_is_found_by_its_name() -> None:
    pods = [
        ServerNow("shop", "web-1:10.0.0.1:80", "10.0.0.1", 80, 1, maint=False, drain=False),
        ServerNow("api", "web-1:10.0.0.1:90", "10.0.0.1", 90, 1, maint=False, drain=False),
        ServerNow("api", "web-10:10.0.0.2:90", "10.0.0.2", 90, 1, maint=False, drain=False),
    ]
    assert find_servers("web-10", pods) == [pods[2]]
    assert find_servers("api/web-1", pods) == [pods[1]]
    with pytest.raises(RejectedInput, match="2 servers"):
        find_servers("web-1", pods)
