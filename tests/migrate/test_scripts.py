"""Files that start a predecessor, as their own repositories have them."""

import pytest

from pyconfd.migrate.migration import migrate
from pyconfd.migrate.report import Effect, InputFile, System

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
