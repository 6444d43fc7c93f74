"""``pyconfd test`` over real files and with the real haproxy; the shipped tests are run as their authors would."""

import json
import subprocess
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyconfd import fragments
from pyconfd.cli.commands.test import TrialRound, print_rounds, watch_tests
from pyconfd.model.context import AUTOMATIC_PRESETS, PresetName
from pyconfd.settings import resolve
from pyconfd.testing.judge import CaseFailure
from pyconfd.testing.report import Result
from tests.world import forked
from tests.world.appliance import Appliance
from tests.world.haproxy import BINARY

pytestmark = pytest.mark.haproxy

SHIPPED = [each.value for each in PresetName if each not in AUTOMATIC_PRESETS[1:] and fragments.tests_of([each])]
"""The presets that are in use by default share a folder."""
EXAMPLES = Path(fragments.directory()).parent / "examples"

CONF = """\
global
    stats socket /run/haproxy/x.sock level admin
defaults
    timeout connect 1s
    timeout client 1s
    timeout server 1s
"""
TEMPLATE = """\
frontend f
    bind 127.0.0.1:80
    default_backend b
backend b
{% for domain, items in domains.items() %}
{% for server in items.endpoints | servers %}
    server {{ server.name }} {{ server.target }} id {{ server.id }}
{% endfor %}
{% endfor %}
"""
SERVICE = """\
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: demo, annotations: {domain: shop.example.com, proto: http}}
spec: {ports: [{name: web, port: 80, targetPort: 8080}]}
"""


def slice_of(*addresses: str) -> str:
    listed = ", ".join(f"{{addresses: [{each}], conditions: {{ready: true}}}}" for each in addresses)
    return f"""\
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: shop-4, namespace: demo, labels: {{kubernetes.io/service-name: shop}}}}
addressType: IPv4
ports: [{{name: web, port: 8080, protocol: TCP}}]
endpoints: [{listed}]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "01.conf").write_text(CONF)
    (tmp_path / "02.tmpl").write_text(TEMPLATE)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "one.yaml").write_text(SERVICE + slice_of("10.0.0.1"))
    (tmp_path / "tests" / "two.yaml").write_text(SERVICE + slice_of("10.0.0.1", "10.0.0.2"))
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "tests" / "a.test.toml"
    path.write_text(text)
    return path


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return forked.run(["test", "--haproxy-binary", BINARY, *arguments], Appliance.environment())


@pytest.mark.parametrize("preset", SHIPPED)
def test_the_shipped_fragments_pass_their_own_tests_where_they_are_copied_to(preset: str, tmp_path: Path) -> None:
    assert forked.run(["fragments", "--preset", preset, "--copy-to", str(tmp_path)], {}).returncode == 0
    done = run(str(tmp_path))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


@pytest.mark.parametrize("name", ["haproxy", "nginx", "caddy"])
def test_the_examples_pass_their_own_tests(name: str) -> None:
    done = run(str(EXAMPLES / "kube2lb" / name))
    assert done.returncode == 0, done.stdout + done.stderr


def test_live_and_reload_are_told_apart(folder: Path) -> None:
    path = write(
        folder,
        """
[[test]]
name = "a pod more"
snapshot = "one.yaml"
[[test.then]]
snapshot = "two.yaml"
plan = "reload"
[[test.then]]
snapshot = "one.yaml"
plan = "live"
""",
    )
    done = run(str(path))
    assert done.returncode == 1
    assert done.stdout.count("the plan is live, expected reload") == 1


def test_what_haproxy_refuses_fails_the_test_with_fragment_and_line(folder: Path) -> None:
    (folder / "02.tmpl").write_text(TEMPLATE.replace("default_backend b", "default_backend nobody"))
    write(folder, '[[test]]\nname = "loads"\nsnapshot = "one.yaml"\n')
    done = run(str(folder))
    assert done.returncode == 1
    assert "02.tmpl" in done.stdout
    assert "nobody" in done.stdout
    write(folder, '[[test]]\nname = "loads"\nsnapshot = "one.yaml"\nvalid = false\n')
    assert run(str(folder)).returncode == 0
    write(folder, '[[test]]\nname = "is refused"\nsnapshot = "one.yaml"\nfails = "nobody"\n')
    assert run(str(folder)).returncode == 0
    write(folder, '[[test]]\nname = "is refused"\nsnapshot = "one.yaml"\nfails = "something else"\n')
    assert run(str(folder)).returncode == 1


def test_a_template_that_depends_on_the_order_of_the_api_is_found(folder: Path) -> None:
    (folder / "02.tmpl").write_text(
        TEMPLATE.replace("items.endpoints | servers", "[]") + "{# #}{% for s in cluster.services %}# {{ s.name }}\n"
        "{% endfor %}"
    )
    many = "---\n".join(SERVICE.replace("shop", f"shop{number}") for number in range(8))
    (folder / "tests" / "one.yaml").write_text(many)
    write(folder, '[[test]]\nname = "sorted"\nsnapshot = "one.yaml"\n')
    assert run(str(folder)).returncode == 0, "what presets give is sorted"


def test_expected_files_are_compared_and_written_again(folder: Path) -> None:
    write(
        folder, '[[test]]\nname = "same"\nsnapshot = "one.yaml"\nexpect = [{ equals_file = "e.cfg", in = "02.tmpl" }]'
    )
    missing = run(str(folder))
    assert missing.returncode == 78
    assert "e.cfg" in missing.stderr
    written = run("--update", str(folder))
    assert written.returncode == 0
    assert "written again: e.cfg" in written.stdout
    assert "10.0.0.1:8080" in (folder / "tests" / "e.cfg").read_text()
    assert run(str(folder)).returncode == 0
    (folder / "02.tmpl").write_text(TEMPLATE.replace("bind 127.0.0.1:80", "bind 127.0.0.1:81"))
    changed = run(str(folder))
    assert changed.returncode == 1
    assert "-    bind 127.0.0.1:80\n" in changed.stdout
    assert "+    bind 127.0.0.1:81\n" in changed.stdout


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[[test]]\nnmae = "a"', "a.test.toml: test[0]: 'nmae' is not known here"),
        ('[[test]]\nname = "a"\nsnapshot = "none.yaml"', "a.test.toml: a: "),
        ('[[test]]\nname = "a"\nobjects = "kind: 3"', "a: objects: no Kubernetes object"),
        ('[[test]]\nname = "a"\nsettings = { templates = { dri = "x" } }', "is not a setting"),
        ('[settings.haproxy]\nenabled = "perhaps"\n[[test]]\nname = "a"', "settings: [haproxy] enabled"),
    ],
)
def test_a_bad_test_file_is_one_clear_problem(folder: Path, text: str, told: str) -> None:
    write(folder, text)
    done = run(str(folder))
    assert done.returncode == 78
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_where_there_are_no_tests_a_ci_is_not_green(tmp_path: Path) -> None:
    (tmp_path / "01.conf").write_text(CONF)
    none, nowhere = run(str(tmp_path)), run(str(tmp_path / "nowhere"))
    assert (none.returncode, nowhere.returncode) == (78, 78)
    assert "there is no test" in none.stderr
    write_only = run("--only", "nothing has this name", fragments.directory())
    assert write_only.returncode == 78


def test_json_and_junit(folder: Path) -> None:
    write(folder, '[[test]]\nname = "a"\nexpect = [{ contains = "nothing" }]\n[[test]]\nname = "b"\n')
    report = folder / "report.xml"
    done = run("--json", "--junit", str(report), str(folder))
    assert done.returncode == 1
    values = json.loads(done.stdout)
    assert [(each["name"], each["passed"]) for each in values["results"]] == [("a", False), ("b", True)]
    assert ET.parse(report).getroot()[0].get("failures") == "1"


def test_settings_and_fragments_come_from_the_file_where_it_says_so(folder: Path) -> None:
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    path = elsewhere / "b.test.toml"
    path.write_text('[settings.templates]\ndir = ".."\n[[test]]\nname = "a"\nexpect = [{ contains = "frontend f" }]\n')
    assert run(str(path)).returncode == 0
    path.write_text('[[test]]\nname = "a"\nexpect = [{ contains = "frontend f" }]\n')
    assert run("--template-dir", str(folder), str(path)).returncode == 0
    assert run(str(path)).returncode == 75, "there are no fragments beside it"


def test_tests_are_no_fragments_and_nothing_is_included_from_them(folder: Path) -> None:
    (folder / "tests" / "x.tmpl").write_text("x")
    (folder / "02.tmpl").write_text(TEMPLATE + "{% include 'tests/x.tmpl' %}\n")
    write(folder, '[[test]]\nname = "a"\nfails = "x.tmpl"\n')
    assert run(str(folder)).returncode == 0
    (folder / "tests" / "a.test.toml").rename(folder / "a.test.toml")
    done = run(str(folder))
    assert done.returncode == 1, "a folder of this name without tests is what it was"


def rounds(folder: Path) -> Iterator[TrialRound]:
    resolved = resolve({"haproxy.binary": BINARY, "config": ""}, {})
    return watch_tests(resolved, (str(folder),))


def test_watch_runs_again_after_each_save_and_shows_what_changed(folder: Path) -> None:
    path = write(folder, '[[test]]\nname = "a"\nsnapshot = "one.yaml"\nexpect = [{ contains = "10.0.0.1" }]\n')
    running = rounds(folder)
    first = next(running)
    assert [result.passed for result in first.results] == [True]
    assert not first.changes
    (folder / "02.tmpl").write_text(TEMPLATE.replace("frontend f", "frontend g"))
    second = next(running)
    assert [result.passed for result in second.results] == [True]
    assert {"-frontend f", "+frontend g"} <= set(next(iter(second.changes.values())))
    path.write_text("[[test]")
    assert "is not TOML" in next(running).problems[0].message
    path.write_text('[[test]]\nname = "a"\nsnapshot = "one.yaml"\nexpect = [{ lacks = "10.0.0.1" }]\n')
    assert [result.passed for result in next(running).results] == [False]
    (folder / "tests" / "one.yaml").write_text(SERVICE + slice_of("10.0.0.3"))
    assert [result.passed for result in next(running).results] == [True]
    running.close()  # type: ignore[attr-defined]


def test_the_haproxy_that_is_missing_is_no_failed_test(folder: Path) -> None:
    write(folder, '[[test]]\nname = "a"\n')
    done = run("--haproxy-binary", "/nonexistent/haproxy", str(folder))
    assert done.returncode == 75
    assert "/nonexistent/haproxy" in done.stderr


EDIT = ("--- before", "+++ now", "@@ -1,2 +1,3 @@", " frontend a", "+    option httplog", "     bind :80")
MOVED = ("--- before", "+++ now", "@@ -7,2 +7,3 @@", " frontend a", "+    option httplog", "     bind :81")


def test_what_an_edit_changed_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_rounds([TrialRound((), {"one": EDIT, "two": MOVED})]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "changed: one",
        "    @@ -1,2 +1,3 @@",
        "     frontend a",
        "    +    option httplog",
        "         bind :80",
        "",
    ]


def test_what_cannot_be_printed_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    failed = Result("a.test.toml", "one", (CaseFailure("is not what it says", ("+\x1b[2Jserver",)),))
    print_rounds([TrialRound((failed,), {"one": ("--- before", "+++ now", "-\x1b[2Jserver")})])
    assert "\x1b[2J" not in (shown := capsys.readouterr().out)
    assert {"    -\\x1b[2Jserver", "    +\\x1b[2Jserver"} <= set(shown.splitlines())
