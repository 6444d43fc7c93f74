"""Ingresses that were written for ingress-nginx."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pyconfd.presets.policies import nginx
from pyconfd.presets.policies.nginx import read_nginx
from pyconfd.presets.policies.words import WORDS
from tests.presets.policies.stage import PolicyStage, of_ingress, policy_stage


def of_nginx(**words: str) -> str:
    named = {word.replace("_", "-"): text for word, text in words.items()}
    return of_ingress(named, prefix=nginx.PREFIX, class_name="nginx")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[PolicyStage]:
    with policy_stage(tmp_path) as found:
        found.nginx_classes = ("nginx",)
        yield found


def words(**annotations: str) -> dict[str, str]:
    found = read_nginx({f"{nginx.PREFIX}{name.replace('_', '-')}": text for name, text in annotations.items()})
    return dict(found.words)


def test_only_words_that_exist_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert words(whitelist_source_range="192.0.2.0/24") == {"allow-networks": "192.0.2.0/24"}
    monkeypatch.setattr(nginx, "WORDS", {name: word for name, word in WORDS.items() if name != "allow-networks"})
    found = read_nginx({f"{nginx.PREFIX}whitelist-source-range": "192.0.2.0/24"})
    assert (found.words, found.read) == ((), frozenset())


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"proxy_body_size": "8m"}, {"max-body-size": "8m"}),
        ({"proxy_read_timeout": "30", "proxy_send_timeout": "90"}, {"server-timeout": "90s"}),
        ({"proxy_read_timeout": "long"}, {"server-timeout": "longs"}),  # told by the word
        ({"limit_connections": "0"}, {}),
        ({"affinity": "balanced"}, {}),
        ({"enable_cors": "false", "cors_max_age": "5"}, {}),
    ],
)
def test_meanings(annotations: dict[str, str], expected: dict[str, str]) -> None:
    assert words(**annotations) == expected


@pytest.mark.haproxy
def test_it_is_served_as_it_was(stage: PolicyStage) -> None:
    context = stage.serving(of_nginx(whitelist_source_range="198.51.100.0/24", proxy_body_size="1k"))
    assert not context.refused
    assert (stage.request("ingress").status, stage.request("ingress", client="192.0.2.1").status) == (200, 403)
    assert stage.request("ingress", method="POST", body="x" * 1025).status == 413


@pytest.mark.haproxy
def test_what_restricts_and_has_no_word_is_not_served(stage: PolicyStage) -> None:
    context = stage.serving(of_nginx(configuration_snippet="deny all;"))
    assert stage.request("ingress").status == 403
    assert "configuration-snippet" in next(iter(context.refused)).field


@pytest.mark.haproxy
def test_other_classes_are_read_as_before(stage: PolicyStage) -> None:
    text = of_ingress({"whitelist-source-range": "198.51.100.0/24"}, prefix=nginx.PREFIX)
    context = stage.serving(text)
    assert stage.request("ingress").status == 403
    assert [each.reason.value for each in context.refused] == ["unsupported_annotation"]


def test_without_the_setting_the_class_is_not_served(stage: PolicyStage) -> None:
    stage.nginx_classes = ()
    context = stage.context(of_nginx())
    assert not context.names["ingress"]["virtual_hosts"]


@pytest.mark.parametrize(
    ("own", "named"),
    [({}, f"{nginx.PREFIX}whitelist-source-range"), ({"pyconfd.io/allow-networks": "a"}, "pyconfd.io/allow-networks")],
)
def test_a_fault_names_the_annotation_that_says_it(stage: PolicyStage, own: dict[str, str], named: str) -> None:
    document = yaml.safe_load(of_nginx(whitelist_source_range="10.0.0.0/33"))
    document["metadata"]["annotations"] |= own
    (refused,) = stage.context(yaml.safe_dump(document)).refused
    assert refused.field == f"annotation {named}"
