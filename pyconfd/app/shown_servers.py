"""The servers of the running HAProxy as it shows them itself, for whoever asks about some of them."""

from collections.abc import Mapping

from pyconfd.haproxy.config.text import stats_sockets
from pyconfd.haproxy.runtime.readback import ServerNow, servers_now
from pyconfd.haproxy.runtime.runtime import NotLive, Runtime
from pyconfd.settings import Settings


class ShownServers:
    """The servers as HAProxy shows them, asked for backend by backend over a connection of its own.

    ``why`` says why it cannot be asked, "" as long as it can or need not.
    """

    def __init__(self, settings: Settings, text: str, *, served: bool = True) -> None:
        self.why = ""
        self._runtime: Runtime | None = None
        self._known: dict[str, Mapping[str, ServerNow]] = {}
        if not served:
            return
        runtime = Runtime()
        paths = [path for path in (settings.haproxy.runtime_socket, *stats_sockets(text)) if path]
        abilities = runtime.connect(dict.fromkeys(paths))
        if abilities.runtime:
            self._runtime = runtime
        else:
            runtime.close()
            self.why = abilities.why

    def __call__(self, backend: str) -> Mapping[str, ServerNow] | None:
        """Return the servers of a backend by name, None where HAProxy cannot be asked."""
        if self._runtime is None:
            return None
        if backend not in self._known:
            try:
                answer = self._runtime.server_states([backend]).get(backend, "")
                found = list(servers_now(answer)) if answer else []
            except NotLive as error:
                self.why, self._runtime = str(error), None
                return None
            self._known[backend] = {each.name: each for each in found}
        return self._known[backend]

    def close(self) -> None:
        """Close the connection."""
        if self._runtime is not None:
            self._runtime.close()
