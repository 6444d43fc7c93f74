"""Templates from the cluster in a process of their own: what they get, and what they cannot do."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyconfd.errors import RejectedInput
from pyconfd.model.context import ClusterTemplate
from pyconfd.model.versioned import VersionedDict
from pyconfd.predecessors.sandbox.renderer import Limits, TemplateProcess


@pytest.fixture(scope="module")
def process() -> Iterator[TemplateProcess]:
    made = TemplateProcess(Limits(timeout_s=20.0, output_bytes=100_000))
    yield made
    made.close()


def template(text: str, required: dict[str, str] | None = None, **names: Any) -> ClusterTemplate:
    return ClusterTemplate("configmap lb/config", text, names, required or {})


def problem(process: TemplateProcess, text: str, required: dict[str, str] | None = None, **names: Any) -> str:
    with pytest.raises(RejectedInput) as caught:
        process.render(template(text, required, **names))
    return str(caught.value)


def worker_of(process: TemplateProcess) -> psutil.Process:
    assert process._process is not None
    return psutil.Process(process._process.pid)


def test_values_loops_and_filters(process: TemplateProcess) -> None:
    text = "{% for s in services %}{{ s.name|upper }}={{ s.pods['a'].status.podIP }}\n{% endfor %}é"
    services = [{"name": "shop", "pods": {"a": {"status": {"podIP": "10.0.0.1"}}}}]
    assert process.render(template(text, services=services)) == "SHOP=10.0.0.1\né"


def test_it_renders_as_the_predecessors_did(process: TemplateProcess) -> None:
    assert process.render(template("a{{ missing }}b{% if missing %}{% endif %}{{ d.missing }}\n", d={})) == "ab"
    assert process.render(template("{% for k, v in d.iteritems() %}{{ k }}{{ v }}{% endfor %}", d={"a": 1})) == "a1"
    values = VersionedDict({"a": 1})
    assert process.render(template("{% for k, v in d.iteritems() %}{{ k }}{{ v }}{% endfor %}", d=values)) == "a1"
    assert process.render(template("{% for v in d.itervalues() %}{{ v }}{% endfor %}", d={"a": 1})) == "1"


def test_a_required_value_is_never_printed_as_nothing(process: TemplateProcess) -> None:
    required = {"stats.password": "set STATISTICS_PASSWORD"}
    told = problem(process, "\nstats auth {{ stats.username }}:{{ stats.password }}", required, stats={"username": "s"})
    assert "configmap lb/config line 2: stats.password has no value: set STATISTICS_PASSWORD" in told
    text = "{% if stats.password %}x{% endif %}{{ stats.other }}{{ other.password }}"
    assert process.render(template(text, required, stats={"username": "s"}, other={})) == ""
    assert "no value" in problem(process, "{{ 'a:' ~ stats.password }}", required, stats={})
    assert "correct the template" not in told


def test_a_variable_that_is_not_there_is_never_printed_as_nothing(process: TemplateProcess) -> None:
    """``server varnish {{ env.ADDRESS }}:80`` would be a server that haproxy accepts, without an address."""
    required = {"env.*": "name it in configmap.env"}
    told = problem(process, "\nserver v {{ env.ADDRESS }}:80", required, env={"SECRET": "x"})
    assert "configmap lb/config line 2: env.ADDRESS has no value: name it in configmap.env" in told
    text = "{% if env.ADDRESS %}x{% endif %}{{ env.ADDRESS | default('none') }} {{ env.SECRET }}"
    assert process.render(template(text, required, env={"SECRET": "x"})) == "none x"
    assert process.render(template("[{{ env.EMPTY }}]", required, env={"EMPTY": ""})) == "[]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ x.append(1) }}", "unsafe"),
        ("{% do x.append(1) %}", "unsafe"),
        ("{{ '{0.__class__}'.format(x) }}", "unsafe"),
        ("{{ ''.__class__ }}", "unsafe"),
        ("{{ x | attr('__class__') }}", "unsafe"),
        ("{{ x | map(attribute='__class__') | list }}", "unsafe"),
        ("{{ cycler.__init__.__globals__ }}", "unsafe"),
        ("{{ hostport }}", "prints a Function"),
        ("{% include '/etc/passwd' %}", "loader"),
        ("{% import '/etc/passwd' as x %}", "loader"),
        ("{{ x | random }}", "No filter named 'random'"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% for %}", "line 1"),
        ("\n\n{{ x.y.z }}", "line 3"),
        ("{{ 'a' * 10**10 }}", "memory"),
        ("{{ 'a' * 99999 }}{{ 'a' * 99999 }}", "more than 100000 characters"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "RecursionError"),
        ("{% break %}", "'break' outside loop"),
        ("{% for a in x %}{% endfor %}\n{% continue %}", "'continue' not properly in loop"),
        ("{{ 'inf' | float | int }}", "NameError"),
        ("{{ 'a'.encode('idna') }}", "unknown encoding"),
        ("{{ 'a'.encode('zlib') }}", "unknown encoding"),
        ("{% for a in x %}" * 30 + "{% endfor %}" * 30, "too many statically nested blocks"),
        ("{{ '\\ud800' }}{{ y.z }}", "line 1"),
        ("{{ (" + "[" * 300 + "]" * 300 + ") }}", "RecursionError"),
    ],
)
def test_what_a_template_cannot_do(process: TemplateProcess, text: str, message: str) -> None:
    assert message in problem(process, text, x=[1])
    assert process.render(template("still {{ x }}", x=1)) == "still 1"


def test_the_worker_can_open_nothing_and_has_no_environment(process: TemplateProcess) -> None:
    process.render(template("a"))
    worker = worker_of(process)
    assert worker.environ() == {}
    limits = Path(f"/proc/{worker.pid}/limits").read_text()
    for name in ("Max open files", "Max file size", "Max core file size", "Max processes"):
        line = next(line for line in limits.splitlines() if line.startswith(name))
        assert line.removeprefix(name).split()[:2] == ["0", "0"], line
    space = next(line for line in limits.splitlines() if line.startswith("Max address space"))
    assert space.split()[3] == str(512 * 1024 * 1024)
    opened = {int(entry.name) for entry in Path(f"/proc/{worker.pid}/fd").iterdir()}
    assert opened == {0, 1, 2}


def test_a_template_without_end_is_killed_and_the_next_one_renders() -> None:
    process = TemplateProcess(Limits(timeout_s=1.0))
    try:
        assert process.render(template("one")) == "one"
        endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
        worker = worker_of(process)
        told = problem(process, endless)
        assert "longer than 1 s" in told
        assert not worker.is_running()
        assert process.render(replace(template("two"), name="configmap lb/other")) == "two"
        assert process.started == 2
    finally:
        process.close()


def test_an_edit_gives_a_template_no_new_budget() -> None:
    process = TemplateProcess(Limits(timeout_s=0.5))
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    name = "configmap lb/config"
    try:
        process.render(template("one"))  # a process that has just started gets more time
        told = problem(process, endless)
        overdue = process._overdue[name]
        first_s, overdue.until = overdue.delay_s, math.inf
        started = process.started
        assert problem(process, endless, pod="another") == told
        assert "a former version took longer" in problem(process, endless + "{# edited #}")
        assert process.started == started, "neither was tried"
        assert process.render(replace(template("good"), name="configmap lb/other")) == "good"
        overdue.until = 0.0
        assert problem(process, endless + "{# edited #}") == told
        assert overdue.delay_s == 2 * first_s
        overdue.until = 0.0
        assert process.render(template("better")) == "better"
        assert process._overdue == {}
    finally:
        process.close()


def test_the_kernel_ends_what_the_parent_does_not(process: TemplateProcess) -> None:
    process.render(template("a"))
    limits = Path(f"/proc/{worker_of(process).pid}/limits").read_text()
    line = next(line for line in limits.splitlines() if line.startswith("Max cpu time"))
    assert 20 <= int(line.split()[3]) <= 60


def test_a_worker_that_dies_is_replaced() -> None:
    process = TemplateProcess(Limits(timeout_s=20.0))
    try:
        process.render(template("one"))
        worker = worker_of(process)
        worker.kill()
        worker.wait(10)
        assert process.render(template("two")) == "two"
        assert process.started == 2
    finally:
        process.close()


_FORGER = """import os, sys
os.read(0, 1 << 20)
body = bytes.fromhex("{start}") * {times} + bytes.fromhex("{end}")
view = memoryview(len(body).to_bytes(4, "big") + body)
while view:
    view = view[os.write(1, view):]
"""


@pytest.mark.parametrize(
    ("start", "times", "end"),
    [(b'{"x":', 100_000, b"1"), (b'{"text":"\xff"}', 1, b""), (b"[", 1, b"]"), (b"", 0, b"")],
    ids=["deep", "no UTF-8", "no answer", "empty"],
)
def test_a_forged_answer_is_refused(monkeypatch: pytest.MonkeyPatch, start: bytes, times: int, end: bytes) -> None:
    program = _FORGER.format(start=start.hex(), times=times, end=end.hex())
    monkeypatch.setattr("pyconfd.predecessors.sandbox.renderer._PROGRAM", program)
    process = TemplateProcess(Limits(timeout_s=20.0))
    try:
        assert "line" not in problem(process, "a")
        assert process._process is None, "whoever forged it answers no further request"
    finally:
        process.close()


def test_large_requests_and_answers_pass(process: TemplateProcess) -> None:
    services = [{"name": "x" * 1000}] * 3000
    assert process.render(template("{{ services|length }}", services=services)) == "3000"
    assert (
        len(process.render(template("{% for s in services %}{{ s.name[:30] }}{% endfor %}", services=services)))
        == 90_000
    )


def test_it_ends_with_its_parent() -> None:
    process = TemplateProcess(Limits())
    process.render(template("one"))
    worker = worker_of(process)
    assert process._process is not None
    assert process._process.stdin is not None
    process._process.stdin.close()
    give_up_at = time.monotonic() + 20
    while worker.status() != psutil.STATUS_ZOMBIE and time.monotonic() < give_up_at:
        time.sleep(0.01)
    assert worker.status() == psutil.STATUS_ZOMBIE
    process.close()
