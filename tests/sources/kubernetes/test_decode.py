import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyconfd.errors import TransientError
from pyconfd.model.context import RefusalReason
from pyconfd.model.kubernetes import EndpointSlice, Pod, Service
from pyconfd.model.snapshot import KIND_OF, Key, Resource
from pyconfd.model.versioned import VersionedDict
from pyconfd.sources.kubernetes.cache import Cache
from pyconfd.sources.kubernetes.decode import (
    Bookmark,
    Deleted,
    Unreadable,
    Upserted,
    decode_event,
    decode_list,
    key_of,
    same_content,
)
from pyconfd.sources.kubernetes.failures import BrokenWatchError, Failure
from tests.presets.pods import pod_json

TRANSCRIPTS = Path(__file__).parents[2] / "data" / "kubernetes-transcripts"


def transcript(name: str) -> dict[str, Any]:
    return dict(json.loads((TRANSCRIPTS / f"{name}.json").read_text()))


def body(name: str) -> bytes:
    return json.dumps(transcript(name)["body"]).encode()


def lines(name: str) -> list[bytes]:
    return [json.dumps(event).encode() for event in transcript(name)["stream"]]


def services(*items: object, **metadata: object) -> bytes:
    whole = {"kind": "ServiceList", "metadata": {"resourceVersion": "5", **metadata}, "items": items}
    return json.dumps(whole).encode()


def service(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "demo", "resourceVersion": "4"}, "spec": spec}


# --- what a real API server says --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "resource"),
    [
        ("list-services", Resource.SERVICES),
        ("list-endpoints", Resource.ENDPOINTS),
        ("list-endpointslices", Resource.ENDPOINTSLICES),
        ("list-nodes", Resource.NODES),
        ("list-secret-tls", Resource.SECRETS),
    ],
)
def test_lists_of_a_real_server(name: str, resource: Resource) -> None:
    raw = transcript(name)["body"]
    page = decode_list(resource, body(name))
    assert page.refusals == ()
    assert page.resource_version == raw["metadata"]["resourceVersion"]
    assert page.continue_token == ""
    names = [Key(item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in raw["items"]]
    assert [key_of(item) for item in page.items] == names
    assert names


def test_pages_of_a_real_server() -> None:
    first = decode_list(Resource.ENDPOINTSLICES, body("list-endpointslices-page1"))
    second = decode_list(Resource.ENDPOINTSLICES, body("list-endpointslices-page2"))
    assert first.continue_token == transcript("list-endpointslices-page1")["body"]["metadata"]["continue"]
    assert first.resource_version == second.resource_version == "445"
    whole = {key_of(item) for item in decode_list(Resource.ENDPOINTSLICES, body("list-endpointslices")).items}
    assert {key_of(item) for item in first.items + second.items} <= whole


def test_a_watch_of_a_real_server_ends_in_the_state_of_its_last_events() -> None:
    cache = Cache()
    events = [decode_event(Resource.ENDPOINTSLICES, line) for line in lines("watch-endpointslices")]
    assert {type(event) for event in events} >= {Upserted, Bookmark}
    for event in events:
        cache.apply(event)
    last: dict[Key, dict[str, Any]] = {}
    for event in transcript("watch-endpointslices")["stream"]:
        metadata = event["object"]["metadata"]
        if event["type"] == "DELETED":
            last.pop(Key(metadata["namespace"], metadata["name"]), None)
        elif event["type"] != "BOOKMARK":
            last[Key(metadata["namespace"], metadata["name"])] = event["object"]
    view = cache.view()
    assert set(view) == set(last)
    for key, raw in last.items():
        record = view[key]
        assert isinstance(record, EndpointSlice)
        assert record.address_type == raw["addressType"]
        assert [e.addresses for e in record.endpoints or ()] == [tuple(e["addresses"]) for e in raw["endpoints"] or ()]


def test_serving_and_terminating_endpoints_are_seen_as_such() -> None:
    seen = set()
    for line in lines("watch-endpointslices"):
        event = decode_event(Resource.ENDPOINTSLICES, line)
        if isinstance(event, Upserted) and isinstance(event.record, EndpointSlice):
            for endpoint in event.record.endpoints or ():
                if endpoint.conditions is not None:
                    seen.add((endpoint.conditions.ready, endpoint.conditions.serving, endpoint.conditions.terminating))
    assert (False, True, True) in seen


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("watch-410-too-old", Failure.EXPIRED, "ERROR 410: too old resource version: 5 (514)"),
        ("watch-initial-events-refused", Failure.SERVER_ERROR, "ERROR 500"),
    ],
)
def test_error_events_of_a_real_server(name: str, kind: Failure, words: str) -> None:
    (line,) = lines(name)
    with pytest.raises(BrokenWatchError) as caught:
        decode_event(Resource.ENDPOINTSLICES, line)
    assert caught.value.kind is kind
    assert words in caught.value.problems[0].message


@pytest.mark.parametrize("name", ["error-401-bad-token", "error-403-no-rbac", "error-404", "list-nodes"])
def test_another_kind_is_no_empty_list(name: str) -> None:
    with pytest.raises(TransientError, match="not a whole list of services"):
        decode_list(Resource.SERVICES, body(name))


# --- bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"<html>",
        b'{"kind":"ServiceList"}',
        b'{"kind":"ServiceList","metadata":{"resourceVersion":"1"}}',
        b'{"kind":"ServiceList","metadata":{},"items":[]}',
        b'{"kind":"ServiceList","metadata":{"resourceVersion":"1"},"items":{}}',
        b'{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}',
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_list_is_never_an_empty_one(text: bytes) -> None:
    with pytest.raises(TransientError):
        decode_list(Resource.SERVICES, text)


def test_a_list_cut_off_anywhere_is_an_error() -> None:
    whole = services(service("a"), service("b"))
    for length in range(len(whole)):
        with pytest.raises(TransientError):
            decode_list(Resource.SERVICES, whole[:length])


def test_an_empty_list_is_one() -> None:
    assert decode_list(Resource.SERVICES, services()).items == ()
    nothing = b'{"kind":"ServiceList","metadata":{"resourceVersion":"5"},"items":null}'
    assert decode_list(Resource.SERVICES, nothing).items == ()


def test_one_bad_object_is_refused_by_name_and_the_others_stay() -> None:
    page = decode_list(Resource.SERVICES, services(service("a"), service("bad", ports="x"), service("c")), "east")
    assert [item.metadata.name for item in page.items] == ["a", "c"]
    (refusal,) = page.refusals
    assert str(refusal.ref) == "Service demo/bad (cluster east)"
    assert refusal.reason is RefusalReason.UNREADABLE
    assert "ports" in refusal.detail


def test_one_object_with_bytes_that_are_no_text_is_refused() -> None:
    text = services(service("a"), service("bad", type="MARK")).replace(b"MARK", b"\xff")
    page = decode_list(Resource.SERVICES, text)
    assert [item.metadata.name for item in page.items] == ["a"]
    assert [refusal.ref.name for refusal in page.refusals] == ["bad"]


def test_objects_without_a_name_are_refused() -> None:
    page = decode_list(Resource.SERVICES, services(service("a"), {"metadata": {"name": "b"}}, {"metadata": {}}))
    assert [item.metadata.name for item in page.items] == ["a"]
    assert len(page.refusals) == 2


def test_unused_annotations_are_dropped() -> None:
    noisy = service("a")
    noisy["metadata"]["annotations"] = {  # type: ignore[index]
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z",
    }
    (record,) = decode_list(Resource.SERVICES, services(noisy)).items
    assert record.metadata.annotations is None
    noisy["metadata"]["annotations"]["domain"] = "example.org"  # type: ignore[index]
    (record,) = decode_list(Resource.SERVICES, services(noisy)).items
    assert record.metadata.annotations == {"domain": "example.org"}


def test_events() -> None:
    def event(kind: str, obj: object) -> bytes:
        return json.dumps({"type": kind, "object": obj}).encode()

    upserted = decode_event(Resource.SERVICES, event("ADDED", service("a")))
    assert isinstance(upserted, Upserted)
    assert key_of(upserted.record) == Key("demo", "a")
    assert decode_event(Resource.SERVICES, event("DELETED", service("a", ports=7))) == Deleted(Key("demo", "a"), "4")
    bad = decode_event(Resource.SERVICES, event("MODIFIED", service("a", ports=7)))
    assert isinstance(bad, Unreadable)
    assert (bad.key, bad.resource_version) == (Key("demo", "a"), "4")
    assert decode_event(Resource.SERVICES, event("LATER", {})) == Bookmark("")
    for line in (b"", b"{", b"[]", b'{"type":"ADDED"}', b'{"object":{}}', event("BOOKMARK", {}), event("ERROR", [])):
        with pytest.raises(TransientError, match="not an event"):
            decode_event(Resource.SERVICES, line)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.sampled_from(
    [
        *("metadata", "spec", "status", "name", "namespace", "ports", "subsets", "endpoints", "addresses"),
        *("conditions", "annotations", "labels", "port", "targetPort", "data", "type", "resourceVersion"),
        *("zone", "addressType", "creationTimestamp"),
    ]
)
SHAPED = st.recursive(JSON, lambda inner: st.dictionaries(FIELDS, inner, max_size=5) | st.lists(inner, max_size=3))


@given(st.sampled_from(Resource), st.lists(SHAPED, max_size=4))
def test_whatever_the_items_are_each_is_taken_or_refused(resource: Resource, items: list[Any]) -> None:
    good = {"metadata": {"name": "good", "namespace": "demo"}}
    whole = {"kind": f"{KIND_OF[resource]}List", "metadata": {"resourceVersion": "1"}, "items": [*items, good]}
    page = decode_list(resource, json.dumps(whole).encode())
    assert len(page.items) + len(page.refusals) == len(items) + 1
    assert key_of(page.items[-1]) == Key("demo", "good")


@given(st.sampled_from(Resource), st.binary() | JSON.map(lambda value: json.dumps(value).encode()))
def test_decoding_raises_nothing_else(resource: Resource, data: bytes) -> None:
    for decode in (decode_list, decode_event):
        with contextlib.suppress(TransientError):
            decode(resource, data)


@given(st.sampled_from(Resource), st.sampled_from(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "X"]), SHAPED)
def test_events_of_any_shape(resource: Resource, kind: str, obj: Any) -> None:
    try:
        event = decode_event(resource, json.dumps({"type": kind, "object": obj}).encode())
    except TransientError:
        assert kind in {"BOOKMARK", "ERROR"}
    else:
        Cache().apply(event)


# --- the cache --------------------------------------------------------------------------------------------------------


def record(name: str, version: str = "1", **spec: object) -> Service:
    item = service(name, **spec)
    item["metadata"]["resourceVersion"] = version  # type: ignore[index]
    (made,) = decode_list(Resource.SERVICES, services(item)).items
    assert isinstance(made, Service)
    return made


def test_only_the_resource_version_is_no_change() -> None:
    assert same_content(record("a", "1"), record("a", "2"))
    assert not same_content(record("a", "1"), record("a", "2", type="NodePort"))
    assert not same_content(None, record("a"))
    cache = Cache()
    assert cache.replace([record("a"), record("b")], ())
    before, version = cache.view(), cache.version
    assert not cache.replace([record("b", "7"), record("a", "8")], ())
    assert not cache.apply(Upserted(record("a", "9")))
    assert not cache.apply(Bookmark("10"))
    assert not cache.apply(Deleted(Key("demo", "never seen"), "11"))
    assert cache.view() is before
    assert cache.version == version


def test_a_list_brings_deletions() -> None:
    cache = Cache()
    cache.replace([record("a"), record("b")], ())
    kept = cache.view()
    assert cache.replace([record("b")], ())
    assert list(cache.view()) == [Key("demo", "b")]
    assert len(kept) == 2


def test_a_view_knows_what_came_changed_and_went_since_the_last_one() -> None:
    cache = Cache()
    cache.replace([record("a"), record("b"), record("c")], ())
    first = cache.view()
    for event in (Upserted(record("d")), Upserted(record("b", type="NodePort")), Deleted(Key("demo", "a"), "11")):
        assert cache.apply(event)
    second = cache.view()
    assert isinstance(second, VersionedDict)
    assert set(second.touched_since(first) or ()) == {Key("demo", name) for name in "abd"}
    assert dict(second) == {Key("demo", "b"): record("b", type="NodePort"), **{
        Key("demo", name): record(name) for name in "cd"
    }}  # fmt: skip
    assert cache.apply(Upserted(record("a")))
    assert cache.apply(Deleted(Key("demo", "a"), "12"))
    assert cache.view() == second
    assert len(first) == 3


def test_an_unreadable_object_is_left_out_until_mended() -> None:
    cache = Cache()
    cache.replace([record("a")], ())
    line = json.dumps({"type": "MODIFIED", "object": service("a", ports=1)}).encode()
    assert cache.apply(decode_event(Resource.SERVICES, line))
    assert not cache.apply(decode_event(Resource.SERVICES, line))
    assert (len(cache.view()), len(cache.refusals())) == (0, 1)
    assert cache.apply(Upserted(record("a")))
    assert (len(cache.view()), len(cache.refusals())) == (1, 0)


# --- pods are kept whole ----------------------------------------------------------------------------------------------


def test_pods_of_a_real_server_are_whole_but_for_their_managed_fields() -> None:
    page = decode_list(Resource.PODS, body("list-pods"))
    assert page.refusals == ()
    assert page.items
    for record in page.items:
        assert isinstance(record, Pod)
        assert record.whole is not None
        whole = record.whole.made(msgspec.json.decode)
        assert "managedFields" not in whole["metadata"]
        assert whole["kind"] == "Pod"
        assert whole["spec"]["containers"]
        assert whole["status"]["podIP"] == record.status.pod_ip
        assert record.whole.made(msgspec.json.decode) is whole, "decoded once"
        assert "spec" not in repr(record.whole)


def test_one_bad_pod_never_stops_the_others() -> None:
    bad = [{"metadata": {"name": "b", "namespace": "demo"}, "spec": 5}, {"metadata": []}, 7]
    listed = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": [pod_json("a", "10.0.0.1"), *bad]}
    page = decode_list(Resource.PODS, json.dumps(listed).encode())
    assert [item.metadata.name for item in page.items] == ["a"]
    assert len(page.refusals) == 3
    event = decode_event(Resource.PODS, json.dumps({"type": "ADDED", "object": bad[0]}).encode())
    assert isinstance(event, Unreadable)


def test_a_change_of_what_only_templates_see_counts() -> None:
    def event(**spec: Any) -> Upserted:
        line = json.dumps({"type": "MODIFIED", "object": pod_json("a", "10.0.0.1", **spec)}).encode()
        made = decode_event(Resource.PODS, line)
        assert isinstance(made, Upserted)
        return made

    cache = Cache()
    assert cache.apply(event())
    assert not cache.apply(event())
    assert cache.apply(event(hostname="x"))
