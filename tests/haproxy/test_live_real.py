"""Random sequences of configurations on a real HAProxy: afterwards it is what was rendered, and what is leaving."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pyconfd.haproxy.config.changes import entries_of
from pyconfd.haproxy.config.diff import Comparison, plan
from pyconfd.haproxy.runtime.drift import DriftMonitor
from pyconfd.haproxy.runtime.overrides import OverrideStore
from pyconfd.haproxy.runtime.runtime import NotConfirmed, Runtime
from pyconfd.haproxy.runtime.servers_now import wrong_address
from pyconfd.haproxy.runtime.sockets import ask
from pyconfd.model.operations import AddBackend, AddServer, fingerprint
from pyconfd.model.plan import Noop, Reload, RuntimeUpdate
from pyconfd.model.rendering import FileKind, Rendering
from tests.haproxy.process_model import Place, ProcessModel, State, successors
from tests.world.haproxy import HaproxyProcess, free_port
from tests.world.pki import CertificateAuthority

SEQUENCES = int(os.environ.get("PYCONFD_TEST_SEQUENCES", "15"))


class Live:
    """A process, and what pyconfd does to it: the plan, live or by a reload."""

    def __init__(self, directory: Path, haproxy: HaproxyProcess) -> None:
        self.directory, self.haproxy = directory, haproxy
        authority = CertificateAuthority(directory / "ca")
        pairs = {name: authority.server(name, (f"{name}.example.com",)) for name in ("first", "P", "Q")}
        pems = {name.upper(): pair.cert.read_text() + pair.key.read_text() for name, pair in pairs.items()}
        self.place = Place(
            maps=str(directory / "maps"),
            certificates=str(directory / "certs"),
            bind=f"127.0.0.1:{free_port()}",
            global_lines=f"    stats socket {haproxy.stats_socket} mode 600 level admin\n",
            pems=pems,
        )
        for name in ("maps", "certs"):
            (directory / name).mkdir()
        # A bind needs one certificate at least; it is nobody's business here.
        (directory / "certs" / "0.pem").write_text(pems["FIRST"])
        self.runtime = Runtime()
        self.comparison = Comparison()
        self.applied: Rendering | None = None
        self.changed_live = self.reloaded = 0

    def load(self, rendering: Rendering) -> None:
        """Install and reload."""
        wanted = {file.path for file in rendering.files}
        for path in (self.directory / "certs").iterdir():
            if path.name != "0.pem" and str(path) not in wanted:
                path.unlink()
        for file in rendering.files:
            Path(file.path).write_text(file.content)
        self.haproxy.conf.write_text(rendering.text)
        self.runtime.forget()
        if self.haproxy.running() is None:
            self.haproxy.start()
        else:
            self.haproxy.reload()
        self.connect()
        self.applied = rendering
        self.reloaded += 1

    def connect(self) -> None:
        assert self.runtime.connect([self.haproxy.stats_socket]).runtime, self.runtime.abilities.why

    def reach(self, desired: Rendering) -> None:
        """Do what the plan says; a reload where that does not go live."""
        made = plan(desired, self.applied, None, comparison=self.comparison, abilities=self.runtime.abilities)
        if isinstance(made, Noop):
            return
        if isinstance(made, Reload):
            if made.live is not None and self.applied is not None:
                partial = self.comparison.partial(self.applied).rendering
                if self._goes_live(made.live):
                    self.applied = partial
                    self.see()
            self.load(desired)
        elif self._goes_live(made):
            self.changed_live += 1
            self.applied = desired
        else:
            self.load(desired)

    def _goes_live(self, update: RuntimeUpdate) -> bool:
        leaving = {*self.runtime.leaving, *((name, "") for name in self.runtime._leaving_backends)}
        try:
            self.runtime.execute(update.commands)
        except NotConfirmed as error:
            # The only reason that there may be: somebody of that name is still on the way out.
            back = {(one.backend, one.server) for one in update.commands if isinstance(one, AddServer)}
            back |= {(one.backend, "") for one in update.commands if isinstance(one, AddBackend)}
            if back & leaving:
                return False
            raise AssertionError(f"{error}: {update.commands}") from error
        return True

    def restart(self) -> None:
        """Go on as a new pyconfd."""
        if self.runtime._leaving_backends:
            return
        leaving = set(self.runtime.leaving)
        self.runtime.close()
        self.runtime, self.comparison = Runtime(), Comparison()
        self.connect()
        assert self.applied is not None
        drift = DriftMonitor(OverrideStore(str(self.directory)))
        index = self.comparison.index(self.applied)
        while leaving - self.runtime.leaving.keys():
            # What is not said to be there is on its way out, and the other servers are as they should be.
            found = drift.sweep(self.runtime, index)
            assert found.commands
            assert found.beyond == {}
        assert set(self.runtime.leaving) == leaving

    def servers(self) -> dict[tuple[str, str], tuple[str, int, bool]]:
        """Return what the applied rendering says: address, weight and maintenance."""
        assert self.applied is not None
        return {
            (backend, name): (one.address, one.weight, one.maint)
            for backend, found in ProcessModel.of(self.applied).backends.items()
            for name, one in found.items()
        }

    def see(self) -> None:
        """Compare the process with what is applied."""
        assert self.applied is not None
        wanted = self.servers()
        now = {(one.backend, one.name): one for one in self.runtime.servers()}
        assert now.keys() == wanted.keys() | self.runtime.leaving.keys()
        assert not wanted.keys() & self.runtime.leaving.keys()
        for key, (address, weight, maint) in wanted.items():
            assert wrong_address(now[key], address) == ""
            assert (now[key].weight, now[key].maint, now[key].id) == (weight, maint, ord(key[1])), key
            assert maint or not now[key].drain, key
        assert all(now[key].drain or now[key].maint for key in self.runtime.leaving)
        for file in self.applied.files:
            self._see_file(file.kind, file.path, file.content)
        shown = self._ask(f"show ssl crt-list {self.place.certificates}").splitlines()[1:]
        listed = {row.split("[")[0].strip() for row in shown if row}
        loaded = {file.path for file in self.applied.files if file.kind is FileKind.CERTIFICATE}
        assert listed == loaded | {f"{self.place.certificates}/0.pem"}

    def _see_file(self, kind: FileKind, path: str, content: str) -> None:
        if kind is FileKind.CERTIFICATE:
            assert fingerprint(content) in self._ask(f"show ssl cert {path}")
            return
        rows = [row.split(" ", 1)[1] for row in self._ask(f"show map {path}").splitlines() if row]
        # The order means nothing in either map.
        assert sorted(rows) == sorted(" ".join(pair) for pair in entries_of(content) or ())

    def _ask(self, command: str) -> str:
        return ask(self.haproxy.stats_socket, command)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with HaproxyProcess(tmp_path / "etc") as haproxy:
        made = Live(tmp_path, haproxy)
        yield made
        made.runtime.close()


@pytest.mark.haproxy
@pytest.mark.timeout(900)
def test_the_process_is_what_was_rendered_and_what_is_leaving(live: Live) -> None:
    @settings(
        max_examples=SEQUENCES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=[Phase.generate],  # with Phase.shrink a failure takes minutes, and says it in fewer states
    )
    @given(successors(), st.data())
    def run(sequence: list[State], data: st.DataObject) -> None:
        live.load(sequence[0].rendering(live.place))
        live.see()
        for state in sequence[1:]:
            live.reach(state.rendering(live.place))
            live.see()
            match data.draw(st.sampled_from(["nothing", "reap", "restart"])):
                case "reap":
                    live.runtime.reap(60)
                    live.see()
                case "restart":
                    live.restart()

    run()
    assert live.changed_live > SEQUENCES
    assert live.reloaded > SEQUENCES
