"""A tenant whose slow sessions hold one former worker for each of its new names delays no new name of others."""

import http.client
import socket
import sys
from contextlib import ExitStack, closing, suppress

import pytest
import yaml

from tests.e2e.expect import serving
from tests.e2e.test_canary import ADDRESS, OBJECTS
from tests.world.appliance import NAMESPACE, Appliance
from tests.world.clients import ask
from tests.world.objects import EndpointSpec, PortSpec
from tests.world.ports import service_port

pytestmark = pytest.mark.haproxy

EVIL = "evil"
BOUND = 10
LEFT_ALONE = """
import sys
from pyconfd.haproxy.process import old_workers
old_workers.LEFT_ALONE_S = float(sys.argv[1])
sys.argv[:] = ["pyconfd", *sys.argv[5:]]
from pyconfd.cli.main import main
sys.exit(main())
"""
"""pyconfd as it is, but for how long a former worker is left alone, and a namespace with its share reloads once."""


class Tenant:
    """Brings new names, and holds a session in each worker that there is when a name of its comes."""

    def __init__(self, appliance: Appliance, held: ExitStack) -> None:
        self._appliance, self._held = appliance, held
        self.names = 0
        appliance.cluster.add_namespace(EVIL)
        redis = {"domain": "cache.evil.test", "proto": "redis", "pyconfd.io/listen-port": str(appliance.redis)}
        self._serve("cache", redis, port=6379)

    def _serve(self, name: str, annotations: dict[str, str], port: int) -> None:
        address = f"127.18.200.{self.names + 1}"
        self._appliance.pods.add(name, address)
        ports = [PortSpec(name="port", port=port, target=self._appliance.pods.port)]
        self._appliance.cluster.add_service(EVIL, name, ports=ports, annotations=annotations)
        self._appliance.cluster.set_endpoints(EVIL, name, [EndpointSpec(address, pod=name)])

    def hold(self) -> socket.socket:
        """Open a session to the worker of this moment that does not end by itself."""
        connection = socket.create_connection(("127.0.0.1", self._appliance.redis), timeout=30)
        self._held.enter_context(connection)
        assert ping(connection)
        return connection

    def add_name(self) -> str:
        """Create a Service with a new name; return the name."""
        self.names += 1
        host = f"e{self.names}.evil.test"
        self._serve(f"e{self.names}", {"domain": host, "proto": "http"}, port=80)
        return host

    def waits(self) -> bool:
        """Whether its changes wait since its share of the former workers is there, and not after many reloads only."""
        status = self._appliance.status()
        waiting = (status.get("spent_share") or {}).get("namespaces") == [EVIL]
        return waiting and status["applying"]["former"]["count"] >= BOUND // 2


def started(appliance: Appliance, held: ExitStack, left_alone_s: float) -> Tenant:
    appliance.launcher = (sys.executable, "-c", LEFT_ALONE, str(left_alone_s))
    appliance.values["apply"] |= {"reload_interval_s": 0.2, "spare_backends": 0}
    appliance.values["haproxy"]["max_old_workers"] = BOUND
    serving(appliance)
    tenant = Tenant(appliance, held)
    appliance.until(lambda: answers(appliance.redis), "the tenant's port is served")
    return tenant


def is_served(appliance: Appliance, host: str) -> bool:
    return ask(appliance.http, host) == host.partition(".")[0]


def test_tenant_with_a_slow_session_for_each_of_thirteen_names_delays_no_other(appliance: Appliance) -> None:
    with ExitStack() as held:
        tenant = started(appliance, held, 3600.0)
        sessions = [tenant.hold()]
        for _ in range(13):
            host = tenant.add_name()
            appliance.until(lambda host=host: is_served(appliance, host) or tenant.waits(), host)  # type: ignore[misc]
            sessions.append(tenant.hold())
        assert tenant.waits()
        appliance.until(lambda: appliance.status()["applying"]["former"]["count"] == BOUND // 2, "they are counted")
        assert not is_served(appliance, "e13.evil.test")
        assert "new names of evil wait" in appliance.command("status").stdout
        # Its share may have been spent by the name before, so the last one may not even have been read yet.
        explain = ("explain", "e13.evil.test")
        appliance.until(lambda: "ReloadShareSpent" in appliance.command(*explain).stdout, "explain names the share")
        for name in ("neighbour", "another"):
            appliance.serve(name)
            appliance.until(lambda name=name: appliance.ask(name) == f"{name}-1", "a new name of another")  # type: ignore[misc]
        assert is_served(appliance, "e13.evil.test"), "the reload of another took it along"
        assert all(map(ping, sessions)), "no session had to be ended for it"
        assert appliance.status()["applying"]["workers_ended_total"] == 0


def write_filter(appliance: Appliance, header: str) -> None:
    """Have the tenant's route add this header to answers: another combination of filters, so another section."""
    added = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": header, "value": "a"}]}}
    rule = {"filters": [added], "backendRefs": [{"name": "cache", "port": 6379}]}
    route = {
        "kind": "HTTPRoute",
        "apiVersion": "gateway.networking.k8s.io/v1",
        "metadata": {"name": "web", "namespace": EVIL},
        "spec": {"parentRefs": [{"name": "web", "namespace": NAMESPACE}], "rules": [rule]},
    }
    appliance.cluster.put("httproutes", route)


def test_tenant_whose_route_gets_other_filters_again_and_again_delays_no_other(appliance: Appliance) -> None:
    port = service_port(ADDRESS)
    appliance.values["addresses"] = {"pool": [ADDRESS]}
    everybody = f"port: {port}, allowedRoutes: {{{{namespaces: {{{{from: All}}}}}}}}"
    for document in yaml.safe_load_all(OBJECTS.replace("port: {port}", everybody).format(namespace=NAMESPACE)):
        appliance.cluster.load_object(document)

    def is_in_use(header: str) -> bool:
        connection = http.client.HTTPConnection(ADDRESS, port, timeout=30)
        with closing(connection), suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/", headers={"Connection": "close"})
            return header in connection.getresponse().headers
        return False

    with ExitStack() as held:
        tenant = started(appliance, held, 3600.0)
        sessions = [tenant.hold()]
        for number in range(13):
            write_filter(appliance, f"x-{number}")
            appliance.until(lambda header=f"x-{number}": is_in_use(header) or tenant.waits(), "it is used")  # type: ignore[misc]
            sessions.append(tenant.hold())
        assert tenant.waits()
        appliance.until(lambda: appliance.status()["applying"]["former"]["count"] == BOUND // 2, "they are counted")
        assert not is_in_use("x-12")
        appliance.serve("neighbour")
        appliance.until(lambda: appliance.ask("neighbour") == "neighbour-1", "a new name of another")
        assert is_in_use("x-12"), "the reload of another took it along"
        assert all(map(ping, sessions)), "no session had to be ended for it"


def test_sessions_in_all_former_workers_stop_nobody(appliance: Appliance) -> None:
    """With time the tenant has them all: of those that changes of his have replaced one is ended for each reload."""
    with ExitStack() as held:
        tenant = started(appliance, held, 0.0)
        first = tenant.hold()
        for _ in range(13):
            host = tenant.add_name()
            appliance.until(lambda host=host: is_served(appliance, host), host)  # type: ignore[misc]
            tenant.hold()
        for number in range(3):
            appliance.serve(f"more{number}")
            appliance.until(lambda number=number: appliance.ask(f"more{number}") == f"more{number}-1", "a neighbour's")  # type: ignore[misc]
            tenant.hold()
        # Six of sixteen, but a session that the worker before has taken as its last makes one less.
        appliance.until(lambda: appliance.status()["applying"]["workers_ended_total"] >= 3, "they are counted")
        assert appliance.status()["applying"]["last_ended"]["namespaces"] == [EVIL]
        assert not ping(first)


def ping(connection: socket.socket) -> bool:
    """Return whether a session is still there."""
    try:
        connection.sendall(b"PING\r\n")
        return connection.recv(64) == b"+PONG\r\n"
    except OSError:
        return False


def answers(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            return ping(connection)
    except OSError:
        return False
