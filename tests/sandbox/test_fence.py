"""The fence around the worker: what hostile Python in it can do, once a template has left Jinja's sandbox."""

import json
import os
import resource
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pyconfd.errors import RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.predecessors.sandbox import worker as fence
from pyconfd.predecessors.sandbox.renderer import Limits, TemplateProcess
from pyconfd.render import cluster_templates
from tests.sandbox import hostile

TEMPLATE = ClusterTemplate("configmap lb/config", "{{ 1 + 1 }}", {})


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def test_hostile_python_can_do_nothing_to_the_machine(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    tmp_path.chmod(0o777)
    own = tmp_path / "own"
    own.write_text("secret")
    own.chmod(0o666)
    done = subprocess.run(
        [sys.executable, hostile.__file__, str(tmp_path), str(victim.pid)], capture_output=True, timeout=60, check=False
    )
    report = json.loads(done.stdout)
    assert report["problem"] == ""
    names = hostile.attempts(str(tmp_path), victim.pid)
    assert report["outcomes"] == dict.fromkeys(names, str(1)), "each fails with EPERM"
    assert report["let through"] == {}
    assert [path.name for path in tmp_path.iterdir()] == ["own"]
    assert own.read_text() == "secret"
    assert own.stat().st_mode & 0o777 == 0o666
    assert victim.poll() is None


def test_the_same_attempts_succeed_without_the_fence(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """Else the test above would prove nothing."""
    (tmp_path / "own").write_text("secret")
    everything = hostile.attempts(str(tmp_path), victim.pid)
    for name in ("open", "chmod", "stat", "list", "link", "unlink", "create", "socket", "kill"):
        assert hostile.outcome(everything[name]) == "", name
    assert victim.wait(20) == -15


def test_the_worker_is_fenced_and_renders() -> None:
    process = TemplateProcess(Limits(timeout_s=20.0))
    try:
        large = {"services": [{"name": "é" * 1000, "n": number} for number in range(3000)]}
        text = "{% for s in services | natsort('n') %}{{ s.name }}{{ s.n }}\n{% endfor %}"
        assert len(process.render(ClusterTemplate("a", text, large))) > 3_000_000
        with pytest.raises(RejectedInput, match="memory"):
            process.render(ClusterTemplate("b", "{{ 'a' * 10**10 }}", {}))
        codecs = "{{ 'é'.encode('latin-1') | length }}{{ 'é'.encode('utf-16') | length }}{{ 'é' | urlencode }}"
        with pytest.raises(RejectedInput, match="unknown encoding: cp1250"):
            process.render(ClusterTemplate("c", "{{ 'a'.encode('cp1250') }}", {}))
        assert process.render(ClusterTemplate("d", codecs, {})).endswith("%C3%A9")
        assert process.render(TEMPLATE) == "2"
        assert process.started == 1, "none of it ended the worker"
        assert process._process is not None
        worker = psutil.Process(process._process.pid)
        status = Path(f"/proc/{worker.pid}/status").read_text()
        assert "\nSeccomp:\t2\n" in status
        assert "\nNoNewPrivs:\t1\n" in status
        assert 0 not in worker.uids()
        assert 0 not in worker.gids()
        assert "\nGroups:\t \n" in status or os.getuid() != 0
    finally:
        process.close()


def test_no_filter_needs_a_file_inside_of_the_fence() -> None:
    process, said = TemplateProcess(Limits(timeout_s=20.0)), list[str]()
    try:
        for name in sorted(cluster_templates._environment({}, {}).filters):
            for value in ("'a <b> http://c.d'", "[1, 2]", "{'a': 1}", "3.5"):
                text = f"{{{{ {value} | {name} | string }}}}"
                try:
                    process.render(ClusterTemplate("a", text, {}))
                except RejectedInput as error:
                    said.append(f"{text}: {error}")
        assert said, "some want arguments"
        assert [each for each in said if "OSError" in each or "NotFound" in each or "Permission" in each] == []
        assert process.started == 1
    finally:
        process.close()


def _deny_filters() -> None:
    """Make the kernel refuse a filter of system calls from now on, to this process and its children."""
    import ctypes  # noqa: PLC0415 - runs after a fork

    deny = 0x00050000 | 22
    lines = (
        (0x20, 0, 0, 0),
        (0x15, 0, 3, 157 if os.uname().machine == "x86_64" else 167),
        (0x20, 0, 0, 16),
        (0x15, 0, 1, 22),
        (0x06, 0, 0, deny),
        (0x06, 0, 0, 0x7FFF0000),
    )
    text = b"".join(struct.pack("=HBBI", *line) for line in lines)
    memory = ctypes.create_string_buffer(text)
    described = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(memory)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, *map(ctypes.c_ulong, (1, 0, 0, 0)))
    libc.prctl(22, *map(ctypes.c_ulong, (2, ctypes.addressof(described), 0, 0)))


def test_where_the_kernel_has_no_filter_nothing_is_rendered() -> None:
    found: list[str] = []

    def in_a_thread() -> None:  # a filter is a thread's own, and its children's
        _deny_filters()
        process = TemplateProcess(Limits(timeout_s=20.0))
        try:
            found.append(process.render(TEMPLATE))
        except RejectedInput as error:
            found.append(str(error))
        finally:
            process.close()

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert "not rendered here: the kernel refuses a filter of system calls: Invalid argument" in found[0]
    assert "put the template into a fragment" in found[0]


def test_an_unknown_machine_is_not_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "s390x")
    assert fence.enclose() == "no filter of system calls is known for s390x"


def test_both_architectures_allow_the_same() -> None:
    names = [set(each.calls) for each in fence.ARCHITECTURES.values()]
    assert names[0] == names[1]
    assert {len(fence.program(each)) for each in fence.ARCHITECTURES.values()} == {72 * 8}
    assert resource.RLIMIT_CPU == 0
