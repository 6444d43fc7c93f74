"""Go templates translated and rendered, against what Go's own text/template gave (tests/data/go-templates)."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jinja2 import Environment

from pyconfd.migrate.gotemplate.lexer import GoTemplateError
from pyconfd.migrate.gotemplate.translate import translate
from pyconfd.migrate.gotemplate.types import KUBE2LB, PLAIN
from pyconfd.model.rendering import FragmentSet
from pyconfd.render.engine import RenderOptions, _environment
from pyconfd.render.invalid import InvalidValueError
from tests.migrate.kube2lb_values import kube2lb_names

DATA = Path(__file__).parents[1] / "data" / "go-templates"
PLAIN_CASES = sorted(path.stem for path in (DATA / "plain").glob("*.tpl"))
KUBE2LB_CASES = sorted(path.stem for path in (DATA / "kube2lb").glob("*.tpl"))


def read(path: Path) -> str:
    return path.read_bytes().decode()


@cache
def environment(*, trim_blocks: bool = True) -> Environment:
    return _environment(FragmentSet(()), RenderOptions("/", trim_blocks=trim_blocks))


def rendered(source: str, names: dict[str, Any], *, trim_blocks: bool = True) -> str:
    return environment(trim_blocks=trim_blocks).from_string(source).render(names)


def test_the_corpus_is_there() -> None:
    assert len(PLAIN_CASES) + len(KUBE2LB_CASES) >= 90


@pytest.mark.parametrize("trim_blocks", [True, False])
@pytest.mark.parametrize("case", PLAIN_CASES)
def test_a_template_of_plain_data_gives_the_bytes_that_go_gave(case: str, *, trim_blocks: bool) -> None:
    own = DATA / "plain" / f"{case}.json"
    data = json.loads(read(own if own.exists() else DATA / "data.json"))
    translated = translate(read(DATA / "plain" / f"{case}.tpl"), PLAIN, case)
    assert not [remark for remark in translated.remarks if remark.is_problem]
    result = rendered(translated.text, {"data": data}, trim_blocks=trim_blocks)
    assert result == read(DATA / "plain" / f"{case}.expected"), translated.text


def test_go_and_the_preset_see_the_same_cluster() -> None:
    """``cluster.json`` is what Go's templates got, ``cluster.yaml`` what the preset reads."""

    def port(item: Any) -> dict[str, object]:
        return {"IP": item.ip, "Port": item.port, "Mode": item.mode, "Protocol": item.protocol}

    names = kube2lb_names()
    services = [
        {
            "Name": service.name,
            "Namespace": service.namespace,
            "Port": port(service.port),
            "Endpoints": [{"Name": one.name, "IP": one.ip, "Port": one.port} for one in service.endpoints],
            "NodePort": service.node_port,
            "External": list(service.external),
            "Timeout": service.timeout,
        }
        for service in names["services"]
    ]
    seen = {"Domain": names["domain"], "Nodes": names["nodes"], "Ports": [port(item) for item in names["ports"]]}
    assert seen | {"Services": services} == json.loads(read(DATA / "cluster.json"))


@pytest.mark.parametrize("trim_blocks", [True, False])
@pytest.mark.parametrize("case", KUBE2LB_CASES)
def test_a_template_of_kube2lb_gives_the_bytes_that_go_gave(case: str, *, trim_blocks: bool) -> None:
    translated = translate(read(DATA / "kube2lb" / f"{case}.tpl"), KUBE2LB, case)
    assert translated.remarks == ()
    result = rendered(translated.text, kube2lb_names(), trim_blocks=trim_blocks)
    assert result == read(DATA / "kube2lb" / f"{case}.expected"), translated.text


FORMS: list[tuple[str, str | None]] = json.loads(read(DATA / "forms.json"))


def test_no_form_prints_another_text_than_go_or_stops() -> None:
    names, wrong, equal = kube2lb_names(), [], 0
    for text, expected in FORMS:
        if expected is None:
            continue
        try:
            translated = translate(text, KUBE2LB, "form")
        except GoTemplateError as error:
            wrong.append((text, expected, str(error)))
            continue
        if any(remark.is_problem for remark in translated.remarks):
            continue
        try:
            result = rendered(translated.text, names)[:100]
        except InvalidValueError as error:
            result = str(error)
        equal += result == expected
        if result != expected:
            wrong.append((text, expected, result))
    assert wrong == []
    assert equal > 200
