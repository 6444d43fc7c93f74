"""What the operator's environment gives to a template from the cluster is not shown because its author provokes it."""

import io

import pytest

from pyconfd import wiring
from pyconfd.cli.exits import Exit, show_error
from pyconfd.errors import RejectedInput
from pyconfd.model.context import ClusterTemplate, Context
from pyconfd.model.rendering import FragmentSet
from pyconfd.settings import resolve
from pyconfd.status.logging import configure
from pyconfd.system.secrecy import redacted

ENV = {"VARNISH_SECRET": "v4rn1sh", "EMPTY": "", "PLAIN": "e"}
NAMES = {"stats": {"username": "stats", "password": "hunter2-of-7"}, "env": ENV}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATISTICS_PASSWORD", "hunter2-of-7")
    for name, value in ENV.items():
        monkeypatch.setenv(name, value)


def render(text: str) -> str:
    environ = {
        "PYCONFD_PRESETS_USE": "configmap",
        "PYCONFD_HAPROXY_FILES_DIR": "/f",
        "PYCONFD_CONFIGMAP_ENV": ",".join(ENV),
    }
    settings = resolve({}, environ, lambda _: "").settings
    compiled = wiring.renderer(settings, FragmentSet(()))
    wiring.preset_options(settings, compiled)
    template = ClusterTemplate("configmap lb/config", text, NAMES)
    return compiled.render(Context({}, templates=(template,)), curdate="").rendering.text


@pytest.mark.parametrize(
    "text",
    [
        "listen l\n bind :80\n lua {{ stats.password }} {{ env.VARNISH_SECRET }}\n",
        "global\n lua-load /{{ stats.password }}/{{ env.VARNISH_SECRET }}\n",
        "{{ {}[stats.password ~ env.VARNISH_SECRET].x }}",
        "global\n  \x01{{ env.VARNISH_SECRET }}{{ stats.password }}\n",
    ],
)
def test_a_refusal_shows_none(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RejectedInput) as caught:
        render(text)
    show_error(caught.value, Exit.FAILED)
    shown = capsys.readouterr().err
    assert "[hidden]" in shown
    assert "hunter2" not in shown
    assert "v4rn1sh" not in shown


def test_a_note_in_the_log_shows_none() -> None:
    stream = io.StringIO()
    configure("INFO", "text", stream=stream, environ={})
    text = render("global\n user {{ stats.password }}\nlisten l\n bind :80\n stats auth a:{{ stats.password }}\n")
    assert "stats auth a:hunter2-of-7" in text, "where it belongs it is"
    assert "[hidden]" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


def test_a_value_too_short_to_be_a_secret_does_not_take_the_message_with_it() -> None:
    with pytest.raises(RejectedInput) as caught:
        render("listen l\n bind :80\n lua x\n")
    assert "configmap lb/config rendered line 3" in str(caught.value)
    assert "[hidden]" not in redacted(str(caught.value))
