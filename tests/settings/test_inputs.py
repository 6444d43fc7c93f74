from dataclasses import replace

import pytest

from pyconfd.errors import RejectedInput
from pyconfd.settings import (
    EtcdSettings,
    HaproxySettings,
    KubernetesSettings,
    PresetSettings,
    Settings,
    StatusSettings,
    TemplateSettings,
)
from pyconfd.settings.inputs import credential_files, inputs_of, secret_values, with_inputs

THEN = Settings(
    presets=PresetSettings(use=("kube2lb", "domains"), listen_ports=("80-90",)),
    templates=TemplateSettings(
        dir="/then", trim_blocks=False, vars={"a": 1, "api_token": "old", "stats": {"user": "u", "password": "old"}}
    ),
)
NOW = Settings(
    haproxy=HaproxySettings(conf="/now.cfg"),
    templates=TemplateSettings(dir="/now", vars={"b": 2, "api_token": "new", "stats": {"password": "new"}}),
)


def test_what_decides_the_rendering_goes_back_and_nothing_else() -> None:
    back = with_inputs(NOW, inputs_of(THEN))
    assert back.presets == THEN.presets
    assert not back.templates.trim_blocks
    assert (back.templates.dir, back.haproxy.conf) == ("/now", "/now.cfg")
    assert inputs_of(back) == inputs_of(THEN)


def test_secrets_are_not_kept_and_come_from_the_present() -> None:
    assert "old" not in str(inputs_of(THEN))
    back = with_inputs(NOW, inputs_of(THEN)).templates.vars
    assert back == {"a": 1, "api_token": "new", "stats": {"user": "u", "password": "new"}}
    assert sorted(secret_values(NOW)) == ["new", "new"]


def test_secrets_within_arrays_are_secret_too() -> None:
    users = [{"name": "u", "deeper": [{"password": "old"}]}]
    then, now = (
        Settings(
            templates=TemplateSettings(
                vars={"users": value, "token": {"deep": ["new"]}, "names": [{"name": "u"}], "none": {}}
            )
        )
        for value in (users, [{"name": "v", "password": "other"}])
    )
    assert inputs_of(then)["templates"]["vars"] == {"names": [{"name": "u"}], "none": {}}
    assert sorted(secret_values(now)) == ["new", "other"]
    assert with_inputs(now, inputs_of(then)).templates.vars["users"] == [{"name": "v", "password": "other"}]


def test_the_same_settings_change_nothing() -> None:
    assert inputs_of(with_inputs(NOW, inputs_of(NOW))) == inputs_of(NOW)
    assert with_inputs(NOW, {}) == replace(
        NOW, templates=replace(NOW.templates, vars={"api_token": "new", "stats": {"password": "new"}})
    )


@pytest.mark.parametrize("values", [{"presets": {"use": 7}}, {"presets": 7}, {"templates": {"vars": 7}}])
def test_what_these_settings_do_not_take_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(RejectedInput, match="cannot be used any more"):
        with_inputs(NOW, values)


def test_files_of_credentials_are_those_of_api_servers_etcd_and_the_status_page() -> None:
    settings = Settings(
        kubernetes=KubernetesSettings(token_file="/k/token"),
        etcd=EtcdSettings(password_file="/e/password"),
        status=StatusSettings("192.0.2.1:9101", "/s/token", "/s/page.pem"),
        haproxy=HaproxySettings(conf="/now.cfg"),
    )
    assert credential_files(settings) >= {"/k/token", "/e/password", "/s/token", "/s/page.pem"}
    assert not credential_files(settings) & {"/now.cfg", "192.0.2.1:9101", ""}
