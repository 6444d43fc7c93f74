"""pyconfd is killed between any two effects of going back to former fragments or settings, and of coming back."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyconfd.haproxy.history.generations import GenerationStore
from pyconfd.haproxy.history.pins import InputsStore, PinFile
from tests.haproxy.bench import Bench
from tests.haproxy.crashing import LONG, KillPoints, shards
from tests.haproxy.test_crashes import forking_child, loads
from tests.world.haproxy import BINARY, HaproxyProcess, configuration, fetch

pytestmark = [pytest.mark.haproxy, pytest.mark.timeout(600)]

SHARDS = shards(3)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    if not Path(BINARY).exists():
        pytest.skip("no haproxy binary")
    (tmp_path / "generated").mkdir()
    with HaproxyProcess(tmp_path, conf=tmp_path / "generated" / "haproxy.cfg") as haproxy:
        yield Bench(tmp_path, haproxy)


class Stage:
    """A directory with one fragment, and a haproxy that runs what came of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.templates = bench.directory / "templates"
        self.templates.mkdir()
        self.answer = "a"
        self.base = {
            "settings": {
                "conf": str(bench.conf),
                "binary": BINARY,
                "master_socket": bench.haproxy.master_socket,
                "pid_file": str(bench.haproxy.pid_file),
                "reload_timeout_s": 15.0,
                "unit": "",
            },
            "state_dir": bench.state_dir,
            "templates": str(self.templates),
        }

    def write(self, word: str) -> None:
        """Write a fragment that answers with ``word`` and what the settings say."""
        (self.templates / "01.tmpl").write_text(configuration(self.bench.port, word + " {{ vars.answer }}"))

    def request(self, do: str = "nothing", die_before: int = 1_000_000, **more: Any) -> str:
        return json.dumps(self.base | {"answer": self.answer, "do": do, "die_before": die_before} | more)

    def is_whole(self) -> None:
        """Read everything that is kept."""
        inputs, store = InputsStore(self.bench.state_dir), GenerationStore(self.bench.state_dir, 3)
        for digest in store.inputs():
            inputs.read(digest)
        pin = PinFile(self.bench.state_dir).read()
        if pin is not None:
            assert pin.broken == ""
            inputs.read(pin.inputs)


@pytest.mark.parametrize("what", ["settings", "fragments"] if LONG else ["settings"])
@pytest.mark.parametrize("shard", SHARDS)
def test_whenever_it_is_killed_what_is_pinned_serves_after_the_next_start(bench: Bench, shard: int, what: str) -> None:
    stage = Stage(bench)
    bench.conf.write_text(configuration(bench.port, "before pyconfd"))
    bench.haproxy.start()
    points = KillPoints(shard, SHARDS)
    with forking_child("tests.daemon.crashing") as ask:
        stage.write("old")
        assert ask(stage.request()) == "done"
        assert fetch(bench.port) == "old a"
        (former,) = GenerationStore(bench.state_dir, 3).entries()
        if what == "fragments":
            stage.write("new")
        else:
            stage.answer = "b"
        now = {"fragments": "new a", "settings": "old b"}[what]
        assert ask(stage.request()) == "done"
        assert fetch(bench.port) == now
        for point in points:
            pinned = PinFile(bench.state_dir).read() is not None
            do = "unpin" if pinned else "pin"
            kept = next(each for each in GenerationStore(bench.state_dir, 3).entries() if each.inputs == former.inputs)
            outcome = ask(stage.request(do, point, generation=kept.number, inputs=kept.inputs))
            assert loads(bench.conf), f"killed at {point}"
            assert fetch(bench.port) in {"old a", now}, f"killed at {point}"
            stage.is_whole()
            assert ask(stage.request()) == "done", f"killed at {point}"
            is_pinned = PinFile(bench.state_dir).read() is not None
            assert fetch(bench.port) == ("old a" if is_pinned else now), f"killed at {point}"
            stage.is_whole()
            assert bench.temporary_files() == [], f"killed at {point}"
            points.record(outcome)
            assert outcome != "done" or is_pinned != pinned
    print(f"{points.died} kill points")
    assert points.died > 6, "the kill points were not reached"
