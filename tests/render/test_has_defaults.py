"""Templates can ask which defaults sections with a name the fragments write."""

import pytest

from pyconfd.model.context import Context
from pyconfd.model.rendering import Fragment, FragmentSet
from pyconfd.render.engine import Renderer, RenderOptions


def text(template: str, **fragments: str) -> str:
    files = {name.replace("_", "."): content for name, content in fragments.items()} | {"z.tmpl": template}
    found = FragmentSet(tuple(Fragment(name, content) for name, content in files.items()))
    rendering = Renderer(found, RenderOptions("/files")).render(Context({"names": ["a", "b"]}), curdate="").rendering
    return next(piece.text for piece in rendering.pieces if piece.fragment == "z.tmpl")


@pytest.mark.parametrize(
    ("fragment", "there"),
    [
        ("defaults web\n    mode http\n", True),
        ("global\n\n  defaults\tweb from base # mine\n", True),
        ("defaults web", True),
        ("defaults web2\ndefaults from web\ndefaults\n    web\n", False),
        ("# defaults web\nbackend web\n", False),
    ],
)
def test_a_section_of_another_fragment(fragment: str, there: bool) -> None:
    assert text("{{ has_defaults('web') }}", a_conf=fragment) == f"{there}\n"


def test_a_comment_of_a_template_is_none() -> None:
    assert text("{{ has_defaults('web') }}", a_tmpl="{#\ndefaults web\n#}\n") == "False\n"
    assert text("{{ has_defaults('web') }}", a_tmpl="{# mine #}\ndefaults web\n") == "True\n"


def test_a_remembered_loop_may_ask() -> None:
    template = "{% each name in names %}\n{{ name }} {{ has_defaults('web') }}\n{% endeach %}"
    assert text(template, a_conf="defaults web\n") == "a True\nb True\n"
