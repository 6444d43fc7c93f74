"""What the operator's environment gives to a template from the cluster is not shown because its author provokes it."""

import pytest
from structlog.testing import capture_logs

from pyconfd import wiring
from pyconfd.errors import RejectedInput
from pyconfd.model.context import ClusterTemplate, Context
from pyconfd.model.rendering import FragmentSet
from pyconfd.settings import resolve

ENV = {"VARNISH_SECRET": "v4rn1sh", "EMPTY": "", "PLAIN": "e"}
NAMES = {"stats": {"username": "stats", "password": "hunter2-of-7"}, "env": ENV}


def render(text: str) -> str:
    environ = {"PYCONFD_PRESETS_USE": "configmap", "PYCONFD_HAPROXY_FILES_DIR": "/f"}
    compiled = wiring.renderer(resolve({}, environ, lambda _: "").settings, FragmentSet(()))
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
def test_a_refusal_shows_none(text: str) -> None:
    with pytest.raises(RejectedInput) as caught:
        render(text)
    assert "[hidden]" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert "v4rn1sh" not in str(caught.value)


def test_a_note_in_the_log_shows_none() -> None:
    with capture_logs() as logs:
        text = render("global\n user {{ stats.password }}\nlisten l\n bind :80\n stats auth a:{{ stats.password }}\n")
    assert "stats auth a:hunter2-of-7" in text, "where it belongs it is"
    assert any("[hidden]" in str(entry) for entry in logs)
    assert not any("hunter2" in str(entry) for entry in logs)


def test_a_value_too_short_to_be_a_secret_does_not_take_the_message_with_it() -> None:
    with pytest.raises(RejectedInput) as caught:
        render("listen l\n bind :80\n lua x\n")
    assert "configmap lb/config rendered line 3" in str(caught.value)
    assert "[hidden]" not in str(caught.value)
