"""Files that start a predecessor, as their own repositories have them."""

import pytest

from pyconfd.predecessors.migrate.migration import migrate
from pyconfd.predecessors.migrate.report import Effect, InputFile, System

START = r"""#!/bin/bash
CONFFILE=/etc/haproxy/haproxy.cfg
echo "
global
	daemon
frontend nothing
	bind :80
" > $CONFFILE
haproxy -f $CONFFILE -p /run/haproxy.pid
kube2lb -apiserver=https://a:6443 -template=/t.tpl {dashes}config=$CONFFILE -notify=command:"haproxy -f $CONFFILE"
"""
MAKEFILE = """\
build:
	docker build -t haproxy/pyconfd .

push: build
	@docker push haproxy/pyconfd

run:
	@docker run \\
	-e "APISERVERS=https://192.0.2.1:6443" \\
	haproxy/pyconfd
"""


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize("name", ["entrypoint.sh", "start"])
def test_a_start_script_is_no_haproxy_cfg(name: str, dashes: str) -> None:
    migration = migrate(System.KUBE2LB, [InputFile(name, START.replace("{dashes}", dashes))])
    (settings,) = migration.outputs
    assert settings.name == "pyconfd.toml"
    assert 'output = "/etc/haproxy/haproxy.cfg"' in settings.text
    assert 'api_servers = ["https://a:6443"]' in settings.text
    assert "needs no change" not in [each.message for each in migration.findings]
    assert any("a first configuration of HAProxy" in each.message for each in migration.of(Effect.NOTED))
    assert migration.of(Effect.LEFT) == ()


def test_a_makefile_gives_no_false_alarm() -> None:
    migration = migrate(System.PYTHON_CONFD, [InputFile("Makefile", MAKEFILE)])
    assert [(each.line, each.effect) for each in migration.findings] == [(8, Effect.TRANSLATED)]
    assert 'api_servers = ["https://192.0.2.1:6443"]' in migration.outputs[0].text


FIRST_CONFIGURATION = START.split("\n", 1)[1].replace("{dashes}", "-")


@pytest.mark.parametrize(
    "first", ["#!/usr/bin/env -S bash -e\n", "#!/usr/bin/dumb-init /bin/sh\n", "", "\n# starts both\n"]
)
def test_a_script_is_told_by_what_it_begins_with(first: str) -> None:
    migration = migrate(System.KUBE2LB, [InputFile("entrypoint", first + FIRST_CONFIGURATION)])
    assert [output.name for output in migration.outputs] == ["pyconfd.toml"]
    assert migration.of(Effect.LEFT) == ()


@pytest.mark.parametrize("first", ["", "#!/usr/sbin/haproxy -f\n", "\n# kube2lb -x\n", "{# a #}\n"])
def test_what_begins_with_a_section_is_an_haproxy_cfg(first: str) -> None:
    migration = migrate(System.KUBE2LB, [InputFile("balancer", f"{first}global\n    daemon\nfrontend a\n")])
    assert [output.name for output in migration.outputs] == ["balancer.conf"]


@pytest.mark.parametrize("word", ['"$@"', "$*", "${@}"])
def test_arguments_of_the_script_are_asked_for(word: str) -> None:
    text = f"kube2lb -apiserver=https://a:6443 {word}\n"
    migration = migrate(System.KUBE2LB, [InputFile("run.sh", text)])
    assert migration.of(Effect.LEFT) == ()
    (note,) = migration.of(Effect.NOTED)
    assert "the command that calls it" in note.message


@pytest.mark.parametrize(
    "line",
    [
        "docker run -d --name pyconfd --restart=always -p 80:80 -v /a:/b -e APISERVERS=https://a:6443 haproxy/pyconfd",
        "sudo docker run -itd --name pyconfd --env APISERVERS=https://a:6443 haproxy/pyconfd:1 /bin/bash",
        "docker run -eAPISERVERS=https://a:6443 --net host haproxy/pyconfd",
        "docker run debian python3 /src/pyconfd.py --api-servers https://a:6443",
        "rm -f pyconfd.pid pyconfd; pyconfd.py --api-servers https://a:6443",
        "docker exec -it pyconfd pyconfd.py --api-servers https://a:6443",
    ],
)
def test_what_starts_the_program_is_read(line: str) -> None:
    migration = migrate(System.PYTHON_CONFD, [InputFile("Makefile", f"run:\n\t{line}\n")])
    assert [(each.line, each.effect) for each in migration.findings] == [(2, Effect.TRANSLATED)]


@pytest.mark.parametrize(
    "line",
    [
        "docker exec -it pyconfd /bin/bash",
        "-docker rm -f pyconfd",
        "docker-compose up -d pyconfd",
        "install -m 755 pyconfd.py /usr/local/bin/",
        "cp -a src/pyconfd.py build/ && rm -rf pyconfd build",
        "pylint pyconfd.py --disable=all",
        "ADD pyconfd.py /usr/local/bin/",
        "docker run --rm -it haproxy/pyconfd /bin/bash -l",
    ],
)
def test_what_starts_no_program_is_passed_over(line: str) -> None:
    text = f"LOGLEVEL=debug\nx:\n\t{line}\n"
    migration = migrate(System.PYTHON_CONFD, [InputFile("Makefile", text)])
    assert [(each.line, each.effect) for each in migration.findings] == [(1, Effect.TRANSLATED)]
