import socket
import subprocess
import sys

from tests.world.ports import candidates, service_port

_MANY = """import sys
from tests.world.ports import free
print(*(free(10_240, 32_000) for _ in range(200)), flush=True)
sys.stdin.read()
"""


def test_processes_that_know_nothing_of_each_other_get_different_ports() -> None:
    argv = [sys.executable, "-c", _MANY]
    started = [subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found: list[str] = []
    try:
        for process in started:
            assert process.stdout is not None
            found += process.stdout.readline().split()
    finally:
        for process in started:
            process.communicate()
    assert len(set(found)) == len(found) == 600


def test_what_somebody_has_on_one_of_the_addresses_is_not_given() -> None:
    port = next(candidates(12_000, 32_000))  # which would be one of the next
    with socket.create_server(("127.0.0.2", port)):
        found = {service_port("127.0.0.1", "127.0.0.2") for _ in range(200)}
    assert len(found) == 200
    assert port not in found
    assert all(each >= 12_000 for each in found)
