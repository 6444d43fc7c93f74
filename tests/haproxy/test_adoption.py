"""What the first configuration would end of one that pyconfd did not write."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pyconfd.haproxy.config.text import mark
from pyconfd.haproxy.process import adoption
from pyconfd.haproxy.process.adoption import UnmanagedConfiguration
from pyconfd.haproxy.process.unit import UnitFacts
from tests.world.haproxy import HaproxyProcess, configuration, free_port

OLD = """frontend www
    bind *:80
    bind :443 ssl crt a.pem
    default_backend pods
listen stats
    bind unix@/run/s
backend pods
    server a 192.0.2.1:80
"""


@pytest.mark.parametrize(
    ("after", "lost"),
    [
        (OLD, ()),
        (OLD.replace("192.0.2.1", "192.0.2.2"), ()),
        (OLD.replace("bind *:80", "bind 0.0.0.0:80"), ()),
        (OLD.replace("bind :443", "bind :8443"), ("bind :443 of frontend www",)),
        (OLD.replace("backend pods\n    server", "backend others\n    server"), ("backend pods",)),
        (OLD.replace("listen stats", "listen other"), ("listen stats (bind unix@/run/s)",)),
        ("", ("frontend www (bind *:80, bind :443)", "listen stats (bind unix@/run/s)", "backend pods")),
    ],
)
def test_lost_frontends_binds_and_backends_are_named(after: str, lost: tuple[str, ...]) -> None:
    assert UnmanagedConfiguration("old.cfg", OLD).lost(after) == lost


def test_a_long_list_is_counted() -> None:
    old = "".join(f"backend b{number}\n" for number in range(10))
    problem = UnmanagedConfiguration("old.cfg", old).problem("")
    assert problem is not None
    assert problem.message.endswith("backend b7 and 2 more")


def test_a_configuration_of_pyconfd_is_not_foreign(tmp_path: Path) -> None:
    own = HaproxyProcess(tmp_path)
    own.conf.write_text(mark(OLD, "0" * 64))
    assert adoption.foreign(own.settings(), UnitFacts()) is None
    own.conf.unlink()
    assert adoption.foreign(own.settings(), UnitFacts()) is None
    own.close()


@pytest.mark.haproxy
@pytest.mark.parametrize("found_by", ["master socket", "unit"])
@pytest.mark.parametrize("named", ["file", "directory"])
def test_a_running_haproxy_is_compared_by_its_command_line(tmp_path: Path, found_by: str, named: str) -> None:
    """It was not restarted since the installation: it runs with another file than the one that pyconfd writes."""
    (tmp_path / "old").mkdir()
    old = tmp_path / "old" / "a.cfg"
    port = free_port()
    old.write_text(configuration(port))
    with HaproxyProcess(tmp_path, conf=old if named == "file" else old.parent) as running:
        running.start()
        settings = running.settings(conf=str(tmp_path / "generated.cfg"))
        unit = UnitFacts()
        if found_by == "unit":
            pid = running.running().master_pid  # type: ignore[union-attr]
            settings, unit = replace(settings, master_socket=str(tmp_path / "none")), UnitFacts(main_pid=pid)
        found = adoption.foreign(settings, unit)
    assert found is not None
    assert found.path == str(running.conf)
    assert found.lost("") == (f"frontend fe_main (bind 127.0.0.1:{port})",)


@pytest.mark.haproxy
def test_a_second_file_beside_the_generated_one_stays(tmp_path: Path) -> None:
    """What haproxy is told to load beside the generated file is loaded by each reload: nothing of it disappears."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b.cfg").write_text(configuration(free_port()))
    conf = tmp_path / "d" / "a.cfg"
    conf.write_text(mark("global\n", "0" * 64))
    with HaproxyProcess(tmp_path, conf=tmp_path / "d") as running:
        running.start()
        assert adoption.foreign(running.settings(conf=str(conf)), UnitFacts()) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_not_taken_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "haproxy.cfg").write_text(OLD)
    (tmp_path / "haproxy.cfg").chmod(0)
    with HaproxyProcess(tmp_path) as own:
        found = adoption.foreign(own.settings(), UnitFacts())
    assert found is not None
    assert found.problem(OLD) is not None
