"""What is explained of a Gateway, which has ports and no servers of its own."""

import pytest

from pyconfd.model.context import PresetName
from pyconfd.presets.preset import PresetOptions
from tests.explain.world import evidence_of, reports_of
from tests.presets.gateway import objects
from tests.presets.gateway.test_preset import GATEWAY, OPTIONS

OPEN = {
    "08-gateway.tmpl": "{% for each in gateway.frontends.values() %}frontend {{ each.name }}\n"
    "    bind 127.0.0.1:{{ each.port }}\n{% endfor %}"
}
CLOSED = {"08-gateway.tmpl": "# {{ gateway.frontends | length }}\n"}


@pytest.mark.parametrize(
    ("options", "templates", "programmed", "reasons", "remedy"),
    [
        (OPTIONS, OPEN, "True", {"Programmed"}, ""),
        (OPTIONS, CLOSED, "False", {"NoFrontend"}, "no fragment opens its ports"),
        (PresetOptions(), OPEN, "False", {"NoSuchAddress"}, "addresses.pool"),
    ],
)
def test_a_gateway_is_explained_by_its_ports(
    options: PresetOptions, templates: dict[str, str], programmed: str, reasons: set[str], remedy: str
) -> None:
    evidence = evidence_of(
        objects.snapshot(objects.CLASS, GATEWAY), (PresetName.GATEWAY,), options, templates=templates
    )
    (report,) = reports_of(evidence).values()
    found = {str(each.type): each for each in report.conditions}
    assert found["Programmed"].status == programmed
    assert reasons <= {each.reason for each in report.conditions}
    assert "NoReadyEndpoints" not in {each.reason for each in report.conditions}
    assert remedy in report.remedy
