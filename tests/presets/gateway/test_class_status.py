"""What the status of a GatewayClass says."""

from pyconfd.model.gateway_api import GatewayClass, GatewayClassSpec, ObjectReference
from pyconfd.model.records import ObjectMeta
from pyconfd.presets.gateway import features
from pyconfd.presets.gateway.gateways import class_fault, class_status

ACCEPTED = GatewayClass(ObjectMeta("pyconfd", generation=3), GatewayClassSpec("pyconfd.io/gateway"))
WITH_PARAMETERS = GatewayClass(
    ACCEPTED.metadata, GatewayClassSpec("pyconfd.io/gateway", ObjectReference("", "ConfigMap", "x"))
)


def test_a_class_is_accepted_and_names_what_is_supported() -> None:
    status = class_status(ACCEPTED).body
    [condition] = status["conditions"]
    assert (condition["type"], condition["status"], condition["observedGeneration"]) == ("Accepted", "True", 3)
    assert status["supportedFeatures"] == [{"name": name} for name in features.supported()]
    assert class_fault(ACCEPTED) is None


def test_a_class_with_parameters_is_not_accepted() -> None:
    fault = class_fault(WITH_PARAMETERS)
    assert fault is not None
    assert tuple(fault)[:3] == ("InvalidParameters", "spec.parametersRef", "ConfigMap x")
    assert tuple(fault)[3] == "parameters of no kind are supported: remove the field"
    [condition] = class_status(WITH_PARAMETERS).body["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "InvalidParameters")
