"""watch: what it prints, and what haproxy-kubefigurator's users get by that name."""

import json

import pytest

from tests.cli.application import FakeApp, Watched, invoke

CHANGES = (
    Watched("12:03:04 shop +2 servers, live 0.9 ms, no reload, generation 418", {"generation": 418}),
    Watched("12:03:09 reload (binds_changed) 214 ms, generation 419", {"generation": 419}),
)


def test_each_change_is_a_line_until_it_is_interrupted() -> None:
    app = FakeApp(changes=CHANGES)
    result = invoke("watch", "--runtime-dir", "/run/other", app=app)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [change.text for change in CHANGES]
    ((name, settings, arguments),) = app.calls
    assert (name, settings.runtime_dir, arguments) == ("watch", "/run/other", (None,))


def test_each_change_is_an_object_for_programs() -> None:
    app = FakeApp(changes=CHANGES)
    result = invoke("watch", "--json", "--since", "417", app=app)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [change.values for change in CHANGES]
    assert app.calls[0][2] == (417,)


def test_a_generation_is_a_number() -> None:
    assert invoke("watch", "--since", "-1").exit_code == 64
    assert invoke("watch", "--since", "yesterday").exit_code == 64


@pytest.mark.parametrize("flags", [("--etcd-host", "https://a:2379"), ("--kubeconfig", "/k")])
def test_with_the_predecessors_flags_it_publishes(flags: tuple[str, str]) -> None:
    app = FakeApp()
    result = invoke("watch", *flags, app=app)
    assert [name for name, _, _ in app.calls] == ["publish"]
    assert "watch is `pyconfd publish` now" in result.stderr


def test_a_setting_of_the_file_or_the_environment_makes_nobody_publish() -> None:
    app = FakeApp(changes=CHANGES)
    assert invoke("watch", app=app, PYCONFD_ETCD_ENDPOINTS="https://a:2379").exit_code == 0
    assert [name for name, _, _ in app.calls] == ["watch"]
