"""Which objects something came of."""

from pyconfd.model.kubernetes import Pod
from pyconfd.model.records import ObjectMeta
from pyconfd.model.snapshot import Key, Resource, Snapshot
from pyconfd.presets.origins import ObjectOrigin, owners_among


def test_what_is_left_out_owns_its_names_a_pod_those_of_its_app() -> None:
    key = Key("prod", "pod-1")
    origins = [ObjectOrigin(Resource.PODS, key), ObjectOrigin(Resource.SERVICES, Key("prod", "web"))]
    labelled = Pod(metadata=ObjectMeta(name="pod-1", namespace="prod", labels={"app": "shop"}))
    assert owners_among(Snapshot(pods={key: labelled}), origins) == {Key("prod", "shop"), Key("prod", "web")}
    assert owners_among(Snapshot(), origins) == {key, Key("prod", "web")}
    assert owners_among(Snapshot(), ()) == frozenset()
