"""Every example of docs/templates.md gives what the page says."""

import pytest

from pyconfd.model.context import Context
from pyconfd.presets.views import CertificateView, ClusterView, EndpointView, NodeView, PortView, ServiceView
from pyconfd.render.filters import FILTERS, FUNCTIONS
from tests.docs.examples import ROOT, Example, blocks_of, cluster, examples, includables, outcome

PAGE = ROOT / "docs" / "templates.md"
BLOCKS = blocks_of(PAGE)
EXAMPLES = list(examples(BLOCKS))
VIEWS = (EndpointView, PortView, ServiceView, NodeView, CertificateView, ClusterView)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Context:
    return cluster(BLOCKS, tmp_path_factory.mktemp("page"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: f"line {example.line}")
def test_the_example_gives_what_the_page_says(example: Example, context: Context) -> None:
    assert outcome(example, context, includables(BLOCKS)) == example.output


def test_the_page_has_an_example_of_every_filter_and_function() -> None:
    templates = "".join(example.template for example in EXAMPLES)
    missing = [name for name in FILTERS if f"| {name}" not in templates]
    missing += [name for name in (*FUNCTIONS, "map_file", "certificate_file") if f"{name}(" not in templates]
    assert not missing


def test_the_page_names_every_key_of_an_entry(context: Context) -> None:
    text = PAGE.read_text(encoding="utf-8")
    entry = context.names["domains"]["shop.example.com"]
    assert not [key for key in entry if f"`{key}`" not in text]
    assert not [name for name in context.names if f"`{name}`" not in text]


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.__name__)
def test_the_page_names_every_attribute_of_the_cluster_view(view: type) -> None:
    text = PAGE.read_text(encoding="utf-8")
    own = [name for name, value in vars(view).items() if not name.startswith("_") and value is not None]
    assert len(own) > 2
    assert not [name for name in own if f"`{name}`" not in text and f"`{name}(" not in text]


def test_an_example_that_says_something_else_is_found(context: Context) -> None:
    wrong = Example("{{ 'a b' | quote }}", "a b\n", 1)
    assert outcome(wrong, context, ()) != wrong.output
